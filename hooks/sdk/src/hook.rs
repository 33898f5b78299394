//! The trait of a hook library.

use std::fmt;

use koord_hook::HookType;
use koord_hook::v1alpha1::{
    ContainerResourceHookRequest, ContainerResourceHookResponse, PodSandboxHookRequest,
    PodSandboxHookResponse,
};

/// Why a hook could not do its work; reaches the proxy's log, and under the policy `Fail` the kubelet's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    /// An error of that text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// What a hook answers: `None` changes nothing.
pub type Answer<T> = Result<Option<T>, Error>;

/// What a hook library does at each stage it asks for.
///
/// Calls come from several threads, several at once unless [`Hook::SERIAL`] says otherwise. A call that takes longer
/// than its time is given up by the host, but goes on; one that panics counts as failed.
pub trait Hook: Send + Sync + Sized + 'static {
    /// The library's name, 1 to 255 bytes without a NUL.
    const NAME: &'static str;
    /// The library's version, 1 to 255 bytes without a NUL.
    const VERSION: &'static str;
    /// The stages it wants to be asked at; no other method is called.
    const STAGES: &'static [HookType];
    /// Whether the host makes one call at a time only.
    const SERIAL: bool = false;

    /// Called once, before everything else.
    ///
    /// # Errors
    ///
    /// The library is refused.
    fn new() -> Result<Self, Error>;

    /// Before RunPodSandbox.
    ///
    /// # Errors
    ///
    /// The hook failed; the failure policy decides about the call.
    fn pre_run_pod_sandbox(&self, request: &PodSandboxHookRequest) -> Answer<PodSandboxHookResponse> {
        let _unused = request;
        Ok(None)
    }

    /// After StopPodSandbox.
    ///
    /// # Errors
    ///
    /// The hook failed, which is logged.
    fn post_stop_pod_sandbox(&self, request: &PodSandboxHookRequest) -> Answer<PodSandboxHookResponse> {
        let _unused = request;
        Ok(None)
    }

    /// Before CreateContainer.
    ///
    /// # Errors
    ///
    /// The hook failed; the failure policy decides about the call.
    fn pre_create_container(
        &self,
        request: &ContainerResourceHookRequest,
    ) -> Answer<ContainerResourceHookResponse> {
        let _unused = request;
        Ok(None)
    }

    /// Before StartContainer.
    ///
    /// # Errors
    ///
    /// The hook failed; the failure policy decides about the call.
    fn pre_start_container(
        &self,
        request: &ContainerResourceHookRequest,
    ) -> Answer<ContainerResourceHookResponse> {
        let _unused = request;
        Ok(None)
    }

    /// After StartContainer.
    ///
    /// # Errors
    ///
    /// The hook failed, which is logged.
    fn post_start_container(
        &self,
        request: &ContainerResourceHookRequest,
    ) -> Answer<ContainerResourceHookResponse> {
        let _unused = request;
        Ok(None)
    }

    /// Before UpdateContainerResources.
    ///
    /// # Errors
    ///
    /// The hook failed; the failure policy decides about the call.
    fn pre_update_container_resources(
        &self,
        request: &ContainerResourceHookRequest,
    ) -> Answer<ContainerResourceHookResponse> {
        let _unused = request;
        Ok(None)
    }

    /// After StopContainer.
    ///
    /// # Errors
    ///
    /// The hook failed, which is logged.
    fn post_stop_container(
        &self,
        request: &ContainerResourceHookRequest,
    ) -> Answer<ContainerResourceHookResponse> {
        let _unused = request;
        Ok(None)
    }
}
