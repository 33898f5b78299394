//! Texts of block device files, and which device a limit must name.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use rustix::io::Errno;

use crate::error::{CgroupError, Operation};

/// Number of a block device, `MAJOR:MINOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number of the device at the driver.
    pub minor: u32,
}

/// A text that is no number of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device {text:?} is not MAJOR:MINOR")]
pub struct DeviceNumberError {
    /// The text.
    pub text: String,
}

impl FromStr for DeviceNumber {
    type Err = DeviceNumberError;

    fn from_str(text: &str) -> Result<DeviceNumber, DeviceNumberError> {
        let number = |part: &str| {
            part.bytes().all(|octet| octet.is_ascii_digit()).then(|| part.parse::<u32>().ok()).flatten()
        };
        text.split_once(':')
            .and_then(|(major, minor)| Some(DeviceNumber { major: number(major)?, minor: number(minor)? }))
            .ok_or_else(|| DeviceNumberError { text: text.to_owned() })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.major, self.minor)
    }
}

impl DeviceNumber {
    /// The whole disk of this device, read from `sys_root` (`/sys`): limits name disks, never partitions.
    pub fn whole_disk(self, sys_root: &Path) -> Result<DeviceNumber, CgroupError> {
        let place = sys_root.join("dev/block").join(self.to_string());
        let failed = |path: &Path, error: &std::io::Error| CgroupError::System {
            operation: Operation::Read,
            path: path.to_owned(),
            source: Errno::from_io_error(error).unwrap_or(Errno::IO),
        };
        // The entry is a link into the tree of devices, where a partition lies in the directory of its disk.
        let device = std::fs::canonicalize(&place).map_err(|error| failed(&place, &error))?;
        if !device.join("partition").exists() {
            return Ok(self);
        }
        let number = device.with_file_name("dev");
        let text = std::fs::read_to_string(&number).map_err(|error| failed(&number, &error))?;
        text.trim().parse().map_err(|_| CgroupError::parse("dev", &text, "MAJOR:MINOR"))
    }
}

/// Limits of one device: bytes and operations each second. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoLimits {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads.
    pub read_operations: u64,
    /// Writes.
    pub write_operations: u64,
}

/// A line of `io.max`.
pub fn io_max_line(device: DeviceNumber, limits: &IoLimits) -> String {
    let word = |limit: u64| if limit == 0 { "max".to_owned() } else { limit.to_string() };
    format!(
        "{device} rbps={} wbps={} riops={} wiops={}",
        word(limits.read_bytes),
        word(limits.write_bytes),
        word(limits.read_operations),
        word(limits.write_operations)
    )
}

/// A line of `io.max` as limits.
pub fn parse_io_max_line(line: &str) -> Result<(DeviceNumber, IoLimits), CgroupError> {
    let wrong = || CgroupError::parse("io.max", line, "MAJOR:MINOR rbps=N wbps=N riops=N wiops=N");
    let (device, rest) = line.trim().split_once(' ').ok_or_else(wrong)?;
    let device = device.parse().map_err(|_| wrong())?;
    let mut limits = IoLimits::default();
    for word in rest.split_ascii_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(wrong)?;
        let limit = if value == "max" { 0 } else { value.parse::<u64>().map_err(|_| wrong())? };
        match key {
            "rbps" => limits.read_bytes = limit,
            "wbps" => limits.write_bytes = limit,
            "riops" => limits.read_operations = limit,
            "wiops" => limits.write_operations = limit,
            _ => return Err(wrong()),
        }
    }
    Ok((device, limits))
}

/// A line of `io.weight` or `blkio.cost.weight`. A weight in percent (1..100) is written as it is: 100 percent is the
/// kernel's default weight.
pub fn weight_line(device: DeviceNumber, weight: u32) -> String {
    format!("{device} {weight}")
}

/// A line of `blkio.throttle.*`; 0 is no limit.
pub fn throttle_line(device: DeviceNumber, limit: u64) -> String {
    format!("{device} {limit}")
}

/// A line of `io.latency`; 0 takes the protection away.
pub fn latency_line(device: DeviceNumber, target_micros: u64) -> String {
    format!("{device} target={target_micros}")
}

/// When a device counts as congested, for `io.cost.qos` (5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostQos {
    /// Percentile of reads looked at, in hundredths of a percent.
    pub read_percentile: u32,
    /// Latency of that percentile, in microseconds.
    pub read_latency: u32,
    /// Percentile of writes looked at, in hundredths of a percent.
    pub write_percentile: u32,
    /// Latency of that percentile, in microseconds.
    pub write_latency: u32,
    /// Lowest and highest speed that the kernel may run the device at, in percent; version 2 only.
    pub speed: Option<(u32, u32)>,
}

