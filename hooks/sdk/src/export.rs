//! From the C functions of the interface to [`Hook`]. Used by [`export_hook!`](crate::export_hook).
//!
//! This is the only module of the crate with unsafe code. No panic leaves it.

#![allow(unsafe_code, reason = "the border to C")]

use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use koord_hook::{HookSet, HookType};
use prost::Message;

use crate::abi::{
    ABI_MAJOR, ABI_MINOR, Descriptor, FLAG_SERIAL, Host, MAGIC, STATUS_BAD_REQUEST, STATUS_ERROR, STATUS_OK,
    STATUS_PANIC, STATUS_UNKNOWN_STAGE, stage_of_number,
};
use crate::hook::{Answer, Hook};

/// Defines the symbol `koord_hook_plugin_v1` for a type that implements [`Hook`]. Once in a library.
#[macro_export]
macro_rules! export_hook {
    ($hook:ty) => {
        #[doc(hidden)]
        #[unsafe(no_mangle)]
        #[allow(
            non_upper_case_globals,
            unreachable_pub,
            reason = "the name and the place are the interface's"
        )]
        pub static koord_hook_plugin_v1: $crate::export::Exported = {
            use $crate::export::concat_nul;
            const NAME: &[u8] =
                concat_nul::<{ <$hook as $crate::Hook>::NAME.len() + 1 }>(<$hook as $crate::Hook>::NAME)
                    .as_slice();
            const VERSION: &[u8] = concat_nul::<{ <$hook as $crate::Hook>::VERSION.len() + 1 }>(
                <$hook as $crate::Hook>::VERSION,
            )
            .as_slice();
            $crate::export::Exported::of::<$hook>($crate::export::text(NAME), $crate::export::text(VERSION))
        };
    };
}

/// The descriptor of a library in Rust.
#[doc(hidden)]
#[repr(transparent)]
#[derive(Debug)]
pub struct Exported(Descriptor);

// SAFETY: the descriptor is constant, and what its pointers lead to is constant and lives as long as the program.
unsafe impl Sync for Exported {}

impl Exported {
    /// The descriptor of `H`.
    pub const fn of<H: Hook>(name: &'static CStr, version: &'static CStr) -> Self {
        Self(Descriptor {
            magic: MAGIC,
            #[allow(clippy::cast_possible_truncation, reason = "about a hundred bytes")]
            struct_size: size_of::<Descriptor>() as u32,
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            name: name.as_ptr(),
            version: version.as_ptr(),
            stages: mask(H::STAGES),
            init: Some(init::<H>),
            call: Some(call::<H>),
            free: Some(free),
            shutdown: Some(shutdown::<H>),
            flags: if H::SERIAL { FLAG_SERIAL } else { 0 },
        })
    }

    /// The descriptor itself.
    pub const fn descriptor(&self) -> &Descriptor {
        &self.0
    }
}

/// `text` with a NUL behind it; `N` is its length and one.
#[doc(hidden)]
pub const fn concat_nul<const N: usize>(text: &str) -> [u8; N] {
    assert!(N >= 2 && N <= crate::abi::MAX_TEXT_BYTES + 1, "a name or version has 1 to 255 bytes");
    let mut bytes = [0; N];
    let mut at = 0;
    while at + 1 < N {
        bytes[at] = text.as_bytes()[at];
        at += 1;
    }
    bytes
}

/// A text for the descriptor.
#[doc(hidden)]
pub const fn text(bytes: &'static [u8]) -> &'static CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(text) => text,
        Err(_) => panic!("a name or version has no NUL"),
    }
}

/// [`crate::abi::stage_mask`] at compile time: the stages' numbers are their order.
const fn mask(stages: &[HookType]) -> u64 {
    let mut mask = 0;
    let mut at = 0;
    while at < stages.len() {
        mask |= 1 << (stages[at] as u8);
        at += 1;
    }
    mask
}

unsafe extern "C" fn init<H: Hook>(_host: *const Host, instance: *mut *mut c_void) -> i32 {
    match catch_unwind(H::new) {
        Ok(Ok(hook)) => {
            if instance.is_null() {
                return STATUS_ERROR;
            }
            // SAFETY: not null, and the caller promises that it may be written to.
            unsafe { *instance = Box::into_raw(Box::new(hook)).cast() };
            STATUS_OK
        }
        Ok(Err(error)) => {
            complain(&format!("{} is not ready: {error}", H::NAME));
            STATUS_ERROR
        }
        Err(_) => STATUS_PANIC,
    }
}

