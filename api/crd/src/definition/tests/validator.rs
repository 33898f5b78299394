//! What an API server says about an object under a structural schema.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::Regex;
use serde_json::Value;

thread_local! {
    /// Patterns that were met before: there are few of them and many texts.
    static PATTERNS: RefCell<HashMap<String, Regex>> = RefCell::default();
}

fn matches(pattern: &str, text: &str) -> bool {
    PATTERNS.with_borrow_mut(|patterns| {
        let known = patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).unwrap());
        known.is_match(text)
    })
}

/// All that is wrong with a value, each with its path. A field that the schema does not know is wrong as
/// well: the server would drop it.
pub(crate) fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, "", &mut found);
    found
}

fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let mut wrong = |problem: String| found.push(format!("{path}: {problem}"));
    if value.is_null() {
        return wrong("null".to_owned());
    }
    let is_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64(),
        _ => schema["x-kubernetes-int-or-string"] == true && (value.is_i64() || value.is_string()),
    };
    if !is_type {
        return wrong(format!("{value} is not of type {}", schema["type"]));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        wrong(format!("{value} is none of {words:?}"));
    }
    if let Some(number) = value.as_i64() {
        if schema["minimum"].as_i64().is_some_and(|least| number < least) {
            wrong(format!("{number} is below {}", schema["minimum"]));
        }
        if schema["maximum"].as_i64().is_some_and(|most| number > most) {
            wrong(format!("{number} is above {}", schema["maximum"]));
        }
        if schema["format"] == "int32" && i32::try_from(number).is_err() {
            wrong(format!("{number} has more than 32 bits"));
        }
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        if schema["minLength"].as_u64().is_some_and(|least| length < least)
            || schema["maxLength"].as_u64().is_some_and(|most| length > most)
        {
            wrong(format!("{length} characters"));
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && !matches(pattern, text)
        {
            wrong(format!("{text:?} does not match"));
        }
        if schema["format"] == "date-time"
            && koord_extension::timestamp::Timestamp::from_rfc3339(text).is_err()
        {
            wrong(format!("{text:?} is not a time"));
        }
    }
    if let Some(items) = value.as_array() {
        for (index, item) in items.iter().enumerate() {
            check(&schema["items"], item, &format!("{path}[{index}]"), found);
        }
    }
    if let Some(fields) = value.as_object() {
        for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(key) {
                found.push(format!("{path}.{key}: missing"));
            }
        }
        for (key, value) in fields {
            let path = format!("{path}.{key}");
            if let Some(property) = schema["properties"].get(key) {
                // What is in the object's metadata is checked elsewhere.
                if path != ".metadata" {
                    check(property, value, &path, found);
                }
            } else if schema["additionalProperties"].is_object() {
                check(&schema["additionalProperties"], value, &path, found);
            } else if schema["x-kubernetes-preserve-unknown-fields"] != true {
                found.push(format!("{path}: unknown"));
            }
        }
    }
}
