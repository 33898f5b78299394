//! MemoryQOS: protection, throttling and watermarks of memory, as far as they depend on nothing measured.
//!
//! Files of vendor kernels are wished for where the kernel has them. On mainline kernels a watermark below 0
//! becomes `memory.low`, and without `memory.reclaim` (before 5.19) the watermark of best-effort containers
//! becomes `memory.high`.

use koord_extension::gates::Gate;
use koord_extension::qos::{KubeQos, QosClass};
use koord_extension::units::{Bytes, Percent};

use crate::batch_resource;
use crate::cpu::UNLIMITED;
use crate::facts::PodFacts;
use crate::field::{Field, Level};
use crate::plan::{Plan, Rule};
use crate::policy::{self, MemorySettings};
use crate::view::{ContainerView, NodeView, PodView};

const RULE: Rule = Rule::MemoryQos;

/// Request and limit of memory of a pod or container, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Memory {
    request: Option<Bytes>,
    limit: Option<Bytes>,
}

fn positive(limit: Option<i64>) -> Option<Bytes> {
    limit.filter(|limit| *limit > 0).map(Bytes)
}

/// What the CRI does not tell is told by the annotation of batch and mid pods; best-effort pods request
/// nothing, and guaranteed ones what their limit is.
fn request(
    facts: &PodFacts,
    batch: Option<Bytes>,
    told: Option<Bytes>,
    limit: Option<Bytes>,
) -> Option<Bytes> {
    if batch.is_some() {
        return batch;
    }
    if facts.qos() == Some(QosClass::Be) {
        return Some(Bytes::ZERO);
    }
    told.or_else(|| match facts.kube_qos() {
        KubeQos::BestEffort => Some(Bytes::ZERO),
        KubeQos::Guaranteed => limit,
        KubeQos::Burstable => None,
    })
}

fn of_pod(node: &NodeView, pod: &PodView, facts: &PodFacts) -> Memory {
    match batch_resource::resources(node, facts) {
        Some(resources) => Memory {
            request: Some(resources.pod.memory_request),
            limit: resources.pod.memory_limit.or_else(|| positive(pod.asked.memory_limit)),
        },
        None => {
            let limit = positive(pod.asked.memory_limit);
            Memory { request: request(facts, None, pod.memory_request, limit), limit }
        }
    }
}

fn of_container(node: &NodeView, facts: &PodFacts, container: &ContainerView<'_>) -> Memory {
    let own =
        batch_resource::resources(node, facts).and_then(|resources| resources.container(container.name));
    let limit = match own {
        Some(own) => own.memory_limit,
        None => positive(container.asked.memory_limit),
    };
    let batch = own.map(|own| own.memory_request);
    Memory { request: request(facts, batch, container.memory_request, limit), limit }
}

/// `request` x percent / 100; nothing of anything is nothing.
fn part(request: Option<Bytes>, percent: Percent) -> Option<Bytes> {
    if percent.0 == 0 { Some(Bytes::ZERO) } else { request.map(|request| request.percent(percent)) }
}

/// `memory.high`: the request and a part of what lies between it and the limit, in whole pages; `None` = no
/// throttling.
fn high(request: Bytes, limit: Bytes, percent: Percent, page: Bytes) -> Option<Bytes> {
    if percent.0 == 0 {
        return None;
    }
    let exact = request.saturating_add(limit.saturating_sub(request).percent(percent));
    Some(whole_pages(exact, page))
}

fn whole_pages(bytes: Bytes, page: Bytes) -> Bytes {
    let page = page.0.max(1);
    Bytes(bytes.0 / page * page)
}

