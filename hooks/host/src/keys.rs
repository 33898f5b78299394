//! The keys of the JSON files that name hooks.
//!
//! The rules are those of Go's `encoding/json`, because such files are written for it: keys match in any case,
//! unknown keys are skipped, the last of several equal keys counts, `null` leaves a value unset, invalid UTF-8
//! is replaced, and nothing but white space may follow the object.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use koord_hook::{ResourceMerge, UpdateScope};
use koord_runtime::duration::parse_go_duration;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::endpoint::EndpointError;

/// Why the content of a file cannot be used. The caller adds the file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not one JSON object.
    #[error("is not one JSON object: {reason}")]
    Json {
        /// What the JSON parser says, with line and column.
        reason: String,
    },
    /// A key has a value of the wrong type.
    #[error("key {key:?} is {found}; it must be {accepted}")]
    Type {
        /// The key as documented.
        key: &'static str,
        /// What was found.
        found: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// A key has a value outside its range.
    #[error("key {key:?} has the value {value:?}; accepted is {accepted}")]
    Value {
        /// The key as documented.
        key: &'static str,
        /// The value.
        value: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// The endpoint cannot be used.
    #[error("key \"remote-endpoint\" {0}")]
    Endpoint(#[from] EndpointError),
}

pub(crate) const FAILURE_POLICY: &str = "failure-policy";
pub(crate) const TIMEOUT: &str = "timeout";
pub(crate) const PRIORITY: &str = "priority";
pub(crate) const RESOURCE_MERGE: &str = "resource-merge";
pub(crate) const APPLY_POD_RESOURCES: &str = "apply-pod-resources";
pub(crate) const UPDATE_SCOPE: &str = "update-scope";

/// The known keys' last values, not yet looked at.
pub(crate) struct Keys {
    known: &'static [&'static str],
    lists: &'static [&'static str],
    values: Vec<(&'static str, Value)>,
}

impl Keys {
    /// Reads one JSON object; of its keys only those of `known` are kept. An explicit `null` resets those of `lists`.
    pub(crate) fn read(
        content: &[u8],
        known: &'static [&'static str],
        lists: &'static [&'static str],
    ) -> Result<Self, KeyError> {
        let text = String::from_utf8_lossy(content);
        let json = |error: serde_json::Error| KeyError::Json { reason: error.to_string() };
        let mut deserializer = serde_json::Deserializer::from_str(&text);
        let keys = Self { known, lists, values: Vec::new() }.deserialize(&mut deserializer).map_err(json)?;
        deserializer.end().map_err(json)?;
        Ok(keys)
    }

    fn set(&mut self, key: &'static str, value: Value) {
        // A null leaves what an earlier key of that name said, except for lists.
        if value.is_null() && !self.lists.contains(&key) {
            return;
        }
        self.values.retain(|(known, _)| *known != key);
        self.values.push((key, value));
    }

    /// The value of a key, unless there is none or it is null.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Value> {
        let index = self.values.iter().position(|(known, _)| *known == key)?;
        let (_, value) = self.values.swap_remove(index);
        (!value.is_null()).then_some(value)
    }

    pub(crate) fn text(
        &mut self,
        key: &'static str,
        accepted: &'static str,
    ) -> Result<Option<String>, KeyError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(key, &other, accepted)),
        }
    }

    /// A list of texts; empty if there is none. Elements that are null are left out.
    pub(crate) fn texts(&mut self, key: &'static str) -> Result<Option<Vec<String>>, KeyError> {
        const ACCEPTED: &str = "a list of strings";
        let values = match self.take(key) {
            None => return Ok(None),
            Some(Value::Array(values)) => values,
            Some(other) => return Err(wrong_type(key, &other, ACCEPTED)),
        };
        let mut texts = Vec::with_capacity(values.len());
        for value in values {
            match value {
                Value::String(text) => texts.push(text),
                // Go leaves the element empty, which names nothing.
                Value::Null => {}
                other => return Err(wrong_type(key, &other, ACCEPTED)),
            }
        }
        Ok(Some(texts))
    }

    pub(crate) fn boolean(&mut self, key: &'static str) -> Result<bool, KeyError> {
        match self.take(key) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            Some(other) => Err(wrong_type(key, &other, "true or false")),
        }
    }

    /// The failure policy as it is written.
    pub(crate) fn failure_policy(&mut self) -> Result<String, KeyError> {
        Ok(self.text(FAILURE_POLICY, "a string, \"Fail\" or \"Ignore\"")?.unwrap_or_default())
    }

    pub(crate) fn timeout(&mut self) -> Result<Option<Duration>, KeyError> {
        const ACCEPTED: &str = "a duration above 0 such as \"500ms\" or \"1.5s\"";
        let Some(text) = self.text(TIMEOUT, "a string with a duration such as \"500ms\"")? else {
            return Ok(None);
        };
        match parse_go_duration(&text) {
            Ok(duration) if !duration.is_zero() => Ok(Some(duration)),
            _ => Err(KeyError::Value { key: TIMEOUT, value: text, accepted: ACCEPTED }),
        }
    }

    pub(crate) fn priority(&mut self) -> Result<i64, KeyError> {
        const ACCEPTED: &str = "an integer from -9223372036854775808 to 9223372036854775807";
        match self.take(PRIORITY) {
            None => Ok(0),
            Some(Value::Number(number)) => number.as_i64().ok_or_else(|| KeyError::Value {
                key: PRIORITY,
                value: number.to_string(),
                accepted: ACCEPTED,
            }),
            Some(other) => Err(wrong_type(PRIORITY, &other, ACCEPTED)),
        }
    }

    pub(crate) fn resource_merge(&mut self) -> Result<Option<ResourceMerge>, KeyError> {
        self.choice(
            RESOURCE_MERGE,
            "\"koordinator\" or \"overlay\"",
            &[("koordinator", ResourceMerge::Koordinator), ("overlay", ResourceMerge::Overlay)],
        )
    }

    pub(crate) fn update_scope(&mut self) -> Result<Option<UpdateScope>, KeyError> {
        self.choice(
            UPDATE_SCOPE,
            "\"full\" or \"changed\"",
            &[("full", UpdateScope::Full), ("changed", UpdateScope::Changed)],
        )
    }

    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        accepted: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, KeyError> {
        let Some(text) = self.text(key, accepted)? else { return Ok(None) };
        match choices.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => Err(KeyError::Value { key, value: text, accepted }),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Keys {
    type Value = Self;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self, D::Error> {
        struct KeysVisitor(Keys);

        impl<'de> Visitor<'de> for KeysVisitor {
            type Value = Keys;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_unit<E>(self) -> Result<Keys, E> {
                Ok(self.0)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = self.0;
                while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                    match keys.known.iter().find(|known| folds_to(&key, known)) {
                        Some(known) => keys.set(known, map.next_value()?),
                        None => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(keys)
            }
        }

        deserializer.deserialize_any(KeysVisitor(self))
    }
}

/// Go folds by Unicode: besides ASCII case, `\u{17f}` is an s and `\u{212a}` a k.
fn folds_to(key: &str, known: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    key.chars().map(fold).eq(known.chars())
}

pub(crate) fn wrong_type(key: &'static str, value: &Value, accepted: &'static str) -> KeyError {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    KeyError::Type { key, found, accepted }
}
