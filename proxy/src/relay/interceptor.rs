//! What the relay asks of the part that decides.

use std::sync::Arc;

use crate::pipeline::{
    Before, BoxFuture, CallState, Outcome, Pipeline, RequestHead, Started, TapMode, Verdict,
};

/// The first half of an intercepted call, done or under way.
pub enum Begun<C> {
    /// Nothing had to be waited for.
    Ready(Verdict, C),
    /// The verdict comes later; dropping the future cancels the call.
    Pending(BoxFuture<(Verdict, C)>),
}

impl<C> std::fmt::Debug for Begun<C> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ready(verdict, _) => formatter.debug_tuple("Ready").field(verdict).finish_non_exhaustive(),
            Self::Pending(_) => formatter.write_str("Pending"),
        }
    }
}

/// Looks at calls and decides about them. Nothing here may block: it runs on connection threads.
pub trait Interceptor: Send + Sync + 'static {
    /// What is kept of a call between its two halves.
    type Call: Send + 'static;

    /// How closely a call is looked at.
    fn mode(&self, path: &str) -> TapMode;

    /// Takes the request message of a held or observed call; of an observed one the verdict is ignored.
    fn start(self: &Arc<Self>, head: RequestHead, message: Vec<u8>) -> Begun<Self::Call>;

    /// Takes the answer. The trailers wait for the returned future.
    fn finish(self: &Arc<Self>, call: Self::Call, outcome: Outcome<'_>) -> Option<BoxFuture<()>>;
}

impl Interceptor for Pipeline {
    type Call = CallState;

    fn mode(&self, path: &str) -> TapMode {
        Pipeline::mode(self, path)
    }

    fn start(self: &Arc<Self>, head: RequestHead, message: Vec<u8>) -> Begun<CallState> {
        match Pipeline::start(self, head, message) {
            Started::Ready(Before { verdict, call }) => Begun::Ready(verdict, call),
            Started::Pending(before) => Begun::Pending(Box::pin(async move {
                let Before { verdict, call } = before.await;
                (verdict, call)
            })),
        }
    }

    fn finish(self: &Arc<Self>, call: CallState, outcome: Outcome<'_>) -> Option<BoxFuture<()>> {
        Pipeline::finish(self, call, outcome)
    }
}

/// Looks at nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassThrough;

impl Interceptor for PassThrough {
    type Call = ();

    fn mode(&self, _path: &str) -> TapMode {
        TapMode::Pass
    }

    fn start(self: &Arc<Self>, _head: RequestHead, _message: Vec<u8>) -> Begun<()> {
        Begun::Ready(Verdict::Forward, ())
    }

    fn finish(self: &Arc<Self>, _call: (), _outcome: Outcome<'_>) -> Option<BoxFuture<()>> {
        None
    }
}