/// Protection and what all levels share.
fn protect(node: &NodeView, memory: Memory, settings: &MemorySettings, level: Level, plan: &mut Plan) {
    let kernel = &node.kernel;
    if kernel.memory_protection {
        let min = part(memory.request, settings.min);
        if let Some(min) = min {
            plan.number(RULE, Field::MemoryMin, min.0, || {
                portion("minLimitPercent", settings.min, memory.request)
            });
        }
        if let (Some(min), Some(low)) = (min, part(memory.request, settings.low)) {
            low_wish(node, memory, settings, level, (min, low), plan);
        }
    }
    if kernel.memory_watermarks {
        let reason = |name: &'static str, value: i64| move || format!("{name} {value}");
        let (ratio, scale, adjust) =
            (settings.wmark_ratio.0, settings.wmark_scale_permill, settings.wmark_min_adj);
        plan.number(RULE, Field::MemoryWmarkRatio, ratio, reason("wmarkRatio", ratio));
        plan.number(RULE, Field::MemoryWmarkScaleFactor, scale, reason("wmarkScalePermill", scale));
        plan.number(RULE, Field::MemoryWmarkMinAdj, adjust, reason("wmarkMinAdj", adjust));
    }
    order(node, settings, plan);
}

fn low_wish(
    node: &NodeView,
    memory: Memory,
    settings: &MemorySettings,
    level: Level,
    (min, low): (Bytes, Bytes),
    plan: &mut Plan,
) {
    // On mainline kernels a watermark adjustment below 0 has no file; keeping the request from being reclaimed
    // is what it is for.
    if level == Level::Pod
        && !node.kernel.memory_watermarks
        && settings.wmark_min_adj < 0
        && let Some(request) = memory.request.filter(|request| *request > low)
    {
        plan.number(RULE, Field::MemoryLow, request.0, || {
            format!(
                "wmarkMinAdj {} is, on this kernel, protection of the request {request}",
                settings.wmark_min_adj
            )
        });
        return;
    }
    if low > Bytes::ZERO && low < min {
        plan.number(RULE, Field::MemoryLow, min.0, || {
            format!("lowLimitPercent {} % = {low}, raised to memory.min", settings.low.0)
        });
    } else {
        plan.number(RULE, Field::MemoryLow, low.0, || {
            portion("lowLimitPercent", settings.low, memory.request)
        });
    }
}

fn portion(name: &str, percent: Percent, request: Option<Bytes>) -> String {
    match request {
        Some(request) => format!("{name} {} % of the request {request}", percent.0),
        None => format!("{name} {} %", percent.0),
    }
}

/// The order of the out-of-memory killer.
fn order(node: &NodeView, settings: &MemorySettings, plan: &mut Plan) {
    let reason = |name: &'static str, value: i64| move || format!("{name} {value}");
    if node.kernel.memory_priority {
        let (enable, priority) = (settings.priority_enable, settings.priority);
        plan.number(RULE, Field::MemoryUsePriorityOom, enable, reason("priorityEnable", enable));
        plan.number(RULE, Field::MemoryPriority, priority, reason("priority", priority));
    }
    if node.kernel.memory_oom_group {
        let group = settings.oom_group;
        plan.number(RULE, Field::MemoryOomGroup, group, reason("oomKillGroup", group));
    }
}

/// Settings that hold for a pod; `None`: nobody enables anything for it, and nothing is written.
fn settings(node: &NodeView, facts: &PodFacts, plan: &mut Plan) -> Option<MemorySettings> {
    if !node.gates.enabled(Gate::CgroupReconcile) {
        return None;
    }
    let own = match &facts.memory_qos {
        Ok(own) => {
            for message in own.iter().flat_map(|own| policy::memory_out_of_range(own)) {
                plan.problem(RULE, format!("{message}; the nearest value counts"));
            }
            own.as_deref()
        }
        Err(message) => {
            plan.problem(RULE, format!("{message}; the node's settings count"));
            None
        }
    };
    policy::memory(node, class(facts), own)
}

fn class(facts: &PodFacts) -> QosClass {
    match facts.qos_with_default() {
        QosClass::Lse => QosClass::Lsr,
        class => class,
    }
}

