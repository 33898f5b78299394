//! The file beside a library that says how it is used: `NAME.json` for `NAME.so`.

use std::time::Duration;

use koord_hook::{FailurePolicy, HookSet, HookType, ResourceMerge, ServerOptions};
use serde_json::Value;

use crate::keys::{
    APPLY_POD_RESOURCES, FAILURE_POLICY, KeyError, Keys, PRIORITY, RESOURCE_MERGE, TIMEOUT, UPDATE_SCOPE,
    wrong_type,
};

const MODE: &str = "mode";
const STAGES: &str = "stages";
const MAX_ADDRESS_SPACE_MIB: &str = "max-address-space-mib";

const KEYS: [&str; 9] = [
    MODE,
    STAGES,
    MAX_ADDRESS_SPACE_MIB,
    FAILURE_POLICY,
    TIMEOUT,
    PRIORITY,
    RESOURCE_MERGE,
    APPLY_POD_RESOURCES,
    UPDATE_SCOPE,
];

/// Bound of a child's address space unless the settings say another: ample for code, and it stops a leak.
pub(crate) const DEFAULT_MAX_ADDRESS_SPACE_MIB: u64 = 1024;

const MIB: u64 = 1024 * 1024;

/// Where a library runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// In a child process of its own.
    #[default]
    Isolated,
    /// In the proxy's process.
    InProcess,
}

impl Mode {
    /// The name used in files and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Isolated => "isolated",
            Self::InProcess => "in-process",
        }
    }
}

/// How a library is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Hooks with lower numbers are asked first.
    pub priority: i64,
    /// Where it runs.
    pub mode: Mode,
    /// What its failure means.
    pub failure_policy: FailurePolicy,
    /// Cap of its calls; `None` leaves only the cap of the program.
    pub timeout: Option<Duration>,
    /// The stages it is asked at; `None` for all it wants.
    pub stages: Option<HookSet>,
    /// How its answers are used.
    pub options: ServerOptions,
    /// Bound of the address space of its child, in bytes; `None` for no bound.
    pub max_address_space: Option<u64>,
}

impl Default for Settings {
    /// Answers of libraries are partial unless said otherwise: a library that sets one value must not reset others.
    fn default() -> Self {
        Self {
            priority: 0,
            mode: Mode::default(),
            failure_policy: FailurePolicy::Ignore,
            timeout: None,
            stages: None,
            options: ServerOptions { resource_merge: ResourceMerge::Overlay, ..ServerOptions::default() },
            max_address_space: Some(DEFAULT_MAX_ADDRESS_SPACE_MIB * MIB),
        }
    }
}

impl Settings {
    /// Reads the content of a settings file.
    ///
    /// # Errors
    ///
    /// Names the key, its value and what would be accepted.
    pub fn parse(content: &[u8]) -> Result<Self, KeyError> {
        let mut keys = Keys::read(content, &KEYS, &[STAGES])?;
        let default = Self::default();
        Ok(Self {
            priority: keys.priority()?,
            mode: keys
                .choice(
                    MODE,
                    "\"isolated\" or \"in-process\"",
                    &[("isolated", Mode::Isolated), ("in-process", Mode::InProcess)],
                )?
                .unwrap_or_default(),
            failure_policy: FailurePolicy::from_text(&keys.failure_policy()?),
            timeout: keys.timeout()?,
            stages: stages(&mut keys)?,
            options: ServerOptions {
                resource_merge: keys.resource_merge()?.unwrap_or(default.options.resource_merge),
                apply_pod_resources: keys.boolean(APPLY_POD_RESOURCES)?,
                update_scope: keys.update_scope()?.unwrap_or_default(),
            },
            max_address_space: max_address_space(&mut keys)?,
        })
    }
}

/// Unlike the hooks of a registration, which may name some that only other programs know, a stage that is not known
/// is a mistake: no library can want it.
fn stages(keys: &mut Keys) -> Result<Option<HookSet>, KeyError> {
    let Some(names) = keys.texts(STAGES)? else { return Ok(None) };
    let stage = |name: String| {
        HookType::from_name(&name).ok_or(KeyError::Value {
            key: STAGES,
            value: name,
            accepted: "PreRunPodSandbox, PostStopPodSandbox, PreCreateContainer, PreStartContainer, \
                       PostStartContainer, PreUpdateContainerResources, PostStopContainer",
        })
    };
    names.into_iter().map(stage).collect::<Result<HookSet, _>>().map(Some)
}

