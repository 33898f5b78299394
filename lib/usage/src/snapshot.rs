//! Series as bytes, for a restart of the process.
//!
//! The bytes begin with a magic number, whose last octet is the version, and a CRC-32 of the rest. The rest is the identity
//! of the boot, the tick of the newest sample, and objects with their series: octets of times are differences to the time before,
//! seven bits in each octet; values are 64-bit floating point. Numbers of fixed size are little-endian.
//!
//! Kinds that this version does not know are skipped, so that a step back to an older version keeps the others.

mod decoder;
pub mod file;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use self::decoder::{decode, decode_payload};
use crate::kind::Kind;
use crate::object::{GpuUser, Object, ObjectClass, TierSeries};
use crate::time::Tick;

/// First octets of a snapshot; the last one is the version of the format.
const MAGIC: [u8; 8] = *b"KUSAGES\x01";

/// Magic number and check sum.
const HEADER_BYTES: usize = MAGIC.len() + 4;

/// A snapshot may be a little ahead of the clock that was read before it was taken.
const MAX_AHEAD: Duration = Duration::from_secs(60);

/// Why a snapshot is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It does not begin as a snapshot of this version.
    #[error("is no snapshot of version {version}", version = MAGIC[7])]
    Format,
    /// Its content is not what was written.
    #[error("is damaged: its check sum is {found:08x}, not {expected:08x}")]
    Checksum {
        /// The sum of what is there.
        found: u32,
        /// The sum of what was written.
        expected: u32,
    },
    /// Its content cannot be decoded.
    #[error("is damaged at octet {offset}: {problem}")]
    Content {
        /// Place behind the check sum.
        offset: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// It was written before the machine booted.
    #[error("is of boot {found:?}, not {expected:?}")]
    Boot {
        /// Its boot.
        found: String,
        /// The current one.
        expected: String,
    },
    /// It is from the future or older than the longest window.
    #[error("was taken {taken} s after boot, which is too far from {now} s")]
    Age {
        /// Its newest sample.
        taken: Tick,
        /// The current moment.
        now: Tick,
    },
}

/// One series.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesContent {
    /// The kind, which suits the object.
    pub kind: Kind,
    /// Finite values, ascending by time.
    pub samples: Vec<(Tick, f64)>,
}

/// The series of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectContent {
    /// The object.
    pub object: Object,
    /// Its series.
    pub series: Vec<SeriesContent>,
}

/// What a snapshot says.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// Identity of the boot, which its times count from.
    pub boot_id: String,
    /// No sample is newer.
    pub newest: Tick,
    /// The objects.
    pub objects: Vec<ObjectContent>,
}

impl Content {
    /// Whether the samples may go on in the boot `boot_id` at `now`, where windows are no longer than `longest`.
    ///
    /// # Errors
    /// It is of another boot, from the future or too old.
    pub fn check(&self, boot_id: &str, now: Tick, longest: Duration) -> Result<(), SnapshotError> {
        if self.boot_id != boot_id {
            return Err(SnapshotError::Boot { found: self.boot_id.clone(), expected: boot_id.to_owned() });
        }
        if self.newest > now.ahead(MAX_AHEAD) || now.since(self.newest) > longest {
            return Err(SnapshotError::Age { taken: self.newest, now });
        }
        Ok(())
    }

    /// The snapshot that says this.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::new(&self.boot_id, self.newest);
        for content in &self.objects {
            encoder.object(&content.object, content.series.len());
            for series in &content.series {
                encoder.series(series.kind, series.samples.iter().copied());
            }
        }
        encoder.finish()
    }
}

/// Whether a snapshot has the series of a sort of objects.
pub const fn is_carried(class: ObjectClass) -> bool {
    !matches!(class, ObjectClass::Container | ObjectClass::ContainerGpu | ObjectClass::PodNuma)
}

const NODE: u8 = 1;
const NUMA: u8 = 2;
const TIER: u8 = 3;
const POD: u8 = 4;
const POD_NUMA: u8 = 5;
const CONTAINER: u8 = 6;
const HOST_APPLICATION: u8 = 7;
const GPU: u8 = 8;
const RESCTRL: u8 = 9;

/// Writes a snapshot piece by piece.
#[derive(Debug)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(boot_id: &str, newest: Tick) -> Encoder {
        let mut encoder = Encoder { bytes: MAGIC.to_vec() };
        encoder.bytes.extend([0; 4]);
        encoder.text(boot_id);
        encoder.number(newest.0);
        encoder
    }

    fn number(&mut self, mut number: u64) {
        loop {
            let [low, ..] = (number & 0x7f).to_le_bytes();
            number >>= 7;
            if number == 0 {
                self.bytes.push(low);
                return;
            }
            self.bytes.push(low | 0x80);
        }
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend(text.as_bytes());
    }

    /// Begins an object with so many series.
    pub(crate) fn object(&mut self, object: &Object, series: usize) {
        match object {
            Object::Node => self.bytes.push(NODE),
            Object::Numa(number) => {
                self.bytes.push(NUMA);
                self.number(u64::from(*number));
            }
            Object::Tier(tier) => {
                self.bytes.push(TIER);
                self.bytes.push(match tier {
                    TierSeries::RealLimit => 0,
                    TierSeries::Request => 1,
                    TierSeries::Usage => 2,
                });
            }
            Object::Pod(uid) => {
                self.bytes.push(POD);
                self.text(uid);
            }
            Object::PodNuma { pod_uid, numa } => {
                self.bytes.push(POD_NUMA);
                self.text(pod_uid);
                self.number(u64::from(*numa));
            }
            Object::Container { pod_uid, id } => {
                self.bytes.push(CONTAINER);
                self.text(pod_uid);
                self.text(id);
            }
            Object::HostApplication(name) => {
                self.bytes.push(HOST_APPLICATION);
                self.text(name);
            }
            Object::Gpu { user, minor, uuid } => {
                self.bytes.push(GPU);
                match user {
                    GpuUser::Node => self.bytes.push(NODE),
                    GpuUser::Pod(uid) => {
                        self.bytes.push(POD);
                        self.text(uid);
                    }
                    GpuUser::Container(id) => {
                        self.bytes.push(CONTAINER);
                        self.text(id);
                    }
                }
                self.number(u64::from(*minor));
                self.text(uuid);
            }
            Object::Resctrl { group, cache } => {
                self.bytes.push(RESCTRL);
                self.text(group);
                self.number(u64::from(*cache));
            }
        }
        self.number(series as u64);
    }

    /// Appends a series of the object: finite values, ascending by time.
    pub(crate) fn series(&mut self, kind: Kind, samples: impl Iterator<Item = (Tick, f64)>) {
        self.number(u64::from(kind.code()));
        // The length, which is known at the end, has a fixed size.
        let place = self.bytes.len();
        self.bytes.extend([0; 4]);
        let (mut count, mut previous) = (0_u32, 0);
        for (Tick(tick), value) in samples {
            self.number(tick - previous);
            self.bytes.extend(value.to_le_bytes());
            previous = tick;
            count += 1;
        }
        if let Some(length) = self.bytes.get_mut(place..place + 4) {
            length.copy_from_slice(&count.to_le_bytes());
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let sum = crc32fast::hash(&self.bytes[HEADER_BYTES..]);
        self.bytes[MAGIC.len()..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        self.bytes
    }
}

/// Text as names are kept.
fn shared(text: &str) -> Arc<str> {
    Arc::from(text)
}
