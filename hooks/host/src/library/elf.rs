//! Whether a file is a whole shared object for this machine.
//!
//! The loader trusts what it maps: a part that is missing at the end of a file, because it is still being copied or
//! was cut off, kills the process with SIGBUS. So sizes are checked before.

/// Size of the file header, in bytes.
pub(super) const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const SECTION_HEADER_BYTES: u64 = 64;
const SHARED_OBJECT: u16 = 3;
const LOADABLE: u32 = 1;

/// `e_machine` of this machine.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else {
    0
};

/// Why a file is no library that can be loaded here. The caller adds the file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// It does not begin as an ELF file.
    #[error("is not an ELF file")]
    Kind,
    /// It is for another word size or byte order.
    #[error("is not a 64-bit little-endian ELF file")]
    Class,
    /// It is an object file or a program.
    #[error("is an ELF file of type {0}, not a shared object (type 3)")]
    Type(u16),
    /// It is for another processor.
    #[error("is for machine {found}; this machine is {MACHINE}")]
    Machine {
        /// Its `e_machine`.
        found: u16,
    },
    /// Its headers contradict themselves.
    #[error("has a damaged ELF header")]
    Header,
    /// Parts it should have are behind its end.
    #[error("is {size} bytes long and should have {wanted}: it is cut off")]
    Short {
        /// Its size in bytes.
        size: u64,
        /// The end of its last part.
        wanted: u64,
    },
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], ElfError> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(ElfError::Header)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, ElfError> {
    number(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, ElfError> {
    number(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, ElfError> {
    number(bytes, at).map(u64::from_le_bytes)
}

/// Where the program headers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProgramHeaders {
    /// Offset in the file, in bytes.
    pub(super) offset: u64,
    /// Their size together, in bytes.
    pub(super) length: usize,
}

fn fits(size: u64, offset: u64, length: u64) -> Result<(), ElfError> {
    match offset.checked_add(length) {
        None => Err(ElfError::Header),
        Some(wanted) if wanted > size => Err(ElfError::Short { size, wanted }),
        Some(_) => Ok(()),
    }
}

/// Checks the first [`HEADER_BYTES`] of a file of `size` bytes.
pub(super) fn check_header(header: &[u8], size: u64) -> Result<ProgramHeaders, ElfError> {
    if !header.starts_with(b"\x7fELF") {
        return Err(ElfError::Kind);
    }
    if header.get(4..6) != Some(&[2, 1]) || cfg!(target_endian = "big") {
        return Err(ElfError::Class);
    }
    match u16_at(header, 16)? {
        SHARED_OBJECT => {}
        other => return Err(ElfError::Type(other)),
    }
    match u16_at(header, 18)? {
        MACHINE => {}
        found => return Err(ElfError::Machine { found }),
    }
    let count = u16_at(header, 56)?;
    if usize::from(u16_at(header, 54)?) != PROGRAM_HEADER_BYTES || count == 0 {
        return Err(ElfError::Header);
    }
    let found =
        ProgramHeaders { offset: u64_at(header, 32)?, length: usize::from(count) * PROGRAM_HEADER_BYTES };
    fits(size, found.offset, found.length as u64)?;
    // Linkers put the section headers last, so a file without its end lacks some.
    let sections = u64::from(u16_at(header, 60)?);
    if sections > 0 {
        fits(size, u64_at(header, 40)?, sections * SECTION_HEADER_BYTES)?;
    }
    Ok(found)
}

/// Checks the program headers of a file of `size` bytes.
pub(super) fn check_segments(headers: &[u8], size: u64) -> Result<(), ElfError> {
    for header in headers.chunks_exact(PROGRAM_HEADER_BYTES) {
        if u32_at(header, 0)? == LOADABLE {
            fits(size, u64_at(header, 8)?, u64_at(header, 32)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        header[16] = 3;
        header[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        header[32] = 64;
        header[40..48].copy_from_slice(&1000u64.to_le_bytes());
        header[54] = 56;
        header[56] = 2;
        header[58] = 64;
        header[60] = 3;
        header
    }

    fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut header = header();
        header[at..at + bytes.len()].copy_from_slice(bytes);
        header
    }

    #[test]
    fn a_whole_file_passes_and_a_byte_less_does_not() {
        // Three section headers of 64 bytes from offset 1000.
        assert_eq!(check_header(&header(), 1192), Ok(ProgramHeaders { offset: 64, length: 112 }));
        assert_eq!(check_header(&header(), 1191), Err(ElfError::Short { size: 1191, wanted: 1192 }));
        // Without section headers the program headers are what must be there.
        let stripped = with(60, &[0]);
        assert!(check_header(&stripped, 176).is_ok());
        assert_eq!(check_header(&stripped, 175), Err(ElfError::Short { size: 175, wanted: 176 }));
    }

    #[test]
    fn other_files_say_what_they_are() {
        assert_eq!(check_header(b"#!/bin/sh", 9), Err(ElfError::Kind));
        assert_eq!(check_header(b"", 0), Err(ElfError::Kind));
        assert_eq!(check_header(b"\x7fELF", 4), Err(ElfError::Class));
        assert_eq!(check_header(&with(4, &[1]), 1192), Err(ElfError::Class));
        assert_eq!(check_header(&with(5, &[2]), 1192), Err(ElfError::Class));
        assert_eq!(check_header(&with(16, &[2]), 1192), Err(ElfError::Type(2)));
        assert_eq!(check_header(&with(18, &[3, 0]), 1192), Err(ElfError::Machine { found: 3 }));
        assert_eq!(check_header(&with(54, &[32]), 1192), Err(ElfError::Header));
        assert_eq!(check_header(&with(56, &[0]), 1192), Err(ElfError::Header));
        assert_eq!(check_header(&with(32, &[0xff; 8]), 1192), Err(ElfError::Header));
        assert_eq!(check_header(&header()[..40], 1192), Err(ElfError::Header));
    }

    #[test]
    fn segments_that_are_loaded_must_be_there() {
        let mut segments = vec![0; 112];
        segments[0] = 1;
        segments[8..16].copy_from_slice(&4096u64.to_le_bytes());
        segments[32..40].copy_from_slice(&100u64.to_le_bytes());
        // The second is of a kind that is not loaded.
        segments[56] = 4;
        segments[88..96].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(check_segments(&segments, 4196), Ok(()));
        assert_eq!(check_segments(&segments, 4195), Err(ElfError::Short { size: 4195, wanted: 4196 }));
        segments[56] = 1;
        assert_eq!(check_segments(&segments, 4196), Err(ElfError::Short { size: 4196, wanted: u64::MAX }));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), size: u64, elf: bool) {
            if elf && bytes.len() >= 6 {
                bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            }
            let _ = check_header(&bytes, size);
            let _ = check_segments(&bytes, size);
        }
    }
}
