//! Bytes as series.

use super::{
    CONTAINER, Content, GPU, HEADER_BYTES, HOST_APPLICATION, MAGIC, NODE, NUMA, ObjectContent, POD, POD_NUMA,
    RESCTRL, SeriesContent, SnapshotError, TIER, shared,
};
use crate::kind::Kind;
use crate::object::{GpuUser, Object, TierSeries};
use crate::time::Tick;

/// The shortest sample: one octet of time and eight of value.
const SAMPLE_BYTES: usize = 9;

/// What a snapshot says.
///
/// # Errors
/// It is none, or damaged.
pub fn decode(bytes: &[u8]) -> Result<Content, SnapshotError> {
    let (header, payload) = bytes.split_at_checked(HEADER_BYTES).ok_or(SnapshotError::Format)?;
    let (magic, sum) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(SnapshotError::Format);
    }
    let expected = u32::from_le_bytes(sum.try_into().map_err(|_| SnapshotError::Format)?);
    let found = crc32fast::hash(payload);
    if found != expected {
        return Err(SnapshotError::Checksum { found, expected });
    }
    decode_payload(payload)
}

/// What a snapshot says that comes without magic number and check sum.
///
/// # Errors
/// It is damaged.
pub fn decode_payload(payload: &[u8]) -> Result<Content, SnapshotError> {
    let mut reader = Reader { payload, offset: 0 };
    let boot_id = reader.text()?.to_owned();
    let newest = Tick(reader.number()?);
    let mut objects = Vec::new();
    while reader.offset < payload.len() {
        objects.push(reader.object_content(newest)?);
    }
    Ok(Content { boot_id, newest, objects })
}

#[derive(Debug)]
struct Reader<'a> {
    payload: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    const fn problem(&self, problem: &'static str) -> SnapshotError {
        SnapshotError::Content { offset: self.offset, problem }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], SnapshotError> {
        let end = self.offset.checked_add(count);
        match end.and_then(|end| Some((self.payload.get(self.offset..end)?, end))) {
            Some((taken, end)) => {
                self.offset = end;
                Ok(taken)
            }
            None => Err(self.problem("it ends too early")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| self.problem("it ends too early"))
    }

    fn octet(&mut self) -> Result<u8, SnapshotError> {
        let [octet] = self.array()?;
        Ok(octet)
    }

    fn number(&mut self) -> Result<u64, SnapshotError> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let octet = self.octet()?;
            let part = u64::from(octet & 0x7f);
            if part << shift >> shift != part {
                break;
            }
            number |= part << shift;
            if octet & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.problem("a number is too large"))
    }

    fn small_number(&mut self) -> Result<u32, SnapshotError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| self.problem("a number is too large"))
    }

    fn text(&mut self) -> Result<&'a str, SnapshotError> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| self.problem("a name is no text"))
    }

    fn object(&mut self) -> Result<Object, SnapshotError> {
        Ok(match self.octet()? {
            NODE => Object::Node,
            NUMA => Object::Numa(self.small_number()?),
            TIER => {
                let tier = usize::from(self.octet()?);
                let series = TierSeries::ALL.get(tier).copied();
                Object::Tier(series.ok_or_else(|| self.problem("an unknown figure of the tier"))?)
            }
            POD => Object::Pod(shared(self.text()?)),
            POD_NUMA => Object::PodNuma { pod_uid: shared(self.text()?), numa: self.small_number()? },
            CONTAINER => Object::Container { pod_uid: shared(self.text()?), id: shared(self.text()?) },
            HOST_APPLICATION => Object::HostApplication(shared(self.text()?)),
            GPU => {
                let user = match self.octet()? {
                    NODE => GpuUser::Node,
                    POD => GpuUser::Pod(shared(self.text()?)),
                    CONTAINER => GpuUser::Container(shared(self.text()?)),
                    _ => return Err(self.problem("an unknown user of a GPU")),
                };
                Object::Gpu { user, minor: self.small_number()?, uuid: shared(self.text()?) }
            }
            RESCTRL => Object::Resctrl { group: shared(self.text()?), cache: self.small_number()? },
            _ => return Err(self.problem("an unknown sort of object")),
        })
    }

    fn object_content(&mut self, newest: Tick) -> Result<ObjectContent, SnapshotError> {
        let object = self.object()?;
        let count = self.number()?;
        let mut series = Vec::new();
        for _ in 0..count {
            let code = self.number()?;
            let samples = self.samples(newest)?;
            let Some(kind) = u16::try_from(code).ok().and_then(Kind::from_code) else { continue };
            if !kind.suits(&object) {
                return Err(self.problem("a kind that is not measured for its object"));
            }
            series.push(SeriesContent { kind, samples });
        }
        Ok(ObjectContent { object, series })
    }

    fn samples(&mut self, newest: Tick) -> Result<Vec<(Tick, f64)>, SnapshotError> {
        let count = usize::try_from(u32::from_le_bytes(self.array()?)).unwrap_or(usize::MAX);
        if count > (self.payload.len() - self.offset) / SAMPLE_BYTES {
            return Err(self.problem("more samples than octets for them"));
        }
        let mut samples = Vec::with_capacity(count);
        let mut tick = 0_u64;
        for index in 0..count {
            let step = self.number()?;
            if step == 0 && index > 0 {
                return Err(self.problem("two samples of the same time"));
            }
            tick = tick
                .checked_add(step)
                .filter(|&tick| tick <= newest.0)
                .ok_or_else(|| self.problem("a sample newer than the newest"))?;
            let value = f64::from_le_bytes(self.array()?);
            if !value.is_finite() {
                return Err(self.problem("a value that is no number"));
            }
            samples.push((Tick(tick), value));
        }
        Ok(samples)
    }
}
