//! From the bytes of a registration file to a [`Registration`].
//!
//! The rules are those of Go's `encoding/json`, because the files are written for it: keys match in any case,
//! unknown keys are skipped, the last of several equal keys counts, `null` leaves a value unset, invalid UTF-8
//! is replaced, and nothing but white space may follow the object.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use koord_runtime::duration::parse_go_duration;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::endpoint::{Endpoint, EndpointError};
use koord_hook::HookType;

use super::{FailurePolicy, Registration, ResourceMerge, UpdateScope};

/// Why the content of a file is no registration. The caller adds the file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
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

const REMOTE_ENDPOINT: &str = "remote-endpoint";
const FAILURE_POLICY: &str = "failure-policy";
const RUNTIME_HOOKS: &str = "runtime-hooks";
const TIMEOUT: &str = "timeout";
const PRIORITY: &str = "priority";
const RESOURCE_MERGE: &str = "resource-merge";
const APPLY_POD_RESOURCES: &str = "apply-pod-resources";
const UPDATE_SCOPE: &str = "update-scope";

const KEYS: [&str; 8] = [
    REMOTE_ENDPOINT,
    FAILURE_POLICY,
    RUNTIME_HOOKS,
    TIMEOUT,
    PRIORITY,
    RESOURCE_MERGE,
    APPLY_POD_RESOURCES,
    UPDATE_SCOPE,
];

/// The known keys' last values, not yet looked at.
#[derive(Default)]
struct Raw {
    values: Vec<(&'static str, Value)>,
}

impl Raw {
    fn set(&mut self, key: &'static str, value: Value) {
        // A null leaves what an earlier key of that name said, except for lists.
        if value.is_null() && key != RUNTIME_HOOKS {
            return;
        }
        self.values.retain(|(known, _)| *known != key);
        self.values.push((key, value));
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        let index = self.values.iter().position(|(known, _)| *known == key)?;
        let (_, value) = self.values.swap_remove(index);
        (!value.is_null()).then_some(value)
    }

    fn text(
        &mut self,
        key: &'static str,
        accepted: &'static str,
    ) -> Result<Option<String>, RegistrationError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(key, &other, accepted)),
        }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RawVisitor;

        impl<'de> Visitor<'de> for RawVisitor {
            type Value = Raw;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_unit<E>(self) -> Result<Raw, E> {
                Ok(Raw::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
                let mut raw = Raw::default();
                while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                    match KEYS.into_iter().find(|known| folds_to(&key, known)) {
                        Some(known) => raw.set(known, map.next_value()?),
                        None => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(raw)
            }
        }

        deserializer.deserialize_any(RawVisitor)
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

impl Registration {
    /// Reads the content of a registration file.
    ///
    /// # Errors
    ///
    /// Names the key, its value and what would be accepted.
    pub fn parse(content: &[u8]) -> Result<Self, RegistrationError> {
        let text = String::from_utf8_lossy(content);
        let mut raw: Raw = serde_json::from_str(&text)
            .map_err(|error| RegistrationError::Json { reason: error.to_string() })?;

        let endpoint = raw.text(REMOTE_ENDPOINT, "a string with a socket path")?.unwrap_or_default();
        let endpoint: Endpoint = endpoint.parse()?;
        let failure_policy_text =
            raw.text(FAILURE_POLICY, "a string, \"Fail\" or \"Ignore\"")?.unwrap_or_default();
        let hooks = match raw.take(RUNTIME_HOOKS) {
            None => Vec::new(),
            Some(Value::Array(names)) => names,
            Some(other) => return Err(wrong_type(RUNTIME_HOOKS, &other, "a list of strings")),
        };
        let mut names = Vec::with_capacity(hooks.len());
        for name in hooks {
            match name {
                Value::String(name) => names.push(name),
                // Go leaves the element empty, which names no hook.
                Value::Null => {}
                other => return Err(wrong_type(RUNTIME_HOOKS, &other, "a list of strings")),
            }
        }
        Ok(Self {
            endpoint,
            failure_policy: FailurePolicy::from_text(&failure_policy_text),
            failure_policy_text,
            hooks: names.iter().filter_map(|name| HookType::from_name(name)).collect(),
            timeout: timeout(&mut raw)?,
            priority: priority(&mut raw)?,
            resource_merge: choice(
                &mut raw,
                RESOURCE_MERGE,
                "\"koordinator\" or \"overlay\"",
                &[("koordinator", ResourceMerge::Koordinator), ("overlay", ResourceMerge::Overlay)],
            )?,
            apply_pod_resources: match raw.take(APPLY_POD_RESOURCES) {
                None => false,
                Some(Value::Bool(value)) => value,
                Some(other) => return Err(wrong_type(APPLY_POD_RESOURCES, &other, "true or false")),
            },
            update_scope: choice(
                &mut raw,
                UPDATE_SCOPE,
                "\"full\" or \"changed\"",
                &[("full", UpdateScope::Full), ("changed", UpdateScope::Changed)],
            )?,
        })
    }
}

fn timeout(raw: &mut Raw) -> Result<Option<Duration>, RegistrationError> {
    const ACCEPTED: &str = "a duration above 0 such as \"500ms\" or \"1.5s\"";
    let Some(text) = raw.text(TIMEOUT, "a string with a duration such as \"500ms\"")? else {
        return Ok(None);
    };
    match parse_go_duration(&text) {
        Ok(duration) if !duration.is_zero() => Ok(Some(duration)),
        _ => Err(RegistrationError::Value { key: TIMEOUT, value: text, accepted: ACCEPTED }),
    }
}

fn priority(raw: &mut Raw) -> Result<i64, RegistrationError> {
    const ACCEPTED: &str = "an integer from -9223372036854775808 to 9223372036854775807";
    match raw.take(PRIORITY) {
        None => Ok(0),
        Some(Value::Number(number)) => number.as_i64().ok_or_else(|| RegistrationError::Value {
            key: PRIORITY,
            value: number.to_string(),
            accepted: ACCEPTED,
        }),
        Some(other) => Err(wrong_type(PRIORITY, &other, ACCEPTED)),
    }
}

fn choice<T: Copy>(
    raw: &mut Raw,
    key: &'static str,
    accepted: &'static str,
    choices: &[(&str, T)],
) -> Result<T, RegistrationError> {
    let default = choices[0].1;
    let Some(text) = raw.text(key, accepted)? else { return Ok(default) };
    match choices.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(*value),
        None => Err(RegistrationError::Value { key, value: text, accepted }),
    }
}

fn wrong_type(key: &'static str, value: &Value, accepted: &'static str) -> RegistrationError {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    RegistrationError::Type { key, found, accepted }
}