impl Default for CostQos {
    /// 95 percent within 3 ms, at 50 to 150 percent of the model's speed.
    fn default() -> CostQos {
        CostQos {
            read_percentile: 9_500,
            read_latency: 3_000,
            write_percentile: 9_500,
            write_latency: 3_000,
            speed: Some((50, 150)),
        }
    }
}

impl CostQos {
    /// The line that switches cost control of a device on.
    pub fn line(&self, device: DeviceNumber) -> String {
        let percent = |hundredths: u32| format!("{}.{:02}", hundredths / 100, hundredths % 100);
        let mut line = format!(
            "{device} enable=1 ctrl=user rpct={} rlat={} wpct={} wlat={}",
            percent(self.read_percentile),
            self.read_latency,
            percent(self.write_percentile),
            self.write_latency
        );
        if let Some((least, most)) = self.speed {
            line.push_str(&format!(" min={least} max={most}"));
        }
        line
    }

    /// The line that switches it off.
    pub fn off_line(device: DeviceNumber) -> String {
        format!("{device} enable=0")
    }
}

/// What operations on a device cost, for `io.cost.model` (5.4): its speed in bytes and operations each second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostModel {
    /// Bytes read.
    pub read_bytes: u64,
    /// Reads in sequence.
    pub read_sequential: u64,
    /// Reads at random places.
    pub read_random: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Writes in sequence.
    pub write_sequential: u64,
    /// Writes at random places.
    pub write_random: u64,
}

impl CostModel {
    /// The line that sets the model of a device.
    pub fn line(&self, device: DeviceNumber) -> String {
        format!(
            "{device} ctrl=user rbps={} rseqiops={} rrandiops={} wbps={} wseqiops={} wrandiops={}",
            self.read_bytes,
            self.read_sequential,
            self.read_random,
            self.write_bytes,
            self.write_sequential,
            self.write_random
        )
    }

    /// The line that gives the device back to the kernel's own model.
    pub fn automatic_line(device: DeviceNumber) -> String {
        format!("{device} ctrl=auto")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DeviceNumber = DeviceNumber { major: 253, minor: 16 };

    #[test]
    fn lines_of_a_device() {
        let limits = IoLimits { read_bytes: 1_048_576, write_operations: 100, ..IoLimits::default() };
        let line = io_max_line(DISK, &limits);
        assert_eq!(line, "253:16 rbps=1048576 wbps=max riops=max wiops=100");
        assert_eq!(parse_io_max_line(&line), Ok((DISK, limits)));
        assert_eq!(weight_line(DISK, 100), "253:16 100");
        assert_eq!(throttle_line(DISK, 0), "253:16 0");
        assert_eq!(latency_line(DISK, 3000), "253:16 target=3000");
        assert_eq!(
            CostQos::default().line(DISK),
            "253:16 enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000 min=50 max=150"
        );
        assert_eq!(CostQos::off_line(DISK), "253:16 enable=0");
        let model = CostModel {
            read_bytes: 1,
            read_sequential: 2,
            read_random: 3,
            write_bytes: 4,
            write_sequential: 5,
            write_random: 6,
        };
        assert_eq!(
            model.line(DISK),
            "253:16 ctrl=user rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6"
        );
        assert_eq!(CostModel::automatic_line(DISK), "253:16 ctrl=auto");
    }

    #[test]
    fn what_is_no_line_is_an_error() {
        for text in
            ["", "253:16", "253 rbps=1", "253:16 rbps", "253:16 rbps=x", "253:16 speed=1", "a:b rbps=1"]
        {
            assert!(parse_io_max_line(text).is_err(), "{text}");
        }
        for text in ["", ":", "1:", ":1", "+1:2", "1:-2", "4294967296:0", "1:2:3"] {
            assert!(text.parse::<DeviceNumber>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_partition_stands_for_its_disk() {
        let sys = tempfile::tempdir().unwrap();
        let disk = sys.path().join("devices/virtio0/block/vda");
        let partition = disk.join("vda1");
        std::fs::create_dir_all(&partition).unwrap();
        std::fs::write(disk.join("dev"), "253:0\n").unwrap();
        std::fs::write(partition.join("dev"), "253:1\n").unwrap();
        std::fs::write(partition.join("partition"), "1\n").unwrap();
        let links = sys.path().join("dev/block");
        std::fs::create_dir_all(&links).unwrap();
        std::os::unix::fs::symlink(&disk, links.join("253:0")).unwrap();
        std::os::unix::fs::symlink(&partition, links.join("253:1")).unwrap();
        let whole = DeviceNumber { major: 253, minor: 0 };
        assert_eq!(DeviceNumber { major: 253, minor: 1 }.whole_disk(sys.path()), Ok(whole));
        assert_eq!(whole.whole_disk(sys.path()), Ok(whole));
        let missing = DeviceNumber { major: 8, minor: 0 }.whole_disk(sys.path()).unwrap_err();
        assert_eq!(missing.errno(), Some(Errno::NOENT.raw_os_error()));
    }
}
