//! Reads and writes the protobuf wire format without knowing message types.
//!
//! Everything is borrowed from the input; nothing is copied or allocated. Groups (wire
//! types 3 and 4) do not occur in proto3 and are malformed here.

/// How deep messages may nest before they count as malformed.
pub const MAX_DEPTH: usize = 64;

/// Why bytes are not a message that can be read or edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A varint is longer than ten bytes, exceeds 64 bits or ends with the input.
    #[error("varint at byte {offset} is cut off or exceeds 64 bits")]
    Varint {
        /// Where the varint begins.
        offset: usize,
    },
    /// A tag has field number 0 or one above 536,870,911.
    #[error("tag at byte {offset} has a field number outside 1 to 536870911")]
    FieldNumber {
        /// Where the tag begins.
        offset: usize,
    },
    /// A tag has a wire type other than 0, 1, 2 and 5.
    #[error("tag at byte {offset} has wire type {wire_type}, expected 0, 1, 2 or 5")]
    WireType {
        /// Where the tag begins.
        offset: usize,
        /// The three bits of the wire type.
        wire_type: u8,
    },
    /// A value extends beyond the end of its message.
    #[error("value at byte {offset} extends beyond the end of its message")]
    Length {
        /// Where the value, or its length, begins.
        offset: usize,
    },
    /// A known field has another wire type than its type demands.
    #[error("field {field} has another wire type than its type demands")]
    Mismatch {
        /// Number of the field.
        field: u32,
    },
    /// A text field is not UTF-8.
    #[error("field {field} is not UTF-8")]
    Text {
        /// Number of the field.
        field: u32,
    },
    /// Messages nest deeper than [`MAX_DEPTH`].
    #[error("messages nest deeper than {MAX_DEPTH} levels")]
    Depth,
    /// An edit names an element that a repeated field does not have.
    #[error("field {field} has no element {index}")]
    Element {
        /// Number of the field.
        field: u32,
        /// The index asked for, from 0.
        index: usize,
    },
}

/// The value of one field occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64([u8; 8]),
    /// Wire type 2: text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32([u8; 4]),
}

/// One occurrence of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Number of the field, 1 to 536,870,911.
    pub number: u32,
    /// Its value.
    pub value: Value<'a>,
    /// The occurrence as it stands in the message, tag and length included.
    pub raw: &'a [u8],
}

impl<'a> Field<'a> {
    /// The payload of a length-delimited field.
    ///
    /// # Errors
    ///
    /// [`WireError::Mismatch`] for another wire type.
    pub fn bytes(&self) -> Result<&'a [u8], WireError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError::Mismatch { field: self.number }),
        }
    }

    /// The value of a text field.
    ///
    /// # Errors
    ///
    /// [`WireError::Mismatch`] for another wire type, [`WireError::Text`] for bytes that are
    /// not UTF-8.
    pub fn text(&self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::Text { field: self.number })
    }

    /// The bits of a varint field.
    ///
    /// # Errors
    ///
    /// [`WireError::Mismatch`] for another wire type.
    pub fn varint(&self) -> Result<u64, WireError> {
        match self.value {
            Value::Varint(bits) => Ok(bits),
            _ => Err(WireError::Mismatch { field: self.number }),
        }
    }

    /// The value of an `int64` field.
    ///
    /// # Errors
    ///
    /// [`WireError::Mismatch`] for another wire type.
    pub fn int64(&self) -> Result<i64, WireError> {
        self.varint().map(u64::cast_signed)
    }

    /// The value of a `uint32` field; higher bits are dropped, as every protobuf library does.
    ///
    /// # Errors
    ///
    /// [`WireError::Mismatch`] for another wire type.
    pub fn uint32(&self) -> Result<u32, WireError> {
        #[expect(clippy::cast_possible_truncation, reason = "the protobuf rule for 32-bit varints")]
        self.varint().map(|bits| bits as u32)
    }
}

/// Iterates over the field occurrences of one message, in order.
///
/// After an error it ends.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    message: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Reads `message` from its beginning.
    pub fn new(message: &'a [u8]) -> Self {
        Self { message, offset: 0 }
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let start = self.offset;
        let mut value = 0_u64;
        for position in 0..10_u32 {
            let Some(&byte) = self.message.get(self.offset) else { break };
            self.offset += 1;
            if position == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * position);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Varint { offset: start })
    }

    fn take(&mut self, start: usize, length: u64) -> Result<&'a [u8], WireError> {
        let error = WireError::Length { offset: start };
        let length = usize::try_from(length).map_err(|_| error)?;
        let end = self.offset.checked_add(length).ok_or(error)?;
        let bytes = self.message.get(self.offset..end).ok_or(error)?;
        self.offset = end;
        Ok(bytes)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let error = WireError::Length { offset: self.offset };
        let rest = self.message.get(self.offset..).ok_or(error)?;
        let bytes = *rest.first_chunk::<N>().ok_or(error)?;
        self.offset += N;
        Ok(bytes)
    }

    fn field(&mut self) -> Result<Field<'a>, WireError> {
        let start = self.offset;
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3)
            .ok()
            .filter(|number| (1..=MAX_FIELD_NUMBER).contains(number))
            .ok_or(WireError::FieldNumber { offset: start })?;
        let value = match (tag & 7) as u8 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(self.fixed()?),
            2 => {
                let length_at = self.offset;
                let length = self.varint()?;
                Value::Bytes(self.take(length_at, length)?)
            }
            5 => Value::Fixed32(self.fixed()?),
            wire_type => return Err(WireError::WireType { offset: start, wire_type }),
        };
        let raw = self.message.get(start..self.offset).ok_or(WireError::Length { offset: start })?;
        Ok(Field { number, value, raw })
    }
}

