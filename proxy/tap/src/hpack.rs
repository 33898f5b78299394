//! Header compression (RFC 7541) as far as a relay needs it: a decoder that follows a peer's encoder to learn header
//! fields, and an encoder whose blocks touch no dynamic table, so that they can be put between a peer's own blocks.

mod huffman;
mod tables;

use std::collections::VecDeque;

use tables::STATIC_TABLE;

/// Dynamic table size before any update (RFC 7541, section 4.2; RFC 9113, section 6.5.2).
const DEFAULT_TABLE_SIZE: usize = 4096;
/// Largest dynamic table the decoder follows. Peers use 4 KiB; a larger request costs us the tap, never the connection.
const LARGEST_TABLE_SIZE: usize = 1 << 20;
/// Overhead of an entry (RFC 7541, section 4.1).
const ENTRY_OVERHEAD: usize = 32;

/// Why a header block could not be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    /// The block ends inside a field.
    #[error("header block ends inside a field")]
    Truncated,
    /// An integer is longer than any valid one.
    #[error("header block holds an integer above 2^32")]
    IntegerOverflow,
    /// An index points behind both tables.
    #[error("header block refers to table index {0}, which is not there")]
    BadIndex(usize),
    /// A Huffman-coded string holds the EOS code or bad padding.
    #[error("header block holds a malformed Huffman string")]
    BadHuffman,
    /// A dynamic table size update stands behind a field, or is larger than we follow.
    #[error("header block holds a misplaced or too large table size update")]
    BadSizeUpdate,
}

/// One decoded field, borrowed for the time of the call.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// Name, lower case on the wire.
    pub name: &'a [u8],
    /// Value, any octets.
    pub value: &'a [u8],
    /// The sender asks never to compress this field (RFC 7541, section 7.1.3).
    pub sensitive: bool,
}

/// Decoder for the blocks of one direction of one connection.
#[derive(Debug)]
pub struct Decoder {
    /// Newest first, as the index space counts.
    entries: VecDeque<Entry>,
    /// Size by the rule of RFC 7541, section 4.1.
    size: usize,
    max_size: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    /// Name and value in one piece.
    bytes: Box<[u8]>,
    name_len: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            max_size: DEFAULT_TABLE_SIZE,
            name: Vec::new(),
            value: Vec::new(),
        }
    }
}

/// What a block did to the dynamic table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableEffect {
    /// Nothing: another endpoint's table stays right without this block, as long as it refers to no dynamic entry.
    None,
    /// Entries were added or the size changed.
    Changed,
}

impl Decoder {
    /// Decodes a whole block and calls `each` for every field, in order.
    ///
    /// After an error the table can no longer be trusted: the caller stops using this decoder.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut each: impl FnMut(Field<'_>),
    ) -> Result<TableEffect, HpackError> {
        let mut rest = block;
        let mut effect = TableEffect::None;
        let mut fields_seen = false;
        while let Some(&first) = rest.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut rest, 7)?;
                let (name, value) = self.lookup(index)?;
                each(Field { name, value, sensitive: false });
            } else if first & 0xe0 == 0x20 {
                let size = integer(&mut rest, 5)?;
                if fields_seen || size > LARGEST_TABLE_SIZE {
                    return Err(HpackError::BadSizeUpdate);
                }
                self.max_size = size;
                self.evict(0);
                effect = TableEffect::Changed;
                continue;
            } else {
                let indexing = first & 0x40 != 0;
                let index = integer(&mut rest, if indexing { 6 } else { 4 })?;
                let mut name = std::mem::take(&mut self.name);
                let mut value = std::mem::take(&mut self.value);
                name.clear();
                value.clear();
                if index == 0 {
                    string(&mut rest, &mut name)?;
                } else {
                    name.extend_from_slice(self.lookup(index)?.0);
                }
                string(&mut rest, &mut value)?;
                each(Field { name: &name, value: &value, sensitive: first & 0xf0 == 0x10 });
                if indexing {
                    self.insert(&name, &value);
                    effect = TableEffect::Changed;
                }
                (self.name, self.value) = (name, value);
            }
            fields_seen = true;
        }
        Ok(effect)
    }

    fn lookup(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        if let Some((name, value)) = index.checked_sub(1).and_then(|at| STATIC_TABLE.get(at)) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let at = index.checked_sub(STATIC_TABLE.len() + 1).ok_or(HpackError::BadIndex(index))?;
        let entry = self.entries.get(at).ok_or(HpackError::BadIndex(index))?;
        Ok(entry.bytes.split_at(entry.name_len))
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        let cost = name.len() + value.len() + ENTRY_OVERHEAD;
        self.evict(cost);
        if cost <= self.max_size {
            self.size += cost;
            self.entries.push_front(Entry { bytes: [name, value].concat().into(), name_len: name.len() });
        }
    }

    /// Evicts until `room` octets more fit; everything goes when they never fit.
    fn evict(&mut self, room: usize) {
        while self.size + room > self.max_size {
            let Some(entry) = self.entries.pop_back() else { return };
            self.size -= entry.bytes.len() + ENTRY_OVERHEAD;
        }
    }
}

