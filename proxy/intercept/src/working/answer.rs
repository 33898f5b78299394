//! Questions to hook servers and their answers.

use koord_hook::v1alpha1::{ContainerResourceHookResponse, PodSandboxHookResponse};

use crate::hook_type::HookType;

/// The answer of a hook server.
#[derive(Clone, PartialEq)]
pub enum HookAnswer {
    /// About a pod.
    Pod(PodSandboxHookResponse),
    /// About a container.
    Container(ContainerResourceHookResponse),
}

/// Answers carry environment values, which are not printed.
impl std::fmt::Debug for HookAnswer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Pod(_) => "HookAnswer::Pod(..)",
            Self::Container(_) => "HookAnswer::Container(..)",
        })
    }
}

/// Why an answer cannot be used. Nothing of it was taken.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The answer is about a pod where one about a container belongs, or the reverse.
    #[error("hook {hook} was answered with a message of the wrong kind")]
    WrongKind {
        /// The hook that was called.
        hook: HookType,
    },
    /// The bytes are not the message they should be.
    #[error("answer to hook {hook} cannot be decoded")]
    Decode {
        /// The hook that was called.
        hook: HookType,
        /// What is wrong with the bytes.
        #[source]
        source: prost::DecodeError,
    },
}

/// One question to hook servers before a call.
///
/// Most calls have one; a restored pod has one for itself and one for each container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// The hook to call.
    pub hook: HookType,
    pub(super) target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Pod,
    Container(usize),
}
