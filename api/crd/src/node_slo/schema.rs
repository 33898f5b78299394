//! What JSON of the spec may hold: names, types, ranges.

use koord_extension::qos::QosClass;

/// What a value may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// true or false.
    Boolean,
    /// A whole number within a range, both ends included.
    Integer(i64, i64),
    /// One of these words; an empty one is unset.
    Words(&'static [&'static str]),
    /// A quantity of at least 0.
    Quantity,
    /// 0..100 as a number, or a quantity of at least 0 as a string.
    Bandwidth,
    /// Any text.
    Text,
    /// A text that is not empty.
    Name,
    /// A path without `..`.
    Path,
    /// An object with these members.
    Object(&'static [(&'static str, Kind)]),
    /// A list of these.
    List(&'static Kind),
    /// An object of booleans.
    Switches,
    /// An object of anything.
    Map,
    /// Anything.
    Anything,
}

use Kind::{
    Anything, Bandwidth, Boolean, Integer, List, Map, Name, Object, Path, Quantity, Switches, Text, Words,
};

const PERCENT: Kind = Integer(0, 100);
const SWITCH: Kind = Integer(0, 1);
const NOT_NEGATIVE: Kind = Integer(0, i64::MAX);
const POSITIVE: Kind = Integer(1, i64::MAX);

const QOS_CLASSES: &[&str] = &[
    QosClass::Lse.as_str(),
    QosClass::Lsr.as_str(),
    QosClass::Ls.as_str(),
    QosClass::Be.as_str(),
    QosClass::System.as_str(),
];

/// The whole spec.
pub(super) const NODE_SLO_SPEC: Kind = Object(&[
    ("resourceUsedThresholdWithBE", THRESHOLD),
    ("resourceQOSStrategy", QOS),
    ("cpuBurstStrategy", BURST),
    ("systemStrategy", SYSTEM),
    ("hostApplications", List(&HOST_APPLICATION)),
    ("extensions", Map),
]);

const THRESHOLD: Kind = Object(&[
    ("enable", Boolean),
    ("cpuSuppressThresholdPercent", PERCENT),
    ("cpuSuppressMinPercent", PERCENT),
    ("cpuSuppressPolicy", Words(&["cpuset", "cfsQuota"])),
    ("memoryEvictThresholdPercent", PERCENT),
    ("memoryEvictLowerPercent", PERCENT),
    ("memoryAllocatableEvictThresholdPercent", NOT_NEGATIVE),
    ("memoryAllocatableEvictLowerPercent", NOT_NEGATIVE),
    ("cpuEvictBESatisfactionLowerPercent", PERCENT),
    ("cpuEvictBESatisfactionUpperPercent", PERCENT),
    ("cpuEvictBEUsageThresholdPercent", PERCENT),
    ("cpuEvictTimeWindowSeconds", POSITIVE),
    ("cpuEvictThresholdPercent", PERCENT),
    ("cpuEvictLowerPercent", PERCENT),
    ("cpuAllocatableEvictThresholdPercent", NOT_NEGATIVE),
    ("cpuAllocatableEvictLowerPercent", NOT_NEGATIVE),
    ("cpuEvictPolicy", Words(&["evictByRealLimit", "evictByAllocatable"])),
    ("evictEnabledPriorityThreshold", Integer(i32::MIN as i64, i32::MAX as i64)),
    ("allocatableEvictPriorityThreshold", Integer(0, 7999)),
]);

const QOS: Kind = Object(&[
    ("policies", POLICIES),
    ("lsrClass", CLASS),
    ("lsClass", CLASS),
    ("beClass", CLASS),
    ("systemClass", CLASS),
    ("cgroupRoot", CLASS),
]);

const POLICIES: Kind = Object(&[
    ("cpuPolicy", Words(&["groupIdentity", "coreSched"])),
    ("netQOSPolicy", Words(&["tc", "terway-qos"])),
]);

