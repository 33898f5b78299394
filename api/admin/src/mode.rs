//! Whether the proxy's rules act.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Whether the proxy's rules act. In JSON the name in lower case: `"enforce"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Values are changed.
    Enforce,
    /// Everything is computed and recorded, nothing is changed.
    Shadow,
    /// Nothing is computed: every request passes as it came.
    Off,
}

impl Mode {
    /// All modes, in the order they are listed to people.
    pub const ALL: [Mode; 3] = [Mode::Enforce, Mode::Shadow, Mode::Off];

    /// The name used in JSON, flags and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Off => "off",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Mode, UnknownMode> {
        Mode::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

/// A text that names no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("mode {0:?} is not known; accepted: enforce, shadow, off")]
pub struct UnknownMode(pub String);

/// Body of `POST /qos/mode`: `{"mode": "shadow"}`. Other keys are refused, since a misspelt wish must not
/// look granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeChange {
    /// The mode to go to.
    pub mode: Mode,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        for (mode, name) in [(Mode::Enforce, "enforce"), (Mode::Shadow, "shadow"), (Mode::Off, "off")] {
            assert_eq!(mode.as_str(), name);
            assert_eq!(name.parse(), Ok(mode));
            assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<Mode>(&format!("\"{name}\"")).unwrap(), mode);
        }
        for wrong in ["", "Enforce", "off ", "on"] {
            assert_eq!(wrong.parse::<Mode>(), Err(UnknownMode(wrong.to_owned())));
        }
        assert_eq!(
            "on".parse::<Mode>().unwrap_err().to_string(),
            "mode \"on\" is not known; accepted: enforce, shadow, off"
        );
    }

    #[test]
    fn a_change_says_the_mode_and_nothing_else() {
        let change: ModeChange = serde_json::from_str(r#"{"mode":"shadow"}"#).unwrap();
        assert_eq!(change, ModeChange { mode: Mode::Shadow });
        assert_eq!(serde_json::to_string(&change).unwrap(), r#"{"mode":"shadow"}"#);
        for wrong in ["{}", r#"{"mode":"on"}"#, r#"{"mode":"off","force":true}"#, r#""off""#] {
            assert!(serde_json::from_str::<ModeChange>(wrong).is_err(), "{wrong}");
        }
    }
}
