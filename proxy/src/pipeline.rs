//! What happens to an intercepted call between the relay's two sides.
//!
//! The relay asks [`Pipeline::mode`] how closely to look at a call, hands the request message to
//! [`Pipeline::start`], acts on the [`Verdict`], and tells [`Pipeline::finish`] how the backend answered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How closely the relay looks at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapMode {
    /// Nothing is kept; the call passes as bytes.
    Pass,
    /// The request passes at once and a copy of it is kept; the answer is told to the pipeline.
    Observe,
    /// The request waits for the verdict.
    Hold,
}

/// What the relay does with a held request.
///
/// Payloads are bare protobuf messages without the five-byte gRPC prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Send the original bytes.
    Forward,
    /// Send these bytes instead.
    Replace(Vec<u8>),
    /// Do not call the backend; answer this status.
    Refuse {
        /// gRPC status code.
        code: u32,
        /// Status message, not yet percent-encoded.
        message: String,
    },
}

/// What is known about a call before its message.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// The `:path`, such as `/runtime.v1.RuntimeService/RunPodSandbox`.
    pub path: String,
    /// The `grpc-timeout` of the caller.
    pub timeout: Option<Duration>,
    /// When the request's headers arrived; the timeout counts from here.
    pub received: Instant,
    /// Identity of the client connection, for logs.
    pub peer: u64,
}

/// How the backend answered.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// `grpc-status`; 0 is success.
    pub grpc_status: u32,
    /// The response message, `None` when it was too large to keep or could not be read.
    pub message: Option<&'a [u8]>,
}

/// What the pipeline keeps about a call between its two halves; dropping it means the call was cancelled.
#[derive(Debug)]
pub struct CallState {
    head: RequestHead,
}

/// The result of the first half.
#[derive(Debug)]
pub struct Before {
    /// What to do with the request.
    pub verdict: Verdict,
    /// To be handed to [`Pipeline::finish`].
    pub call: CallState,
}

/// A future the relay drives on its async runtime.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The first half of a call, done or under way.
pub enum Started {
    /// Nothing had to be waited for.
    Ready(Before),
    /// Hooks or a look-up are being waited for; dropping the future cancels them.
    Pending(BoxFuture<Before>),
}

impl std::fmt::Debug for Started {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ready(before) => formatter.debug_tuple("Ready").field(before).finish(),
            Self::Pending(_) => formatter.write_str("Pending"),
        }
    }
}

/// Decides about intercepted calls.
#[derive(Debug)]
pub struct Pipeline {}

impl Pipeline {
    /// How closely to look at a call of `path`.
    pub fn mode(&self, _path: &str) -> TapMode {
        TapMode::Pass
    }

    /// Takes a request message; for an observed call the verdict is to be ignored.
    pub fn start(self: &Arc<Self>, head: RequestHead, _message: Vec<u8>) -> Started {
        Started::Ready(Before { verdict: Verdict::Forward, call: CallState { head } })
    }

    /// Takes the backend's answer: the store is up to date when this returns.
    ///
    /// A returned future stands for hooks after the call; the answer's trailers wait for it.
    pub fn finish(self: &Arc<Self>, call: CallState, _outcome: Outcome<'_>) -> Option<BoxFuture<()>> {
        tracing::trace!(path = call.head.path, peer = call.head.peer, "call finished");
        None
    }
}
