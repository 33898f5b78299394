//! Checkpoint files: damage is noticed, and what is decoded survives being written again.

#![no_main]

use koord_runtime_proxy::checkpoint::{decode, decode_payload, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = decode(bytes);
    // The check sum would keep nearly every input from the decoder behind it.
    if let Ok(snapshot) = decode_payload(bytes) {
        let written = encode(&snapshot);
        assert_eq!(decode(&written).expect("what was written is read"), snapshot);
    }
});
