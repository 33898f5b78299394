//! BatchResource: shares, quota and memory limit from batch and mid resources.
//!
//! The kubelet does not know these resources. It takes such pods for best-effort and gives them the least
//! shares and no limits; what they asked for stands in an annotation.

use koord_extension::gates::Gate;
use koord_extension::units::{Bytes, Micros, MilliCpu};

use crate::cpu::{UNLIMITED, quota, shares};
use crate::facts::{ExtendedResources, PodFacts, known};
use crate::field::Field;
use crate::plan::{Plan, Rule};
use crate::policy;
use crate::view::{DEFAULT_PERIOD, NodeView, PodView};

const RULE: Rule = Rule::BatchResource;

/// What a pod or a container asks for of batch or mid resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Request, 0 if none.
    pub cpu_request: MilliCpu,
    /// Limit; `None` = unlimited.
    pub cpu_limit: Option<MilliCpu>,
    /// Request, 0 if none.
    pub memory_request: Bytes,
    /// Limit; `None` = unlimited.
    pub memory_limit: Option<Bytes>,
}

/// The extended resources that the rule acts on for a pod.
pub(crate) fn resources<'a>(node: &NodeView, facts: &'a PodFacts) -> Option<&'a ExtendedResources> {
    let extended = facts.extended.as_ref().ok()?.as_deref()?;
    extended.acts_on(facts.qos(), &node.gates).then_some(extended)
}

fn fill(node: &NodeView, amounts: &Amounts, words: &Words<'_>, period: i64, plan: &mut Plan) {
    let Words { name, of } = words;
    let request = amounts.cpu_request;
    let value = shares(request);
    plan.number(RULE, Field::CpuShares, value, || {
        format!("{name}-cpu request {request}{of} x 1024 / 1000 = {value} shares")
    });
    fill_quota(node, amounts, words, period, plan);
    let limit = amounts.memory_limit.map_or(UNLIMITED, |limit| limit.0);
    plan.number(RULE, Field::MemoryLimit, limit, || match amounts.memory_limit {
        Some(limit) => format!("{name}-memory limit {limit}{of}"),
        None => format!("no {name}-memory limit{of}"),
    });
}

fn fill_quota(node: &NodeView, amounts: &Amounts, words: &Words<'_>, period: i64, plan: &mut Plan) {
    let Words { name, of } = words;
    let Some(limit) = amounts.cpu_limit else {
        plan.number(RULE, Field::CpuQuota, UNLIMITED, || format!("no {name}-cpu limit{of}"));
        return;
    };
    if let Some(suppression) = policy::suppression_without_quota(node) {
        plan.number(RULE, Field::CpuQuota, UNLIMITED, || {
            format!("all best-effort pods together are suppressed by {suppression}, so none has a quota of its own")
        });
        return;
    }
    let full = quota(limit, Micros(period));
    let ratio = node.cpu_normalization_ratio.filter(|ratio| ratio.divides());
    let value = ratio.map_or(full, |ratio| ratio.divide(full));
    plan.number(RULE, Field::CpuQuota, value, || {
        let part = period / 1000;
        let limit_words = format!("{name}-cpu limit {limit}{of} x {part} us = {full} us per {part} ms");
        match ratio {
            Some(ratio) => format!("{limit_words}, / {ratio} for the faster CPUs = {value} us"),
            None => limit_words,
        }
    });
}

/// Whether the rule is on, and the pod of a class that it can act on.
fn applies(node: &NodeView, facts: &PodFacts) -> bool {
    node.gates.enabled(Gate::BatchResource) && facts.may_have_extended_resources()
}

struct Words<'a> {
    name: &'a str,
    of: &'a str,
}

pub(crate) fn pod(node: &NodeView, pod: &PodView, facts: &PodFacts, plan: &mut Plan) {
    if !applies(node, facts) || known(&facts.extended, RULE, plan).is_none() {
        return;
    }
    let Some(resources) = resources(node, facts) else { return };
    let words = Words { name: resources.name(), of: " of all containers" };
    // The file of the pod's directory counts in the period that the kubelet gave it.
    fill(node, &resources.pod, &words, pod.asked.period().0, plan);
}

pub(crate) fn container(node: &NodeView, facts: &PodFacts, name: &str, plan: &mut Plan) {
    if !applies(node, facts) || known(&facts.extended, RULE, plan).is_none() {
        return;
    }
    let Some(resources) = resources(node, facts) else { return };
    let Some(amounts) = resources.container(name) else { return };
    let words = Words { name: resources.name(), of: "" };
    fill(node, amounts, &words, DEFAULT_PERIOD.0, plan);
}