/// `init` has no way to answer a text; the standard error is the host's log.
fn complain(text: &str) {
    use std::io::Write as _;
    // There is nowhere else to say it.
    let _ = writeln!(std::io::stderr(), "{text}");
}

unsafe extern "C" fn call<H: Hook>(
    instance: *mut c_void,
    stage: u32,
    request: *const u8,
    request_length: usize,
    answer: *mut *mut u8,
    answer_length: *mut usize,
) -> i32 {
    if instance.is_null() || answer.is_null() || answer_length.is_null() {
        return STATUS_ERROR;
    }
    // SAFETY: `instance` is what `init` has made of an `H` and has not been ended, as the caller promises; calls
    // share it, which `H: Sync` allows.
    let hook = unsafe { &*instance.cast::<H>() };
    let request = if request.is_null() {
        &[]
    } else {
        // SAFETY: the caller promises `request_length` bytes that do not change during the call.
        unsafe { std::slice::from_raw_parts(request, request_length) }
    };
    let (status, bytes) =
        catch_unwind(AssertUnwindSafe(|| answer_of(hook, stage, request))).unwrap_or_else(|payload| {
            let text = payload
                .downcast_ref::<&'static str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            // What a payload's own drop does is not known: it stays.
            std::mem::forget(payload);
            (STATUS_PANIC, format!("panic: {text}").into_bytes())
        });
    if !bytes.is_empty() {
        let bytes = Box::into_raw(bytes.into_boxed_slice());
        // SAFETY: neither is null, and the caller promises that both may be written to.
        unsafe {
            *answer_length = bytes.len();
            *answer = bytes.cast();
        }
    }
    status
}

unsafe extern "C" fn free(_instance: *mut c_void, answer: *mut u8, answer_length: usize) {
    if !answer.is_null() {
        let bytes = std::ptr::slice_from_raw_parts_mut(answer, answer_length);
        // SAFETY: `call` has made both of a boxed slice, and the caller gives them back once.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

unsafe extern "C" fn shutdown<H: Hook>(instance: *mut c_void) {
    if !instance.is_null() {
        // SAFETY: `init` has made it of a boxed `H`, and the caller promises that no call is under way and none
        // follows.
        let hook = unsafe { Box::from_raw(instance.cast::<H>()) };
        // A panic while it is dropped has nobody to hear of it.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(hook)));
    }
}

fn answer_of<H: Hook>(hook: &H, stage: u32, request: &[u8]) -> (i32, Vec<u8>) {
    let Some(stage) = stage_of_number(stage) else {
        return (STATUS_UNKNOWN_STAGE, format!("stage {stage} is not known").into_bytes());
    };
    if !H::STAGES.iter().copied().collect::<HookSet>().contains(stage) {
        return (STATUS_UNKNOWN_STAGE, format!("{stage} is not handled").into_bytes());
    }
    match stage {
        HookType::PreRunPodSandbox => with(request, |request| hook.pre_run_pod_sandbox(request)),
        HookType::PostStopPodSandbox => with(request, |request| hook.post_stop_pod_sandbox(request)),
        HookType::PreCreateContainer => with(request, |request| hook.pre_create_container(request)),
        HookType::PreStartContainer => with(request, |request| hook.pre_start_container(request)),
        HookType::PostStartContainer => with(request, |request| hook.post_start_container(request)),
        HookType::PreUpdateContainerResources => {
            with(request, |request| hook.pre_update_container_resources(request))
        }
        HookType::PostStopContainer => with(request, |request| hook.post_stop_container(request)),
    }
}

fn with<Q: Message + Default, A: Message>(
    request: &[u8],
    method: impl FnOnce(&Q) -> Answer<A>,
) -> (i32, Vec<u8>) {
    match Q::decode(request) {
        Err(error) => (STATUS_BAD_REQUEST, error.to_string().into_bytes()),
        Ok(request) => match method(&request) {
            Ok(Some(answer)) => (STATUS_OK, answer.encode_to_vec()),
            Ok(None) => (STATUS_OK, Vec::new()),
            Err(error) => (STATUS_ERROR, error.to_string().into_bytes()),
        },
    }
}

#[cfg(test)]
mod tests;
