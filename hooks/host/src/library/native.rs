//! Loading a library and calling its functions.
//!
//! This is the only module of the crate with unsafe code. It keeps what the interface promises to libraries, and
//! believes them no more than it must: a library can crash the process it is loaded into, but numbers and pointers
//! that are merely wrong are found.

#![allow(unsafe_code, reason = "the border to C")]

use std::borrow::Cow;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use koord_hook::{HookSet, HookType};
use koord_hook_sdk::abi::{
    ABI_MAJOR, ABI_MINOR, CallFunction, Descriptor, FLAG_SERIAL, FreeFunction, Host, InitFunction, MAGIC,
    MAX_TEXT_BYTES, STATUS_OK, SYMBOL, ShutdownFunction, stage_number, stages_of_mask,
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::{Description, MAX_ANSWER_BYTES};

/// Size of the descriptor of minor version 0.
const SMALLEST_DESCRIPTOR: usize = offset_of!(Descriptor, flags);

/// Major versions whose symbol is looked for, to say what a library is instead.
const OTHER_MAJORS: std::ops::RangeInclusive<u16> = 0..=9;

/// How much of a library's error text is kept.
const SHOWN_TEXT_BYTES: usize = 1024;

/// Why a library cannot be used. The caller adds the file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum LoadError {
    /// The dynamic loader refuses it.
    #[error("cannot be loaded: {reason}")]
    Open {
        /// What the loader says.
        reason: String,
    },
    /// It does not export the descriptor.
    #[error("exports no symbol {SYMBOL}: it is not a hook library")]
    Symbol,
    /// The descriptor does not begin as one.
    #[error("has a symbol {SYMBOL} that does not begin with the magic number: it is not a hook library")]
    Magic,
    /// It was compiled for another major version of the interface.
    #[error("is for major version {found} of the hook interface; this program has {ABI_MAJOR}.{ABI_MINOR}")]
    Major {
        /// Its major version.
        found: u16,
    },
    /// The descriptor is smaller than that of minor version 0.
    #[error("has a descriptor of {size} bytes; at least {SMALLEST_DESCRIPTOR} are accepted")]
    Size {
        /// Its size in bytes.
        size: u32,
    },
    /// A function that must be there is not.
    #[error("has no function {function}")]
    Function {
        /// Its name.
        function: Cow<'static, str>,
    },
    /// Name or version cannot be used.
    #[error("has no {field} of 1 to {MAX_TEXT_BYTES} bytes of printable UTF-8")]
    Text {
        /// Which of the two.
        field: Cow<'static, str>,
    },
    /// It wants to be asked at no stage there is.
    #[error("wants none of the stages this program knows (mask {mask:#x})")]
    Stages {
        /// Its mask.
        mask: u64,
    },
    /// It was not ready.
    #[error("failed to get ready: status {status}")]
    Init {
        /// What it returned.
        status: i32,
    },
}

/// Why a call of a library has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The library says so.
    #[error("hook library failed with status {status}{}{text}", if .text.is_empty() { "" } else { ": " })]
    Hook {
        /// Its status, not 0.
        status: i32,
        /// Its text, perhaps empty.
        text: String,
    },
    /// The answer is too large.
    #[error("hook library answered {size} bytes; at most {MAX_ANSWER_BYTES} are accepted")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
    },
    /// An answer without bytes.
    #[error("hook library answered {size} bytes without a buffer")]
    NoBuffer {
        /// The size it said, in bytes.
        size: u64,
    },
}

/// What the program says of itself; libraries may keep a pointer to it.
static HOST: Host = Host {
    #[allow(clippy::cast_possible_truncation, reason = "eight bytes")]
    struct_size: size_of::<Host>() as u32,
    abi_major: ABI_MAJOR,
    abi_minor: ABI_MINOR,
};

/// A library that is loaded and ready.
pub(crate) struct Native {
    description: Description,
    instance: *mut c_void,
    call: CallFunction,
    free: FreeFunction,
    shutdown: Option<ShutdownFunction>,
}

