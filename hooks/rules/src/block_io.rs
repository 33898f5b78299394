//! BlkIOQOS: throttling and weights of disks, for the best-effort directory and for pods that ask for it.
//!
//! On v1 every disk has five lines, as Koordinator writes them. On v2 the same numbers are `io.max` and
//! `io.weight`, and classes that share a disk with others have a latency target.

use koord_extension::gates::Gate;
use koord_extension::qos::{KubeQos, QosClass};

use crate::facts::{PodFacts, RuntimeClass, known};
use crate::field::{DiskNumber, Field};
use crate::plan::{Plan, Rule, Value};
use crate::policy::{self, Block, BlockKind, IoNumbers};
use crate::view::{CgroupVersion, NodeView, PodView};

const RULE: Rule = Rule::BlkioQos;

/// The disk that a block names.
fn disk(node: &NodeView, pod: Option<&PodView>, block: &Block<'_>) -> Result<DiskNumber, String> {
    let name = block.name;
    let found = match block.kind {
        BlockKind::Device => node.disks.devices.get(name),
        BlockKind::VolumeGroup => node.disks.volume_groups.get(name),
        BlockKind::PodVolume => {
            let Some(pod) = pod else { return Err(format!("podvolume {name}: only pods have volumes")) };
            let key = (pod.uid.clone(), name.to_owned());
            return node
                .disks
                .pod_volumes
                .get(&key)
                .copied()
                .ok_or_else(|| format!("volume {name} is on no known disk"));
        }
        BlockKind::Unknown => {
            return Err(format!("{name} is neither a device, a volumegroup nor a podvolume"));
        }
    };
    found.copied().ok_or_else(|| format!("{name} is on no known disk"))
}

