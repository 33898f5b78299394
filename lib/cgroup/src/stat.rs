//! Readers of the kernel's statistics: stalls, CPU time and throttling, memory by kind and node.
//!
//! All take a text and give figures; reading the file is the caller's, mostly by
//! [`crate::executor::Executor::read`].

use std::collections::BTreeMap;

use crate::error::CgroupError;
use crate::version::CgroupVersion;

/// Length of a tick in nanoseconds, for files that count in `USER_HZ` (100 a second on all machines Linux knows).
pub const TICK_NANOSECONDS: i64 = 10_000_000;

/// Bytes that a page counts for in [`numa_pages`] on version 2, whatever the machine's pages are.
const NUMA_PAGE: i64 = 4096;

/// The number of the line `NAME NUMBER`, if there is one that fits.
pub(crate) fn field(text: &str, name: &str) -> Option<i64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == name).then(|| words.next())?.and_then(|number| number.parse().ok())
    })
}

fn wanted_field(file: &'static str, text: &str, name: &'static str) -> Result<i64, CgroupError> {
    field(text, name).ok_or_else(|| CgroupError::parse(file, text, name))
}

/// How long tasks stalled: shares of the time in percent, and the sum in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stall {
    /// Over the last 10 seconds.
    pub average_10: f64,
    /// Over the last minute.
    pub average_60: f64,
    /// Over the last 5 minutes.
    pub average_300: f64,
    /// Since the group exists, in microseconds.
    pub total: u64,
}

/// Pressure stall information of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pressure {
    /// While at least one task stalled.
    pub some: Stall,
    /// While all tasks stalled; zeros if the kernel does not tell.
    pub full: Stall,
    /// The kernel tells about `full`. For CPU it does not before 5.13.
    pub has_full: bool,
}

impl Pressure {
    /// Reads `cpu.pressure`, `memory.pressure` or `io.pressure`.
    pub fn parse(text: &str) -> Result<Pressure, CgroupError> {
        let wrong =
            || CgroupError::parse("a pressure file", text, "lines some|full avg10= avg60= avg300= total=");
        let mut pressure = Pressure::default();
        let mut has_some = false;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (kind, rest) = line.split_once(' ').ok_or_else(wrong)?;
            let mut stall = Stall::default();
            let mut seen = 0;
            for word in rest.split_ascii_whitespace() {
                let (name, value) = word.split_once('=').ok_or_else(wrong)?;
                let average =
                    || value.parse::<f64>().ok().filter(|share| share.is_finite()).ok_or_else(wrong);
                match name {
                    "avg10" => stall.average_10 = average()?,
                    "avg60" => stall.average_60 = average()?,
                    "avg300" => stall.average_300 = average()?,
                    "total" => stall.total = value.parse().map_err(|_| wrong())?,
                    _ => continue,
                }
                seen += 1;
            }
            if seen != 4 {
                return Err(wrong());
            }
            match kind {
                "some" => {
                    pressure.some = stall;
                    has_some = true;
                }
                "full" => {
                    pressure.full = stall;
                    pressure.has_full = true;
                }
                _ => return Err(wrong()),
            }
        }
        if has_some { Ok(pressure) } else { Err(wrong()) }
    }
}

/// Periods and throttling of `cpu.stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuStat {
    /// Periods in which tasks ran.
    pub periods: i64,
    /// Periods in which the quota ran out.
    pub throttled_periods: i64,
    /// Time for which tasks were held back, in nanoseconds.
    pub throttled_nanoseconds: i64,
    /// CPU time used, in nanoseconds; version 2 only.
    pub usage_nanoseconds: Option<i64>,
}

impl CpuStat {
    /// Reads `cpu.stat`. Version 2 counts in microseconds, version 1 in nanoseconds.
    pub fn parse(text: &str, version: CgroupVersion) -> Result<CpuStat, CgroupError> {
        const FILE: &str = "cpu.stat";
        let throttled_nanoseconds = match version {
            CgroupVersion::V1 => wanted_field(FILE, text, "throttled_time")?,
            CgroupVersion::V2 => wanted_field(FILE, text, "throttled_usec")?.saturating_mul(1000),
        };
        Ok(CpuStat {
            periods: wanted_field(FILE, text, "nr_periods")?,
            throttled_periods: wanted_field(FILE, text, "nr_throttled")?,
            throttled_nanoseconds,
            usage_nanoseconds: match version {
                CgroupVersion::V1 => None,
                CgroupVersion::V2 => field(text, "usage_usec").map(|micros| micros.saturating_mul(1000)),
            },
        })
    }

    /// Share of the periods since `before` in which the quota ran out, 0..1; 0 if there was none.
    #[expect(clippy::cast_precision_loss, reason = "counts of periods are far below 2^53")]
    pub fn throttled_ratio(&self, before: &CpuStat) -> f64 {
        let periods = self.periods.saturating_sub(before.periods);
        if periods <= 0 {
            return 0.0;
        }
        self.throttled_periods.saturating_sub(before.throttled_periods) as f64 / periods as f64
    }
}

