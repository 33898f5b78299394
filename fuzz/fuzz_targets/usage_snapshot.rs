//! Snapshots of usage: damage is noticed, what is decoded survives being written again, and a store takes any of it.

#![no_main]

use std::time::Duration;

use koord_usage::snapshot::{decode, decode_payload};
use koord_usage::store::{Retention, Store};
use koord_usage::time::Tick;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = decode(bytes);
    // The check sum would keep nearly every input from the decoder behind it.
    if let Ok(content) = decode_payload(bytes) {
        let written = content.encode();
        assert_eq!(decode(&written).expect("what was written is read"), content);
        let minute = Duration::from_secs(60);
        let store = Store::new(Retention { node: minute, pod: minute, container: minute });
        let restored =
            store.restore(&written, &content.boot_id, content.newest).expect("of this boot, and new");
        let samples: usize = store.list().iter().map(|series| series.count).sum();
        assert!(samples <= restored.samples);
        for info in store.list() {
            let window = store
                .window(&info.object, info.kind, Tick::ZERO, content.newest)
                .expect("a series has samples");
            assert_eq!((window.count(), window.last_tick()), (info.count, info.last_tick));
        }
    }
});
