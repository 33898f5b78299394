//! What passes between the program and a child: heads of 24 bytes in little-endian order, each followed by a body.
//!
//! | bytes | request          | answer                                        |
//! |-------|------------------|-----------------------------------------------|
//! | 0-3   | length of body   | length of body                                |
//! | 4-7   | number of stage  | kind: 0 answer, 1 failure, 2 too large, 3 no buffer, 4 not loaded |
//! | 8-15  | number of call   | number of call                                |
//! | 16-23 | 0                | status of the failure, or size in bytes |
//!
//! Before the first request the program sends one byte with the descriptor of the library's copy and the library's
//! name; the child answers as to a call of number 0.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::Bytes;
use koord_hook::HookType;
use koord_hook_sdk::abi::{stage_number, stage_of_number};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use super::Failed;
use crate::library::{CallError, Description, LoadError, StartError};

/// Size of a head.
pub(crate) const HEAD_BYTES: usize = 24;

/// Largest request; a request carries the maps of a pod and a container.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// Longest name of a library.
const MAX_NAME_BYTES: usize = 255;

const ANSWER: u32 = 0;
const FAILURE: u32 = 1;
const TOO_LARGE: u32 = 2;
const NO_BUFFER: u32 = 3;
const NOT_LOADED: u32 = 4;

fn head(length: usize, kind: u32, number: u64, detail: u64) -> Option<[u8; HEAD_BYTES]> {
    let mut head = [0; HEAD_BYTES];
    let (length_part, rest) = head.split_first_chunk_mut::<4>()?;
    *length_part = u32::try_from(length).ok()?.to_le_bytes();
    let (kind_part, rest) = rest.split_first_chunk_mut::<4>()?;
    *kind_part = kind.to_le_bytes();
    let (number_part, rest) = rest.split_first_chunk_mut::<8>()?;
    *number_part = number.to_le_bytes();
    *rest.first_chunk_mut::<8>()? = detail.to_le_bytes();
    Some(head)
}

fn parts(head: &[u8; HEAD_BYTES]) -> (usize, u32, u64, u64) {
    let quad = |at: usize| head.get(at..).and_then(|rest| rest.first_chunk().copied()).unwrap_or_default();
    let octet = |at: usize| head.get(at..).and_then(|rest| rest.first_chunk().copied()).unwrap_or_default();
    let length = usize::try_from(u32::from_le_bytes(quad(0))).unwrap_or(usize::MAX);
    (length, u32::from_le_bytes(quad(4)), u64::from_le_bytes(octet(8)), u64::from_le_bytes(octet(16)))
}

/// The head of a request.
pub(crate) fn request_head(stage: HookType, number: u64, request: &[u8]) -> Result<[u8; HEAD_BYTES], Failed> {
    if request.len() > MAX_REQUEST_BYTES {
        return Err(Failed::Nonsense);
    }
    head(request.len(), stage_number(stage), number, 0).ok_or(Failed::Nonsense)
}

/// The head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswerHead {
    pub(crate) length: usize,
    pub(crate) number: u64,
    kind: u32,
    detail: u64,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: AnswerHead,
    pub(crate) body: Bytes,
}

impl AnswerHead {
    pub(crate) fn read(bytes: &[u8; HEAD_BYTES]) -> Self {
        let (length, kind, number, detail) = parts(bytes);
        Self { length, number, kind, detail }
    }

    /// What came of the call.
    pub(crate) fn outcome(self, body: Bytes) -> Result<Bytes, CallError> {
        match self.kind {
            ANSWER => Ok(body),
            TOO_LARGE => Err(CallError::TooLarge { size: self.detail }),
            NO_BUFFER => Err(CallError::NoBuffer { size: self.detail }),
            _ => Err(CallError::Hook {
                status: i32::try_from(self.detail.cast_signed()).unwrap_or(i32::MIN),
                text: String::from_utf8_lossy(&body).into_owned(),
            }),
        }
    }
}

/// Writes what came of a call.
pub(super) fn write_outcome(
    stream: &mut impl Write,
    number: u64,
    outcome: &Result<Vec<u8>, CallError>,
) -> io::Result<()> {
    let (kind, detail, body) = match outcome {
        Ok(bytes) => (ANSWER, 0, bytes.as_slice()),
        Err(CallError::Hook { status, text }) => {
            (FAILURE, i64::from(*status).cast_unsigned(), text.as_bytes())
        }
        Err(CallError::TooLarge { size }) => (TOO_LARGE, *size, &[][..]),
        Err(CallError::NoBuffer { size }) => (NO_BUFFER, *size, &[][..]),
    };
    write(stream, kind, number, detail, body)
}

fn write(stream: &mut impl Write, kind: u32, number: u64, detail: u64, body: &[u8]) -> io::Result<()> {
    let head = head(body.len(), kind, number, detail).ok_or(io::ErrorKind::InvalidData)?;
    // One write for most answers: the program looks for it already.
    let mut whole = Vec::with_capacity(HEAD_BYTES + body.len());
    whole.extend_from_slice(&head);
    whole.extend_from_slice(body);
    stream.write_all(&whole)
}

