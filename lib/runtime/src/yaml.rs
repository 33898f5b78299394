//! YAML and JSON texts that people write: policies, manifests.
//!
//! Read are YAML 1.2 values with the core schema, so `yes`, `on` and `0-3` are texts and only `true` and `false`
//! are booleans. JSON is YAML. A key twice in one mapping is an error, not a choice between the two values.
//! The work a text can cause is bounded, however its aliases are nested.

use serde_json::Value;
use serde_saphyr::{Error, budget, options};

/// The largest text, in bytes. A NodeSLO with every field set has about 10 KiB, a ConfigMap at most 1 MiB.
pub const LARGEST_TEXT: usize = 4 * 1024 * 1024;

/// Most scalars, sequences and mappings of a text after its aliases are replaced.
const MOST_NODES: usize = 50_000;

/// Most nested sequences and mappings.
const DEEPEST_NESTING: usize = 64;

/// Most documents of a text.
const MOST_DOCUMENTS: usize = 256;

/// Why a text is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// The text is larger than [`LARGEST_TEXT`].
    #[error("{0} bytes are too many; accepted: up to {LARGEST_TEXT}")]
    TooLarge(usize),
    /// The text is not YAML, has a key twice, or asks for too much work.
    #[error("line {line}, column {column}: {message}")]
    Malformed {
        /// Line of the mistake, from 1; 0 if it is not in one place.
        line: u64,
        /// Column of the mistake in characters, from 1; 0 if it is not in one place.
        column: u64,
        /// What is wrong there.
        message: String,
    },
    /// There is more than one document where one is expected.
    #[error("{0} documents; expected one")]
    SeveralDocuments(usize),
}

/// The documents of `text`, without empty ones.
///
/// # Errors
/// See [`YamlError`]; nothing of a text is taken if some of it is wrong.
pub fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    if text.len() > LARGEST_TEXT {
        return Err(YamlError::TooLarge(text.len()));
    }
    let options = options! {
        strict_booleans: true,
        budget: budget! {
            max_nodes: MOST_NODES,
            max_events: 4 * MOST_NODES,
            max_depth: DEEPEST_NESTING,
            max_documents: MOST_DOCUMENTS,
        },
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).map_err(malformed)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The one document of `text`; `null` if it has none.
///
/// # Errors
/// As [`documents`], and more than one document.
pub fn document(text: &str) -> Result<Value, YamlError> {
    let mut documents = documents(text)?;
    match documents.len() {
        0 | 1 => Ok(documents.pop().unwrap_or_default()),
        several => Err(YamlError::SeveralDocuments(several)),
    }
}

fn malformed(error: Error) -> YamlError {
    let (line, column) = error.location().map_or((0, 0), |location| (location.line(), location.column()));
    let text = error.without_snippet().to_string();
    let message = match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("key {key:?} appears more than once"),
        Error::DuplicateMappingKey { .. } => "a key appears more than once".to_owned(),
        // The library wraps this error once for each alias, and has only the text in common.
        _ if text.contains("budget breached") => {
            "the text has too many or too deeply nested values".to_owned()
        }
        // The library's text ends with the place.
        _ => {
            let first = text.lines().next().unwrap_or_default();
            first.split_once(" at line ").map_or(first, |(message, _place)| message).to_owned()
        }
    };
    YamlError::Malformed { line, column, message }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_those_of_the_core_schema() {
        let text = "a: 1\nb: 0-3\nc: \"1\"\nd: yes\ne: true\nf: null\ng:\nh: -1\ni: 10m\nj: [1, x]\nk: off\n";
        assert_eq!(
            document(text),
            Ok(json!({
                "a": 1, "b": "0-3", "c": "1", "d": "yes", "e": true, "f": null, "g": null, "h": -1, "i": "10m",
                "j": [1, "x"], "k": "off",
            }))
        );
    }

    #[test]
    fn json_is_read() {
        let text = "{\n\t\"a\": {\"b\": [1, 2.5, \"x\\n\", null, true]},\n\t\"c\": {}\n}\n";
        assert_eq!(document(text), Ok(json!({"a": {"b": [1, 2.5, "x\n", null, true]}, "c": {}})));
    }

    #[test]
    fn empty_documents_are_left_out() {
        assert_eq!(documents(""), Ok(vec![]));
        assert_eq!(documents("# nothing\n---\n---\na: 1\n---\n# end\n"), Ok(vec![json!({"a": 1})]));
        assert_eq!(document("---\n"), Ok(Value::Null));
        assert_eq!(documents("a: 1\n---\nb: 2\n"), Ok(vec![json!({"a": 1}), json!({"b": 2})]));
        assert_eq!(document("a: 1\n---\nb: 2\n"), Err(YamlError::SeveralDocuments(2)));
    }

    #[test]
    fn anchors_and_merged_keys_are_followed() {
        let text = "a: &a {x: 1}\nb: *a\nc:\n  <<: *a\n  y: 2\n";
        assert_eq!(document(text), Ok(json!({"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}})));
    }

    #[test]
    fn a_key_twice_is_an_error() {
        let expected = "line 3, column 3: key \"b\" appears more than once";
        assert_eq!(document("a:\n  b: 1\n  b: 2\n").unwrap_err().to_string(), expected);
        let expected = "line 1, column 10: key \"a\" appears more than once";
        assert_eq!(document("{\"a\": 1, \"a\": 2}").unwrap_err().to_string(), expected);
    }

    #[test]
    fn mistakes_say_where() {
        let text = document("a: 1\nb: {c: 1\n").unwrap_err().to_string();
        assert_eq!(text, "line 2, column 4: unclosed bracket '{'");
    }

    #[test]
    fn work_is_bounded() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        let message = document(&bomb).unwrap_err().to_string();
        assert!(message.ends_with(": the text has too many or too deeply nested values"), "{message}");
        assert!(document(&"[".repeat(100_000)).is_err());
        assert!(document(&"- ".repeat(100_000)).is_err());
        assert!(documents(&"---\na\n".repeat(MOST_DOCUMENTS + 1)).is_err());
        let large = "#".repeat(LARGEST_TEXT + 1);
        assert_eq!(document(&large), Err(YamlError::TooLarge(LARGEST_TEXT + 1)));
        assert_eq!(document(&large[1..]), Ok(Value::Null));
    }

    proptest! {
        #[test]
        fn any_text_gives_an_answer(text in "[\\[\\]{}:,&*<>|#!a1\"' \n-]{0,64}") {
            let _either = documents(&text);
        }

        #[test]
        fn json_of_any_map_is_read_as_it_is(map in proptest::collection::btree_map("[ -~]{0,8}", "[ -~\n\t]{0,12}", 0..6)) {
            prop_assert_eq!(document(&json!(map).to_string()), Ok(json!(map)));
        }
    }
}
