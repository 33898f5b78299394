//! The chain of hooks.

use serde::{Deserialize, Serialize};

/// One hook, an item of the answer of `GET /qos/hooks`. Items are in the order hooks are asked; rejected ones
/// come last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookEntry {
    /// Name of the hook: of the registration, of the library, or `built-in`.
    pub name: String,
    /// How the hook is reached.
    pub carrier: HookCarrier,
    /// Where a library runs; `null` for other carriers.
    pub mode: Option<LibraryMode>,
    /// Lower ones are asked first.
    pub priority: i64,
    /// Stages at which the hook is asked, such as `PreCreateContainer`.
    pub stages: Vec<String>,
    /// What becomes of a call when the hook fails: `Fail` or `Ignore`; empty for the built-in rules.
    pub failure_policy: String,
    /// Most time for one call, in milliseconds; `null` for the built-in rules, which wait for nothing.
    pub timeout_ms: Option<u64>,
    /// Whether the hook is asked.
    pub state: HookState,
    /// Why the hook is not in state `ok`, in words; empty if it is.
    pub detail: String,
    /// Calls since the proxy started.
    pub calls: u64,
    /// Calls that failed since the proxy started.
    pub errors: u64,
    /// The file that registers the hook or is it, absolute; `null` for the built-in rules.
    pub file: Option<String>,
}

/// How a hook is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookCarrier {
    /// The proxy's own rules.
    BuiltIn,
    /// A dynamic library.
    Library,
    /// A server behind a unix socket.
    Remote,
}

impl HookCarrier {
    /// The text used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            HookCarrier::BuiltIn => "built-in",
            HookCarrier::Library => "library",
            HookCarrier::Remote => "remote",
        }
    }
}

/// Where a library runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LibraryMode {
    /// In the proxy's own process: a crash of the library is a crash of the proxy.
    InProcess,
    /// In a process of its own: a crash costs one call.
    Isolated,
}

impl LibraryMode {
    /// The text used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            LibraryMode::InProcess => "in-process",
            LibraryMode::Isolated => "isolated",
        }
    }
}

/// Whether a hook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HookState {
    /// It is asked.
    #[serde(rename = "ok")]
    Ok,
    /// It failed several times in a row and is left alone for a while.
    #[serde(rename = "open breaker")]
    OpenBreaker,
    /// Calls hang in it; it is not asked again until its file is replaced.
    #[serde(rename = "quarantined")]
    Quarantined,
    /// Its file is not acceptable.
    #[serde(rename = "rejected")]
    Rejected,
}

impl HookState {
    /// The text used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            HookState::Ok => "ok",
            HookState::OpenBreaker => "open breaker",
            HookState::Quarantined => "quarantined",
            HookState::Rejected => "rejected",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"[{"name":"built-in","carrier":"built-in","mode":null,"priority":0,"stages":["PreCreateContainer"],"failurePolicy":"","timeoutMs":null,"state":"ok","detail":"","calls":7,"errors":0,"file":null},{"name":"shares","carrier":"library","mode":"isolated","priority":10,"stages":["PreRunPodSandbox","PreCreateContainer"],"failurePolicy":"Ignore","timeoutMs":2000,"state":"open breaker","detail":"3 timeouts in a row","calls":5,"errors":3,"file":"/usr/lib/koord/hooks.d/shares.so"}]"#;

    #[test]
    fn the_text_is_frozen() {
        let hooks = vec![
            HookEntry {
                name: "built-in".to_owned(),
                carrier: HookCarrier::BuiltIn,
                mode: None,
                priority: 0,
                stages: vec!["PreCreateContainer".to_owned()],
                failure_policy: String::new(),
                timeout_ms: None,
                state: HookState::Ok,
                detail: String::new(),
                calls: 7,
                errors: 0,
                file: None,
            },
            HookEntry {
                name: "shares".to_owned(),
                carrier: HookCarrier::Library,
                mode: Some(LibraryMode::Isolated),
                priority: 10,
                stages: vec!["PreRunPodSandbox".to_owned(), "PreCreateContainer".to_owned()],
                failure_policy: "Ignore".to_owned(),
                timeout_ms: Some(2_000),
                state: HookState::OpenBreaker,
                detail: "3 timeouts in a row".to_owned(),
                calls: 5,
                errors: 3,
                file: Some("/usr/lib/koord/hooks.d/shares.so".to_owned()),
            },
        ];
        assert_eq!(serde_json::to_string(&hooks).unwrap(), TEXT);
        assert_eq!(serde_json::from_str::<Vec<HookEntry>>(TEXT).unwrap(), hooks);
    }

    #[test]
    fn words_are_written_as_they_are_said() {
        fn json(value: impl Serialize) -> String {
            serde_json::to_string(&value).unwrap()
        }
        for carrier in [HookCarrier::BuiltIn, HookCarrier::Library, HookCarrier::Remote] {
            assert_eq!(json(carrier), format!("\"{}\"", carrier.as_str()));
        }
        for mode in [LibraryMode::InProcess, LibraryMode::Isolated] {
            assert_eq!(json(mode), format!("\"{}\"", mode.as_str()));
        }
        for state in [HookState::Ok, HookState::OpenBreaker, HookState::Quarantined, HookState::Rejected] {
            assert_eq!(json(state), format!("\"{}\"", state.as_str()));
        }
    }
}