/// Writes what came of loading the library.
pub(super) fn write_greeting(
    stream: &mut impl Write,
    loaded: Result<&Description, &LoadError>,
) -> io::Result<()> {
    match loaded {
        Ok(description) => write(stream, ANSWER, 0, 0, &serde_json::to_vec(description)?),
        Err(error) => write(stream, NOT_LOADED, 0, 0, &serde_json::to_vec(error)?),
    }
}

/// Reads what came of loading the library.
pub(crate) fn read_greeting(answer: Answer) -> Result<Description, StartError> {
    let nonsense = |error: serde_json::Error| StartError::Child(error.into());
    match answer.head.kind {
        ANSWER => serde_json::from_slice(&answer.body).map_err(nonsense),
        _ => Err(StartError::Load(serde_json::from_slice(&answer.body).map_err(nonsense)?)),
    }
}

/// A request as the child reads it.
pub(super) struct Request {
    pub(super) stage: Option<HookType>,
    pub(super) stage_number: u32,
    pub(super) number: u64,
    pub(super) body: Vec<u8>,
}

/// Reads the next request; `None` at the end.
pub(super) fn read_request(stream: &mut impl Read) -> io::Result<Option<Request>> {
    let mut bytes = [0; HEAD_BYTES];
    match stream.read_exact(&mut bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let (length, stage, number, _) = parts(&bytes);
    if length > MAX_REQUEST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some(Request { stage: stage_of_number(stage), stage_number: stage, number, body }))
}

/// Hands the library's copy over.
pub(crate) fn send_image(socket: BorrowedFd<'_>, memory: &OwnedFd, name: &str) -> io::Result<()> {
    let name = name.as_bytes().get(..MAX_NAME_BYTES).unwrap_or(name.as_bytes());
    let length = [u8::try_from(name.len()).unwrap_or(u8::MAX)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [memory.as_fd()];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let parts = [IoSlice::new(&length), IoSlice::new(name)];
    // The first octets on a new socket: they fit.
    let sent = rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == 1 + name.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Takes the library's copy and name.
pub(super) fn receive_image(socket: BorrowedFd<'_>) -> io::Result<(OwnedFd, String)> {
    let mut bytes = [0; 1 + MAX_NAME_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let memory = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let memory = memory.ok_or(io::ErrorKind::UnexpectedEof)?;
    let name = bytes.get(1..received.bytes).unwrap_or_default();
    Ok((memory, String::from_utf8_lossy(name).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(outcome: Result<Vec<u8>, CallError>) -> Result<Bytes, CallError> {
        let mut written = Vec::new();
        write_outcome(&mut written, 7, &outcome).expect("written");
        let (head, body) = written.split_first_chunk::<HEAD_BYTES>().expect("a head");
        let head = AnswerHead::read(head);
        assert_eq!((head.number, head.length), (7, body.len()));
        head.outcome(Bytes::copy_from_slice(body))
    }

    #[test]
    fn outcomes_survive_the_socket() {
        assert_eq!(round_trip(Ok(b"abc".to_vec())), Ok(Bytes::from_static(b"abc")));
        assert_eq!(round_trip(Ok(Vec::new())), Ok(Bytes::new()));
        for error in [
            CallError::Hook { status: -3, text: "no".into() },
            CallError::Hook { status: i32::MAX, text: String::new() },
            CallError::TooLarge { size: u64::MAX },
            CallError::NoBuffer { size: 1 },
        ] {
            assert_eq!(round_trip(Err(error.clone())), Err(error));
        }
    }

    #[test]
    fn the_head_of_a_request_is_as_documented() {
        let head = request_head(HookType::PreCreateContainer, 0x0102, b"xyz").expect("fits");
        let expected = [3, 0, 0, 0, 2, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(head, expected);
        let mut whole = [&head[..], b"xyz"].concat();
        let request = read_request(&mut &whole[..]).expect("read").expect("a request");
        assert_eq!((request.stage, request.number), (Some(HookType::PreCreateContainer), 0x0102));
        assert_eq!(request.body, b"xyz");
        whole.pop();
        assert!(read_request(&mut &whole[..]).is_err());
        assert!(read_request(&mut &[][..]).expect("the end").is_none());
        let huge = [0xff; HEAD_BYTES];
        assert!(read_request(&mut &huge[..]).is_err());
    }

    #[test]
    fn a_copy_and_its_name_are_handed_over() {
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x");
        std::fs::write(&path, "content").expect("written");
        let file = std::fs::File::open(&path).expect("opened");
        send_image(one.as_fd(), &file.into(), "x.so").expect("sent");
        let (received, name) = receive_image(other.as_fd()).expect("received");
        assert_eq!(name, "x.so");
        let mut text = String::new();
        std::fs::File::from(received).read_to_string(&mut text).expect("read");
        assert_eq!(text, "content");
    }

    proptest! {
        #[test]
        fn no_octets_panic(bytes in proptest::array::uniform24(any::<u8>()), body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let head = AnswerHead::read(&bytes);
            let _ = head.outcome(Bytes::from(body.clone()));
            let _ = read_greeting(Answer { head, body: Bytes::from(body.clone()) });
            let _ = read_request(&mut [&bytes[..], &body].concat().as_slice());
        }
    }
}