fn max_address_space(keys: &mut Keys) -> Result<Option<u64>, KeyError> {
    const ACCEPTED: &str = "an integer from 64 to 1048576, or 0 for no bound";
    match keys.take(MAX_ADDRESS_SPACE_MIB) {
        None => Ok(Settings::default().max_address_space),
        Some(Value::Number(number)) => match number.as_u64() {
            Some(0) => Ok(None),
            Some(mib @ 64..=1_048_576) => Ok(Some(mib * MIB)),
            _ => Err(KeyError::Value {
                key: MAX_ADDRESS_SPACE_MIB,
                value: number.to_string(),
                accepted: ACCEPTED,
            }),
        },
        Some(other) => Err(wrong_type(MAX_ADDRESS_SPACE_MIB, &other, ACCEPTED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Settings {
        Settings::parse(text.as_bytes()).expect("settings")
    }

    fn refused(text: &str) -> String {
        Settings::parse(text.as_bytes()).expect_err("refused").to_string()
    }

    #[test]
    fn an_empty_object_means_the_defaults() {
        assert_eq!(parse("{}"), Settings::default());
        assert_eq!(parse("null"), Settings::default());
        let settings = Settings::default();
        assert_eq!(settings.mode, Mode::Isolated);
        assert_eq!(settings.options.resource_merge, ResourceMerge::Overlay);
        assert_eq!(settings.max_address_space, Some(1 << 30));
    }

    #[test]
    fn every_key_is_read() {
        let settings = parse(
            r#"{"priority":-5,"mode":"in-process","failure-policy":"Fail","timeout":"1.5s",
                "stages":["PreCreateContainer"],"resource-merge":"koordinator","apply-pod-resources":true,
                "update-scope":"changed","max-address-space-mib":64,"unknown":[]}"#,
        );
        let expected = Settings {
            priority: -5,
            mode: Mode::InProcess,
            failure_policy: FailurePolicy::Fail,
            timeout: Some(Duration::from_millis(1500)),
            stages: Some([HookType::PreCreateContainer].into_iter().collect()),
            options: ServerOptions {
                resource_merge: ResourceMerge::Koordinator,
                apply_pod_resources: true,
                update_scope: koord_hook::UpdateScope::Changed,
            },
            max_address_space: Some(64 << 20),
        };
        assert_eq!(settings, expected);
        // Keys match in any case, as in registration files, and null leaves a value unset.
        assert_eq!(parse(r#"{"MODE":"in-process","Mode":null}"#).mode, Mode::InProcess);
        assert_eq!(parse(r#"{"stages":["PreCreateContainer"],"stages":null}"#).stages, None);
        assert_eq!(parse(r#"{"max-address-space-mib":0}"#).max_address_space, None);
        assert_eq!(parse(r#"{"max-address-space-mib":1048576}"#).max_address_space, Some(1 << 40));
        assert_eq!(parse(r#"{"stages":[]}"#).stages, Some(HookSet::default()));
    }

    #[test]
    fn mistakes_name_key_value_and_what_is_accepted() {
        for (text, parts) in [
            (r#"{"mode":"thread"}"#, ["\"mode\"", "\"thread\"", "\"in-process\""]),
            (r#"{"mode":1}"#, ["\"mode\"", "the number 1", "\"isolated\""]),
            (r#"{"stages":["PreFoo"]}"#, ["\"stages\"", "\"PreFoo\"", "PreRunPodSandbox"]),
            (r#"{"stages":"PreCreateContainer"}"#, ["\"stages\"", "a string", "a list of strings"]),
            (r#"{"timeout":"0s"}"#, ["\"timeout\"", "\"0s\"", "above 0"]),
            (r#"{"priority":1.5}"#, ["\"priority\"", "\"1.5\"", "an integer"]),
            (r#"{"max-address-space-mib":63}"#, ["max-address-space-mib", "\"63\"", "64 to 1048576"]),
            (r#"{"max-address-space-mib":1048577}"#, ["max-address-space-mib", "1048577", "64 to"]),
            (r#"{"max-address-space-mib":-1}"#, ["max-address-space-mib", "-1", "64 to"]),
        ] {
            let error = refused(text);
            for part in parts {
                assert!(error.contains(part), "{error} has no {part}");
            }
        }
        assert!(refused("{} x").contains("not one JSON object"));
        assert!(refused("[]").contains("not one JSON object"));
    }
}
