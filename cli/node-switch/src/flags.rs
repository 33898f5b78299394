//! Flags of a command line as they stand in files: found and changed in place.
//!
//! The same scanner serves unit files, environment files and kubeadm's flags: it looks at the text as written, with
//! its quotes, comments and continued lines, so that nothing but a flag's value changes.

use std::ops::Range;

/// Splits a command line at white space; quotes and backslashes are taken as systemd and shells take them.
pub fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some('\''), other) => word.get_or_insert_default().push(other),
            (_, '\\') => match characters.next() {
                Some('\n') | None => {}
                Some(next) => word.get_or_insert_default().push(next),
            },
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, space) if space.is_whitespace() => words.extend(word.take()),
            (_, other) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// The value of the last `--name VALUE` or `--name=VALUE`, which is the one in force; a name without a value is
/// empty.
pub fn value<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    let mut found = None;
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        let Some(flag) = word.strip_prefix("--") else { continue };
        if flag == name {
            found = Some(match rest.peek() {
                Some(value) if !value.starts_with("--") => value.as_str(),
                _ => "",
            });
        } else if let Some(value) = flag.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            found = Some(value);
        }
    }
    found
}

/// Where the values of `--name` stand in a text as written, first to last.
pub fn spans(text: &str, name: &str) -> Vec<Range<usize>> {
    let flag = format!("--{name}");
    let mut found = Vec::new();
    for (start, _) in text.match_indices(&flag) {
        let before = text.get(..start).and_then(|before| before.chars().next_back());
        let begins = before.is_none_or(|c| c.is_whitespace() || matches!(c, '"' | '\'' | '='));
        let line = text.get(..start).and_then(|before| before.rsplit('\n').next()).unwrap_or_default();
        if !begins || line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let after = start + flag.len();
        let Some(rest) = text.get(after..) else { continue };
        let separated = rest
            .find(|c: char| !(c.is_whitespace() || c == '\\'))
            .filter(|gap| *gap > 0)
            .or_else(|| rest.starts_with('=').then_some(1));
        let Some(gap) = separated else { continue };
        let Some(value) = rest.get(gap..) else { continue };
        let quoted = value.find(|c| !matches!(c, '"' | '\'' | '\\')).unwrap_or(value.len());
        let Some(value) = value.get(quoted..) else { continue };
        let length =
            value.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\')).unwrap_or(value.len());
        let begin = after + gap + quoted;
        // `--name "" ...` and `--name --other` have no value to change.
        if length > 0 && !value.starts_with("--") {
            found.push(begin..begin + length);
        }
    }
    found
}

/// `text` with the values at `spans` (in order) replaced.
pub fn replaced(text: &str, spans: &[Range<usize>], value: &str) -> String {
    let mut result = String::with_capacity(text.len() + value.len());
    let mut done = 0;
    for span in spans {
        result.push_str(text.get(done..span.start).unwrap_or_default());
        result.push_str(value);
        done = span.end;
    }
    result.push_str(text.get(done..).unwrap_or_default());
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: &str = "container-runtime-endpoint";

    fn changed(text: &str) -> String {
        replaced(text, &spans(text, NAME), "NEW")
    }

    #[test]
    fn words_are_split_as_by_systemd() {
        for (text, expected) in [
            ("a  b\tc", vec!["a", "b", "c"]),
            ("--x='a b' \"c d\"", vec!["--x=a b", "c d"]),
            ("a \\\n  b", vec!["a", "b"]),
            ("a\\ b ''", vec!["a b", ""]),
            ("'a\\b' \"a\\\"b\"", vec!["a\\b", "a\"b"]),
            ("", vec![]),
        ] {
            assert_eq!(words(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_last_value_is_in_force() {
        for (text, expected) in [
            ("--container-runtime-endpoint=a --container-runtime-endpoint b", Some("b")),
            ("--container-runtime-endpoint b --container-runtime-endpoint=a", Some("a")),
            ("--container-runtime-endpoints=a", None),
            ("--container-runtime=remote", None),
            ("--container-runtime-endpoint --v 2", Some("")),
            ("--container-runtime-endpoint=", Some("")),
        ] {
            assert_eq!(value(&words(text), NAME), expected, "{text:?}");
        }
    }

    #[test]
    fn values_are_changed_where_they_stand() {
        for (text, expected) in [
            (
                "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/a.sock --v=2\"\n",
                "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=NEW --v=2\"\n",
            ),
            (
                "ExecStart=/k --a \\\n  --container-runtime-endpoint /run/a.sock \\\n  --v 2\n",
                "ExecStart=/k --a \\\n  --container-runtime-endpoint NEW \\\n  --v 2\n",
            ),
            ("--container-runtime-endpoint \\\n /a --v", "--container-runtime-endpoint \\\n NEW --v"),
            ("'--container-runtime-endpoint=/a'", "'--container-runtime-endpoint=NEW'"),
            ("--container-runtime-endpoint=\"/a\" x", "--container-runtime-endpoint=\"NEW\" x"),
            ("--container-runtime-endpoint=/a", "--container-runtime-endpoint=NEW"),
            ("A=--container-runtime-endpoint=/a", "A=--container-runtime-endpoint=NEW"),
            // Not a value of this flag.
            ("# --container-runtime-endpoint=/a", "# --container-runtime-endpoint=/a"),
            ("x--container-runtime-endpoint=/a", "x--container-runtime-endpoint=/a"),
            ("--container-runtime-endpoints=/a", "--container-runtime-endpoints=/a"),
            ("--container-runtime-endpoint --v", "--container-runtime-endpoint --v"),
            ("--container-runtime-endpoint", "--container-runtime-endpoint"),
            ("--container-runtime-endpoint=", "--container-runtime-endpoint="),
        ] {
            assert_eq!(changed(text), expected, "{text:?}");
        }
        let twice = "--container-runtime-endpoint=/a --container-runtime-endpoint /b";
        assert_eq!(changed(twice), "--container-runtime-endpoint=NEW --container-runtime-endpoint NEW");
    }

    proptest! {
        #[test]
        fn changing_there_and_back_changes_nothing(
            before in "[ -~\n]{0,40}", after in "[ -~\n]{0,40}", path in "/[a-z]{1,8}/[a-z.]{1,8}"
        ) {
            let text = format!("{before} --{NAME}={path} {after}");
            let found = spans(&text, NAME);
            let values: Vec<&str> = found.iter().filter_map(|span| text.get(span.clone())).collect();
            // Random text has no second flag of this name.
            if values == [path.as_str()] {
                let there = replaced(&text, &found, "/run/new.sock");
                prop_assert_eq!(replaced(&there, &spans(&there, NAME), &path), text);
            } else {
                // Only a comment hides it.
                prop_assert!(before.contains(['#', ';']), "{:?} in {:?}", values, text);
            }
        }

        #[test]
        fn any_text_is_looked_at(text in "\\PC{0,80}") {
            let words = words(&text);
            let _value = value(&words, "v");
            for span in spans(&text, "v") {
                prop_assert!(text.get(span).is_some());
            }
        }
    }
}
