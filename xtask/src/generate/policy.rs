//! Writes the node policy that packages install: every key with its default, commented out.
//!
//! Names, order and descriptions come from the types of a NodeSLO, defaults from what programs act on, and accepted values
//! from the check of files. A key that is new in the types and has no default here ends the generation with an error.

use anyhow::{Context, bail};
use koord_crd::node_slo::{
    ClassQos, CpuBurstStrategyInForce, EffectiveNodeSlo, IoSettings, NodeSloSpec, ThresholdStrategyInForce,
};
use koord_extension::json::shape::{Described, FieldShape, ObjectShape, Shape};
use serde_json::{Value, json};

use super::Output;

/// Where it is, relative to the root of the workspace.
const PATH: &str = "packaging/node-slo.yaml";

const HEADER: &str = "\
# Node policy of koord-runtime-proxy (--node-policy), shaped as the specification of a NodeSLO.
#
# Every key is here with its default, commented out: as it stands, this file changes nothing. Everything that has an
# \"enable\" is off; the other values are those that hold once it is on. To state a key, take away the first # of its
# line and of the lines of the keys it stands in. null means that nothing is set. The file is looked at every second;
# \"koord-runtime-proxy validate\" names all mistakes in it, and \"koordctl node status\" shows what is in force.
#
# Made by \"cargo xtask gen\" from the types in api/crd.

";

/// The longest line.
const WIDTH: usize = 120;

/// The class of pods that comes first; keys of the others mean the same and are not explained again.
const EXPLAINED_CLASS: &str = "lsrClass";

/// The file.
pub(super) fn output() -> anyhow::Result<Output> {
    Ok(Output { path: PATH.to_owned(), text: text()? })
}

