//! GroupIdentity: who gives way to whom on a CPU.
//!
//! Koordinator says it with a number of vendor kernels, `cpu.bvt_warp_ns`: 2 = may push others off and wakes
//! fast, -1 = gives way to everybody. Mainline kernels have no such number; there a negative identity becomes
//! `cpu.idle` (5.15) or the least weight.

use koord_extension::gates::Gate;
use koord_extension::qos::{KubeQos, QosClass};

use crate::cpu::MIN_SHARES;
use crate::facts::PodFacts;
use crate::field::{Field, Level};
use crate::plan::{Plan, Rule};
use crate::policy;
use crate::view::{BeIdleScope, CpuQosBackend, NodeView};

const RULE: Rule = Rule::GroupIdentity;

/// What carries out group identity on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// `cpu.bvt_warp_ns`.
    Bvt,
    /// `cpu.idle` of the best-effort directory.
    IdleDirectory,
    /// `cpu.idle` of each pod.
    IdlePods,
    /// The least shares of each pod.
    Weight,
    /// Nothing.
    Nothing,
}

impl Mechanism {
    /// The word that is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mechanism::Bvt => "bvt",
            Mechanism::IdleDirectory => "idle (best-effort directory)",
            Mechanism::IdlePods => "idle (pods)",
            Mechanism::Weight => "weight",
            Mechanism::Nothing => "none",
        }
    }
}

/// The mechanism for a node, and why it is this one.
pub fn mechanism(node: &NodeView) -> (Mechanism, &'static str) {
    let kernel = &node.kernel;
    match node.options.cpu_qos_backend {
        CpuQosBackend::Off => (Mechanism::Nothing, "switched off"),
        CpuQosBackend::Bvt if kernel.group_identity => (Mechanism::Bvt, "chosen"),
        CpuQosBackend::Bvt => (Mechanism::Nothing, "bvt is chosen, and the kernel has no cpu.bvt_warp_ns"),
        CpuQosBackend::Idle if kernel.cpu_idle => idle(node),
        CpuQosBackend::Idle => (Mechanism::Nothing, "idle is chosen, and the kernel has no cpu.idle"),
        CpuQosBackend::Weight => (Mechanism::Weight, "chosen"),
        CpuQosBackend::Auto if kernel.group_identity => (Mechanism::Bvt, "the kernel has cpu.bvt_warp_ns"),
        CpuQosBackend::Auto if kernel.cpu_idle && node.options.be_idle_scope != BeIdleScope::Off => {
            idle(node)
        }
        CpuQosBackend::Auto => {
            (Mechanism::Weight, "the kernel has neither cpu.bvt_warp_ns nor a usable cpu.idle")
        }
    }
}

/// Where `cpu.idle` is set, on a kernel that has it.
pub(crate) fn idle(node: &NodeView) -> (Mechanism, &'static str) {
    match node.options.be_idle_scope {
        BeIdleScope::Off => (Mechanism::Nothing, "the scope of cpu.idle is off"),
        BeIdleScope::Pod => (Mechanism::IdlePods, "the scope of cpu.idle is pod"),
        BeIdleScope::Qos => (Mechanism::IdleDirectory, "the scope of cpu.idle is qos"),
        BeIdleScope::Auto if node.kernel.systemd_idle_weight => {
            (Mechanism::IdleDirectory, "systemd takes CPUWeight=idle for the best-effort slice")
        }
        BeIdleScope::Auto => (
            Mechanism::IdlePods,
            "an idle best-effort directory that systemd does not know of keeps the kubelet from starting",
        ),
    }
}

/// Whether the policy has the rule set identities: no other CPU policy is chosen, and a class is enabled.
pub(crate) fn enabled(node: &NodeView) -> bool {
    policy::is_group_identity(node)
        && [QosClass::Lsr, QosClass::Ls, QosClass::Be]
            .into_iter()
            .any(|class| policy::cpu_enabled(node, class))
}

/// Identity of a class; 0 for one that is not enabled.
fn of_class(node: &NodeView, class: QosClass) -> i64 {
    if enabled(node) && policy::cpu_enabled(node, class) { policy::group_identity(node, class) } else { 0 }
}

/// The class that a pod without a class of its own is treated as: that of its directory.
fn class_of_directory(node: &NodeView, kube_qos: KubeQos) -> QosClass {
    match kube_qos {
        KubeQos::Guaranteed if policy::cpu_enabled(node, QosClass::Lsr) => QosClass::Lsr,
        KubeQos::Guaranteed | KubeQos::Burstable => QosClass::Ls,
        KubeQos::BestEffort => QosClass::Be,
    }
}