// SAFETY: the interface says that `init`, `call`, `free` and `shutdown` may come from any thread; `instance` is only
// ever handed to them.
unsafe impl Send for Native {}
// SAFETY: the interface says that several calls may be under way at once unless the library is serial, and whoever
// calls a serial library does so from one thread.
unsafe impl Sync for Native {}

impl Native {
    /// Loads a library from its copy in memory and makes it ready. Runs the library's code.
    ///
    /// It is never unloaded: nothing tells when the last of its threads and callbacks is gone.
    pub(crate) fn load(memory: OwnedFd) -> Result<Self, LoadError> {
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        // The loader takes a name it has seen for the same library, so the number must not be used again.
        let _memory = ManuallyDrop::new(memory);
        let open = |error: libloading::Error| LoadError::Open { reason: innermost(&error) };
        // SAFETY: the library's initialisers run, which the operator wants by putting it into the directory; its
        // owner and mode have been checked, and the copy is sealed.
        let library =
            ManuallyDrop::new(unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(open)?);
        let descriptor = read_descriptor(&library)?;
        let init = descriptor.init.ok_or_else(|| LoadError::Function { function: "init".into() })?;
        let call = descriptor.call.ok_or_else(|| LoadError::Function { function: "call".into() })?;
        let free = descriptor.free.ok_or_else(|| LoadError::Function { function: "free".into() })?;
        let stages: HookSet = stages_of_mask(descriptor.stages);
        if stages == HookSet::default() {
            return Err(LoadError::Stages { mask: descriptor.stages });
        }
        let description = Description {
            name: text(descriptor.name).ok_or_else(|| LoadError::Text { field: "name".into() })?,
            version: text(descriptor.version).ok_or_else(|| LoadError::Text { field: "version".into() })?,
            abi_major: descriptor.abi_major,
            abi_minor: descriptor.abi_minor,
            stages: descriptor.stages,
            serial: descriptor.flags & FLAG_SERIAL != 0,
        };
        let instance = initialised(init)?;
        Ok(Self { description, instance, call, free, shutdown: descriptor.shutdown })
    }

    /// What the library says of itself.
    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    /// Calls the library, on this thread and for as long as it takes.
    pub(crate) fn call(&self, stage: HookType, request: &[u8]) -> Result<Vec<u8>, CallError> {
        let mut answer: *mut u8 = ptr::null_mut();
        let mut length: usize = 0;
        // SAFETY: `call` is the library's, and the library is never unloaded. `instance` is what its `init` made, and
        // has not been ended, because `shut_down` takes the value. `request` lives as long as the call, and both
        // places for the answer may be written to.
        let status = unsafe {
            (self.call)(
                self.instance,
                stage_number(stage),
                request.as_ptr(),
                request.len(),
                &raw mut answer,
                &raw mut length,
            )
        };
        let bytes = if answer.is_null() {
            if length == 0 { Ok(Vec::new()) } else { Err(CallError::NoBuffer { size: length as u64 }) }
        } else {
            let bytes = if length > MAX_ANSWER_BYTES {
                Err(CallError::TooLarge { size: length as u64 })
            } else {
                // SAFETY: the interface says that `answer` leads to `length` bytes until it is freed.
                Ok(unsafe { std::slice::from_raw_parts(answer, length) }.to_vec())
            };
            // SAFETY: `free` is the library's, and gets back what the call handed out, once.
            unsafe { (self.free)(self.instance, answer, length) };
            bytes
        }?;
        if status == STATUS_OK { Ok(bytes) } else { Err(CallError::Hook { status, text: shown(&bytes) }) }
    }

    /// Ends it. Its code stays where it is.
    pub(crate) fn shut_down(self) {
        if let Some(shutdown) = self.shutdown {
            // SAFETY: `shutdown` is the library's. No call is under way: each borrows the value, which is given up
            // here.
            unsafe { shutdown(self.instance) };
        }
    }
}

