//! From the bytes of a registration file to a [`Registration`].

use koord_hook::HookType;

use crate::endpoint::Endpoint;
use crate::keys::{
    APPLY_POD_RESOURCES, FAILURE_POLICY, Keys, PRIORITY, RESOURCE_MERGE, TIMEOUT, UPDATE_SCOPE,
};

use super::{FailurePolicy, Registration, RegistrationError};

const REMOTE_ENDPOINT: &str = "remote-endpoint";
const RUNTIME_HOOKS: &str = "runtime-hooks";

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

impl Registration {
    /// Reads the content of a registration file.
    ///
    /// # Errors
    ///
    /// Names the key, its value and what would be accepted.
    pub fn parse(content: &[u8]) -> Result<Self, RegistrationError> {
        let mut keys = Keys::read(content, &KEYS, &[RUNTIME_HOOKS])?;
        let endpoint = keys.text(REMOTE_ENDPOINT, "a string with a socket path")?.unwrap_or_default();
        let endpoint: Endpoint = endpoint.parse()?;
        let failure_policy_text = keys.failure_policy()?;
        let names = keys.texts(RUNTIME_HOOKS)?.unwrap_or_default();
        Ok(Self {
            endpoint,
            failure_policy: FailurePolicy::from_text(&failure_policy_text),
            failure_policy_text,
            hooks: names.iter().filter_map(|name| HookType::from_name(name)).collect(),
            timeout: keys.timeout()?,
            priority: keys.priority()?,
            resource_merge: keys.resource_merge()?.unwrap_or_default(),
            apply_pod_resources: keys.boolean(APPLY_POD_RESOURCES)?,
            update_scope: keys.update_scope()?.unwrap_or_default(),
        })
    }
}
