//! Who has read how far.

use std::time::{Duration, Instant};

/// A token is good for this long after its last use.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Readers by token. There are few, so they stand in a list, oldest first.
#[derive(Debug)]
pub struct Readers<R> {
    most: usize,
    readers: Vec<Entry<R>>,
}

#[derive(Debug)]
struct Entry<R> {
    token: String,
    used: Instant,
    reader: R,
}

impl<R> Readers<R> {
    /// None yet, and never more than `most`.
    pub fn new(most: usize) -> Readers<R> {
        Readers { most, readers: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.readers.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

    /// Adds a reader. The oldest ones give way, used or not.
    pub fn add(&mut self, token: String, reader: R, now: Instant) {
        self.expire(now);
        self.readers.push(Entry { token, used: now, reader });
        let excess = self.readers.len().saturating_sub(self.most);
        self.readers.drain(..excess);
    }

    /// The reader of a token, whose lifetime begins anew; none if the token is unknown or has expired.
    pub fn get(&mut self, token: &str, now: Instant) -> Option<&mut R> {
        self.expire(now);
        let entry = self.readers.iter_mut().find(|entry| entry.token == token)?;
        entry.used = now;
        Some(&mut entry.reader)
    }

    /// Forgets readers whose token has expired.
    pub fn expire(&mut self, now: Instant) {
        self.readers.retain(|entry| now.saturating_duration_since(entry.used) <= TOKEN_LIFETIME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_reader_gives_way() {
        let now = Instant::now();
        let mut readers = Readers::new(4);
        for number in 1..=5 {
            readers.add(number.to_string(), number, now);
        }
        assert_eq!(readers.get("1", now), None);
        assert_eq!(readers.get("2", now), Some(&mut 2));
        // 2 was used last and is still the oldest.
        readers.add("6".to_owned(), 6, now);
        assert_eq!(readers.get("2", now), None);
        assert_eq!(readers.len(), 4);
    }

    #[test]
    fn nine_readers_leave_four() {
        let now = Instant::now();
        let mut readers = Readers::new(4);
        for number in 1..=9 {
            readers.add(number.to_string(), number, now);
        }
        let known: Vec<u32> =
            (1..=9).filter(|number: &u32| readers.get(&number.to_string(), now).is_some()).collect();
        assert_eq!(known, [6, 7, 8, 9]);
    }

    #[test]
    fn a_token_lives_ten_minutes_after_its_last_use() {
        let start = Instant::now();
        let mut readers = Readers::new(4);
        readers.add("a".to_owned(), 'a', start);
        readers.add("b".to_owned(), 'b', start);
        let later = start + TOKEN_LIFETIME;
        assert_eq!(readers.get("a", later), Some(&mut 'a'));
        let after = later + Duration::from_millis(1);
        assert_eq!(readers.get("b", after), None);
        assert_eq!(readers.get("a", later + TOKEN_LIFETIME), Some(&mut 'a'));
        readers.expire(later + TOKEN_LIFETIME + TOKEN_LIFETIME + Duration::from_millis(1));
        assert!(readers.is_empty());
    }

    #[test]
    fn a_limit_of_none_keeps_none() {
        let now = Instant::now();
        let mut readers = Readers::new(0);
        readers.add("a".to_owned(), 'a', now);
        assert!(readers.is_empty());
    }
}