fn text() -> anyhow::Result<String> {
    let Shape::Object(spec) = NodeSloSpec::shape() else { bail!("a NodeSLO is no object") };
    let mut writer = Writer { text: HEADER.to_owned(), defaults: Defaults::new()? };
    for (index, field) in spec.fields.iter().enumerate() {
        if index > 0 {
            writer.text.push('\n');
        }
        writer.field(&mut Vec::new(), field, Explain::Yes)?;
    }
    Ok(writer.text)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Explain {
    Yes,
    No,
}

struct Writer {
    text: String,
    defaults: Defaults,
}

impl Writer {
    /// A key with what is below it. `path` are the keys it stands in.
    fn field(
        &mut self,
        path: &mut Vec<&'static str>,
        field: &FieldShape,
        explain: Explain,
    ) -> anyhow::Result<()> {
        let indent = 2 * path.len();
        path.push(field.key);
        if explain == Explain::Yes {
            self.comment(indent, &described(path, field));
        }
        match &field.shape {
            Shape::Object(object) => {
                self.line(indent, &format!("{}:", field.key));
                let is_repeated = path.len() == 2 && path[0] == "resourceQOSStrategy";
                let is_class = matches!(object.name, "ResourceQos");
                let inner = if is_repeated && is_class && field.key != EXPLAINED_CLASS {
                    Explain::No
                } else {
                    explain
                };
                for field in &object.fields {
                    self.field(path, field, inner)?;
                }
            }
            Shape::List(item) => {
                if let (Shape::Object(item), Explain::Yes) = (item.as_ref(), explain) {
                    self.comment(indent, "Each item has:");
                    self.item(indent, 2, path, item);
                }
                self.line(indent, &format!("{}: []", field.key));
            }
            Shape::Map(_) => self.line(indent, &format!("{}: {{}}", field.key)),
            _ => {
                let default = self
                    .defaults
                    .of(path)
                    .with_context(|| format!("default of {} is not known", path.join(".")))?;
                let default = match default {
                    Value::String(word) => word,
                    other => other.to_string(),
                };
                self.line(indent, &format!("{}: {default}", field.key));
            }
        }
        path.pop();
        Ok(())
    }

    /// Comments on the keys of an item of a list, `hanging` spaces behind the sign of a comment.
    fn item(&mut self, indent: usize, hanging: usize, path: &[&'static str], item: &ObjectShape) {
        for field in &item.fields {
            let mut text = format!("{:hanging$}{}: {}", "", field.key, field.description);
            if let Some(default) = Defaults::of_item(path, field.key) {
                text.push_str(&format!(" Default {default}."));
            }
            if let Shape::Words(words) = &field.shape {
                text.push_str(&one_of(words));
            }
            self.comment(indent, &text);
            if let Shape::Object(inner) = &field.shape {
                self.item(indent, hanging + 2, path, inner);
            }
        }
    }

    /// A line that states something, commented out.
    fn line(&mut self, indent: usize, text: &str) {
        self.text.push_str(&format!("#{:indent$}{text}\n", ""));
    }

    /// A comment that is still one when the first # is away.
    fn comment(&mut self, indent: usize, text: &str) {
        let hanging = text.len() - text.trim_start().len();
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && indent + 3 + hanging + line.len() + 1 + word.len() > WIDTH {
                self.line(indent, &format!("# {:hanging$}{line}", ""));
                line.clear();
                // What goes on is a little further in, as it is no key.
                line.push_str(if hanging > 0 { "  " } else { "" });
            }
            if !line.trim_start().is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(indent, &format!("# {:hanging$}{line}", ""));
    }
}

/// The description of a key, with what it accepts unless the description says it.
fn described(path: &[&'static str], field: &FieldShape) -> String {
    let mut text = field.description.clone();
    match &field.shape {
        Shape::Words(words) => text.push_str(&one_of(words)),
        Shape::Int32 | Shape::Int64 => {
            let accepted = accepted(path).unwrap_or_default();
            let range = accepted.trim_start_matches("a whole number, ");
            if !range.is_empty() && !text.contains(range) {
                text.push_str(&format!(" Accepted: {range}."));
            }
        }
        _ => {}
    }
    text
}

fn one_of(words: &[&str]) -> String {
    let words: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
    format!(" One of {}.", words.join(", "))
}

/// What the check of files says it wants at a path, asked with a value that no key takes.
pub(super) fn accepted(path: &[&'static str]) -> Option<String> {
    let mut mistakes = NodeSloSpec::check(&nested(path, json!([[]]))).err()?;
    mistakes.pop().map(|mistake| mistake.wanted)
}

/// `value` at a path, in objects with one key each.
fn nested(path: &[&'static str], value: Value) -> Value {
    path.iter().rev().fold(value, |inner, key| json!({ *key: inner }))
}

/// Where defaults are read.
pub(super) struct Defaults {
    /// With nothing stated: whether something is on.
    bare: EffectiveNodeSlo,
    /// With everything on and nothing else stated: the other values.
    enabled: EffectiveNodeSlo,
}

impl Defaults {
    pub(super) fn new() -> anyhow::Result<Defaults> {
        let spec: NodeSloSpec =
            serde_json::from_value(everything_on()).context("a NodeSLO with everything on")?;
        Ok(Defaults { bare: EffectiveNodeSlo::default(), enabled: spec.effective() })
    }

    /// The default at a path; nothing if the key is not known here.
    pub(super) fn of(&self, path: &[&'static str]) -> Option<Value> {
        let (key, parents) = path.split_last()?;
        let slo = if *key == "enable" { &self.bare } else { &self.enabled };
        match parents {
            ["resourceUsedThresholdWithBE"] => of_threshold(key, &slo.threshold),
            ["cpuBurstStrategy"] => of_burst(key, &slo.cpu_burst),
            ["systemStrategy"] => of_system(key, slo),
            ["resourceQOSStrategy", "policies"] => match *key {
                "cpuPolicy" => Some(json!(slo.cpu_policy.as_str())),
                "netQOSPolicy" => Some(json!(slo.network_policy.as_str())),
                _ => None,
            },
            ["resourceQOSStrategy", class, block] => {
                let class = match *class {
                    "lsrClass" => &slo.lsr,
                    "lsClass" => &slo.ls,
                    "beClass" => &slo.be,
                    "systemClass" => &slo.system,
                    "cgroupRoot" => &slo.cgroup_root,
                    _ => return None,
                };
                of_class(block, key, class)
            }
            _ => None,
        }
    }

    /// The default of a key of an item; nothing if it has none.
    pub(super) fn of_item(path: &[&'static str], key: &str) -> Option<Value> {
        if path.last() != Some(&"blocks") {
            return None;
        }
        let io = IoSettings::from(&koord_extension::annotation::IoConfig::default());
        Some(match key {
            "readIOPS" => json!(io.read_iops),
            "writeIOPS" => json!(io.write_iops),
            "readBPS" => json!(io.read_bps),
            "writeBPS" => json!(io.write_bps),
            "ioWeightPercent" => json!(io.io_weight_percent),
            "readLatency" => json!(io.read_latency),
            "writeLatency" => json!(io.write_latency),
            "readLatencyPercent" => json!(io.read_latency_percent),
            "writeLatencyPercent" => json!(io.write_latency_percent),
            "enableUserModel" => json!(io.enable_user_model),
            "modelReadBPS" => json!(io.model_read_bps),
            "modelWriteBPS" => json!(io.model_write_bps),
            "modelReadSeqIOPS" => json!(io.model_read_seq_iops),
            "modelWriteSeqIOPS" => json!(io.model_write_seq_iops),
            "modelReadRandIOPS" => json!(io.model_read_rand_iops),
            "modelWriteRandIOPS" => json!(io.model_write_rand_iops),
            _ => return None,
        })
    }
}

/// A spec in which every block with an `enable` states it, and nothing else.
fn everything_on() -> Value {
    fn on(object: &ObjectShape) -> Value {
        let fields = object.fields.iter().filter_map(|field| match &field.shape {
            Shape::Object(inner) => Some((field.key.to_owned(), on(inner))),
            Shape::Boolean if field.key == "enable" => Some((field.key.to_owned(), json!(true))),
            _ => None,
        });
        Value::Object(fields.collect())
    }
    match NodeSloSpec::shape() {
        Shape::Object(spec) => on(&spec),
        _ => Value::Null,
    }
}

fn of_threshold(key: &str, slo: &ThresholdStrategyInForce) -> Option<Value> {
    Some(match key {
        "enable" => json!(slo.enable),
        "cpuSuppressThresholdPercent" => json!(slo.cpu_suppress_threshold_percent),
        "cpuSuppressMinPercent" => json!(slo.cpu_suppress_min_percent),
        "cpuSuppressPolicy" => json!(slo.cpu_suppress_policy.as_str()),
        "memoryEvictThresholdPercent" => json!(slo.memory_evict_threshold_percent),
        "memoryEvictLowerPercent" => json!(slo.memory_evict_lower_percent),
        "memoryAllocatableEvictThresholdPercent" => json!(slo.memory_allocatable_evict_threshold_percent),
        "memoryAllocatableEvictLowerPercent" => json!(slo.memory_allocatable_evict_lower_percent),
        "cpuEvictBESatisfactionLowerPercent" => json!(slo.cpu_evict_be_satisfaction_lower_percent),
        "cpuEvictBESatisfactionUpperPercent" => json!(slo.cpu_evict_be_satisfaction_upper_percent),
        "cpuEvictBEUsageThresholdPercent" => json!(slo.cpu_evict_be_usage_threshold_percent),
        "cpuEvictTimeWindowSeconds" => json!(slo.cpu_evict_time_window_seconds),
        "cpuEvictThresholdPercent" => json!(slo.cpu_evict_threshold_percent),
        "cpuEvictLowerPercent" => json!(slo.cpu_evict_lower_percent),
        "cpuAllocatableEvictThresholdPercent" => json!(slo.cpu_allocatable_evict_threshold_percent),
        "cpuAllocatableEvictLowerPercent" => json!(slo.cpu_allocatable_evict_lower_percent),
        "cpuEvictPolicy" => json!(slo.cpu_evict_policy.as_str()),
        "evictEnabledPriorityThreshold" => json!(slo.evict_enabled_priority_threshold),
        "allocatableEvictPriorityThreshold" => json!(slo.allocatable_evict_priority_threshold),
        _ => return None,
    })
}

fn of_burst(key: &str, slo: &CpuBurstStrategyInForce) -> Option<Value> {
    Some(match key {
        "policy" => json!(slo.policy.as_str()),
        "cpuBurstPercent" => json!(slo.cpu_burst_percent),
        "cfsQuotaBurstPercent" => json!(slo.cfs_quota_burst_percent),
        "cfsQuotaBurstPeriodSeconds" => json!(slo.cfs_quota_burst_period_seconds),
        "sharePoolThresholdPercent" => json!(slo.share_pool_threshold_percent),
        _ => return None,
    })
}

/// What is unset is left as it is, so the in-force form is the object's own.
fn of_system(key: &str, slo: &EffectiveNodeSlo) -> Option<Value> {
    let Shape::Object(shape) = koord_crd::node_slo::SystemStrategy::shape() else { return None };
    shape.fields.iter().find(|field| field.key == key)?;
    let stated = serde_json::to_value(&slo.system_strategy).ok()?;
    Some(stated.get(key).cloned().unwrap_or_default())
}

fn of_class(block: &str, key: &str, class: &ClassQos) -> Option<Value> {
    let (cpu, memory, resctrl, network) = (&class.cpu, &class.memory, &class.resctrl, &class.network);
    let switch = |on: bool| json!(u8::from(on));
    Some(match (block, key) {
        ("cpuQOS", "enable") => json!(cpu.enable),
        ("cpuQOS", "groupIdentity") => json!(cpu.group_identity),
        ("cpuQOS", "schedIdle") => switch(cpu.sched_idle),
        ("cpuQOS", "coreExpeller") => json!(cpu.core_expeller),
        ("memoryQOS", "enable") => json!(memory.enable),
        ("memoryQOS", "minLimitPercent") => json!(memory.min_limit_percent),
        ("memoryQOS", "lowLimitPercent") => json!(memory.low_limit_percent),
        ("memoryQOS", "throttlingPercent") => json!(memory.throttling_percent),
        ("memoryQOS", "wmarkRatio") => json!(memory.wmark_ratio),
        ("memoryQOS", "wmarkScalePermill") => json!(memory.wmark_scale_permill),
        ("memoryQOS", "wmarkMinAdj") => json!(memory.wmark_min_adj),
        ("memoryQOS", "priorityEnable") => switch(memory.priority_enable),
        ("memoryQOS", "priority") => json!(memory.priority),
        ("memoryQOS", "oomKillGroup") => switch(memory.oom_kill_group),
        ("memoryQOS", "pageCacheEnable") => json!(memory.page_cache_enable),
        ("memoryQOS", "pageCacheLimitPercent") => json!(memory.page_cache_limit_percent),
        ("memoryQOS", "pageCacheLimitSize") => json!(memory.page_cache_limit_size),
        ("memoryQOS", "pageCacheReclaimSync") => json!(memory.page_cache_reclaim_sync),
        ("blkioQOS", "enable") => json!(class.blkio.enable),
        ("resctrlQOS", "enable") => json!(resctrl.enable),
        ("resctrlQOS", "catRangeStartPercent") => json!(resctrl.cat_range_start_percent),
        ("resctrlQOS", "catRangeEndPercent") => json!(resctrl.cat_range_end_percent),
        ("resctrlQOS", "mbaPercent") => json!(resctrl.mba_percent),
        ("networkQOS", "enable") => json!(network.enable),
        ("networkQOS", "ingressRequest") => json!(network.ingress_request),
        ("networkQOS", "ingressLimit") => json!(network.ingress_limit),
        ("networkQOS", "egressRequest") => json!(network.egress_request),
        ("networkQOS", "egressLimit") => json!(network.egress_limit),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file with every key stated.
    fn stated(text: &str) -> String {
        let body = text.strip_prefix(HEADER).unwrap();
        body.lines().map(|line| line.strip_prefix('#').unwrap_or(line).to_owned() + "\n").collect()
    }

    fn read(text: &str) -> NodeSloSpec {
        let value: Value = serde_saphyr::from_str(text).unwrap();
        NodeSloSpec::check(&value).unwrap()
    }

    /// Paths of all keys that are not in lists.
    fn paths(object: &ObjectShape, before: &str, found: &mut Vec<String>) {
        for field in &object.fields {
            let path = format!("{before}/{}", field.key);
            if let Shape::Object(inner) = &field.shape {
                paths(inner, &path, found);
            }
            found.push(path);
        }
    }

    #[test]
    fn as_it_stands_the_file_says_nothing() {
        let text = text().unwrap();
        let said: Option<Value> = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(said, None);
        for line in text.lines() {
            assert!(line.len() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn every_key_is_there_once() {
        let value: Value = serde_saphyr::from_str(&stated(&text().unwrap())).unwrap();
        let Shape::Object(spec) = NodeSloSpec::shape() else { panic!("no object") };
        let mut found = Vec::new();
        paths(&spec, "", &mut found);
        assert!(found.contains(&"/resourceQOSStrategy/cgroupRoot/memoryQOS/wmarkMinAdj".to_owned()));
        for path in found {
            assert!(value.pointer(&path).is_some(), "{path} is not in the file");
        }
    }

    #[test]
    fn what_it_states_are_the_defaults() {
        let text = stated(&text().unwrap());
        assert_eq!(read(&text).effective(), EffectiveNodeSlo::default());
        let on = text.replace("enable: false", "enable: true");
        let enabled: NodeSloSpec = serde_json::from_value(everything_on()).unwrap();
        assert_eq!(read(&on).effective(), enabled.effective());
        // Known values, so that the comparison is not of one mistake with itself.
        assert!(
            text.contains("\n      groupIdentity: -1\n") && text.contains("\n      catRangeEndPercent: 30\n")
        );
        assert!(text.contains("\n  memoryEvictLowerPercent: 68\n") && text.contains("\n  policy: none\n"));
    }

    #[test]
    fn ranges_come_from_the_check() {
        assert_eq!(accepted(&["cpuBurstStrategy", "cpuBurstPercent"]).unwrap(), "a whole number, 0..10000");
        assert_eq!(accepted(&["extensions"]).unwrap(), "an object");
    }
}
