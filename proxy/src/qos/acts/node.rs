//! What there is only one of on a node: switches of the kernel, the root of the cgroup tree, the groups of
//! classes, and what the directories of QoS classes protect for their pods.

use std::collections::{BTreeMap, BTreeSet};

use koord_admin::{Mode, RestoreFailure, RestoreReport};
use koord_cgroup::path::CgroupPath;
use koord_cgroup::resctrl::RdtClass;
use koord_cgroup::system_file::{SystemFile, set_sched_feature};
use koord_extension::qos::KubeQos;
use koord_rules::{Field, KernelSwitch, Level as RuleLevel, Plan, Rule, memory_qos};

use super::super::apply::Which;
use super::super::ledger::Level;
use super::super::{Qos, facts_of, locked};
use super::roots;

/// The scheduler's feature behind the switch of core scheduling, on vendor kernels.
const CORE_SCHED_FEATURE: &str = "CORE_SCHED";

#[derive(Debug, Default)]
pub(super) struct NodeState {
    /// What rules set in the root of the cgroup tree.
    root: Level,
    /// Values of switches before they were first set, in the order they were set in.
    switches: Vec<(SystemFile, i64)>,
    /// The rule whose switches could not be set: its wishes wait.
    waits: Option<Rule>,
}

fn file_of(switch: &KernelSwitch) -> Option<SystemFile> {
    match switch.name {
        "sched_group_identity_enabled" => Some(SystemFile::GroupIdentityEnabled),
        "sched_core" => Some(SystemFile::SchedCore),
        _ => None,
    }
}

impl Qos {
    /// Whether a rule's wishes have to wait for a switch of the kernel.
    pub(in super::super) fn waits(&self, rule: Rule) -> bool {
        locked(&self.acts.node).waits == Some(rule)
    }

    /// Decides about the node and, in the mode `enforce`, carries it out.
    pub(in super::super) fn look_at_node(&self, mode: Mode) {
        let node = self.node();
        let plan = koord_rules::node(&node.view);
        for problem in plan.problems.iter().chain(&plan.root.problems) {
            self.complain("node", problem.rule.as_str(), &problem.message);
        }
        if mode != Mode::Enforce {
            return;
        }
        let waits = self.set_switches(&plan.switches);
        locked(&self.acts.node).waits = waits;
        for message in self.acts.cache.classes(&plan.resctrl, self.classes_in_use()) {
            self.complain("resctrl", Field::ResctrlClass.as_str().as_ref(), &message);
        }
        let mut root = std::mem::take(&mut locked(&self.acts.node).root);
        if !plan.root.wishes.is_empty() || !root.entries.is_empty() {
            self.carry_out(&CgroupPath::root(), RuleLevel::Node, &plan.root, &mut root, Which::All);
        }
        locked(&self.acts.node).root = root;
    }

    /// Sets switches in their order; gives the rule of the first that cannot be set.
    fn set_switches(&self, switches: &[KernelSwitch]) -> Option<Rule> {
        let roots = roots(&self.fixed.machine);
        for switch in switches {
            let Some(file) = file_of(switch) else { continue };
            let before = file.read(&roots).ok().flatten();
            match file.write(&roots, i64::from(switch.on)) {
                Ok(true) => {
                    tracing::info!(file = %file, on = switch.on, reason = switch.reason, "switch of the kernel");
                    let mut node = locked(&self.acts.node);
                    if let Some(before) =
                        before.filter(|_| node.switches.iter().all(|(known, _)| *known != file))
                    {
                        node.switches.push((file, before));
                    }
                }
                Ok(false) => {}
                Err(error) => {
                    self.complain("kernel", switch.name, &error.to_string());
                    return Some(switch.rule);
                }
            }
            if file == SystemFile::SchedCore
                && switch.on
                && let Err(error) = set_sched_feature(&roots, CORE_SCHED_FEATURE, true)
            {
                self.complain("kernel", CORE_SCHED_FEATURE, &error.to_string());
                return Some(switch.rule);
            }
        }
        None
    }

    /// Classes that containers were put into, as the ledger has it.
    fn classes_in_use(&self) -> BTreeSet<RdtClass> {
        let name = Field::ResctrlClass.as_str();
        let levels = self.ledger().levels();
        let sent = levels.containers.values().filter_map(|level| level.entry(&name)?.sent.as_deref());
        let classes: BTreeMap<&str, RdtClass> =
            RdtClass::ALL.into_iter().map(|class| (class.as_str(), class)).collect();
        sent.filter_map(|sent| classes.get(sent).copied()).collect()
    }

    /// What the directories of QoS classes protect so that the protection of their pods counts.
    pub(in super::super) fn protection(&self) -> Vec<(KubeQos, Plan)> {
        let node = self.node();
        if !node.view.kernel.memory_protection {
            return Vec::new();
        }
        let pods = self.store.pods();
        let plans: Vec<(KubeQos, Plan)> = pods
            .iter()
            .filter(|(_, pod)| pod.stopped.is_none() && !self.skips(pod) && self.pod_path(pod).is_some())
            .map(|(id, pod)| {
                let known = facts_of(pod, self.asked_of_pod(id));
                (known.view.kube_qos, koord_rules::pod_with(&node.view, &known.view, &known.facts))
            })
            .collect();
        let sums = memory_qos::directory_protection(plans.iter().map(|(class, plan)| (*class, plan)));
        sums.into_iter().map(|(class, sum)| (class, sum.plan(&node.view))).collect()
    }

    /// Puts the node back, after all pods.
    pub(in super::super) fn restore_node(&self, report: &mut RestoreReport) {
        let mut root = std::mem::take(&mut locked(&self.acts.node).root);
        self.restore_level(Some(&CgroupPath::root()), RuleLevel::Node, &mut root, report, "", "");
        let mut fail = |field: &str, error: String| {
            report.failed.push(RestoreFailure {
                pod: String::new(),
                container: String::new(),
                field: field.to_owned(),
                error,
            });
        };
        for message in self.acts.cache.remove_classes() {
            fail(&Field::ResctrlClass.as_str(), message);
        }
        let roots = roots(&self.fixed.machine);
        let switches = {
            let mut node = locked(&self.acts.node);
            node.waits = None;
            std::mem::take(&mut node.switches)
        };
        for (file, before) in switches.into_iter().rev() {
            if let Err(error) = file.write(&roots, before) {
                fail(&file.to_string(), error.to_string());
            }
        }
    }
}