/// CPU time of a group by mode, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// In programs.
    pub user: i64,
    /// In the kernel.
    pub system: i64,
}

impl CpuTime {
    /// Reads `cpuacct.stat` (ticks) of version 1 or `cpu.stat` (microseconds) of version 2.
    pub fn parse(text: &str, version: CgroupVersion) -> Result<CpuTime, CgroupError> {
        match version {
            CgroupVersion::V1 => Ok(CpuTime {
                user: wanted_field("cpuacct.stat", text, "user")?.saturating_mul(TICK_NANOSECONDS),
                system: wanted_field("cpuacct.stat", text, "system")?.saturating_mul(TICK_NANOSECONDS),
            }),
            CgroupVersion::V2 => Ok(CpuTime {
                user: wanted_field("cpu.stat", text, "user_usec")?.saturating_mul(1000),
                system: wanted_field("cpu.stat", text, "system_usec")?.saturating_mul(1000),
            }),
        }
    }
}

/// What `memory.stat` says about a group and all below it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStat {
    /// Anonymous memory not used lately.
    pub inactive_anon: i64,
    /// Anonymous memory used lately.
    pub active_anon: i64,
    /// Page cache not used lately.
    pub inactive_file: i64,
    /// Page cache used lately.
    pub active_file: i64,
    /// Memory that cannot be reclaimed.
    pub unevictable: i64,
}

impl MemoryStat {
    /// Reads `memory.stat`. On version 1 the lines with `total_` count, which hold the groups below.
    pub fn parse(text: &str, version: CgroupVersion) -> Result<MemoryStat, CgroupError> {
        let number = |v1: &'static str, v2: &'static str| {
            wanted_field("memory.stat", text, if version == CgroupVersion::V1 { v1 } else { v2 })
        };
        Ok(MemoryStat {
            inactive_anon: number("total_inactive_anon", "inactive_anon")?,
            active_anon: number("total_active_anon", "active_anon")?,
            inactive_file: number("total_inactive_file", "inactive_file")?,
            active_file: number("total_active_file", "active_file")?,
            unevictable: number("total_unevictable", "unevictable")?,
        })
    }

    /// Memory in use without page cache.
    pub fn used_without_cache(&self) -> i64 {
        self.inactive_anon.saturating_add(self.active_anon).saturating_add(self.unevictable)
    }

    /// Memory in use with page cache.
    pub fn used_with_cache(&self) -> i64 {
        self.used_without_cache().saturating_add(self.active_file).saturating_add(self.inactive_file)
    }
}

/// Pages of a group on each memory node, by number of the node.
///
/// Version 1 tells pages in its line `total`. Version 2 tells bytes of anonymous memory and page cache, which are counted
/// as pages of 4096 bytes.
pub fn numa_pages(text: &str, version: CgroupVersion) -> Result<Vec<i64>, CgroupError> {
    let wrong = || CgroupError::parse("memory.numa_stat", text, "nodes N0=, N1=, ... in order");
    let nodes_of = |words: &str| -> Result<Vec<i64>, CgroupError> {
        let mut nodes = Vec::new();
        for word in words.split_ascii_whitespace() {
            let (name, number) = word.split_once('=').ok_or_else(wrong)?;
            let Some(id) = name.strip_prefix('N') else { continue };
            if id.parse::<usize>().ok() != Some(nodes.len()) {
                return Err(wrong());
            }
            nodes.push(number.parse::<i64>().map_err(|_| wrong())?);
        }
        if nodes.is_empty() { Err(wrong()) } else { Ok(nodes) }
    };
    let line = |name: &str| {
        text.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?;
            rest.starts_with([' ', '=']).then_some(rest)
        })
    };
    match version {
        CgroupVersion::V1 => {
            nodes_of(line("total").and_then(|rest| rest.split_once(' ')).ok_or_else(wrong)?.1)
        }
        CgroupVersion::V2 => {
            let anonymous = nodes_of(line("anon").ok_or_else(wrong)?)?;
            let cache = nodes_of(line("file").ok_or_else(wrong)?)?;
            if anonymous.len() != cache.len() {
                return Err(wrong());
            }
            Ok(anonymous
                .iter()
                .zip(&cache)
                .map(|(one, other)| one.saturating_add(*other) / NUMA_PAGE)
                .collect())
        }
    }
}

