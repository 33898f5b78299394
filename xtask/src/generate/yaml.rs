//! Writes JSON values as YAML: block style, keys in order of text, strings quoted where YAML would read
//! them as something else. The same value is always the same text.

use std::fmt::Write;

use serde_json::Value;

/// The text of a value, with a line end at its end.
pub(super) fn text(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value, if value.is_array() { 2 } else { 0 });
    // The first line is no continuation of a key.
    format!("{}\n", text.trim_start_matches(['\n', ' ']))
}

/// What follows a key or a dash: on the same line for plain values, on the next lines for others. The fields
/// of an object stand `indent` spaces in, the dashes of a list two fewer.
fn write_value(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            for key in keys {
                new_line(text, indent);
                text.push_str(&scalar(key));
                text.push(':');
                write_value(text, &fields[key], indent + 2);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                new_line(text, indent.saturating_sub(2));
                text.push('-');
                let mut inner = String::new();
                write_value(&mut inner, item, if item.is_array() { indent + 2 } else { indent });
                // The first field of an item stands on the line of its dash.
                text.push(' ');
                text.push_str(inner.trim_start_matches(['\n', ' ']));
            }
        }
        Value::Object(_) => text.push_str(" {}"),
        Value::Array(_) => text.push_str(" []"),
        Value::String(string) => {
            text.push(' ');
            text.push_str(&scalar(string));
        }
        // Numbers, booleans and null are written alike in both languages; a string never fails to format.
        other => drop(write!(text, " {other}")),
    }
}

fn new_line(text: &mut String, indent: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n(' ', indent));
}

/// A string without quotes where that is safe in every version of YAML, else quoted as in JSON.
fn scalar(string: &str) -> String {
    const WORDS: [&str; 11] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf"];
    let begins_well = string.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '/');
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || " ./_-(),;$".contains(letter);
    let is_safe = begins_well
        && !string.ends_with(' ')
        && string.chars().all(is_plain)
        && !WORDS.contains(&string.to_ascii_lowercase().as_str());
    // A string is always representable in JSON, and JSON's strings are YAML's.
    if is_safe { string.to_owned() } else { Value::String(string.to_owned()).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_written_in_block_style() {
        let value = json!({
            "spec": {
                "versions": [{"name": "v1", "served": true, "list": [[1, 2], []], "empty": {}}, "text"],
                "names": ["a", "b"],
            },
            "$ref": null,
            "kind": "A",
        });
        let wanted = "\
\"$ref\": null
kind: A
spec:
  names:
  - a
  - b
  versions:
  - empty: {}
    list:
    - - 1
      - 2
    - []
    name: v1
    served: true
  - text
";
        assert_eq!(text(&value), wanted);
    }

    #[test]
    fn strings_stay_strings() {
        let strings = [
            "",
            " a",
            "a ",
            "a: b",
            "a #b",
            "True",
            "no",
            "Null",
            "1",
            "1e3",
            "0x1",
            "-",
            "- a",
            "~",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a`",
            "a\nb",
            "a\"b",
            "a'b",
            "{a}",
            "[a]",
            "a, b",
            "\u{e9}",
            "2026-07-24",
            ".5",
            "x-kubernetes-int-or-string",
            "^(\\+|-)?$",
            "a.b/c",
            "usage: \"x\"",
            "?",
            "=",
            "<<",
            "a:",
            "\u{feff}",
            "On",
            "y",
            ".nan",
            "NaN",
            "a\tb",
            "\\",
        ];
        for string in strings {
            let value = json!({"key": string, "list": [string], string: 1});
            let value = json!([value, [[string]]]);
            let read: Value = serde_saphyr::from_str(&text(&value)).unwrap();
            assert_eq!(read, value, "{}", text(&value));
        }
    }
}
