//! Edits a protobuf message in its bytes, keeping everything it is not told to change.
//!
//! A [`Patch`] says what some fields shall be; applying it follows one canonical form, so a
//! given message and patch have exactly one result:
//!
//! 1. Without an effective change the message keeps its bytes.
//! 2. A singular sub-message that is changed and occurs several times becomes one, at the
//!    place of its first occurrence; one that does not occur is appended.
//! 3. A changed scalar is written at its last occurrence and earlier ones go; the default
//!    value is written by leaving the field out.
//! 4. In a changed map the last entry of each key stays; changed entries are written anew in
//!    place, others keep their bytes, new keys follow at the end in byte order.
//!    An element that a list shall have is appended unless one of its very bytes is there.
//! 5. What is appended to one message follows in ascending field number.
//! 6. Every other field, known or not, keeps its bytes and its place.

use std::collections::BTreeMap;

use crate::wire::{Field, MAX_DEPTH, Reader, WireError, put_bytes_field, put_varint_field};

mod list;

/// What fields of one message shall be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    fields: BTreeMap<u32, Edit>,
}

/// What one field shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// A singular sub-message in which fields change.
    Message(Patch),
    /// A singular integer, in its 64-bit varint form; 0 is the default value.
    Varint(u64),
    /// Singular text or bytes; empty is the default value.
    Bytes(Vec<u8>),
    /// Entries of a `map<string, string>` to add or change.
    Map(BTreeMap<String, String>),
    /// The complete set of a list of `{1: key, 2: value}` messages such as an environment.
    ///
    /// Entries whose key or value is not text cannot be named here: they stay, unless a value
    /// is given for their key.
    KeyValues(BTreeMap<String, String>),
    /// Elements of a repeated message, by index from 0, in which fields change.
    Elements(BTreeMap<usize, Patch>),
    /// Encoded elements a repeated message is to have; those that are missing are appended.
    Present(Vec<Vec<u8>>),
}

impl Patch {
    /// A patch that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the patch names no field.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Says what a field shall be; the latest word on a field counts.
    ///
    /// `number` must be a field number of protobuf; bytes written with another could not be
    /// read again.
    pub fn set(&mut self, number: u32, edit: Edit) {
        self.fields.insert(number, edit);
    }

    /// The patch of a sub-message, made empty if there is none yet.
    ///
    /// An edit of another kind for that field is replaced.
    pub fn message(&mut self, number: u32) -> &mut Self {
        let edit = self.fields.entry(number).or_insert_with(|| Edit::Message(Self::new()));
        if !matches!(edit, Edit::Message(_)) {
            *edit = Edit::Message(Self::new());
        }
        match edit {
            Edit::Message(patch) => patch,
            _ => unreachable!("the line above made it a message"),
        }
    }

    /// The patch of an element of a repeated message, made empty if there is none yet.
    ///
    /// An edit of another kind for that field is replaced.
    pub fn element(&mut self, number: u32, index: usize) -> &mut Self {
        let edit = self.fields.entry(number).or_insert_with(|| Edit::Elements(BTreeMap::new()));
        if !matches!(edit, Edit::Elements(_)) {
            *edit = Edit::Elements(BTreeMap::new());
        }
        match edit {
            Edit::Elements(elements) => elements.entry(index).or_default(),
            _ => unreachable!("the line above made it a list of elements"),
        }
    }

    /// Adds an encoded element to those a repeated message is to have.
    ///
    /// An edit of another kind for that field is replaced.
    pub fn present(&mut self, number: u32, element: Vec<u8>) {
        match self.fields.get_mut(&number) {
            Some(Edit::Present(elements)) => elements.push(element),
            _ => self.set(number, Edit::Present(vec![element])),
        }
    }

    /// The fields and their edits, in ascending number.
    pub fn fields(&self) -> impl Iterator<Item = (u32, &Edit)> {
        self.fields.iter().map(|(number, edit)| (*number, edit))
    }

    /// Applies the patch to a message; `None` when it already is as the patch says.
    ///
    /// # Errors
    ///
    /// [`WireError`] when the message, or a sub-message on the way to a field of the patch, is
    /// malformed or a field has another type than its edit.
    pub fn apply(&self, message: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
        apply(self, message, 0)
    }
}

/// What becomes of one field occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Keep,
    Drop,
    /// The complete field, tag included.
    Replace(Vec<u8>),
}

/// What becomes of a message: one fate per occurrence, and what is appended.
struct Plan<'a> {
    fields: Vec<Field<'a>>,
    fates: Vec<Fate>,
    appended: Vec<u8>,
    changed: bool,
}

impl<'a> Plan<'a> {
    fn occurrences(&self, number: u32) -> Vec<usize> {
        self.fields.iter().enumerate().filter(|(_, field)| field.number == number).map(|(at, _)| at).collect()
    }

    fn field(&self, at: usize) -> &Field<'a> {
        &self.fields[at]
    }

    fn drop_field(&mut self, at: usize) {
        self.fates[at] = Fate::Drop;
        self.changed = true;
    }

    fn replace(&mut self, at: usize, bytes: Vec<u8>) {
        self.fates[at] = Fate::Replace(bytes);
        self.changed = true;
    }

    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.appended);
        self.changed = true;
    }

    fn finish(self, length: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(length + self.appended.len() + 64);
        for (field, fate) in self.fields.iter().zip(&self.fates) {
            match fate {
                Fate::Keep => out.extend_from_slice(field.raw),
                Fate::Drop => {}
                Fate::Replace(bytes) => out.extend_from_slice(bytes),
            }
        }
        out.extend_from_slice(&self.appended);
        out
    }
}

