//! What a hook library is written with.
//!
//! A library implements [`Hook`] for a type and exports it with [`export_hook!`]; it is compiled as a `cdylib` and
//! put into the plugin directory of the proxy.
//!
//! ```
//! use koord_hook_sdk::{Answer, Hook, HookType, ContainerResourceHookRequest, ContainerResourceHookResponse};
//!
//! struct Greeter;
//!
//! impl Hook for Greeter {
//!     const NAME: &'static str = "greeter";
//!     const VERSION: &'static str = "1.0.0";
//!     const STAGES: &'static [HookType] = &[HookType::PreCreateContainer];
//!
//!     fn new() -> Result<Self, koord_hook_sdk::Error> {
//!         Ok(Self)
//!     }
//!
//!     fn pre_create_container(
//!         &self,
//!         _request: &ContainerResourceHookRequest,
//!     ) -> Answer<ContainerResourceHookResponse> {
//!         let mut response = ContainerResourceHookResponse::default();
//!         response.container_envs.insert("GREETING".to_owned(), "hello".to_owned());
//!         Ok(Some(response))
//!     }
//! }
//!
//! koord_hook_sdk::export_hook!(Greeter);
//! # fn main() {}
//! ```
//!
//! Libraries in other languages follow `include/koord_hook.h`; [`abi`] is the same in Rust.

pub mod abi;
pub mod export;
mod hook;

pub use hook::{Answer, Error, Hook};
pub use koord_hook::v1alpha1::{
    ContainerMetadata, ContainerResourceHookRequest, ContainerResourceHookResponse, HugepageLimit,
    LinuxContainerResources, PodSandboxHookRequest, PodSandboxHookResponse, PodSandboxMetadata,
};
pub use koord_hook::{HookSet, HookType};
