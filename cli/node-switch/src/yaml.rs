//! Keys of a mapping in YAML and JSON texts: read, and changed in place, with comments and order kept.
//!
//! Reading takes the whole language; see [`koord_runtime::yaml`]. Changing covers plain `key: scalar` lines of a block
//! mapping, and flow mappings (which JSON is); whatever else a text may hold is refused, never guessed. Every change
//! is read again and must have changed that one value.

use serde_json::Value;

/// Why a text is not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text is not one YAML mapping.
    #[error("not one YAML mapping: {0}")]
    NotAMapping(String),
    /// The key is written in a way that is not changed in place.
    #[error(
        "the key {0} is written in a form that cannot be changed in place; write it as `{0}: value` on one line"
    )]
    Form(String),
}

/// The text's mapping; an empty text is an empty one.
///
/// # Errors
/// It is something else.
pub fn mapping(text: &str) -> Result<serde_json::Map<String, Value>, EditError> {
    match koord_runtime::yaml::document(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(Value::Null) => Ok(serde_json::Map::new()),
        Ok(_) => Err(EditError::NotAMapping("its top is no mapping".to_owned())),
        Err(error) => match koord_runtime::yaml::documents(text) {
            Ok(documents) if documents.is_empty() => Ok(serde_json::Map::new()),
            _ => Err(EditError::NotAMapping(error.to_string())),
        },
    }
}

/// The text of a key at the top; an absent, empty or null one is none.
///
/// # Errors
/// The text is not one mapping.
pub fn text_of(text: &str, key: &str) -> Result<Option<String>, EditError> {
    Ok(match mapping(text)?.remove(key) {
        Some(Value::String(value)) if !value.is_empty() => Some(value),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    })
}

/// `text` with `key` at the top set to a text, which must need no quotes in YAML.
///
/// # Errors
/// The text is not one mapping, or the key is not written on one line.
pub fn with_text(text: &str, key: &str, value: &str) -> Result<String, EditError> {
    let mut expected = mapping(text)?;
    expected.insert(key.to_owned(), Value::String(value.to_owned()));
    let form = || EditError::Form(key.to_owned());
    let changed = if first_character(text) == Some('{') {
        in_flow(text, key, value).ok_or_else(form)?
    } else {
        in_block(text, key, value).ok_or_else(form)?
    };
    if mapping(&changed) == Ok(expected) { Ok(changed) } else { Err(form()) }
}

fn first_character(text: &str) -> Option<char> {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("---"))
        .and_then(|line| line.chars().next())
}

fn in_block(text: &str, key: &str, value: &str) -> Option<String> {
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let found = ["", "\"", "'"].iter().find_map(|quote| {
            let rest = line.strip_prefix(quote)?.strip_prefix(key)?.strip_prefix(quote)?;
            let rest = rest.trim_start_matches([' ', '\t']).strip_prefix(':')?;
            (rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])).then_some(rest)
        });
        if let Some(rest) = found {
            let begin = offset + line.len() - rest.len();
            let content = rest.trim_start_matches([' ', '\t']);
            let gap = rest.len() - content.len();
            let length = scalar_length(content)?;
            let (start, end) = (begin + gap, begin + gap + length);
            let space = if gap == 0 { " " } else { "" };
            return Some(format!("{}{space}{value}{}", text.get(..start)?, text.get(end..)?));
        }
        offset += line.len();
    }
    // Added at the end, before what ends the document.
    let body = text.trim_end_matches(['\n', '\r', ' ']);
    let (body, tail) = match body.strip_suffix("\n...") {
        Some(before) => (before, text.get(before.len() + 1..)?),
        None => (text, ""),
    };
    let line_end = if body.is_empty() || body.ends_with('\n') { "" } else { "\n" };
    Some(format!("{body}{line_end}{key}: {value}\n{tail}"))
}

/// Bytes of a scalar on one line, without the comment behind it.
fn scalar_length(content: &str) -> Option<usize> {
    let line = content.split(['\n', '\r']).next()?;
    match line.chars().next() {
        None | Some('#') => Some(0),
        Some(quote @ ('"' | '\'')) => {
            let end = line.get(1..)?.find(quote)? + 2;
            // An escaped quote would show here.
            let rest = line.get(end..)?.trim_start();
            (rest.is_empty() || rest.starts_with('#')).then_some(end)
        }
        Some('|' | '>' | '&' | '*' | '!' | '{' | '[') => None,
        Some(_) => {
            let plain = line.find(" #").or_else(|| line.find("\t#")).unwrap_or(line.len());
            Some(line.get(..plain)?.trim_end().len())
        }
    }
}

