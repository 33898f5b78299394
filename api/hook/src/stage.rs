//! The seven hook types a hook server can register for.

use std::fmt;

/// A point in a CRI call at which hook servers are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HookType {
    /// Before RunPodSandbox.
    PreRunPodSandbox,
    /// After StopPodSandbox.
    PostStopPodSandbox,
    /// Before CreateContainer.
    PreCreateContainer,
    /// Before StartContainer.
    PreStartContainer,
    /// After StartContainer.
    PostStartContainer,
    /// Before UpdateContainerResources.
    PreUpdateContainerResources,
    /// After StopContainer.
    PostStopContainer,
}

impl HookType {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::PreRunPodSandbox,
        Self::PostStopPodSandbox,
        Self::PreCreateContainer,
        Self::PreStartContainer,
        Self::PostStartContainer,
        Self::PreUpdateContainerResources,
        Self::PostStopContainer,
    ];

    /// The name used in registration files, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreRunPodSandbox => "PreRunPodSandbox",
            Self::PostStopPodSandbox => "PostStopPodSandbox",
            Self::PreCreateContainer => "PreCreateContainer",
            Self::PreStartContainer => "PreStartContainer",
            Self::PostStartContainer => "PostStartContainer",
            Self::PreUpdateContainerResources => "PreUpdateContainerResources",
            Self::PostStopContainer => "PostStopContainer",
        }
    }

    /// The type of that exact name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.as_str() == name)
    }

    /// The gRPC method of the hook server.
    pub fn grpc_path(self) -> &'static str {
        match self {
            Self::PreRunPodSandbox => "/runtime.v1alpha1.RuntimeHookService/PreRunPodSandboxHook",
            Self::PostStopPodSandbox => "/runtime.v1alpha1.RuntimeHookService/PostStopPodSandboxHook",
            Self::PreCreateContainer => "/runtime.v1alpha1.RuntimeHookService/PreCreateContainerHook",
            Self::PreStartContainer => "/runtime.v1alpha1.RuntimeHookService/PreStartContainerHook",
            Self::PostStartContainer => "/runtime.v1alpha1.RuntimeHookService/PostStartContainerHook",
            Self::PreUpdateContainerResources => {
                "/runtime.v1alpha1.RuntimeHookService/PreUpdateContainerResourcesHook"
            }
            Self::PostStopContainer => "/runtime.v1alpha1.RuntimeHookService/PostStopContainerHook",
        }
    }

    /// Whether it runs after the backend's answer.
    pub fn is_post(self) -> bool {
        matches!(self, Self::PostStopPodSandbox | Self::PostStartContainer | Self::PostStopContainer)
    }

    fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

impl fmt::Display for HookType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A set of hook types.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct HookSet(u8);

impl HookSet {
    /// Whether `hook` is in the set.
    pub fn contains(self, hook: HookType) -> bool {
        self.0 & hook.bit() != 0
    }

    /// Whether the sets share a member.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The members of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members in declaration order.
    pub fn iter(self) -> impl Iterator<Item = HookType> {
        HookType::ALL.into_iter().filter(move |hook| self.contains(*hook))
    }
}

impl FromIterator<HookType> for HookSet {
    fn from_iter<I: IntoIterator<Item = HookType>>(hooks: I) -> Self {
        Self(hooks.into_iter().fold(0, |bits, hook| bits | hook.bit()))
    }
}

impl fmt::Debug for HookSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_paths_and_stages_agree() {
        for hook in HookType::ALL {
            assert_eq!(HookType::from_name(hook.as_str()), Some(hook));
            assert_eq!(hook.grpc_path(), format!("/runtime.v1alpha1.RuntimeHookService/{hook}Hook"));
            assert_eq!(hook.is_post(), hook.as_str().starts_with("Post"));
            assert_eq!(hook.is_post(), !hook.as_str().starts_with("Pre"));
        }
        for name in ["PreRemoveRunPodSandbox", "Foo", "prerunpodsandbox", ""] {
            assert_eq!(HookType::from_name(name), None);
        }
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set: HookSet = [HookType::PostStopContainer, HookType::PreRunPodSandbox].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [HookType::PreRunPodSandbox, HookType::PostStopContainer]);
        assert!(!set.contains(HookType::PreStartContainer));
        let other: HookSet = [HookType::PreStartContainer].into_iter().collect();
        assert!(!set.intersects(other));
        assert!(set.union(other).intersects(other));
        assert!(!HookSet::default().intersects(set));
    }
}
