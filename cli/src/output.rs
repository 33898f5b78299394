//! Forms of the output.

pub mod style;
pub mod table;
pub mod wrap;

use serde::Serialize;

use crate::outcome::Failure;

/// `value` as JSON with a line end.
///
/// # Errors
/// The value has no JSON form.
pub fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|source| Failure::Form { form: "JSON", source: source.into() })?;
    Ok(text + "\n")
}

/// `value` as one YAML document with a line end.
///
/// # Errors
/// The value has no YAML form.
pub fn yaml<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(value)
        .map_err(|source| Failure::Form { form: "YAML", source: source.into() })?;
    Ok(text.trim_end().to_owned() + "\n")
}

/// `text` with control characters replaced by what they are called, so that a text from a pod cannot steer the
/// terminal.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// How a value that may be missing is shown.
pub fn or_dash(value: Option<&str>) -> &str {
    value.filter(|text| !text.is_empty()).unwrap_or("-")
}

/// How a value of a field is shown: an empty one, such as a CPU set that was cleared, is not a missing one.
pub fn value(value: Option<&str>) -> &str {
    match value {
        None => "-",
        Some("") => "\"\"",
        Some(text) => text,
    }
}

/// A reason without the name of its owner in front, which stands in a column of its own.
pub fn reason<'a>(owner: &str, reason: &'a str) -> &'a str {
    match reason.strip_prefix(owner).and_then(|rest| rest.strip_prefix(": ")) {
        Some(rest) if !owner.is_empty() => rest,
        _ => reason,
    }
}

/// `1 pod`, `2 pods`.
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_named() {
        assert_eq!(printable("a\u{1b}[31mb\nc\tdé"), "a\\u{1b}[31mb\\nc\\tdé");
    }

    #[test]
    fn missing_values_and_numbers() {
        assert_eq!([or_dash(None), or_dash(Some("")), or_dash(Some("0"))], ["-", "-", "0"]);
        assert_eq!([value(None), value(Some("")), value(Some("0"))], ["-", "\"\"", "0"]);
        assert_eq!(counted(0, "pod", "pods"), "0 pods");
        assert_eq!(counted(1, "pod", "pods"), "1 pod");
    }

    #[test]
    fn owners_are_not_repeated() {
        assert_eq!(reason("CoreSched", "CoreSched: off"), "off");
        assert_eq!(reason("Core", "CoreSched: off"), "CoreSched: off");
        assert_eq!(reason("", ": off"), ": off");
        assert_eq!(reason("kubelet", "as asked"), "as asked");
    }

    #[test]
    fn yaml_keeps_texts_texts() {
        let value = serde_json::json!({"a": "512", "b": null, "c": ["-1", "yes", "0-3"], "d": []});
        let text = yaml(&value).unwrap();
        assert_eq!(koord_runtime::yaml::document(&text), Ok(value));
    }
}