/// Fields that most messages have at most.
const FIELDS: usize = 64;

fn apply(patch: &Patch, message: &[u8], depth: usize) -> Result<Option<Vec<u8>>, WireError> {
    if depth > MAX_DEPTH {
        return Err(WireError::Depth);
    }
    // The collecting adapter cannot tell how many there will be; growing step by step costs more than reading.
    let mut fields = Vec::with_capacity(FIELDS.min(message.len()));
    for field in Reader::new(message) {
        fields.push(field?);
    }
    let fates = vec![Fate::Keep; fields.len()];
    let mut plan = Plan { fields, fates, appended: Vec::new(), changed: false };
    // The map is ordered, so fields are appended in ascending number.
    for (&number, edit) in &patch.fields {
        match edit {
            Edit::Message(inner) => edit_message(&mut plan, number, inner, depth)?,
            Edit::Varint(value) => edit_varint(&mut plan, number, *value)?,
            Edit::Bytes(value) => edit_bytes(&mut plan, number, value)?,
            Edit::Map(entries) => list::edit_map(&mut plan, number, entries)?,
            Edit::KeyValues(wanted) => list::edit_key_values(&mut plan, number, wanted)?,
            Edit::Elements(elements) => edit_elements(&mut plan, number, elements, depth)?,
            Edit::Present(elements) => edit_present(&mut plan, number, elements)?,
        }
    }
    Ok(plan.changed.then(|| plan.finish(message.len())))
}

fn edit_message(plan: &mut Plan<'_>, number: u32, inner: &Patch, depth: usize) -> Result<(), WireError> {
    let occurrences = plan.occurrences(number);
    let joined;
    let current = match occurrences.as_slice() {
        [] => &[][..],
        [only] => plan.field(*only).bytes()?,
        several => {
            let mut payloads = Vec::new();
            for at in several {
                let part = plan.field(*at).bytes()?;
                // Each part is a message of its own: one cut off must not run on into the next.
                Reader::new(part).try_for_each(|field| field.map(drop))?;
                payloads.extend_from_slice(part);
            }
            joined = payloads;
            &joined
        }
    };
    let Some(patched) = apply(inner, current, depth + 1)? else { return Ok(()) };
    match occurrences.split_first() {
        None => plan.append(|out| put_bytes_field(out, number, &patched)),
        Some((first, rest)) => {
            plan.replace(*first, encoded(|out| put_bytes_field(out, number, &patched)));
            rest.iter().for_each(|at| plan.drop_field(*at));
        }
    }
    Ok(())
}

fn edit_varint(plan: &mut Plan<'_>, number: u32, value: u64) -> Result<(), WireError> {
    let occurrences = plan.occurrences(number);
    let mut current = 0;
    for at in &occurrences {
        current = plan.field(*at).varint()?;
    }
    if current != value {
        let bytes = (value != 0).then(|| encoded(|out| put_varint_field(out, number, value)));
        write_scalar(plan, &occurrences, bytes);
    }
    Ok(())
}

fn edit_bytes(plan: &mut Plan<'_>, number: u32, value: &[u8]) -> Result<(), WireError> {
    let occurrences = plan.occurrences(number);
    let mut current = &[][..];
    for at in &occurrences {
        current = plan.field(*at).bytes()?;
    }
    if current != value {
        let bytes = (!value.is_empty()).then(|| encoded(|out| put_bytes_field(out, number, value)));
        write_scalar(plan, &occurrences, bytes);
    }
    Ok(())
}

/// Writes a changed scalar; `None` is its default value.
fn write_scalar(plan: &mut Plan<'_>, occurrences: &[usize], bytes: Option<Vec<u8>>) {
    let kept = match (bytes, occurrences.split_last()) {
        (Some(bytes), Some((last, earlier))) => {
            plan.replace(*last, bytes);
            earlier
        }
        (Some(bytes), None) => {
            plan.append(|out| out.extend_from_slice(&bytes));
            occurrences
        }
        (None, _) => occurrences,
    };
    kept.iter().for_each(|at| plan.drop_field(*at));
}

fn edit_elements(
    plan: &mut Plan<'_>,
    number: u32,
    elements: &BTreeMap<usize, Patch>,
    depth: usize,
) -> Result<(), WireError> {
    let occurrences = plan.occurrences(number);
    for (&index, inner) in elements {
        let at = *occurrences.get(index).ok_or(WireError::Element { field: number, index })?;
        let current = plan.field(at).bytes()?;
        if let Some(patched) = apply(inner, current, depth + 1)? {
            plan.replace(at, encoded(|out| put_bytes_field(out, number, &patched)));
        }
    }
    Ok(())
}

fn edit_present(plan: &mut Plan<'_>, number: u32, elements: &[Vec<u8>]) -> Result<(), WireError> {
    let mut there = Vec::new();
    for at in plan.occurrences(number) {
        there.push(plan.field(at).bytes()?);
    }
    let missing: Vec<&Vec<u8>> =
        elements.iter().filter(|element| !there.contains(&element.as_slice())).collect();
    for (index, element) in missing.iter().enumerate() {
        if !missing[..index].contains(element) {
            plan.append(|out| put_bytes_field(out, number, element));
        }
    }
    Ok(())
}

fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[cfg(test)]
mod tests;
