//! Breaking texts into lines.

/// Number of columns a text takes. Characters of double width, which names on a node do not have, count as one.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// Lines of at most `limit` characters, broken at spaces; a longer word is broken where it must be. A text without
/// words gives one empty line.
pub fn lines(text: &str, limit: usize) -> Vec<String> {
    let limit = limit.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut rest = word;
        if !line.is_empty() && width(&line) + 1 + width(rest) <= limit {
            line.push(' ');
            line.push_str(rest);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        while width(rest) > limit {
            let (head, tail) = split_at_character(rest, limit);
            lines.push(head.to_owned());
            rest = tail;
        }
        line.push_str(rest);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

fn split_at_character(text: &str, count: usize) -> (&str, &str) {
    text.char_indices().nth(count).map_or((text, ""), |(index, _)| text.split_at(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_at_spaces_and_within_long_words() {
        assert_eq!(lines("", 5), [""]);
        assert_eq!(lines("one two three", 7), ["one two", "three"]);
        assert_eq!(lines("one two three", 6), ["one", "two", "three"]);
        assert_eq!(lines("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(lines("éééé é", 4), ["éééé", "é"]);
        assert_eq!(lines("ab", 0), ["a", "b"]);
        assert_eq!(lines("abcd", 4), ["abcd"]);
    }
}
