//! Usage of a node and of what runs on it: sampled from the kernel, completed, kept, asked for.
//!
//! The flow, once a second:
//!
//! 1. [`inventory`]: what is to be measured: pods, containers, host applications, with their control groups.
//! 2. [`sampler`] reads the kernel's files with the [`collect`] modules and makes one [`pass`]: the samples of one [`time::Tick`].
//! 3. [`complete`] keeps the latest figures on a board and appends what only the sum of all tells: the usage of the system itself.
//! 4. [`store`] keeps passes in rings; a [`window`] of it has average, percentiles, latest value and count.
//! 5. [`snapshot`] carries the rings over a restart of the process.
//! 6. [`wire`] tells passes and inventories to other programs and reads what they are told.
//! 6. [`wire`] tells passes to other programs of the node, and reads what they are told.
//!
//! A sample is one number for one [`object`] and one [`kind`]. A pass may as well come from another process that samples;
//! what follows is the same, so both ways give the same figures.

pub mod collect;
pub mod complete;
pub mod inventory;
pub mod kind;
pub mod object;
pub mod pass;
pub mod sampler;
pub mod snapshot;
pub mod store;
pub mod time;
pub mod window;
pub mod wire;
