//! Any patch applied to any bytes: no panic, and the promises of the editor hold.

#![no_main]

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Unstructured};
use koord_cri::edit::{Edit, Patch};
use koord_cri::view;
use koord_cri::wire::{Reader, WireError};
use libfuzzer_sys::fuzz_target;

/// A patch that can be made from bytes; field numbers stay small so that edits meet fields.
#[derive(Debug, Arbitrary)]
enum AnyEdit {
    Message(Vec<(u8, AnyEdit)>),
    Varint(u64),
    Bytes(Vec<u8>),
    Map(BTreeMap<String, String>),
    KeyValues(BTreeMap<String, String>),
    Elements(Vec<(u8, Vec<(u8, AnyEdit)>)>),
}

fn patch(edits: Vec<(u8, AnyEdit)>) -> Patch {
    let mut made = Patch::new();
    for (number, edit) in edits {
        let number = u32::from(number % 20) + 1;
        made.set(
            number,
            match edit {
                AnyEdit::Message(edits) => Edit::Message(patch(edits)),
                AnyEdit::Varint(value) => Edit::Varint(value),
                AnyEdit::Bytes(value) => Edit::Bytes(value),
                AnyEdit::Map(entries) => Edit::Map(entries),
                AnyEdit::KeyValues(wanted) => Edit::KeyValues(wanted),
                AnyEdit::Elements(elements) => Edit::Elements(
                    elements
                        .into_iter()
                        .map(|(index, edits)| (usize::from(index % 4), patch(edits)))
                        .collect(),
                ),
            },
        );
    }
    made
}

/// The occurrences of fields the patch does not name, as they stand.
fn untouched<'a>(message: &'a [u8], patch: &Patch) -> Result<Vec<&'a [u8]>, WireError> {
    let mut kept = Vec::new();
    for field in Reader::new(message) {
        let field = field?;
        if !patch.fields().any(|(number, _)| number == field.number) {
            kept.push(field.raw);
        }
    }
    Ok(kept)
}

/// Reads the message as every type there is; the results do not matter here.
fn read_as_everything(message: &[u8]) {
    let _ = view::RunPodSandbox::read(message);
    let _ = view::CreateContainer::read(message).map(|request| request.config.text_envs().len());
    let _ = view::UpdateContainerResources::read(message);
    let _ = view::UpdatePodSandboxResources::read(message);
    let _ = view::RestorePod::read(message);
    let _ = view::Identified::read(message);
    let _ = view::Restored::read(message);
}

fuzz_target!(|data: &[u8]| {
    // The message comes first, so that a corpus of real messages is a corpus of this target; the
    // patch is made from the last bytes.
    let (message, rest) = data.split_at(data.len() - data.len() / 3);
    read_as_everything(data);
    read_as_everything(message);
    let Ok(edits) = Vec::<(u8, AnyEdit)>::arbitrary(&mut Unstructured::new(rest)) else { return };
    let patch = patch(edits);
    match patch.apply(message) {
        Ok(Some(patched)) => {
            assert_ne!(patched, message, "a change that changes nothing");
            assert_eq!(untouched(&patched, &patch), untouched(message, &patch), "a field that was not named");
            assert_eq!(patch.apply(&patched), Ok(None), "the patched message is not as the patch says");
        }
        Ok(None) => assert!(untouched(message, &patch).is_ok(), "a malformed message was accepted"),
        Err(_) => {}
    }
});
