//! Typed annotations.
//!
//! Every type has `KEY`, `from_annotations` (none if the annotation is absent), `parse` and `to_text`.
//! Reading is lenient in keys and strict in types, see [`json`](crate::json); an error concerns this one
//! annotation. What an empty text means differs by key and is said at the type where it is not an error.
//!
//! Nothing is cached here: parse once for each version of an object.

mod cpu;
mod device;
mod eviction;
mod extended;
mod node;
mod pod_qos;
mod resctrl;
mod reservation;
mod scheduling;
mod selector;
#[cfg(test)]
mod tests;
mod topology;

pub use cpu::*;
pub use device::*;
pub use eviction::*;
pub use extended::*;
pub use node::*;
pub use pod_qos::*;
pub use resctrl::*;
pub use reservation::*;
pub use scheduling::*;
pub use selector::*;
pub use topology::*;

/// An annotation that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {key}: {problem} (\"{value}\")")]
pub struct AnnotationError {
    /// Key of the annotation.
    pub key: &'static str,
    /// Its text, cut to a printable length.
    pub value: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl AnnotationError {
    pub(crate) fn new(key: &'static str, value: &str, problem: impl ToString) -> AnnotationError {
        const MOST: usize = 120;
        let mut shown: String = value.chars().take(MOST).collect();
        if shown.len() < value.len() {
            shown.push_str("...");
        }
        AnnotationError { key, value: shown, problem: problem.to_string() }
    }
}

/// Gives a type that JSON is read into its key and the four functions.
macro_rules! json_annotation {
    ($name:ident, $key:expr $(, empty = $empty:ident)? $(, check = $check:path)?) => {
        impl $name {
            /// Key of the annotation.
            pub const KEY: &'static str = $key;

            /// Reads the annotation; none if it is absent.
            pub fn from_annotations(
                annotations: &::std::collections::BTreeMap<String, String>,
            ) -> Result<Option<Self>, $crate::annotation::AnnotationError> {
                let Some(text) = annotations.get(Self::KEY) else { return Ok(None) };
                $(if text.is_empty() {
                    return Ok(json_annotation!(@$empty));
                })?
                Self::parse(text).map(Some)
            }

            /// Reads the text of the annotation.
            pub fn parse(text: &str) -> Result<Self, $crate::annotation::AnnotationError> {
                let fail = |problem: String| $crate::annotation::AnnotationError::new(Self::KEY, text, problem);
                let value: Self = ::serde_json::from_str(text).map_err(|error| fail(error.to_string()))?;
                $($check(&value).map_err(fail)?;)?
                Ok(value)
            }

            /// The text of the annotation.
            pub fn to_text(&self) -> String {
                // Strings, numbers, lists and maps of strings are always representable.
                ::serde_json::to_string(self).unwrap_or_default()
            }
        }
    };
    (@absent) => {
        None
    };
    (@default) => {
        Some(Self::default())
    };
}
use json_annotation;

/// A JSON list or map that is an annotation of its own.
macro_rules! json_newtype {
    ($(#[$meta:meta])* pub struct $name:ident($type:ty);) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default, ::serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(pub $type);

        impl $crate::json::shape::Described for $name {
            fn shape() -> $crate::json::shape::Shape {
                <$type as $crate::json::shape::Described>::shape()
            }
        }

        impl $crate::json::Fill for $name {
            fn fill<'de, D: ::serde::Deserializer<'de>>(
                &mut self,
                deserializer: D,
            ) -> Result<(), D::Error> {
                self.0.fill(deserializer)
            }

            fn is_omitted(&self) -> bool {
                self.0.is_omitted()
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::json::filled(deserializer)
            }
        }
    };
}
use json_newtype;
