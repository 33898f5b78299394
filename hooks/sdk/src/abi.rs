//! The binary interface of hook libraries as Rust types; `include/koord_hook.h` is the same in C and says what
//! each part promises.

use std::ffi::{c_char, c_void};

use koord_hook::{HookSet, HookType};

/// First field of a descriptor: the bytes `KOORDHK` and a one, as a number of the machine's byte order.
pub const MAGIC: u64 = 0x4b4f_4f52_4448_4b01;
/// Major version: another one is another interface.
pub const ABI_MAJOR: u16 = 1;
/// Minor version: grows when a structure gets a field at its end.
pub const ABI_MINOR: u16 = 1;
/// The exported symbol of major version 1.
pub const SYMBOL: &str = "koord_hook_plugin_v1";
/// Longest name and version of a library, in bytes without the NUL.
pub const MAX_TEXT_BYTES: usize = 255;

/// [`Descriptor::flags`]: no two calls at once.
pub const FLAG_SERIAL: u64 = 1;

/// All went well.
pub const STATUS_OK: i32 = 0;
/// The hook failed.
pub const STATUS_ERROR: i32 = 1;
/// The request cannot be decoded.
pub const STATUS_BAD_REQUEST: i32 = 2;
/// The library does not handle the stage.
pub const STATUS_UNKNOWN_STAGE: i32 = 3;
/// The hook panicked.
pub const STATUS_PANIC: i32 = 4;

/// What the host says of itself.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// Size of the host's structure, in bytes.
    pub struct_size: u32,
    /// The host's major version.
    pub abi_major: u16,
    /// The host's minor version.
    pub abi_minor: u16,
}

/// Makes an instance.
pub type InitFunction = unsafe extern "C" fn(host: *const Host, instance: *mut *mut c_void) -> i32;

/// Answers a request.
pub type CallFunction = unsafe extern "C" fn(
    instance: *mut c_void,
    stage: u32,
    request: *const u8,
    request_length: usize,
    answer: *mut *mut u8,
    answer_length: *mut usize,
) -> i32;

/// Takes back an answer.
pub type FreeFunction = unsafe extern "C" fn(instance: *mut c_void, answer: *mut u8, answer_length: usize);

/// Ends an instance.
pub type ShutdownFunction = unsafe extern "C" fn(instance: *mut c_void);

/// What a library says of itself: `struct koord_hook_plugin` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    /// [`MAGIC`].
    pub magic: u64,
    /// Size of the library's structure, in bytes.
    pub struct_size: u32,
    /// The library's major version.
    pub abi_major: u16,
    /// The library's minor version.
    pub abi_minor: u16,
    /// UTF-8, 1 to 255 bytes before the NUL.
    pub name: *const c_char,
    /// UTF-8, 1 to 255 bytes before the NUL.
    pub version: *const c_char,
    /// The stages it wants to be asked at, see [`stage_mask`].
    pub stages: u64,
    /// Makes an instance.
    pub init: Option<InitFunction>,
    /// Answers a request.
    pub call: Option<CallFunction>,
    /// Takes back an answer.
    pub free: Option<FreeFunction>,
    /// Ends an instance.
    pub shutdown: Option<ShutdownFunction>,
    /// Flags, since minor version 1.
    pub flags: u64,
}

/// The number of a stage.
pub fn stage_number(stage: HookType) -> u32 {
    match stage {
        HookType::PreRunPodSandbox => 0,
        HookType::PostStopPodSandbox => 1,
        HookType::PreCreateContainer => 2,
        HookType::PreStartContainer => 3,
        HookType::PostStartContainer => 4,
        HookType::PreUpdateContainerResources => 5,
        HookType::PostStopContainer => 6,
    }
}

/// The stage of a number.
pub fn stage_of_number(number: u32) -> Option<HookType> {
    HookType::ALL.into_iter().find(|stage| stage_number(*stage) == number)
}

/// The mask of some stages: bit `n` stands for the stage of number `n`.
pub fn stage_mask(stages: HookSet) -> u64 {
    stages.iter().fold(0, |mask, stage| mask | 1 << stage_number(stage))
}

/// The stages of a mask; bits that stand for none are left out.
pub fn stages_of_mask(mask: u64) -> HookSet {
    HookType::ALL.into_iter().filter(|stage| mask & (1 << stage_number(*stage)) != 0).collect()
}

#[cfg(test)]
mod tests;
