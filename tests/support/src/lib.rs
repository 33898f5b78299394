//! Fakes and harness for the tests of the node programs.
//!
//! * [`frame`] and [`peer`]: HTTP/2 on raw frames, both sides, able to send what the protocol forbids;
//! * [`runtime`]: a scriptable container runtime that answers any path; [`cri`] gives it the memory of a real one;
//! * [`client`]: the other end, a kubelet that can misbehave;
//! * [`hooks`]: a hook server that answers, hangs, crashes or sends garbage on demand;
//! * [`harness`]: the proxy's program in a directory of its own.
//!
//! Everything is blocking and thread-based: a test reads like the sequence it describes, and a thread that hangs
//! shows where. Waits are for a state, with a limit; nothing sleeps to let time pass.

pub mod client;
pub mod cri;
pub mod example;
pub mod frame;
pub mod harness;
pub mod hooks;
pub mod peer;
pub mod runtime;
pub mod wait;
