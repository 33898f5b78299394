//! Cache and memory bandwidth of a pod.

use super::json_annotation;
use crate::json_object;
use crate::keys::annotation;

json_object! {
    /// Cache and memory bandwidth of a pod, which gets a group of its own.
    pub struct Resctrl {
        /// Last-level cache.
        llc: CacheSchemata = "llc" keep,
        /// Memory bandwidth.
        mb: BandwidthSchemata = "mb" keep,
    }

    /// Shares of the last-level caches.
    pub struct CacheSchemata {
        /// Of every cache.
        schemata: CacheRange = "schemata" keep,
        /// Of single caches, in place of that of every cache.
        schemata_per_cache: Vec<CacheRangeOf> = "schemataPerCache",
    }

    /// A range of cache ways.
    pub struct CacheRange {
        /// Start and end in percent, two numbers with 0 <= start < end <= 100; empty is none.
        range: Vec<i64> = "range",
    }

    /// A range of one cache's ways.
    pub struct CacheRangeOf {
        /// Id of the cache.
        cache_id: i64 = "cacheID",
        /// Start and end in percent.
        range: Vec<i64> = "range",
    }

    /// Shares of memory bandwidth.
    pub struct BandwidthSchemata {
        /// Of every memory controller.
        schemata: BandwidthPercent = "schemata" keep,
        /// Of single ones, in place of that of every one.
        schemata_per_cache: Vec<BandwidthPercentOf> = "schemataPerCache",
    }

    /// A share of bandwidth.
    pub struct BandwidthPercent {
        /// In percent, 1..100; 0 is none.
        percent: i64 = "percent",
    }

    /// A share of one controller's bandwidth.
    pub struct BandwidthPercentOf {
        /// Id of the controller, which is that of its cache.
        cache_id: i64 = "cacheID",
        /// In percent, 1..100; 0 is none.
        percent: i64 = "percent",
    }
}

json_annotation!(Resctrl, annotation::RESCTRL);

/// Start and end of a cache range in percent, if it is one: two numbers with 0 <= start < end <= 100.
pub fn cache_range(range: &[i64]) -> Option<(i64, i64)> {
    match range {
        &[start, end] if 0 <= start && start < end && end <= 100 => Some((start, end)),
        _ => None,
    }
}