/// The lines `NAME NUMBER` of a file such as `memory.events` or `memory.stat`; lines of another shape are passed over.
pub fn flat_keyed(text: &str) -> BTreeMap<&str, i64> {
    text.lines()
        .filter_map(|line| {
            let (name, number) = line.split_once(' ')?;
            Some((name, number.trim().parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_with_and_without_full() {
        let text = "some avg10=1.50 avg60=0.25 avg300=0.00 total=4913797627\nfull avg10=0.10 avg60=0.00 avg300=0.00 total=12\n";
        let pressure = Pressure::parse(text).unwrap();
        assert_eq!(
            pressure.some,
            Stall { average_10: 1.5, average_60: 0.25, average_300: 0.0, total: 4_913_797_627 }
        );
        assert_eq!((pressure.full.average_10, pressure.full.total, pressure.has_full), (0.1, 12, true));
        let some = Pressure::parse("some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n").unwrap();
        assert_eq!((some.some.total, some.full, some.has_full), (7, Stall::default(), false));
    }

    #[test]
    fn what_is_no_pressure_is_an_error() {
        for text in [
            "",
            "\n",
            "half avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
            "some avg10=0.00 avg60=0.00 avg300=0.00\n",
            "some avg10=x avg60=0.00 avg300=0.00 total=7\n",
            "some avg10=inf avg60=0.00 avg300=0.00 total=7\n",
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
            "some\n",
        ] {
            assert!(Pressure::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn cpu_time_and_throttling() {
        let v1 = "nr_periods 20\nnr_throttled 5\nthrottled_time 7000\nnr_bursts 0\nburst_time 0\n";
        let v2 = "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 30\nnr_throttled 10\nthrottled_usec 9\n";
        let before = CpuStat::parse(v1, CgroupVersion::V1).unwrap();
        assert_eq!(
            before,
            CpuStat {
                periods: 20,
                throttled_periods: 5,
                throttled_nanoseconds: 7000,
                usage_nanoseconds: None
            }
        );
        let after = CpuStat::parse(v2, CgroupVersion::V2).unwrap();
        assert_eq!(
            after,
            CpuStat {
                periods: 30,
                throttled_periods: 10,
                throttled_nanoseconds: 9000,
                usage_nanoseconds: Some(1_500_000)
            }
        );
        assert!((after.throttled_ratio(&before) - 0.5).abs() < 1e-9);
        assert!(after.throttled_ratio(&after).abs() < 1e-9);
        assert!(before.throttled_ratio(&after).abs() < 1e-9);
        assert!(CpuStat::parse(v1, CgroupVersion::V2).is_err());
        assert!(CpuStat::parse("nr_periods 1\n", CgroupVersion::V1).is_err());
        assert_eq!(CpuTime::parse(v2, CgroupVersion::V2), Ok(CpuTime { user: 1_000_000, system: 500_000 }));
        assert_eq!(
            CpuTime::parse("user 3\nsystem 2\n", CgroupVersion::V1),
            Ok(CpuTime { user: 30_000_000, system: 20_000_000 })
        );
    }

    #[test]
    fn memory_by_kind() {
        let v2 = "anon 1\ninactive_anon 1\nactive_anon 20\ninactive_file 300\nactive_file 4000\nunevictable 50000\n";
        let stat = MemoryStat::parse(v2, CgroupVersion::V2).unwrap();
        assert_eq!((stat.used_without_cache(), stat.used_with_cache()), (50_021, 54_321));
        let v1: String = v2.lines().map(|line| format!("{line}\ntotal_{line}0\n")).collect();
        let stat = MemoryStat::parse(&v1, CgroupVersion::V1).unwrap();
        assert_eq!((stat.used_without_cache(), stat.used_with_cache()), (500_210, 543_210));
        assert!(MemoryStat::parse("anon 1\n", CgroupVersion::V2).is_err());
    }

    #[test]
    fn memory_by_node() {
        let v1 = "total=30 N0=10 N1=20\nfile=1 N0=1 N1=0\nhierarchical_total=9 N0=4 N1=5\n";
        assert_eq!(numa_pages(v1, CgroupVersion::V1), Ok(vec![10, 20]));
        let v2 = "anon N0=4096 N1=8192\nfile N0=4096 N1=0\nfile_mapped N0=1 N1=1\n";
        assert_eq!(numa_pages(v2, CgroupVersion::V2), Ok(vec![2, 2]));
        for wrong in ["", "total=30 N1=20\n", "total=30 N0=x\n", "total=30\n"] {
            assert!(numa_pages(wrong, CgroupVersion::V1).is_err(), "{wrong:?}");
        }
        for wrong in ["anon N0=1\n", "anon N0=1\nfile N0=1 N1=2\n", "anon N0=1 N2=1\nfile N0=1 N2=1\n"] {
            assert!(numa_pages(wrong, CgroupVersion::V2).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn keyed_lines() {
        let events = flat_keyed("low 0\nhigh 12\noom_kill 1\nodd\n");
        assert_eq!(events.get("high"), Some(&12));
        assert_eq!(events.len(), 3);
    }
}
