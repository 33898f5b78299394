//! What the tap tells about calls, and what it is told: the boundary to the part that decides.

use std::time::Duration;

/// How a new stream is treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes; only the status is looked at.
    Pass,
    /// Everything passes; request and answer are also copied, as far as the limits allow.
    Observe,
    /// The request waits for a [`Verdict`]; the answer passes and is copied like an observed one.
    Hold,
    /// The call is refused at once; no DATA of it reaches the runtime.
    Refuse(Refusal),
}

/// A status that ends a call in the runtime's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// gRPC status code, 1 to 16.
    pub code: u32,
    /// `grpc-message`, plain text.
    pub message: String,
}

/// What becomes of a held request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is sent as it came.
    Forward,
    /// This message is sent in its place, uncompressed (payload without the gRPC prefix).
    Replace(Vec<u8>),
    /// The call ends with this status; the runtime never sees the message.
    Refuse(Refusal),
}

/// `grpc-encoding` of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Encoding {
    /// None, or `identity`.
    #[default]
    Identity,
    /// `gzip`.
    Gzip,
    /// Any other.
    Other,
}

/// What the headers of a request say.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Head {
    /// `:path`, as sent; at most [`crate::Options::max_path`] octets, else empty.
    pub path: Vec<u8>,
    /// `grpc-timeout`, where present and well formed.
    pub timeout: Option<Duration>,
    /// `grpc-encoding`.
    pub encoding: Encoding,
}

/// A whole request message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The compressed flag of the gRPC prefix was 1: the payload is in the request's [`Encoding`].
    pub compressed: bool,
    /// The payload without the gRPC prefix.
    pub payload: &'a [u8],
}

/// Answer to a complete held request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Later, by [`crate::Tap::resolve`].
    Later,
    /// Now.
    Now(Verdict),
}

/// Answer to the end of a tapped call's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trailers {
    /// They reach the client at once.
    Pass,
    /// They wait for [`crate::Tap::release`].
    Hold,
}

/// The end of a tapped call's answer, seen before the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseEnd<'a> {
    /// `grpc-status`; `None` where the runtime sent none.
    pub status: Option<u32>,
    /// Payload of the only message, `None` if there was none, more than one, a compressed or a very large one.
    pub message: Option<&'a [u8]>,
}

/// Why a tapped request is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// Larger than the limit of held messages.
    Size,
    /// Not exactly one gRPC message.
    Framing,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The runtime answered; the status is what the client sees.
    Answered(Option<u32>),
    /// The client cancelled it.
    Cancelled,
    /// The runtime reset it with this HTTP/2 error code.
    Reset(u32),
    /// The relay refused it with this gRPC status.
    Refused(u32),
    /// The runtime left the call unprocessed (GOAWAY).
    Unprocessed,
    /// One of the connections was lost or ended.
    Disconnected,
}

/// The part that decides. Every method is called on the connection's own thread and must not block.
pub trait Handler {
    /// What the handler keeps for a call.
    type Call;

    /// The headers of a new call have arrived.
    fn open(&mut self, stream: u32, head: Head) -> (Mode, Self::Call);

    /// The request of a held or observed call is complete. The answer counts only for held calls.
    fn request(&mut self, stream: u32, call: &mut Self::Call, request: Request<'_>) -> Decision;

    /// The request of a held or observed call passes without being looked at.
    fn bypassed(&mut self, stream: u32, call: &mut Self::Call, why: Bypass);

    /// The answer of a held or observed call is complete; the trailers have not been passed on.
    fn response(&mut self, stream: u32, call: &mut Self::Call, end: ResponseEnd<'_>) -> Trailers;

    /// The call is over for the client. Called once for each opened call.
    fn closed(&mut self, stream: u32, call: Self::Call, how: Closed);
}

/// Reads `grpc-timeout`: 1 to 8 digits and a unit (gRPC over HTTP/2).
pub(crate) fn parse_timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(amount * 3600),
        b'M' => Duration::from_secs(amount * 60),
        b'S' => Duration::from_secs(amount),
        b'm' => Duration::from_millis(amount),
        b'u' => Duration::from_micros(amount),
        b'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// The only message in a stream's collected DATA; `None` when it is not exactly one.
pub(crate) fn only_message(collected: &[u8]) -> Option<Request<'_>> {
    let (prefix, payload) = collected.split_first_chunk::<5>()?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    if usize::try_from(length).ok()? != payload.len() || prefix[0] > 1 {
        return None;
    }
    Some(Request { compressed: prefix[0] == 1, payload })
}

/// A message with its gRPC prefix, uncompressed.
pub(crate) fn with_prefix(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut out = Vec::with_capacity(5 + payload.len());
    out.push(0);
    out.extend_from_slice(&length);
    out.extend_from_slice(payload);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        assert_eq!(parse_timeout(b"4M"), Some(Duration::from_secs(240)));
        assert_eq!(parse_timeout(b"99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(parse_timeout(b"0n"), Some(Duration::ZERO));
        assert_eq!(parse_timeout(b"250m"), Some(Duration::from_millis(250)));
        for bad in [&b""[..], b"S", b"5", b"5s", b"123456789S", b"-1S", b"1.5S"] {
            assert_eq!(parse_timeout(bad), None);
        }
    }

    #[test]
    fn one_message_and_nothing_else() {
        assert_eq!(only_message(&[0, 0, 0, 0, 0]), Some(Request { compressed: false, payload: &[] }));
        assert_eq!(only_message(&[1, 0, 0, 0, 1, 7]), Some(Request { compressed: true, payload: &[7] }));
        for bad in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 1], &[0, 0, 0, 0, 1, 7, 7], &[2, 0, 0, 0, 0]] {
            assert_eq!(only_message(bad), None);
        }
        assert_eq!(with_prefix(b"ab"), [0, 0, 0, 0, 2, b'a', b'b']);
    }
}
