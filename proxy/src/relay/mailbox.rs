//! The way back to a connection's thread: a list of messages and a descriptor that poll(2) can wait on.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use koord_runtime::notify::Pulse;
use koord_tap::Refusal;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::pipeline::Verdict;

/// What a connection's thread is told.
pub(super) enum Message<C> {
    /// The first half of a call is done; `None` when it failed.
    Verdict { stream: u32, verdict: Verdict, call: Option<C> },
    /// The hooks after a call are done.
    Release { stream: u32 },
    /// No more new calls on this connection.
    Drain,
    /// Everything ends now, with this status.
    End(Refusal),
}

/// A mailbox; not bounded by itself: there is at most one message per call in flight, and two more.
#[derive(Debug)]
pub(super) struct Mailbox<C> {
    messages: Mutex<Vec<Message<C>>>,
    wake: EventFd,
    pulse: Pulse,
    /// Whether the thread waits on this mailbox at all: it does not while it looks for the runtime.
    read: AtomicBool,
}

impl<C> std::fmt::Debug for Message<C> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Verdict { stream, .. } => {
                formatter.debug_struct("Verdict").field("stream", stream).finish()
            }
            Self::Release { stream } => formatter.debug_struct("Release").field("stream", stream).finish(),
            Self::Drain => formatter.write_str("Drain"),
            Self::End(refusal) => formatter.debug_tuple("End").field(refusal).finish(),
        }
    }
}

impl<C> Mailbox<C> {
    pub(super) fn new() -> nix::Result<Self> {
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { messages: Mutex::default(), wake, pulse: Pulse::default(), read: AtomicBool::new(false) })
    }

    pub(super) fn send(&self, message: Message<C>) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.push(message);
        if messages.len() == 1 {
            // It fails only when 2^64 - 2 wake-ups are pending, and then the thread wakes anyway.
            let _ = self.wake.write(1);
        }
    }

    /// Says whether the thread waits on this mailbox from now on.
    pub(super) fn set_read(&self, read: bool) {
        // What was asked before is nothing to be blamed for.
        self.pulse.answer();
        self.read.store(read, Ordering::Release);
    }

    /// True if the thread should have answered the last [`Mailbox::ask`] and has not.
    pub(super) fn is_silent(&self) -> bool {
        self.read.load(Ordering::Acquire) && !self.pulse.beats()
    }

    /// Asks the thread for a sign of life.
    pub(super) fn ask(&self) {
        self.pulse.ask();
        // As above.
        let _ = self.wake.write(1);
    }

    /// Takes all messages.
    pub(super) fn take(&self) -> Vec<Message<C>> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        // It fails when nothing is pending, which is as good.
        let _ = self.wake.read();
        self.pulse.answer();
        std::mem::take(&mut messages)
    }
}

impl<C> AsFd for Mailbox<C> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