pub(crate) fn pod(node: &NodeView, pod: &PodView, facts: &PodFacts, plan: &mut Plan) {
    let Some(settings) = settings(node, facts, plan) else { return };
    let memory = of_pod(node, pod, facts);
    protect(node, memory, &settings, Level::Pod, plan);
    if node.kernel.page_cache_limit {
        page_cache(&settings, memory.limit, plan);
    }
}

fn page_cache(settings: &MemorySettings, limit: Option<Bytes>, plan: &mut Plan) {
    let size = match (settings.page_cache_size, settings.page_cache_percent, limit) {
        (Some(size), _, Some(limit)) => Some(size.min(limit)),
        (Some(size), _, None) => Some(size),
        (None, Some(percent), Some(limit)) => Some(limit.percent(percent)),
        (None, _, _) => None,
    };
    let enabled_by_size = size.map(|size| size > Bytes::ZERO);
    if let Some(enable) = settings.page_cache_enable.or(enabled_by_size) {
        plan.number(RULE, Field::MemoryPageCacheLimitEnable, i64::from(enable), || match size {
            Some(size) => format!("page cache limit {size}"),
            None => format!("pageCacheEnable {enable}"),
        });
    }
    let Some(size) = size else { return };
    plan.number(RULE, Field::MemoryPageCacheLimitSize, size.0.max(0), || {
        match (settings.page_cache_size, limit) {
            (Some(wished), Some(limit)) => format!("pageCacheLimitSize {wished}, within the limit {limit}"),
            (Some(wished), None) => format!("pageCacheLimitSize {wished}"),
            (None, _) => {
                format!("pageCacheLimitPercent {} %", settings.page_cache_percent.unwrap_or_default().0)
            }
        }
    });
    if size > Bytes::ZERO {
        let sync = settings.page_cache_sync == Some(true);
        plan.number(RULE, Field::MemoryPageCacheLimitSync, i64::from(sync), || {
            format!("pageCacheReclaimSync {sync}")
        });
    }
}

pub(crate) fn container(node: &NodeView, facts: &PodFacts, container: &ContainerView<'_>, plan: &mut Plan) {
    let Some(mut settings) = settings(node, facts, plan) else { return };
    let memory = of_container(node, facts, container);
    let best_effort = class(facts) == QosClass::Be;
    if best_effort && settings.enabled && !node.kernel.memory_priority {
        // Without priorities in the kernel, a container that is picked goes as a whole.
        settings.oom_group = 1;
    }
    protect(node, memory, &settings, Level::Container, plan);
    if node.kernel.memory_high {
        throttle(node, memory, &settings, best_effort, plan);
    }
}

fn throttle(node: &NodeView, memory: Memory, settings: &MemorySettings, best_effort: bool, plan: &mut Plan) {
    let percent = settings.throttling;
    let kernel = &node.kernel;
    if percent.0 == 0 {
        let watermark = memory.limit.filter(|_| {
            best_effort && settings.wmark_ratio.0 > 0 && !kernel.memory_watermarks && !kernel.memory_reclaim
        });
        match watermark {
            Some(limit) => {
                let high = whole_pages(limit.percent(settings.wmark_ratio), kernel.page_size);
                plan.number(RULE, Field::MemoryHigh, high.0, || {
                    format!("wmarkRatio {} % of the limit {limit}, on this kernel", settings.wmark_ratio.0)
                });
            }
            None => plan
                .number(RULE, Field::MemoryHigh, UNLIMITED, || "throttlingPercent 0: no throttling".into()),
        }
        return;
    }
    let (Some(request), Some(limit)) = (memory.request, memory.limit.or(node.allocatable_memory)) else {
        return;
    };
    let Some(high) = high(request, limit, percent, kernel.page_size) else { return };
    let least = part(memory.request, settings.min).unwrap_or_default();
    let value = high.max(least);
    plan.number(RULE, Field::MemoryHigh, value.0, || {
        let whose = if memory.limit.is_some() { "limit" } else { "node's allocatable memory" };
        format!(
            "throttlingPercent {} % of the way from the request {request} to the {whose} {limit}, in whole pages",
            percent.0
        )
    });
}

