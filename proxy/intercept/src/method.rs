//! The CRI methods that are looked into, and the hooks around them.

use std::fmt;

use crate::hook_type::HookType;

/// A method of the CRI's `RuntimeService` that is intercepted or observed.
///
/// Every other method passes untouched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CriMethod {
    /// Creates and starts a pod sandbox.
    RunPodSandbox,
    /// Stops a pod sandbox.
    StopPodSandbox,
    /// Removes a pod sandbox with its containers.
    RemovePodSandbox,
    /// Changes overhead and resources of a pod sandbox.
    UpdatePodSandboxResources,
    /// Creates a pod sandbox with its containers from a checkpoint.
    RestorePod,
    /// Creates a container.
    CreateContainer,
    /// Starts a container.
    StartContainer,
    /// Stops a container.
    StopContainer,
    /// Removes a container.
    RemoveContainer,
    /// Changes the resources of a container.
    UpdateContainerResources,
}

impl CriMethod {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::RunPodSandbox,
        Self::StopPodSandbox,
        Self::RemovePodSandbox,
        Self::UpdatePodSandboxResources,
        Self::RestorePod,
        Self::CreateContainer,
        Self::StartContainer,
        Self::StopContainer,
        Self::RemoveContainer,
        Self::UpdateContainerResources,
    ];

    /// The method of an exact `:path`, in either package of the protocol.
    ///
    /// The messages of `runtime.v1` and `runtime.v1alpha2` have the same bytes, so what
    /// follows does not depend on the package.
    pub fn from_path(path: &str) -> Option<Self> {
        let name = path
            .strip_prefix("/runtime.v1.RuntimeService/")
            .or_else(|| path.strip_prefix("/runtime.v1alpha2.RuntimeService/"))?;
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }

    /// The name of the method without its service.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunPodSandbox => "RunPodSandbox",
            Self::StopPodSandbox => "StopPodSandbox",
            Self::RemovePodSandbox => "RemovePodSandbox",
            Self::UpdatePodSandboxResources => "UpdatePodSandboxResources",
            Self::RestorePod => "RestorePod",
            Self::CreateContainer => "CreateContainer",
            Self::StartContainer => "StartContainer",
            Self::StopContainer => "StopContainer",
            Self::RemoveContainer => "RemoveContainer",
            Self::UpdateContainerResources => "UpdateContainerResources",
        }
    }

    /// Whether hooks belong to the method; without any it is only observed.
    pub fn is_hooked(self) -> bool {
        !self.before().is_empty() || self.after().is_some()
    }

    /// The hooks before the call. A restored pod is hooked like a new pod and like each of
    /// its containers.
    pub fn before(self) -> &'static [HookType] {
        match self {
            Self::RunPodSandbox => &[HookType::PreRunPodSandbox],
            Self::RestorePod => &[HookType::PreRunPodSandbox, HookType::PreCreateContainer],
            Self::CreateContainer => &[HookType::PreCreateContainer],
            Self::StartContainer => &[HookType::PreStartContainer],
            Self::UpdateContainerResources => &[HookType::PreUpdateContainerResources],
            Self::StopPodSandbox
            | Self::RemovePodSandbox
            | Self::UpdatePodSandboxResources
            | Self::StopContainer
            | Self::RemoveContainer => &[],
        }
    }

    /// The hook after a successful call.
    pub fn after(self) -> Option<HookType> {
        match self {
            Self::StopPodSandbox => Some(HookType::PostStopPodSandbox),
            Self::StartContainer => Some(HookType::PostStartContainer),
            Self::StopContainer => Some(HookType::PostStopContainer),
            Self::RunPodSandbox
            | Self::RemovePodSandbox
            | Self::UpdatePodSandboxResources
            | Self::RestorePod
            | Self::CreateContainer
            | Self::RemoveContainer
            | Self::UpdateContainerResources => None,
        }
    }
}

impl fmt::Display for CriMethod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_packages_name_the_same_methods() {
        for method in CriMethod::ALL {
            for package in ["runtime.v1", "runtime.v1alpha2"] {
                assert_eq!(
                    CriMethod::from_path(&format!("/{package}.RuntimeService/{method}")),
                    Some(method)
                );
            }
        }
    }

    #[test]
    fn other_paths_are_not_looked_into() {
        for path in [
            "/runtime.v1.RuntimeService/Version",
            "/runtime.v1.RuntimeService/RunPodSandbox/",
            "/runtime.v1.RuntimeService/runpodsandbox",
            "/runtime.v1.RuntimeService/",
            "/runtime.v1.ImageService/RunPodSandbox",
            "/runtime.v1alpha1.RuntimeService/RunPodSandbox",
            "/runtime.v2.RuntimeService/RunPodSandbox",
            "runtime.v1.RuntimeService/RunPodSandbox",
            "",
        ] {
            assert_eq!(CriMethod::from_path(path), None, "{path}");
        }
    }

    #[test]
    fn hooks_around_methods() {
        use HookType::*;
        let table = [
            (CriMethod::RunPodSandbox, &[PreRunPodSandbox][..], None),
            (CriMethod::StopPodSandbox, &[], Some(PostStopPodSandbox)),
            (CriMethod::RemovePodSandbox, &[], None),
            (CriMethod::UpdatePodSandboxResources, &[], None),
            (CriMethod::RestorePod, &[PreRunPodSandbox, PreCreateContainer], None),
            (CriMethod::CreateContainer, &[PreCreateContainer], None),
            (CriMethod::StartContainer, &[PreStartContainer], Some(PostStartContainer)),
            (CriMethod::StopContainer, &[], Some(PostStopContainer)),
            (CriMethod::RemoveContainer, &[], None),
            (CriMethod::UpdateContainerResources, &[PreUpdateContainerResources], None),
        ];
        for (method, before, after) in table {
            assert_eq!(method.before(), before, "{method}");
            assert_eq!(method.after(), after, "{method}");
            assert_eq!(method.is_hooked(), !before.is_empty() || after.is_some(), "{method}");
        }
    }
}