/// All blocks of one target; one that names no disk does not stop the others.
fn fill(node: &NodeView, pod: Option<&PodView>, blocks: &[Block<'_>], latency: bool, plan: &mut Plan) {
    for block in blocks {
        match disk(node, pod, block) {
            Ok(disk) => match node.kernel.cgroup_version {
                CgroupVersion::V1 => version_1(node, disk, block, plan),
                CgroupVersion::V2 => version_2(node, disk, block, latency, plan),
            },
            Err(message) => plan.problem(RULE, message),
        }
    }
}

fn version_1(node: &NodeView, disk: DiskNumber, block: &Block<'_>, plan: &mut Plan) {
    let numbers = &block.io;
    if node.kernel.blkio_throttle {
        let lines = [
            (Field::BlkioReadIops(disk), "readIOPS", numbers.read_iops),
            (Field::BlkioReadBps(disk), "readBPS", numbers.read_bps),
            (Field::BlkioWriteIops(disk), "writeIOPS", numbers.write_iops),
            (Field::BlkioWriteBps(disk), "writeBPS", numbers.write_bps),
        ];
        for (field, name, value) in lines {
            plan.wish(RULE, field, Value::Text(format!("{disk} {value}")), || {
                limit_words(block.name, name, value)
            });
        }
    }
    if node.kernel.blkio_cost {
        weight(Field::BlkioCostWeight(disk), disk, block, plan);
    }
}

fn limit_words(block: &str, name: &str, value: i64) -> String {
    if value == 0 { format!("{block}: no {name}") } else { format!("{block}: {name} {value}") }
}

fn weight(field: Field, disk: DiskNumber, block: &Block<'_>, plan: &mut Plan) {
    let percent = block.io.weight_percent;
    plan.wish(RULE, field, Value::Text(format!("{disk} {percent}")), || {
        format!("{}: ioWeightPercent {percent}", block.name)
    });
}

fn version_2(node: &NodeView, disk: DiskNumber, block: &Block<'_>, latency: bool, plan: &mut Plan) {
    let IoNumbers { read_bps, write_bps, read_iops, write_iops, .. } = block.io;
    if node.kernel.io_max {
        let word = |value: i64| if value == 0 { "max".to_owned() } else { value.to_string() };
        let line = format!(
            "{disk} rbps={} wbps={} riops={} wiops={}",
            word(read_bps),
            word(write_bps),
            word(read_iops),
            word(write_iops)
        );
        plan.wish(RULE, Field::IoMax(disk), Value::Text(line), || {
            format!(
                "{}: readBPS {read_bps}, writeBPS {write_bps}, readIOPS {read_iops}, writeIOPS {write_iops} (0 = no limit)",
                block.name
            )
        });
    }
    if node.kernel.io_weight {
        weight(Field::IoWeight(disk), disk, block, plan);
    }
    if let Some(target) = block.io.latency_target.filter(|_| latency && node.kernel.io_latency) {
        plan.wish(RULE, Field::IoLatency(disk), Value::Text(format!("{disk} target={target}")), || {
            format!("{}: latency target {target} us", block.name)
        });
    }
}

/// A pod's own blocks; on v2 LS, LSR and LSE pods without any have their class's.
pub(crate) fn pod(node: &NodeView, pod: &PodView, facts: &PodFacts, plan: &mut Plan) {
    let Some(qos) = facts.qos() else { return };
    if !node.gates.enabled(Gate::BlkIoReconcile) || facts.runtime_class_of(RuntimeClass::Blockio, None) {
        return;
    }
    let Some(own) = known(&facts.blkio_qos, RULE, plan) else { return };
    let sensitive = matches!(qos, QosClass::Lse | QosClass::Lsr | QosClass::Ls);
    match own {
        Some(own) => fill(node, Some(pod), &policy::blocks_of_annotation(own), sensitive, plan),
        None if sensitive && node.kernel.cgroup_version == CgroupVersion::V2 => {
            let class = if qos == QosClass::Ls { QosClass::Ls } else { QosClass::Lsr };
            fill(node, Some(pod), &policy::blocks_of_class(node, class), true, plan);
        }
        None => {}
    }
}

pub(crate) fn directory(node: &NodeView, kube_qos: KubeQos, plan: &mut Plan) {
    if !node.gates.enabled(Gate::BlkIoReconcile) {
        return;
    }
    match kube_qos {
        KubeQos::BestEffort => fill(node, None, &policy::blocks_of_class(node, QosClass::Be), false, plan),
        KubeQos::Guaranteed | KubeQos::Burstable => {
            let class = if kube_qos == KubeQos::Guaranteed { QosClass::Lsr } else { QosClass::Ls };
            let refused = node.kernel.cgroup_version == CgroupVersion::V1;
            if refused && !policy::blocks_of_class(node, class).is_empty() {
                plan.problem(RULE, format!("{class} pods cannot have block I/O settings on cgroup v1"));
            }
        }
    }
}

/// The controller's settings in the root of the tree.
pub(crate) fn root(node: &NodeView, plan: &mut Plan) {
    if !node.gates.enabled(Gate::BlkIoReconcile) {
        return;
    }
    let version = node.kernel.cgroup_version;
    let there = match version {
        CgroupVersion::V1 => node.kernel.blkio_cost,
        CgroupVersion::V2 => node.kernel.io_cost,
    };
    let fields = |disk| match version {
        CgroupVersion::V1 => (Field::BlkioCostQos(disk), Field::BlkioCostModel(disk)),
        CgroupVersion::V2 => (Field::IoCostQos(disk), Field::IoCostModel(disk)),
    };
    for block in policy::blocks_of_root(node).iter().filter(|_| there) {
        let disk = match disk(node, None, block) {
            Ok(disk) => disk,
            Err(message) => {
                plan.problem(RULE, message);
                continue;
            }
        };
        let cost = &block.cost;
        let (qos, model) = fields(disk);
        let line = cost.qos_line(disk, version);
        plan.wish(RULE, qos, Value::Text(line), || {
            format!(
                "{}: {} % of reads within {} us, {} % of writes within {} us",
                block.name, cost.read_percent, cost.read_latency, cost.write_percent, cost.write_latency
            )
        });
        plan.wish(RULE, model, Value::Text(cost.model_line(disk)), || {
            let whose = if cost.user_model.is_some() { "the policy's" } else { "the kernel's own" };
            format!("{}: {whose} model of the disk", block.name)
        });
    }
}
