//! HTTP/2 frame relay with a tap.
//!
//! A [`Tap`] stands between a client (kubelet, crictl) and a container runtime and works on octets only: no sockets, no
//! clock, no locks. Frames pass verbatim, header blocks included, so both ends keep one compression context and
//! everything end to end stays end to end. Of calls that a [`Handler`] wants to see, the request is held until a verdict
//! and may be replaced or refused; the trailers of the answer may be held as well.
//!
//! Invariants:
//! - without held calls every octet passes, in order, and nothing is added;
//! - neither side ever gets more flow-control credit than the other side has given ([`credit`]);
//! - frames of the relay's own stand between whole frames, never inside a header block, and their header blocks use no
//!   dynamic table;
//! - when header compression cannot be followed, no further calls are tapped, and frames still pass;
//! - memory is bounded by [`Options`], whatever either side sends.

pub mod call;
pub mod credit;
pub mod frame;
pub mod hpack;
mod out;
pub mod peek;
pub mod stand_in;
mod tap;

pub use call::{
    Bypass, Closed, Decision, Encoding, Handler, Head, Mode, Refusal, Request, ResponseEnd, Trailers, Verdict,
};
pub use out::{Out, Outputs};
pub use tap::{Broken, Options, Tap};
