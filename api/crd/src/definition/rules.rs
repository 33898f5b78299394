//! What values of fields may be beyond their types.
//!
//! These are the rules of Koordinator's own definitions and none beyond them: a stricter one would refuse
//! objects that its components write. The program's own ranges are stricter; an object outside them is made
//! the best of when it is read.

use serde_json::{Map, Value, json};

/// What a value may be beyond its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// The field must be there.
    Required,
    /// At least this.
    AtLeast(i64),
    /// Within a range, both ends included.
    Range(i64, i64),
    /// One of these.
    OneOf(&'static [&'static str]),
    /// So many characters at least.
    LengthAtLeast(u32),
    /// So many characters at most.
    LengthAtMost(u32),
    /// A text that matches.
    Matches(&'static str),
    /// What an absent field is given.
    DefaultsTo(bool),
}

impl Rule {
    /// Writes it into the schema of the field.
    pub(super) fn add_to(self, schema: &mut Map<String, Value>) {
        let mut set = |key: &str, value: Value| drop(schema.insert(key.to_owned(), value));
        match self {
            // The object that the field is in tells it.
            Required => {}
            AtLeast(least) => set("minimum", least.into()),
            Range(least, most) => {
                set("minimum", least.into());
                set("maximum", most.into());
            }
            OneOf(words) => set("enum", json!(words)),
            LengthAtLeast(length) => set("minLength", length.into()),
            LengthAtMost(length) => set("maxLength", length.into()),
            Matches(pattern) => set("pattern", pattern.into()),
            DefaultsTo(value) => set("default", value.into()),
        }
    }
}

use Rule::{AtLeast, DefaultsTo, LengthAtLeast, LengthAtMost, Matches, OneOf, Range, Required};

const PERCENT: Rule = Range(0, 100);

const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// Rules of a field of a type.
pub(super) fn of(type_name: &str, key: &str) -> &'static [Rule] {
    RULES
        .iter()
        .find(|(type_named, fields, _)| *type_named == type_name && fields.contains(&key))
        .map_or(&[], |(_, _, rules)| rules)
}

/// Types, fields, and what holds for each of the fields.
pub(super) const RULES: &[(&str, &[&str], &[Rule])] = &[
    // NodeMetric
    (
        "MetricCollectPolicy",
        &["nodeMemoryCollectPolicy"],
        &[OneOf(&["usageWithHotPageCache", "usageWithoutPageCache", "usageWithPageCache"])],
    ),
    ("NumaUsage", &["numaNodeID"], &[Required]),
    // NodeSLO
    (
        "ResourceThresholdStrategy",
        &[
            "cpuSuppressThresholdPercent",
            "cpuSuppressMinPercent",
            "memoryEvictThresholdPercent",
            "memoryEvictLowerPercent",
        ],
        &[PERCENT],
    ),
    ("MemoryQosStrategy", &["minLimitPercent", "lowLimitPercent", "throttlingPercent"], &[AtLeast(0)]),
    ("MemoryQosStrategy", &["wmarkRatio"], &[PERCENT]),
    ("MemoryQosStrategy", &["wmarkScalePermill"], &[Range(1, 1000)]),
    ("MemoryQosStrategy", &["wmarkMinAdj"], &[Range(-25, 50)]),
    ("ResctrlQosStrategy", &["catRangeStartPercent", "catRangeEndPercent", "mbaPercent"], &[PERCENT]),
    ("IoConfig", &["readIOPS", "writeIOPS", "readBPS", "writeBPS"], &[AtLeast(0)]),
    ("IoConfig", &["ioWeightPercent"], &[Range(1, 100)]),
    ("IoConfig", &["readLatencyPercent", "writeLatencyPercent"], &[PERCENT]),
    (
        "IoConfig",
        &[
            "modelReadBPS",
            "modelWriteBPS",
            "modelReadSeqIOPS",
            "modelWriteSeqIOPS",
            "modelReadRandIOPS",
            "modelWriteRandIOPS",
        ],
        &[AtLeast(1)],
    ),
    ("CpuBurstStrategy", &["cpuBurstPercent"], &[Range(0, 10_000)]),
    // NodeResourceTopology
    ("NodeResourceTopology", &["topologyPolicies", "zones"], &[Required]),
    ("Zone", &["name", "type"], &[Required]),
    ("ZoneResource", &["name", "capacity", "allocatable", "available"], &[Required]),
    ("Cost", &["name", "value"], &[Required]),
    ("Attribute", &["name", "value"], &[Required]),
    // Device
    ("DeviceInfo", &["health"], &[Required, DefaultsTo(false)]),
    ("DeviceTopology", &["socketID", "nodeID", "pcieID"], &[Required]),
    ("VirtualFunction", &["minor"], &[Required]),
    ("Condition", &["type"], &[Required, Matches(CONDITION_TYPE), LengthAtMost(316)]),
    ("Condition", &["status"], &[Required, OneOf(&["True", "False", "Unknown"])]),
    ("Condition", &["observedGeneration"], &[AtLeast(0)]),
    ("Condition", &["lastTransitionTime"], &[Required]),
    ("Condition", &["reason"], &[Required, Matches(CONDITION_REASON), LengthAtLeast(1), LengthAtMost(1024)]),
    ("Condition", &["message"], &[Required, LengthAtMost(32_768)]),
];
