//! Reading gzip-compressed request messages.

use std::io::Read as _;

/// Why a message could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum GzipError {
    /// It is no gzip data.
    #[error("message is no gzip data")]
    Malformed(#[from] std::io::Error),
    /// It would become larger than allowed.
    #[error("message is larger than {limit} bytes when decompressed")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
}

/// Decompresses a message to at most `limit` bytes.
pub(super) fn decompress(message: &[u8], limit: usize) -> Result<Vec<u8>, GzipError> {
    let mut out = Vec::new();
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    flate2::read::MultiGzDecoder::new(message).take(bound).read_to_end(&mut out)?;
    if out.len() > limit {
        return Err(GzipError::TooLarge { limit });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn bounded_on_both_sides() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&[7; 1000]).unwrap();
        let packed = encoder.finish().unwrap();
        assert_eq!(decompress(&packed, 1000).unwrap(), [7; 1000]);
        assert!(matches!(decompress(&packed, 999), Err(GzipError::TooLarge { limit: 999 })));
        assert!(matches!(decompress(&packed[..packed.len() - 9], 1000), Err(GzipError::Malformed(_))));
        assert!(matches!(decompress(b"junk", 1000), Err(GzipError::Malformed(_))));
    }
}