/// An integer with an N-bit prefix (RFC 7541, section 5.1).
fn integer(rest: &mut &[u8], prefix_bits: u8) -> Result<usize, HpackError> {
    let (&first, mut tail) = rest.split_first().ok_or(HpackError::Truncated)?;
    let mask = (1_usize << prefix_bits) - 1;
    let mut value = usize::from(first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (&octet, behind) = tail.split_first().ok_or(HpackError::Truncated)?;
            tail = behind;
            if shift > 28 {
                return Err(HpackError::IntegerOverflow);
            }
            value += usize::from(octet & 0x7f) << shift;
            if octet & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
    }
    *rest = tail;
    Ok(value)
}

/// A string literal (RFC 7541, section 5.2), appended to `out`.
fn string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let coded = rest.first().ok_or(HpackError::Truncated)? & 0x80 != 0;
    let length = integer(rest, 7)?;
    if length > rest.len() {
        return Err(HpackError::Truncated);
    }
    let (text, tail) = rest.split_at(length);
    *rest = tail;
    if coded {
        huffman::decode(text, out).ok_or(HpackError::BadHuffman)
    } else {
        out.extend_from_slice(text);
        Ok(())
    }
}

/// Appends one field as a literal without indexing (never indexed when `sensitive`), names from the static table where
/// possible: right for any state of the peer's dynamic table, and leaving it as it is.
pub fn encode_literal(out: &mut Vec<u8>, field: Field<'_>) {
    let first = if field.sensitive { 0x10 } else { 0x00 };
    match STATIC_TABLE.iter().position(|(name, _)| name.as_bytes() == field.name) {
        Some(at) => push_integer(out, first, 4, at + 1),
        None => {
            out.push(first);
            push_integer(out, 0, 7, field.name.len());
            out.extend_from_slice(field.name);
        }
    }
    push_integer(out, 0, 7, field.value.len());
    out.extend_from_slice(field.value);
}

/// Appends a dynamic table size update (RFC 7541, section 6.3); valid only at the start of a block.
pub fn encode_size_update(out: &mut Vec<u8>, size: usize) {
    push_integer(out, 0x20, 5, size);
}

fn push_integer(out: &mut Vec<u8>, first: u8, prefix_bits: u8, value: usize) {
    let mask = (1_usize << prefix_bits) - 1;
    if value < mask {
        out.push(first | low_octet(value));
        return;
    }
    out.push(first | low_octet(mask));
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(0x80 | low_octet(rest & 0x7f));
        rest >>= 7;
    }
    out.push(low_octet(rest));
}

fn low_octet(value: usize) -> u8 {
    u8::try_from(value & 0xff).unwrap_or_default()
}

/// Header block of a call that ends without a message (a trailers-only answer of gRPC over HTTP/2), to be sent in a
/// HEADERS frame with END_STREAM.
pub fn trailers_only(status: u32, message: &str) -> Vec<u8> {
    let mut block = vec![0x88]; // :status 200, a static entry
    encode_literal(&mut block, Field { name: b"content-type", value: b"application/grpc", sensitive: false });
    push_status(&mut block, status, message);
    block
}

/// Header block of the trailers of a call whose response headers have been sent already.
pub fn trailers(status: u32, message: &str) -> Vec<u8> {
    let mut block = Vec::new();
    push_status(&mut block, status, message);
    block
}

fn push_status(block: &mut Vec<u8>, status: u32, message: &str) {
    let mut field = |name: &str, value: &str| {
        encode_literal(block, Field { name: name.as_bytes(), value: value.as_bytes(), sensitive: false });
    };
    field("grpc-status", &status.to_string());
    if !message.is_empty() {
        field("grpc-message", &percent_encode(message));
    }
}

/// `grpc-message` encoding: octets outside printable ASCII, and `%`, become `%XX` (gRPC over HTTP/2).
fn percent_encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for octet in text.bytes() {
        if (0x20..0x7f).contains(&octet) && octet != b'%' {
            out.push(char::from(octet));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{octet:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests;