/// Copies as much of the descriptor as the library has and this program knows; the rest is zero.
fn read_descriptor(library: &Library) -> Result<Descriptor, LoadError> {
    let Some(found) = symbol(library, SYMBOL) else {
        let other = OTHER_MAJORS
            .filter(|major| *major != ABI_MAJOR)
            .find(|major| symbol(library, &format!("koord_hook_plugin_v{major}")).is_some());
        return Err(match other {
            Some(found) => LoadError::Major { found },
            None => LoadError::Symbol,
        });
    };
    let field = |offset: usize| found.wrapping_byte_add(offset);
    // SAFETY: a structure of that name begins with these fields, in every version; what has the name and is something
    // else is data of the library, of at least a pointer's size, or fails the first comparison with what is there.
    let (magic, size, major) = unsafe {
        (
            field(offset_of!(Descriptor, magic)).cast::<u64>().read_unaligned(),
            field(offset_of!(Descriptor, struct_size)).cast::<u32>().read_unaligned(),
            field(offset_of!(Descriptor, abi_major)).cast::<u16>().read_unaligned(),
        )
    };
    if magic != MAGIC {
        return Err(LoadError::Magic);
    }
    if major != ABI_MAJOR {
        return Err(LoadError::Major { found: major });
    }
    let there = usize::try_from(size).unwrap_or(usize::MAX);
    if there < SMALLEST_DESCRIPTOR {
        return Err(LoadError::Size { size });
    }
    let mut descriptor = MaybeUninit::<Descriptor>::zeroed();
    // SAFETY: the library says that so many bytes are there, and no more than fit are copied.
    unsafe {
        ptr::copy_nonoverlapping(
            found.cast::<u8>(),
            descriptor.as_mut_ptr().cast::<u8>(),
            there.min(size_of::<Descriptor>()),
        );
    }
    // SAFETY: numbers, pointers and options of function pointers may all be zero.
    Ok(unsafe { descriptor.assume_init() })
}

fn symbol(library: &Library, name: &str) -> Option<*const c_void> {
    // SAFETY: the symbol is taken for an address, which it is whatever it stands for.
    let symbol = unsafe { library.get::<*const c_void>(name.as_bytes()) }.ok()?;
    let address = *symbol;
    (!address.is_null()).then_some(address)
}

fn text(start: *const std::ffi::c_char) -> Option<String> {
    if start.is_null() {
        return None;
    }
    let mut bytes = Vec::new();
    for at in 0..=MAX_TEXT_BYTES {
        // SAFETY: the interface says that a NUL ends the text, and nothing behind it is read.
        let byte = unsafe { start.cast::<u8>().add(at).read() };
        if byte == 0 {
            let text = String::from_utf8(bytes).ok()?;
            return (!text.is_empty() && !text.chars().any(char::is_control)).then_some(text);
        }
        bytes.push(byte);
    }
    None
}

fn initialised(init: InitFunction) -> Result<*mut c_void, LoadError> {
    let mut instance = ptr::null_mut();
    // SAFETY: `init` is the library's, and called once; both pointers are as the interface says.
    match unsafe { init(&raw const HOST, &raw mut instance) } {
        STATUS_OK => Ok(instance),
        status => Err(LoadError::Init { status }),
    }
}

/// A library's text, made fit for a log line.
fn shown(bytes: &[u8]) -> String {
    let bytes = bytes.get(..SHOWN_TEXT_BYTES).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn innermost(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}

/// Closes every descriptor but the first three.
///
/// Only for a process that has just begun: descriptors that something owns must not be closed under it.
pub(crate) fn close_inherited_descriptors() {
    // SAFETY: the call has no effect on memory. Nothing in the process owns a descriptor yet.
    // It fails on kernels before 5.9 only, where descriptors are closed by their own flag all the same.
    let _ = unsafe { nix::libc::close_range(3, u32::MAX, 0) };
}
