//! What waits for the runtime's credit on its way from the client: in order per stream, and nothing past a barrier.

use std::borrow::Cow;
use std::collections::VecDeque;

/// One waiting piece.
#[derive(Debug)]
pub(super) enum Entry {
    /// DATA of one stream; may be cut anywhere.
    Data {
        stream: u32,
        octets: Vec<u8>,
        /// How much of `octets` is sent.
        sent: usize,
        /// The client's half ends behind it.
        end_stream: bool,
    },
    /// Frames that must not overtake what is before them, nor be overtaken.
    Barrier {
        frames: Vec<u8>,
        /// They are the acknowledgement of SETTINGS.
        acknowledges: bool,
        /// The stream whose client half ends with them.
        ends: Option<u32>,
    },
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub entries: VecDeque<Entry>,
    barriers: usize,
    /// Octets in barriers.
    barrier_octets: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether frames have to line up behind a barrier.
    pub(super) fn has_barrier(&self) -> bool {
        self.barriers > 0
    }

    /// Octets of frames other than DATA that wait.
    pub(super) fn barrier_octets(&self) -> usize {
        self.barrier_octets
    }

    /// Appends DATA; joins the last entry where that is the same stream's. Says whether a new entry was made.
    pub(super) fn push_data(&mut self, stream: u32, octets: Cow<'_, [u8]>, end_stream: bool) -> bool {
        if let Some(Entry::Data { stream: last, octets: waiting, end_stream: end, .. }) =
            self.entries.back_mut()
            && *last == stream
            && !*end
        {
            waiting.extend_from_slice(&octets);
            *end = end_stream;
            return false;
        }
        self.entries.push_back(Entry::Data { stream, octets: octets.into_owned(), sent: 0, end_stream });
        true
    }

    pub(super) fn push_barrier(&mut self, frames: Vec<u8>, acknowledges: bool, ends: Option<u32>) {
        self.barriers += 1;
        self.barrier_octets += frames.len();
        self.entries.push_back(Entry::Barrier { frames, acknowledges, ends });
    }

    /// Takes the barrier at the front.
    pub(super) fn pop_barrier(&mut self) -> Option<(Vec<u8>, bool, Option<u32>)> {
        if !matches!(self.entries.front(), Some(Entry::Barrier { .. })) {
            return None;
        }
        match self.entries.pop_front() {
            Some(Entry::Barrier { frames, acknowledges, ends }) => {
                self.barriers -= 1;
                self.barrier_octets -= frames.len();
                Some((frames, acknowledges, ends))
            }
            _ => None,
        }
    }

    /// Drops a stream's DATA and says how many octets were unsent.
    pub(super) fn drop_data(&mut self, stream: u32) -> usize {
        let mut unsent = 0;
        self.entries.retain(|entry| match entry {
            Entry::Data { stream: of, octets, sent, .. } if *of == stream => {
                unsent += octets.len() - sent;
                false
            }
            _ => true,
        });
        unsent
    }
}
