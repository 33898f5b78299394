//! Putting back what the kubelet asked for.

use serde::{Deserialize, Serialize};

use crate::Mode;

/// Answer of `POST /restore`. The status is 200 even if some fields failed: the report says which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreReport {
    /// Fields that have the kubelet's value again.
    pub restored: u64,
    /// Fields that had it already.
    pub same: u64,
    /// Fields that could not be put back.
    #[serde(default)]
    pub failed: Vec<RestoreFailure>,
    /// The mode afterwards.
    pub mode: Mode,
}

/// A field that could not be put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreFailure {
    /// `NAMESPACE/NAME` of the pod; empty for directories of the node.
    pub pod: String,
    /// Name of the container; empty for the pod's own fields.
    pub container: String,
    /// Name of the field.
    pub field: String,
    /// Why, in words.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_frozen() {
        let text = r#"{"restored":4,"same":1,"failed":[{"pod":"default/web","container":"app","field":"cpu.shares","error":"no such file"}],"mode":"off"}"#;
        let report = RestoreReport {
            restored: 4,
            same: 1,
            failed: vec![RestoreFailure {
                pod: "default/web".to_owned(),
                container: "app".to_owned(),
                field: "cpu.shares".to_owned(),
                error: "no such file".to_owned(),
            }],
            mode: Mode::Off,
        };
        assert_eq!(serde_json::to_string(&report).unwrap(), text);
        assert_eq!(serde_json::from_str::<RestoreReport>(text).unwrap(), report);
    }
}