/// Identity of a pod, -1 to 2, with the words for it.
///
/// # Errors
///
/// The pod's annotation cannot be read: the pod is left alone.
pub fn of_pod(node: &NodeView, facts: &PodFacts) -> Result<(i64, String), String> {
    let class = match facts.qos() {
        Some(QosClass::Lse | QosClass::Lsr) => QosClass::Lsr,
        Some(QosClass::Ls) => QosClass::Ls,
        Some(QosClass::Be) => QosClass::Be,
        Some(QosClass::System) | None => class_of_directory(node, facts.kube_qos()),
    };
    let value = of_class(node, class);
    if facts.qos() == Some(QosClass::Ls)
        && enabled(node)
        && let Some(own) = facts.cpu_qos.as_ref().map_err(ToString::to_string)?
    {
        return Ok(match (own.enable == Some(true), own.group_identity) {
            (true, Some(identity)) => (identity, format!("the pod asks for identity {identity}")),
            (true, None) => (value, format!("{class} pods have identity {value}")),
            (false, _) => (0, "the pod switches its identity off".to_owned()),
        });
    }
    Ok((value, format!("{class} pods have identity {value}")))
}

/// Identity of a QoS directory.
pub fn of_directory(node: &NodeView, kube_qos: KubeQos) -> i64 {
    match kube_qos {
        KubeQos::Guaranteed => 0,
        KubeQos::Burstable => of_class(node, QosClass::Ls),
        KubeQos::BestEffort => of_class(node, QosClass::Be),
    }
}

/// Whether identities are written as numbers: always while the rule sets some, and zeros while the kernel
/// still heeds them.
fn writes_identity(node: &NodeView) -> bool {
    enabled(node) || node.kernel.group_identity_switch != Some(false)
}

pub(crate) fn pod(node: &NodeView, facts: &PodFacts, plan: &mut Plan, level: Level) {
    let (mechanism, _) = mechanism(node);
    let off = mechanism == Mechanism::Nothing || !node.gates.enabled(Gate::GroupIdentity);
    if off || (mechanism != Mechanism::Bvt && !enabled(node)) {
        return;
    }
    let (identity, reason) = match of_pod(node, facts) {
        Ok(known) => known,
        Err(message) => return plan.problem(RULE, message),
    };
    // What lies in an idle directory is idle with it.
    if mechanism == Mechanism::IdleDirectory && facts.kube_qos() == KubeQos::BestEffort {
        return;
    }
    if mechanism == Mechanism::Bvt || level == Level::Pod {
        carry_out(node, mechanism, identity, reason, plan);
    }
}

/// The wish for a directory of its own, not one of a QoS class.
fn carry_out(node: &NodeView, mechanism: Mechanism, identity: i64, reason: String, plan: &mut Plan) {
    match mechanism {
        Mechanism::Bvt if writes_identity(node) => {
            plan.number(RULE, Field::CpuBvtWarpNs, identity, || reason);
        }
        Mechanism::IdleDirectory | Mechanism::IdlePods if identity < 0 => {
            plan.number(RULE, Field::CpuIdle, 1, || format!("{reason}: cpu.idle 1 on this kernel"));
        }
        Mechanism::Weight if identity < 0 => {
            plan.number(RULE, Field::CpuShares, MIN_SHARES, || {
                format!("{reason}: the least shares, {MIN_SHARES}")
            });
        }
        _ => {}
    }
}

/// A host application: its class's identity; those of SYSTEM, and of no class, have 0.
pub(crate) fn host_application(node: &NodeView, class: Option<QosClass>, plan: &mut Plan) {
    let (identity, reason) = match class {
        Some(class @ (QosClass::Lse | QosClass::Lsr | QosClass::Ls | QosClass::Be)) => {
            let identity = of_class(node, class);
            (identity, format!("{class} applications have identity {identity}"))
        }
        Some(QosClass::System) | None => {
            (0, "the application is of no class that has an identity".to_owned())
        }
    };
    carry_out(node, mechanism(node).0, identity, reason, plan);
}

pub(crate) fn directory(node: &NodeView, kube_qos: KubeQos, plan: &mut Plan) {
    if !node.gates.enabled(Gate::GroupIdentity) {
        return;
    }
    let identity = of_directory(node, kube_qos);
    match mechanism(node).0 {
        Mechanism::Bvt if writes_identity(node) => {
            plan.number(RULE, Field::CpuBvtWarpNs, identity, || match kube_qos {
                KubeQos::Guaranteed => "the root of all pods has identity 0".to_owned(),
                KubeQos::Burstable => format!("LS pods have identity {identity}"),
                KubeQos::BestEffort => format!("BE pods have identity {identity}"),
            });
        }
        Mechanism::IdleDirectory if kube_qos == KubeQos::BestEffort && identity < 0 => {
            plan.number(RULE, Field::CpuIdle, 1, || {
                format!("BE pods have identity {identity}: cpu.idle 1 on this kernel")
            });
        }
        _ => {}
    }
}