/// The highest field number of protobuf, 2^29 - 1.
pub const MAX_FIELD_NUMBER: u32 = (1 << 29) - 1;

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.message.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.offset = self.message.len();
        }
        Some(field)
    }
}

/// Appends a varint in its shortest form.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
    out.push(value as u8);
}

/// Appends a varint field.
pub fn put_varint_field(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Appends a length-delimited field.
pub fn put_bytes_field(out: &mut Vec<u8>, number: u32, payload: &[u8]) {
    put_varint(out, (u64::from(number) << 3) | 2);
    put_varint(out, payload.len() as u64);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<(u32, Value<'_>)>, WireError> {
        Reader::new(message).map(|field| field.map(|field| (field.number, field.value))).collect()
    }

    #[test]
    fn every_wire_type_is_read() {
        let message = [
            0x08, 0x96, 0x01, // 1: varint 150
            0x11, 1, 2, 3, 4, 5, 6, 7, 8, // 2: fixed64
            0x1a, 2, b'h', b'i', // 3: bytes
            0x25, 9, 8, 7, 6, // 4: fixed32
        ];
        assert_eq!(
            fields(&message).unwrap(),
            [
                (1, Value::Varint(150)),
                (2, Value::Fixed64([1, 2, 3, 4, 5, 6, 7, 8])),
                (3, Value::Bytes(b"hi")),
                (4, Value::Fixed32([9, 8, 7, 6])),
            ]
        );
        let raw: Vec<u8> = Reader::new(&message).flat_map(|field| field.unwrap().raw.to_vec()).collect();
        assert_eq!(raw, message);
    }

    #[test]
    fn varint_edges() {
        let largest = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(fields(&largest).unwrap(), [(1, Value::Varint(u64::MAX))]);
        let too_large = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(fields(&too_large), Err(WireError::Varint { offset: 1 }));
        let too_long = [0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00];
        assert_eq!(fields(&too_long), Err(WireError::Varint { offset: 1 }));
        assert_eq!(fields(&[0x08, 0x80]), Err(WireError::Varint { offset: 1 }));
        // Not the shortest form, and still valid.
        assert_eq!(fields(&[0x08, 0x81, 0x00]).unwrap(), [(1, Value::Varint(1))]);
    }

    #[test]
    fn tag_edges() {
        assert_eq!(fields(&[0x00, 0x00]), Err(WireError::FieldNumber { offset: 0 }));
        // 2^29 - 1 is the last number, 2^29 is none.
        assert_eq!(
            fields(&[0xf8, 0xff, 0xff, 0xff, 0x0f, 0x05]).unwrap(),
            [(MAX_FIELD_NUMBER, Value::Varint(5))]
        );
        assert_eq!(fields(&[0x80, 0x80, 0x80, 0x80, 0x10, 0x05]), Err(WireError::FieldNumber { offset: 0 }));
        for wire_type in [3, 4, 6, 7] {
            assert_eq!(
                fields(&[0x08, 0x01, 0x08 | wire_type, 0x00]),
                Err(WireError::WireType { offset: 2, wire_type })
            );
        }
    }

    #[test]
    fn length_edges() {
        assert_eq!(fields(&[0x0a, 0x02, 1, 2]).unwrap(), [(1, Value::Bytes(&[1, 2]))]);
        assert_eq!(fields(&[0x0a, 0x03, 1, 2]), Err(WireError::Length { offset: 1 }));
        let huge = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(fields(&huge), Err(WireError::Length { offset: 1 }));
        assert_eq!(fields(&[0x09, 1, 2, 3, 4, 5, 6, 7]), Err(WireError::Length { offset: 1 }));
        assert_eq!(fields(&[0x0d, 1, 2, 3]), Err(WireError::Length { offset: 1 }));
    }

    #[test]
    fn written_varints_are_shortest() {
        for (value, bytes) in [
            (0, &[0x00][..]),
            (127, &[0x7f]),
            (128, &[0x80, 0x01]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, bytes, "{value}");
        }
    }
}