/// What a QoS directory gets of its class.
pub(crate) fn directory(node: &NodeView, kube_qos: KubeQos, plan: &mut Plan) {
    if !node.gates.enabled(Gate::CgroupReconcile) {
        return;
    }
    let class = match kube_qos {
        KubeQos::Guaranteed => QosClass::Lsr,
        KubeQos::Burstable => QosClass::Ls,
        KubeQos::BestEffort => QosClass::Be,
    };
    if let Some(settings) = policy::memory(node, class, None) {
        order(node, &settings, plan);
    }
}

/// Memory that is protected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Protection {
    /// `memory.min`.
    pub min: Bytes,
    /// `memory.low`.
    pub low: Bytes,
}

/// What the QoS directories have to protect so that their pods' protection counts: the sum of the pods' in
/// each, and in the root of all pods, which is the directory of guaranteed ones, the sum of all.
///
/// `pods` are the plans of the pods that are there, with the class of their directory.
pub fn directory_protection<'a>(
    pods: impl Iterator<Item = (KubeQos, &'a Plan)>,
) -> [(KubeQos, Protection); 3] {
    let (mut guaranteed, mut burstable, mut best_effort) =
        (Protection::default(), Protection::default(), Protection::default());
    for (kube_qos, plan) in pods {
        let own = Protection {
            min: Bytes(plan.integer(&Field::MemoryMin).unwrap_or(0)),
            low: Bytes(plan.integer(&Field::MemoryLow).unwrap_or(0)),
        };
        guaranteed = guaranteed.plus(own);
        match kube_qos {
            KubeQos::Guaranteed => {}
            KubeQos::Burstable => burstable = burstable.plus(own),
            KubeQos::BestEffort => best_effort = best_effort.plus(own),
        }
    }
    [(KubeQos::Guaranteed, guaranteed), (KubeQos::Burstable, burstable), (KubeQos::BestEffort, best_effort)]
}

impl Protection {
    fn plus(self, other: Protection) -> Protection {
        Protection { min: self.min.saturating_add(other.min), low: self.low.saturating_add(other.low) }
    }

    /// The wishes for a QoS directory, where the kernel has the files and a class is enabled.
    pub fn plan(self, node: &NodeView) -> Plan {
        let mut plan = Plan::default();
        let any = [QosClass::Lsr, QosClass::Ls, QosClass::Be, QosClass::System]
            .into_iter()
            .any(|class| policy::memory(node, class, None).is_some());
        let wanted = any || self != Protection::default();
        if wanted && node.gates.enabled(Gate::CgroupReconcile) && node.kernel.memory_protection {
            let sum = || "the sum of the pods below".to_owned();
            plan.number(RULE, Field::MemoryMin, self.min.0, sum);
            plan.number(RULE, Field::MemoryLow, self.low.0, sum);
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GI: i64 = 1 << 30;
    const MI: i64 = 1 << 20;

    #[test]
    fn throttling_starts_between_request_and_limit() {
        let page = Bytes(4096);
        let vector = [
            (GI, 2 * GI, 80, Some(1_932_734_464)),
            (0, GI, 90, Some(966_365_184)),
            (200 * MI, 1000 * MI, 60, Some(713_031_680)),
            (0, GI, 80, Some(858_992_640)),
            (3 * GI / 2, 2 * GI, 90, Some(2_093_793_280)),
            (GI, 2 * GI, 0, None),
            (GI, 2 * GI, 100, Some(2 * GI)),
            (0, 4095, 100, Some(0)),
        ];
        for (request, limit, percent, expected) in vector {
            let high = high(Bytes(request), Bytes(limit), Percent(percent), page);
            assert_eq!(high, expected.map(Bytes), "{request} {limit} {percent}");
        }
        assert_eq!(high(Bytes(0), Bytes(GI), Percent(80), Bytes(65_536)), Some(Bytes(858_980_352)));
    }
}
