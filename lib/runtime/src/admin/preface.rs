//! Which protocol a client speaks: one of HTTP/2 begins with a text that no request of HTTP/1.1 begins with.

use std::io::Cursor;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, Chain, Join, ReadHalf, WriteHalf, join, split};

/// What clients of HTTP/2 send first (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// A stream whose beginning was read already and is read again.
pub(super) type Again<S> = Join<Chain<Cursor<Vec<u8>>, ReadHalf<S>>, WriteHalf<S>>;

/// Reads until the protocol is certain. A client that ends before is taken for one of HTTP/1.1, whose reader knows what
/// to do with a cut request.
///
/// # Errors
/// The stream cannot be read.
pub(super) async fn find<S: AsyncRead + AsyncWrite>(stream: S) -> std::io::Result<(Protocol, Again<S>)> {
    let (mut reader, writer) = split(stream);
    let mut begun = Vec::with_capacity(PREFACE.len());
    let mut buffer = [0; PREFACE.len()];
    let protocol = loop {
        let room = PREFACE.len() - begun.len();
        let count = reader.read(buffer.get_mut(..room).unwrap_or_default()).await?;
        begun.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if count == 0 || !PREFACE.starts_with(&begun) {
            break Protocol::Http1;
        }
        if begun.len() == PREFACE.len() {
            break Protocol::Http2;
        }
    };
    Ok((protocol, join(Cursor::new(begun).chain(reader), writer)))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn found(pieces: &[&[u8]]) -> (Protocol, Vec<u8>) {
        let (mut client, server) = tokio::io::duplex(1);
        let sent: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let send = async move {
            for piece in sent {
                client.write_all(&piece).await.expect("written");
            }
            client.shutdown().await.expect("closed");
            client
        };
        let receive = async {
            let (protocol, mut stream) = find(server).await.expect("read");
            let mut octets = Vec::new();
            stream.read_to_end(&mut octets).await.expect("read");
            (protocol, octets)
        };
        tokio::join!(send, receive).1
    }

    #[tokio::test]
    async fn nothing_is_lost_whatever_the_protocol() {
        let table: [(&[&[u8]], Protocol); 6] = [
            (&[b"GET / HTTP/1.1\r\n\r\n"], Protocol::Http1),
            (&[PREFACE], Protocol::Http2),
            (&[b"PRI * HTTP/2.0\r\n\r\n", b"SM\r\n\r\nxyz"], Protocol::Http2),
            (&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"], Protocol::Http1),
            (&[b"PROPFIND / HTTP/1.1\r\n\r\n"], Protocol::Http1),
            (&[], Protocol::Http1),
        ];
        for (pieces, protocol) in table {
            assert_eq!(found(pieces).await, (protocol, pieces.concat()), "{pieces:?}");
        }
    }
}
