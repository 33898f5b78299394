//! Registration files: whatever the bytes, an answer; and what is accepted is usable.

#![no_main]

use koord_runtime_proxy::endpoint::MAX_PATH_BYTES;
use koord_runtime_proxy::registration::{FailurePolicy, Registration};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|content: &[u8]| {
    match Registration::parse(content) {
        Ok(registration) => {
            let path = registration.endpoint.as_str();
            assert!(path.starts_with('/') && path.len() <= MAX_PATH_BYTES && !path.contains("//"));
            assert!(registration.timeout.is_none_or(|timeout| !timeout.is_zero()));
            assert_eq!(
                registration.failure_policy == FailurePolicy::Fail,
                registration.failure_policy_text == "Fail"
            );
            // The same bytes and white space around them say the same.
            let padded = [b" \n\t\r", content, b"\n"].concat();
            assert_eq!(Registration::parse(&padded).ok(), Some(registration));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
