//! What an operator says about one hook server or library: how its answers are used, and what its failure means.

/// How the resources a hook server answers are merged into those known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ResourceMerge {
    /// As Koordinator does: an answer is complete, so an absent `oom_score_adj` or cpuset resets the value.
    #[default]
    Koordinator,
    /// An answer is partial: absent values change nothing.
    Overlay,
}

impl ResourceMerge {
    /// The name used in registration files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Koordinator => "koordinator",
            Self::Overlay => "overlay",
        }
    }
}

/// Which fields of an update request a hook server's answer makes the proxy send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UpdateScope {
    /// Everything known of the container.
    #[default]
    Full,
    /// The fields of the request and those a hook changed.
    Changed,
}

impl UpdateScope {
    /// The name used in registration files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Changed => "changed",
        }
    }
}

/// What a registration says about the use of a server's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerOptions {
    /// How answered resources are merged.
    pub resource_merge: ResourceMerge,
    /// Whether answered pod resources are written into the request.
    pub apply_pod_resources: bool,
    /// Which fields an update request carries.
    pub update_scope: UpdateScope,
}

/// What happens to a call when a server's hook fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailurePolicy {
    /// The call fails.
    Fail,
    /// The call goes on without that hook.
    #[default]
    Ignore,
}

impl FailurePolicy {
    /// `Fail` is the one spelling that fails calls; everything else ignores.
    pub fn from_text(text: &str) -> Self {
        if text == "Fail" { Self::Fail } else { Self::Ignore }
    }

    /// The name used in files, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}
