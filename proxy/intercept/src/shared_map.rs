//! Maps of texts that several records share.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A map of texts whose clones share their entries until one of them changes.
///
/// Records are copied several times in a call, and hardly ever does a copy change its maps.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SharedMap(Arc<BTreeMap<String, String>>);

impl SharedMap {
    /// Removes all entries from this map, not from those it shares them with.
    pub fn clear(&mut self) {
        if !self.0.is_empty() {
            self.0 = Arc::default();
        }
    }

    /// Adds entries, in place of those with the same keys. Without any, nothing is copied.
    pub fn extend(&mut self, entries: impl IntoIterator<Item = (String, String)>) {
        let mut entries = entries.into_iter().peekable();
        if entries.peek().is_some() {
            Arc::make_mut(&mut self.0).extend(entries);
        }
    }
}

impl Deref for SharedMap {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Changing a map that is shared copies it first.
impl DerefMut for SharedMap {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(&mut self.0)
    }
}

impl fmt::Debug for SharedMap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl From<BTreeMap<String, String>> for SharedMap {
    fn from(map: BTreeMap<String, String>) -> Self {
        Self(Arc::new(map))
    }
}

impl<const N: usize> From<[(String, String); N]> for SharedMap {
    fn from(entries: [(String, String); N]) -> Self {
        BTreeMap::from(entries).into()
    }
}

impl FromIterator<(String, String)> for SharedMap {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(entries: T) -> Self {
        BTreeMap::from_iter(entries).into()
    }
}

impl<'a> IntoIterator for &'a SharedMap {
    type Item = (&'a String, &'a String);
    type IntoIter = btree_map::Iter<'a, String, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(keys: &[&str]) -> SharedMap {
        keys.iter().map(|key| ((*key).to_owned(), "v".to_owned())).collect()
    }

    #[test]
    fn a_change_of_one_copy_is_not_seen_in_the_other() {
        let original = map(&["a"]);
        let mut copy = original.clone();
        assert!(Arc::ptr_eq(&original.0, &copy.0));
        copy.insert("b".into(), "v".into());
        assert_eq!((original, copy.clone()), (map(&["a"]), map(&["a", "b"])));
        let mut cleared = copy.clone();
        cleared.clear();
        assert_eq!((cleared.len(), copy.len()), (0, 2));
    }

    #[test]
    fn adding_nothing_copies_nothing() {
        let original = map(&["a"]);
        let mut copy = original.clone();
        copy.extend(BTreeMap::new());
        assert!(Arc::ptr_eq(&original.0, &copy.0));
        copy.extend(BTreeMap::from([("a".to_owned(), "w".to_owned())]));
        assert_eq!((&*original["a"], &*copy["a"]), ("v", "w"));
    }
}