const CLASS: Kind = Object(&[
    (
        "cpuQOS",
        Object(&[
            ("enable", Boolean),
            ("groupIdentity", Integer(-1, 2)),
            ("schedIdle", SWITCH),
            ("coreExpeller", Boolean),
        ]),
    ),
    (
        "memoryQOS",
        Object(&[
            ("enable", Boolean),
            ("minLimitPercent", PERCENT),
            ("lowLimitPercent", PERCENT),
            ("throttlingPercent", PERCENT),
            ("wmarkRatio", PERCENT),
            ("wmarkScalePermill", Integer(1, 1000)),
            ("wmarkMinAdj", Integer(-25, 50)),
            ("priorityEnable", SWITCH),
            ("priority", Integer(0, 12)),
            ("oomKillGroup", SWITCH),
            ("pageCacheEnable", Boolean),
            ("pageCacheLimitPercent", PERCENT),
            ("pageCacheLimitSize", NOT_NEGATIVE),
            ("pageCacheReclaimSync", Boolean),
        ]),
    ),
    ("blkioQOS", Object(&[("enable", Boolean), ("blocks", List(&BLOCK))])),
    (
        "resctrlQOS",
        Object(&[
            ("enable", Boolean),
            ("catRangeStartPercent", PERCENT),
            ("catRangeEndPercent", PERCENT),
            ("mbaPercent", PERCENT),
        ]),
    ),
    (
        "networkQOS",
        Object(&[
            ("enable", Boolean),
            ("ingressRequest", Bandwidth),
            ("ingressLimit", Bandwidth),
            ("egressRequest", Bandwidth),
            ("egressLimit", Bandwidth),
        ]),
    ),
]);

const BLOCK: Kind = Object(&[
    ("name", Text),
    ("type", Words(&["device", "volumegroup", "podvolume"])),
    (
        "ioCfg",
        Object(&[
            ("readIOPS", NOT_NEGATIVE),
            ("writeIOPS", NOT_NEGATIVE),
            ("readBPS", NOT_NEGATIVE),
            ("writeBPS", NOT_NEGATIVE),
            ("ioWeightPercent", Integer(1, 100)),
            ("readLatency", NOT_NEGATIVE),
            ("writeLatency", NOT_NEGATIVE),
            ("readLatencyPercent", PERCENT),
            ("writeLatencyPercent", PERCENT),
            ("enableUserModel", Boolean),
            ("modelReadBPS", POSITIVE),
            ("modelWriteBPS", POSITIVE),
            ("modelReadSeqIOPS", POSITIVE),
            ("modelWriteSeqIOPS", POSITIVE),
            ("modelReadRandIOPS", POSITIVE),
            ("modelWriteRandIOPS", POSITIVE),
        ]),
    ),
]);

const BURST: Kind = Object(&[
    ("policy", Words(&["none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"])),
    ("cpuBurstPercent", Integer(0, 10_000)),
    ("cfsQuotaBurstPercent", Integer(100, i64::MAX)),
    ("cfsQuotaBurstPeriodSeconds", Integer(-1, i64::MAX)),
    ("sharePoolThresholdPercent", PERCENT),
]);

const SYSTEM: Kind = Object(&[
    ("minFreeKbytesFactor", POSITIVE),
    ("watermarkScaleFactor", Integer(1, 400)),
    ("memcgReapBackGround", SWITCH),
    ("pageCacheLimitEnabled", SWITCH),
    ("schedGroupIdentityEnabled", SWITCH),
    ("schedIdleSaverWmark", NOT_NEGATIVE),
    ("schedFeatures", Switches),
    ("totalNetworkBandwidth", Quantity),
]);

const HOST_APPLICATION: Kind = Object(&[
    ("name", Name),
    ("priority", Words(&["koord-prod", "koord-mid", "koord-batch", "koord-free"])),
    ("qos", Words(QOS_CLASSES)),
    (
        "cgroupPath",
        Object(&[
            ("base", Words(&["CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort"])),
            ("parentDir", Path),
            ("relativePath", Path),
        ]),
    ),
    ("strategy", Anything),
]);

#[cfg(test)]
mod tests;
