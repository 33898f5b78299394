use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use super::*;

#[test]
fn stages_and_masks_agree() {
    for (number, stage) in (0..).zip(HookType::ALL) {
        assert_eq!(stage_number(stage), number);
        assert_eq!(stage_of_number(number), Some(stage));
        assert_eq!(stages_of_mask(1 << number).iter().collect::<Vec<_>>(), [stage]);
    }
    assert_eq!(stage_of_number(7), None);
    assert_eq!(stages_of_mask(u64::MAX), HookType::ALL.into_iter().collect());
    assert_eq!(stages_of_mask(1 << 7), HookSet::default());
    assert_eq!(stage_mask(HookType::ALL.into_iter().collect()), 0x7f);
    assert_eq!(MAGIC.to_be_bytes(), *b"KOORDHK\x01");
}

/// The header, compiled, has the numbers, the sizes and the offsets of the types here.
#[test]
fn the_header_says_the_same() {
    let fields = [
        ("magic", offset_of!(Descriptor, magic)),
        ("struct_size", offset_of!(Descriptor, struct_size)),
        ("abi_major", offset_of!(Descriptor, abi_major)),
        ("abi_minor", offset_of!(Descriptor, abi_minor)),
        ("name", offset_of!(Descriptor, name)),
        ("version", offset_of!(Descriptor, version)),
        ("stages", offset_of!(Descriptor, stages)),
        ("init", offset_of!(Descriptor, init)),
        ("call", offset_of!(Descriptor, call)),
        ("free", offset_of!(Descriptor, free)),
        ("shutdown", offset_of!(Descriptor, shutdown)),
        ("flags", offset_of!(Descriptor, flags)),
    ];
    let mut source = String::from("#include \"koord_hook.h\"\n");
    let mut expect = |what: String| source.push_str(&format!("_Static_assert({what}, \"\");\n"));
    for (field, offset) in fields {
        expect(format!("offsetof(struct koord_hook_plugin, {field}) == {offset}"));
    }
    expect(format!("sizeof(struct koord_hook_plugin) == {}", size_of::<Descriptor>()));
    expect(format!("sizeof(struct koord_hook_host) == {}", size_of::<Host>()));
    expect(format!("KOORD_HOOK_MAGIC == {MAGIC}u"));
    expect(format!("KOORD_HOOK_ABI_MAJOR == {ABI_MAJOR} && KOORD_HOOK_ABI_MINOR == {ABI_MINOR}"));
    expect(format!("KOORD_HOOK_SERIAL == {FLAG_SERIAL}"));
    for (name, number) in [
        ("OK", STATUS_OK),
        ("ERROR", STATUS_ERROR),
        ("BAD_REQUEST", STATUS_BAD_REQUEST),
        ("UNKNOWN_STAGE", STATUS_UNKNOWN_STAGE),
        ("PANIC", STATUS_PANIC),
    ] {
        expect(format!("KOORD_HOOK_{name} == {number}"));
    }
    for stage in HookType::ALL {
        let mut name = String::new();
        for letter in stage.as_str().chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        expect(format!("KOORD_HOOK_{name} == {}", stage_number(stage)));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("check.c");
    std::fs::write(&file, source).expect("written");
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg(&file)
        .output()
        .expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
