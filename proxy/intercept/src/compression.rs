//! Makes compressed request messages readable.

use std::{borrow::Cow, io::Read};

use flate2::bufread::MultiGzDecoder;

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CompressionError {
    /// The message is compressed in a way that is not understood here.
    #[error("message encoding {encoding:?} is not understood, expected \"identity\" or \"gzip\"")]
    Unsupported {
        /// The value of `grpc-encoding`; empty when the header is missing.
        encoding: String,
    },
    /// The message is larger than the limit once decompressed.
    #[error("message exceeds {limit} bytes once decompressed")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The compressed data is damaged.
    #[error("compressed message is damaged")]
    Damaged(#[source] std::io::Error),
}

/// Returns the message in readable form.
///
/// `compressed` is the flag in front of the message, `encoding` the header `grpc-encoding`,
/// `limit` the largest message accepted after decompression. A message that is changed is
/// sent with the flag cleared, whatever it was before.
///
/// # Errors
///
/// [`CompressionError`]; the call is then relayed as it came.
pub fn readable<'a>(
    compressed: bool,
    encoding: Option<&str>,
    message: &'a [u8],
    limit: usize,
) -> Result<Cow<'a, [u8]>, CompressionError> {
    if !compressed {
        return Ok(Cow::Borrowed(message));
    }
    let encoding = encoding.unwrap_or_default();
    if encoding != "gzip" {
        return Err(CompressionError::Unsupported { encoding: encoding.to_owned() });
    }
    let mut decompressed = Vec::new();
    // One byte more than allowed tells a message at the limit from one beyond it.
    let allowed = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(message)
        .take(allowed)
        .read_to_end(&mut decompressed)
        .map_err(CompressionError::Damaged)?;
    if decompressed.len() > limit {
        return Err(CompressionError::TooLarge { limit });
    }
    Ok(Cow::Owned(decompressed))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(message: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(message).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_clear_flag_means_readable_whatever_the_header() {
        for encoding in [None, Some("identity"), Some("gzip"), Some("zstd")] {
            assert!(matches!(readable(false, encoding, b"abc", 1), Ok(Cow::Borrowed(b"abc"))));
        }
    }

    #[test]
    fn gzip_is_read_up_to_the_limit() {
        let packed = gzip(&[7; 1000]);
        assert_eq!(readable(true, Some("gzip"), &packed, 1000).unwrap(), vec![7; 1000]);
        assert!(matches!(
            readable(true, Some("gzip"), &packed, 999),
            Err(CompressionError::TooLarge { limit: 999 })
        ));
        assert_eq!(readable(true, Some("gzip"), &gzip(b""), 0).unwrap(), b"".as_slice());
    }

    #[test]
    fn several_members_are_one_message() {
        let packed = [gzip(b"ab"), gzip(b"cd")].concat();
        assert_eq!(readable(true, Some("gzip"), &packed, 4).unwrap(), b"abcd".as_slice());
    }

    #[test]
    fn damage_and_other_encodings_are_errors() {
        let packed = gzip(b"abcdef");
        for cut in 0..packed.len() {
            assert!(
                matches!(readable(true, Some("gzip"), &packed[..cut], 9), Err(CompressionError::Damaged(_))),
                "{cut}"
            );
        }
        for encoding in [None, Some("identity"), Some("deflate"), Some("GZIP")] {
            let error = readable(true, encoding, &packed, 9).unwrap_err();
            assert!(matches!(error, CompressionError::Unsupported { .. }), "{error}");
        }
    }
}