fn in_flow(text: &str, key: &str, value: &str) -> Option<String> {
    let quoted = serde_json::to_string(value).ok()?;
    let (mut depth, mut in_string, mut escaped) = (0_usize, None::<usize>, false);
    let mut first_open = None;
    for (offset, character) in text.char_indices() {
        if let Some(start) = in_string {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => {
                    in_string = None;
                    let rest = text.get(offset + 1..)?;
                    let after = rest.trim_start();
                    if depth == 1 && text.get(start + 1..offset)? == key && after.starts_with(':') {
                        let value_text = after.get(1..)?.trim_start();
                        let begin = text.len() - value_text.len();
                        let end = begin + json_scalar_length(value_text)?;
                        return Some(format!("{}{quoted}{}", text.get(..begin)?, text.get(end..)?));
                    }
                }
                _ => {}
            }
            continue;
        }
        match character {
            '"' => in_string = Some(offset),
            '{' | '[' => {
                depth += 1;
                first_open.get_or_insert(offset);
            }
            '}' | ']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    // Added as the first key.
    let after = first_open? + 1;
    let rest = text.get(after..)?;
    let gap_length = rest.len() - rest.trim_start().len();
    let gap = rest.get(..gap_length)?;
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    let name = serde_json::to_string(key).ok()?;
    Some(format!("{}{gap}{name}: {quoted}{comma}{rest}", text.get(..after)?))
}

fn json_scalar_length(text: &str) -> Option<usize> {
    if let Some(rest) = text.strip_prefix('"') {
        let mut escaped = false;
        for (offset, character) in rest.char_indices() {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return Some(offset + 2),
                _ => {}
            }
        }
        return None;
    }
    if text.starts_with(['{', '[']) {
        return None;
    }
    text.find([',', '}', '\n', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "containerRuntimeEndpoint";

    #[test]
    fn one_value_changes_and_nothing_else() {
        for (text, expected) in [
            ("containerRuntimeEndpoint: unix:///a\n", "containerRuntimeEndpoint: /new\n"),
            (
                "# head\na: 1 # one\ncontainerRuntimeEndpoint: \"unix:///a\" # why\nb:\n  - x\n",
                "# head\na: 1 # one\ncontainerRuntimeEndpoint: /new # why\nb:\n  - x\n",
            ),
            ("containerRuntimeEndpoint: ''\r\na: 1\r\n", "containerRuntimeEndpoint: /new\r\na: 1\r\n"),
            ("containerRuntimeEndpoint:\na: 1\n", "containerRuntimeEndpoint: /new\na: 1\n"),
            ("\"containerRuntimeEndpoint\": /a", "\"containerRuntimeEndpoint\": /new"),
            // Deeper ones are others.
            (
                "x:\n  containerRuntimeEndpoint: /a\n",
                "x:\n  containerRuntimeEndpoint: /a\ncontainerRuntimeEndpoint: /new\n",
            ),
            ("a: 1", "a: 1\ncontainerRuntimeEndpoint: /new\n"),
            ("", "containerRuntimeEndpoint: /new\n"),
            ("---\na: 1\n...\n", "---\na: 1\ncontainerRuntimeEndpoint: /new\n...\n"),
            ("{\"a\": 1}", "{\"containerRuntimeEndpoint\": \"/new\",\"a\": 1}"),
            ("{}", "{\"containerRuntimeEndpoint\": \"/new\"}"),
            (
                "{\n  \"a\": {\"containerRuntimeEndpoint\": \"/b\"},\n  \"containerRuntimeEndpoint\": \"/a\"\n}\n",
                "{\n  \"a\": {\"containerRuntimeEndpoint\": \"/b\"},\n  \"containerRuntimeEndpoint\": \"/new\"\n}\n",
            ),
            ("{\n  \"a\": 1\n}\n", "{\n  \"containerRuntimeEndpoint\": \"/new\",\n  \"a\": 1\n}\n"),
        ] {
            assert_eq!(with_text(text, KEY, "/new").as_deref(), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "containerRuntimeEndpoint: |\n  /a\n",
            "containerRuntimeEndpoint:\n  /a\n",
            "containerRuntimeEndpoint: &x /a\n",
            "? containerRuntimeEndpoint\n: /a\n",
        ] {
            assert_eq!(with_text(text, KEY, "/new"), Err(EditError::Form(KEY.to_owned())), "{text:?}");
        }
        for text in ["- a\n", "a: 1\na: 2\n", "a: [\n", "a: 1\n---\nb: 2\n"] {
            assert!(matches!(with_text(text, KEY, "/new"), Err(EditError::NotAMapping(_))), "{text:?}");
        }
    }

    #[test]
    fn values_are_read() {
        assert_eq!(text_of("a: b\n", "a"), Ok(Some("b".to_owned())));
        assert_eq!(text_of("a: 10248\n", "a"), Ok(Some("10248".to_owned())));
        for none in ["", "# x\n", "a: ''\n", "a:\n", "b: 1\n"] {
            assert_eq!(text_of(none, "a"), Ok(None), "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn any_mapping_keeps_its_other_values(
            keys in proptest::collection::btree_map("[a-z]{1,6}", "[a-z0-9/.]{0,10}", 0..6),
            place in 0_usize..6, json in any::<bool>(), old in proptest::option::of("/[a-z]{1,8}")
        ) {
            let mut lines: Vec<(String, String)> = keys.into_iter().collect();
            if let Some(old) = old {
                lines.insert(place.min(lines.len()), (KEY.to_owned(), old));
            }
            let text = if json {
                let all: Vec<String> = lines.iter().map(|(k, v)| format!("  {k:?}: {v:?}")).collect();
                format!("{{\n{}\n}}\n", all.join(",\n"))
            } else {
                lines.iter().map(|(k, v)| format!("{k}: {v:?} # note\n")).collect()
            };
            let changed = with_text(&text, KEY, "/run/x.sock").unwrap();
            let mut expected = mapping(&text).unwrap();
            expected.insert(KEY.to_owned(), Value::String("/run/x.sock".to_owned()));
            prop_assert_eq!(mapping(&changed).unwrap(), expected);
            let same = text.lines().filter(|line| !line.contains(KEY)).all(|line| changed.contains(line));
            prop_assert!(same);
        }

        #[test]
        fn any_text_is_looked_at(text in "\\PC{0,60}") {
            let _outcome = with_text(&text, KEY, "/new");
        }
    }
}
