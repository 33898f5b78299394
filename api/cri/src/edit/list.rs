//! Edits of maps and of lists of key and value.

use std::collections::{BTreeMap, HashMap};

use super::{Edit, Patch, Plan, apply, encoded};
use crate::wire::{MAX_DEPTH, Reader, WireError, put_bytes_field};

/// Number of the key in an entry.
const KEY: u32 = 1;
/// Number of the value in an entry.
const VALUE: u32 = 2;

/// One `{1: key, 2: value}` of a message.
struct Entry<'a> {
    /// Which field occurrence of the message it is.
    at: usize,
    key: &'a [u8],
    value: &'a [u8],
    /// Whether no later entry has the same key.
    last_of_key: bool,
}

impl<'a> Entry<'a> {
    /// Key and value when both are text.
    fn text(&self) -> Option<(&'a str, &'a str)> {
        Some((std::str::from_utf8(self.key).ok()?, std::str::from_utf8(self.value).ok()?))
    }
}

fn entries<'a>(plan: &Plan<'a>, number: u32) -> Result<Vec<Entry<'a>>, WireError> {
    let occurrences = plan.occurrences(number);
    let mut found: Vec<Entry<'a>> = Vec::with_capacity(occurrences.len());
    let mut latest: HashMap<&[u8], usize> = HashMap::with_capacity(occurrences.len());
    for at in occurrences {
        let (mut key, mut value) = (&[][..], &[][..]);
        for field in Reader::new(plan.field(at).bytes()?) {
            let field = field?;
            match field.number {
                KEY => key = field.bytes()?,
                VALUE => value = field.bytes()?,
                _ => {}
            }
        }
        if let Some(earlier) = latest.insert(key, found.len()) {
            found[earlier].last_of_key = false;
        }
        found.push(Entry { at, key, value, last_of_key: true });
    }
    Ok(found)
}

/// Adds and changes entries of a map.
pub(super) fn edit_map(
    plan: &mut Plan<'_>,
    number: u32,
    upserts: &BTreeMap<String, String>,
) -> Result<(), WireError> {
    let entries = entries(plan, number)?;
    let mut fresh: BTreeMap<&str, &str> =
        upserts.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let mut replaced = Vec::new();
    for entry in entries.iter().filter(|entry| entry.last_of_key) {
        let Some(key) = std::str::from_utf8(entry.key).ok() else { continue };
        let Some(wanted) = fresh.remove(key) else { continue };
        if wanted.as_bytes() != entry.value {
            replaced.push((entry.at, key, wanted));
        }
    }
    if replaced.is_empty() && fresh.is_empty() {
        return Ok(());
    }
    entries.iter().filter(|entry| !entry.last_of_key).for_each(|entry| plan.drop_field(entry.at));
    for (at, key, value) in replaced {
        plan.replace(at, map_entry(number, key, value));
    }
    for (key, value) in fresh {
        plan.append(|out| out.extend_from_slice(&map_entry(number, key, value)));
    }
    Ok(())
}

/// Entries of maps carry key and value even when they are empty, as protobuf libraries write
/// them.
fn map_entry(number: u32, key: &str, value: &str) -> Vec<u8> {
    let inner = encoded(|out| {
        put_bytes_field(out, KEY, key.as_bytes());
        put_bytes_field(out, VALUE, value.as_bytes());
    });
    encoded(|out| put_bytes_field(out, number, &inner))
}

/// Makes the text entries of a list exactly `wanted`.
pub(super) fn edit_key_values(
    plan: &mut Plan<'_>,
    number: u32,
    wanted: &BTreeMap<String, String>,
) -> Result<(), WireError> {
    let entries = entries(plan, number)?;
    let last = || entries.iter().filter(|entry| entry.last_of_key);
    let mut fresh: BTreeMap<&[u8], &str> =
        wanted.iter().map(|(key, value)| (key.as_bytes(), value.as_str())).collect();
    let mut removed = Vec::new();
    let mut replaced = Vec::new();
    for entry in last() {
        match fresh.remove(entry.key) {
            Some(value) if value.as_bytes() == entry.value => {}
            Some(value) => replaced.push((entry.at, value)),
            None if entry.text().is_some() => removed.push(entry.at),
            None => {}
        }
    }
    if removed.is_empty() && replaced.is_empty() && fresh.is_empty() {
        return Ok(());
    }
    entries.iter().filter(|entry| !entry.last_of_key).for_each(|entry| plan.drop_field(entry.at));
    removed.into_iter().for_each(|at| plan.drop_field(at));
    for (at, value) in replaced {
        let mut change = Patch::new();
        change.set(VALUE, Edit::Bytes(value.as_bytes().to_vec()));
        // A leaf, so its depth cannot exceed the limit.
        if let Some(entry) = apply(&change, plan.field(at).bytes()?, MAX_DEPTH)? {
            plan.replace(at, encoded(|out| put_bytes_field(out, number, &entry)));
        }
    }
    for (key, value) in fresh {
        let entry = encoded(|out| {
            for (field, text) in [(KEY, key), (VALUE, value.as_bytes())] {
                if !text.is_empty() {
                    put_bytes_field(out, field, text);
                }
            }
        });
        plan.append(|out| put_bytes_field(out, number, &entry));
    }
    Ok(())
}
