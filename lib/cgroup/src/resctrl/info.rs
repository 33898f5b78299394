//! What the hardware can, from the folder `info`.

use std::fs;
use std::io;
use std::path::Path;

use super::ResctrlError;

/// What the folder `info` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info {
    /// The L3 cache; absent where it cannot be divided, or is divided for code and data (mount option `cdp`), which
    /// schemata with lines of their own have.
    pub cache: Option<CacheInfo>,
    /// Memory bandwidth; absent where it cannot be limited.
    pub bandwidth: Option<BandwidthInfo>,
    /// Counters of the L3 cache; absent where nothing is counted.
    pub monitoring: Option<MonitoringInfo>,
}

/// `info/L3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheInfo {
    /// The mask of the whole cache.
    pub cbm_mask: u64,
    /// Least number of bits in a mask.
    pub min_cbm_bits: u32,
    /// Classes of service, the root group's included.
    pub num_closids: u32,
    /// True if masks may have gaps (kernel 6.6 and later say). Ours have none.
    pub sparse_masks: bool,
}

/// `info/MB`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BandwidthInfo {
    /// What values mean. The kernel does not say; the processor's vendor decides.
    pub unit: BandwidthUnit,
    /// Step between values.
    pub granularity: u64,
    /// Least value.
    pub least: u64,
    /// Classes of service, the root group's included.
    pub num_closids: u32,
}

/// `info/L3_MON`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitoringInfo {
    /// Monitoring ids, those of all groups included.
    pub num_rmids: u32,
    /// Names of counters: `llc_occupancy`, `mbm_total_bytes`, `mbm_local_bytes`.
    pub features: Vec<String>,
}

/// What values of memory bandwidth mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BandwidthUnit {
    /// Percents (Intel).
    Percent,
    /// Eighths of a GB/s (AMD).
    EighthGigabyte {
        /// The value that a hundred percent would have. It differs between models.
        full_scale: u64,
    },
    /// Not known (other vendors).
    Unknown,
}

impl BandwidthUnit {
    /// Full scale of AMD's third EPYC generation as Koordinator measured it: 25 GB/s × 8 × 0.8.
    pub const MILAN_FULL_SCALE: u64 = 160;

    /// The unit of a vendor (`vendor_id` of `/proc/cpuinfo`), for AMD with Koordinator's full scale. Later generations have
    /// more; where it is known, the configuration says so.
    pub fn of_vendor(vendor_id: &str) -> BandwidthUnit {
        match vendor_id {
            "GenuineIntel" => BandwidthUnit::Percent,
            "AuthenticAMD" | "HygonGenuine" => {
                BandwidthUnit::EighthGigabyte { full_scale: BandwidthUnit::MILAN_FULL_SCALE }
            }
            _ => BandwidthUnit::Unknown,
        }
    }
}

impl Info {
    /// Reads `info` below the root. Parts that the hardware does not have are absent; a part that is damaged is an
    /// error.
    pub fn read(root: &Path, unit: BandwidthUnit) -> Result<Info, ResctrlError> {
        let info = root.join("info");
        Ok(Info {
            cache: cache(&info.join("L3"))?,
            bandwidth: bandwidth(&info.join("MB"), unit)?,
            monitoring: monitoring(&info.join("L3_MON"))?,
        })
    }

    /// How many groups there can be, the root group included: a group takes a class of service of each resource.
    pub fn groups_at_most(&self) -> Option<u32> {
        let cache = self.cache.as_ref().map(|cache| cache.num_closids);
        let bandwidth = self.bandwidth.as_ref().map(|bandwidth| bandwidth.num_closids);
        cache.into_iter().chain(bandwidth).min()
    }
}

fn cache(folder: &Path) -> Result<Option<CacheInfo>, ResctrlError> {
    let Some(mask) = text(&folder.join("cbm_mask"))? else { return Ok(None) };
    let cbm_mask = u64::from_str_radix(&mask, 16).map_err(|_| ResctrlError::Malformed {
        path: folder.join("cbm_mask"),
        text: mask,
        expected: "a mask in hexadecimal",
    })?;
    Ok(Some(CacheInfo {
        cbm_mask,
        min_cbm_bits: number(&folder.join("min_cbm_bits"))?.unwrap_or(1),
        num_closids: number(&folder.join("num_closids"))?.unwrap_or(1),
        sparse_masks: number::<u32>(&folder.join("sparse_masks"))? == Some(1),
    }))
}

fn bandwidth(folder: &Path, unit: BandwidthUnit) -> Result<Option<BandwidthInfo>, ResctrlError> {
    let Some(num_closids) = number(&folder.join("num_closids"))? else { return Ok(None) };
    let fallback = if unit == BandwidthUnit::Percent { 10 } else { 1 };
    Ok(Some(BandwidthInfo {
        unit,
        granularity: number(&folder.join("bandwidth_gran"))?.unwrap_or(fallback),
        least: number(&folder.join("min_bandwidth"))?.unwrap_or(fallback),
        num_closids,
    }))
}

