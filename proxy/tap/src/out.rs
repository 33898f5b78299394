//! What a step of the tap wants sent: pieces of its input, passed without a copy, and octets of its own.

use std::ops::Range;

/// Octets for one of the two sockets, in order.
#[derive(Debug, Default)]
pub struct Out {
    pieces: Vec<Piece>,
    own: Vec<u8>,
}

#[derive(Debug)]
enum Piece {
    /// A range of the input of this step.
    Input(Range<usize>),
    /// A range of `own`.
    Own(Range<usize>),
}

impl Out {
    /// Passes a range of the current input.
    pub(crate) fn pass(&mut self, range: Range<usize>) {
        if let Some(Piece::Input(last)) = self.pieces.last_mut()
            && last.end == range.start
        {
            last.end = range.end;
        } else if !range.is_empty() {
            self.pieces.push(Piece::Input(range));
        }
    }

    /// Sends octets of the relay's own.
    pub(crate) fn push(&mut self, octets: &[u8]) {
        self.own(|own| own.extend_from_slice(octets));
    }

    /// Sends what `write` appends.
    pub(crate) fn own(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.own.len();
        write(&mut self.own);
        let end = self.own.len();
        if let Some(Piece::Own(last)) = self.pieces.last_mut()
            && last.end == start
        {
            last.end = end;
        } else if start != end {
            self.pieces.push(Piece::Own(start..end));
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Octets to send.
    pub fn len(&self) -> usize {
        let length = |piece: &Piece| match piece {
            Piece::Input(range) | Piece::Own(range) => range.len(),
        };
        self.pieces.iter().map(length).sum()
    }

    /// The octets, in order; `input` is what the step was given (empty for the other direction's and for no input).
    pub fn slices<'a>(&'a self, input: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.pieces.iter().map(move |piece| match piece {
            Piece::Input(range) => &input[range.clone()],
            Piece::Own(range) => &self.own[range.clone()],
        })
    }

    /// Forgets everything, keeping the memory unless it has grown large.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.own.clear();
        if self.own.capacity() > 1 << 16 {
            self.own = Vec::new();
        }
    }
}

/// What one step of the tap sends to each side. The range of passed input belongs to the side opposite the one it came
/// from.
#[derive(Debug, Default)]
pub struct Outputs {
    /// For the runtime.
    pub to_backend: Out,
    /// For the client.
    pub to_client: Out,
}
