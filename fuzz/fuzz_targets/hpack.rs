//! The header block decoder: no block ends the process or grows memory, and what it reads it can write again.

#![no_main]

use koord_tap::hpack::{Decoder, Field, encode_literal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|blocks: Vec<Vec<u8>>| {
    let mut decoder = Decoder::default();
    for block in &blocks {
        let mut fields: Vec<(Vec<u8>, Vec<u8>, bool)> = Vec::new();
        let mut size = 0;
        let outcome = decoder.decode(block, |field| {
            size += field.name.len() + field.value.len();
            if size < 1 << 20 {
                fields.push((field.name.to_vec(), field.value.to_vec(), field.sensitive));
            }
        });
        if outcome.is_err() {
            return;
        }
        let mut again = Vec::new();
        for (name, value, sensitive) in &fields {
            encode_literal(&mut again, Field { name, value, sensitive: *sensitive });
        }
        let mut at = 0;
        Decoder::default()
            .decode(&again, |field| {
                let (name, value, sensitive) = &fields[at];
                assert_eq!(
                    (field.name, field.value, field.sensitive),
                    (name.as_slice(), value.as_slice(), *sensitive)
                );
                at += 1;
            })
            .expect("a block of literals can be read");
        assert_eq!(at, fields.len());
    }
});