fn monitoring(folder: &Path) -> Result<Option<MonitoringInfo>, ResctrlError> {
    let Some(num_rmids) = number(&folder.join("num_rmids"))? else { return Ok(None) };
    let features = text(&folder.join("mon_features"))?.unwrap_or_default();
    Ok(Some(MonitoringInfo { num_rmids, features: features.lines().map(str::to_owned).collect() }))
}

/// What the kernel says about the last operation that failed; absent if it says `ok` or nothing.
pub(super) fn last_status(root: &Path) -> Option<String> {
    text(&root.join("info/last_cmd_status"))
        .ok()
        .flatten()
        .filter(|status| !status.is_empty() && status != "ok")
}

fn text(path: &Path) -> Result<Option<String>, ResctrlError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ResctrlError::Read { path: path.to_owned(), source }),
    }
}

fn number<T: std::str::FromStr>(path: &Path) -> Result<Option<T>, ResctrlError> {
    let Some(text) = text(path)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| ResctrlError::Malformed {
        path: path.to_owned(),
        text,
        expected: "a whole number",
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_tree::Tree;
    use super::*;

    #[test]
    fn an_intel_machine() {
        let tree = Tree::intel();
        let info = Info::read(tree.root(), BandwidthUnit::Percent).expect("info");
        let cache = CacheInfo { cbm_mask: 0xfff, min_cbm_bits: 2, num_closids: 4, sparse_masks: false };
        assert_eq!(info.cache, Some(cache));
        assert_eq!(
            info.bandwidth,
            Some(BandwidthInfo { unit: BandwidthUnit::Percent, granularity: 10, least: 10, num_closids: 8 })
        );
        assert_eq!(
            info.monitoring,
            Some(MonitoringInfo {
                num_rmids: 128,
                features: vec!["llc_occupancy".to_owned(), "mbm_total_bytes".to_owned()]
            })
        );
        assert_eq!(info.groups_at_most(), Some(4));
    }

    #[test]
    fn a_machine_that_only_counts() {
        let tree = Tree::new();
        tree.file("info/L3_MON/num_rmids", "64\n");
        let info = Info::read(tree.root(), BandwidthUnit::Unknown).expect("info");
        assert_eq!((&info.cache, &info.bandwidth), (&None, &None));
        assert_eq!(info.monitoring, Some(MonitoringInfo { num_rmids: 64, features: Vec::new() }));
        assert_eq!(info.groups_at_most(), None);
        assert_eq!(
            Info::read(&tree.root().join("missing"), BandwidthUnit::Percent).expect("nothing"),
            Info::default()
        );
    }

    #[test]
    fn masks_with_gaps_and_missing_files() {
        let tree = Tree::new();
        tree.file("info/L3/cbm_mask", "ffff\n").file("info/L3/sparse_masks", "1\n");
        tree.file("info/MB/num_closids", "16\n");
        let info = Info::read(tree.root(), BandwidthUnit::of_vendor("AuthenticAMD")).expect("info");
        let cache = info.cache.expect("a cache");
        assert_eq!((cache.min_cbm_bits, cache.num_closids, cache.sparse_masks), (1, 1, true));
        let bandwidth = info.bandwidth.expect("bandwidth");
        assert_eq!((bandwidth.granularity, bandwidth.least), (1, 1));
    }

    #[test]
    fn damage_names_the_file() {
        let tree = Tree::new();
        tree.file("info/L3/cbm_mask", "xyz\n");
        let error = Info::read(tree.root(), BandwidthUnit::Percent).expect_err("damage");
        assert!(matches!(&error, ResctrlError::Malformed { path, text, .. }
            if path.ends_with("info/L3/cbm_mask") && text == "xyz"));
        tree.file("info/L3/cbm_mask", "7ff\n").file("info/L3/num_closids", "-1\n");
        assert!(
            matches!(Info::read(tree.root(), BandwidthUnit::Percent), Err(ResctrlError::Malformed { text, .. })
            if text == "-1")
        );
    }

    #[test]
    fn units_of_vendors() {
        assert_eq!(BandwidthUnit::of_vendor("GenuineIntel"), BandwidthUnit::Percent);
        assert_eq!(
            BandwidthUnit::of_vendor("AuthenticAMD"),
            BandwidthUnit::EighthGigabyte { full_scale: 160 }
        );
        assert_eq!(BandwidthUnit::of_vendor("0x41"), BandwidthUnit::Unknown);
    }

    #[test]
    fn the_status_of_the_last_operation() {
        let tree = Tree::new();
        assert_eq!(last_status(tree.root()), None);
        tree.file("info/last_cmd_status", "ok\n");
        assert_eq!(last_status(tree.root()), None);
        tree.file("info/last_cmd_status", "mask f has too few bits\n");
        assert_eq!(last_status(tree.root()).as_deref(), Some("mask f has too few bits"));
    }
}
