//! Writes the status of the node's NodeMetric.
//!
//! What is written and when is decided by `koord_node_report`; here are the clock, the API server and the metrics.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use koord_crd::node_metric::NodeMetricStatus;
use koord_extension::gates::Gate;
use koord_extension::priority::PriorityBands;
use koord_kube::{Access, Observed, Written};
use koord_node_report::deadband::DeadBand;
use koord_node_report::limiter::WriteLimiter;
use koord_node_report::memory::MemoryMeasure;
use koord_node_report::policy::{self, Policy, PolicyInForce};
use koord_node_report::schedule::{Moment, Schedule};
use koord_node_report::status::{MemoryFallback, Prediction, Profile, Report, ReportOptions, View, report};
use koord_prediction::{Resources, WallTime};
use koord_runtime::CancellationToken;
use koord_runtime::error_chain::Chain;
use koord_usage::complete::{CompletionOptions, HostApplicationMemory};
use koord_usage::kind::Kind;
use koord_usage::object::Object;
use koord_usage::store::Retention;
use koord_usage::time::Tick;

use crate::flags;
use crate::metrics::{Rows, external, internal};
use crate::state::{Lenient, State};

/// How long local decisions look back.
const LOCAL_WINDOW: Duration = Duration::from_secs(300);

/// How often an object is looked for before the first report.
const FIRST_OBJECT_POLL: Duration = Duration::from_secs(1);

/// The time by the wall clock.
pub fn wall_time() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// How long samples are kept for a policy.
pub fn retention(policy: &Policy, limit: Duration) -> Retention {
    Retention::for_windows(policy.aggregate, policy.longest_window(), LOCAL_WINDOW, limit)
}

/// How usage of the system is found under a policy.
pub fn completion(policy: &Policy, config: &flags::Config) -> CompletionOptions {
    CompletionOptions {
        outdated_after: config.collect.outdated,
        memory_interval: config.collect.memory_stat_interval,
        host_application_memory: match policy.memory {
            MemoryMeasure::WithPageCache => HostApplicationMemory::WithPageCache,
            MemoryMeasure::WithoutPageCache | MemoryMeasure::WithHotPageCache => {
                HostApplicationMemory::WithoutPageCache
            }
        },
    }
}

/// What was reported, and how it went.
#[derive(Debug, Default)]
struct Last {
    written: Option<NodeMetricStatus>,
    at: Option<Instant>,
    /// Why memory is not measured as the policy wants, if it is not.
    fallback: Option<MemoryFallback>,
}

/// Reports on the node.
#[derive(Debug)]
pub struct Reporter {
    state: Arc<State>,
    policy: Mutex<Policy>,
    last: Mutex<Last>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder leaves half a change behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reporter {
    /// One that has reported nothing, under the default policy.
    pub fn new(state: Arc<State>) -> Reporter {
        Reporter { state, policy: Mutex::default(), last: Mutex::default() }
    }

    /// The policy in force.
    pub fn policy(&self) -> Policy {
        lock(&self.policy).clone()
    }

    /// Time since the last report was written.
    pub fn age(&self) -> Option<Duration> {
        lock(&self.last).at.map(|at| at.elapsed())
    }

    /// Why memory of the last report is not measured as the policy wants, if it is not.
    pub fn memory_fallback(&self) -> Option<MemoryFallback> {
        lock(&self.last).fallback
    }

    /// The report of this moment.
    pub fn report(&self, explain: bool) -> Report {
        let state = &self.state;
        let policy = self.policy();
        let pods = Arc::clone(&state.pods.borrow().set);
        let slo = Arc::clone(&state.policy.borrow());
        let facts = state.facts.borrow().clone();
        let numa_nodes: Vec<u32> =
            facts.map(|facts| facts.topology.nodes().keys().copied().collect()).unwrap_or_default();
        let allocatable = allocatable(&state.node.borrow());
        let cold = state.collectors().iter().any(|view| view.name == "cold-memory" && view.state == "ready");
        let predictor = state.predictor();
        report(&View {
            store: state.intake.store(),
            tick: Tick::now(),
            now: wall_time(),
            policy: &policy,
            pods: &pods.pods,
            bands: &PriorityBands::default(),
            host_applications: &slo.host_applications,
            numa_nodes: &numa_nodes,
            gpus: &[],
            prediction: Some(Prediction { predictor: &predictor, allocatable }),
            options: ReportOptions {
                profile: match state.config.report.profile {
                    flags::Profile::Full => Profile::Full,
                    flags::Profile::Slim => Profile::Slim,
                },
                hot_page_cache: cold,
                policy_aware_system_memory: state.config.gates.enabled(Gate::PolicyAwareSystemMemory),
                explain,
            },
        })
    }

    /// Reports until `token` is cancelled.
    pub async fn run(&self, access: &Access<Lenient>, token: CancellationToken) {
        let mut in_force = PolicyInForce::default();
        let mut schedule = Schedule::new(&self.state.config.node_name);
        let mut limiter = WriteLimiter::default();
        let mut deadband = DeadBand::new(self.state.config.report.deadband_percent);
        let mut node_metric = self.state.node_metric.clone();
        let start = Instant::now();
        let mut has_reported = false;
        loop {
            let observed = node_metric.borrow_and_update().clone();
            if let Observed::Present(object) = &observed {
                self.observe(&mut in_force, object);
            }
            let interval = self.policy().report_interval;
            let moment = Moment { now: wall_time(), since_start: start.elapsed(), sampled: self.sampled() };
            let mut wait = schedule.wait(moment, interval);
            if !has_reported && wait.is_zero() && observed.present().is_none() {
                // The first report is made as soon as there is an object for it.
                wait = FIRST_OBJECT_POLL;
            }
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            // Before the first report the schedule is asked again and again; after that a wait ends with a report, and is
            // not shortened by a new policy.
            if has_reported || wait.is_zero() {
                let observed = node_metric.borrow_and_update().clone();
                if let Observed::Present(object) = &observed {
                    self.observe(&mut in_force, object);
                }
                self.round(access, &observed, &mut limiter, &mut deadband, interval).await;
                schedule.reported();
                has_reported = true;
            }
        }
    }

    fn observe(&self, in_force: &mut PolicyInForce, object: &Lenient) {
        match in_force.observe(object.metadata.generation.unwrap_or(0), &object.spec) {
            policy::Observed::Same => {}
            policy::Observed::Changed(problems) => {
                for problem in problems {
                    tracing::warn!(%problem, "a field of the NodeMetric's spec is passed over");
                }
                let (policy, _told) = Policy::of_spec(&object.spec);
                let store = self.state.intake.store();
                store.set_retention(retention(&policy, self.state.config.store.retention));
                self.state.intake.set_options(completion(&policy, &self.state.config));
                *lock(&self.policy) = policy;
            }
        }
    }

    /// Time from the oldest to the newest sample of the node's CPU.
    fn sampled(&self) -> Duration {
        let series = self.state.intake.store().list_object(&Object::Node);
        series
            .iter()
            .find(|info| info.kind == Kind::NodeCpuUsage)
            .map_or(Duration::ZERO, |info| info.last_tick.since(info.first_tick))
    }

    async fn round(
        &self,
        access: &Access<Lenient>,
        observed: &Observed<Lenient>,
        limiter: &mut WriteLimiter,
        deadband: &mut DeadBand,
        interval: Duration,
    ) {
        let report = self.report(false);
        self.tell(&report);
        let result = self.write(access, observed, limiter, deadband, interval, report.status).await;
        self.state.internal.add(&internal::REPORTS, &[("result", result)], 1.0);
    }

    async fn write(
        &self,
        access: &Access<Lenient>,
        observed: &Observed<Lenient>,
        limiter: &mut WriteLimiter,
        deadband: &mut DeadBand,
        interval: Duration,
        status: NodeMetricStatus,
    ) -> &'static str {
        if observed.present().is_none() {
            // The manager makes the object.
            return "absent";
        }
        let skips = deadband.skips(lock(&self.last).written.as_ref(), &status, interval);
        if skips {
            return "skipped";
        }
        if let Err(error) = limiter.take(Tick::now()) {
            tracing::warn!(error = %error, "the report is left to the next round");
            return "limited";
        }
        match access.set_status(&self.state.config.node_name, &status).await {
            Ok(Written::Done(_)) => {
                let bytes = serde_json::to_vec(&status).map_or(0, |text| text.len());
                self.state.internal.set(&internal::REPORT_BYTES, &[], bytes as f64);
                let mut last = lock(&self.last);
                (last.written, last.at) = (Some(status), Some(Instant::now()));
                "written"
            }
            Ok(Written::Missing) => "absent",
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the report was not written, the next round tries again");
                "failed"
            }
        }
    }

    /// Tells metrics of a report.
    fn tell(&self, report: &Report) {
        let (internal, external) = (&self.state.internal, &self.state.external);
        lock(&self.last).fallback = report.memory_fallback;
        let fallback = report.memory_fallback.is_some();
        internal.set(&internal::POLICY_FALLBACK, &[], f64::from(u8::from(fallback)));
        if self.state.config.gates.enabled(Gate::NodeMetricPromMetrics) {
            let gauges = &report.gauges;
            let usage = |usage: &koord_node_report::status::GaugeUsage| {
                [("cpu", "core", usage.cpu), ("memory", "byte", usage.memory)]
            };
            let mut rows = [Rows::new(), Rows::new(), Rows::new(), Rows::new()];
            for (row, part) in rows.iter_mut().zip([&gauges.node, &gauges.system]) {
                for (resource, unit, value) in part.iter().flat_map(usage) {
                    row.push([("resource", resource), ("unit", unit)], value);
                }
            }
            for numa in &gauges.numa {
                let id = numa.numa_node_id.to_string();
                for (row, part) in rows.iter_mut().skip(2).zip([Some(&numa.node), numa.system.as_ref()]) {
                    for (resource, unit, value) in part.into_iter().flat_map(usage) {
                        row.push(
                            [("numa_node_id", id.as_str()), ("resource", resource), ("unit", unit)],
                            value,
                        );
                    }
                }
            }
            let [node, system, numa_node, numa_system] = rows;
            internal.replace(&internal::NODE_METRIC_NODE, node);
            internal.replace(&internal::NODE_METRIC_SYSTEM, system);
            internal.replace(&internal::NODE_METRIC_NUMA_NODE, numa_node);
            internal.replace(&internal::NODE_METRIC_NUMA_SYSTEM, numa_system);
        }
        let Some(prediction) = &report.prediction else { return };
        let mut reclaimable = Rows::new();
        let mut peak = Rows::new();
        let push = |rows: &mut Rows, predictor: &str, resources: Resources| {
            for (resource, unit, value) in amounts(resources) {
                rows.push([("predictor", predictor), ("resource", resource), ("unit", unit)], value);
            }
        };
        let parts = [
            ("podReclaimablePredictor", prediction.pod_part.result.as_ref().ok()),
            ("priorityReclaimablePredictor", prediction.class_part.result.as_ref().ok()),
            ("minPredictor", prediction.reclaimable.as_ref().ok()),
        ];
        for (predictor, result) in parts {
            push(&mut reclaimable, predictor, result.copied().unwrap_or(Resources::ZERO));
        }
        let pod_peak = prediction.pod_part.unreclaimable.plus(prediction.pod_part.unpredicted);
        let peaks = [
            ("podReclaimablePredictor", Some(pod_peak)),
            ("priorityReclaimablePredictor", prediction.class_part.unreclaimable.as_ref().ok().copied()),
            ("minPredictor", prediction.peak.as_ref().ok().copied()),
        ];
        for (predictor, result) in peaks {
            push(&mut peak, predictor, result.unwrap_or(Resources::ZERO));
        }
        internal.replace(&internal::PREDICTED_RECLAIMABLE, reclaimable);
        internal.replace(&internal::PREDICTED_PEAK, peak);
        let mut prod = Rows::new();
        for (resource, unit, value) in
            amounts(prediction.reclaimable.as_ref().copied().unwrap_or(Resources::ZERO))
        {
            prod.push([("priority", "koord-prod"), ("resource", resource), ("unit", unit)], value);
        }
        external.replace(&external::PRIORITY_RECLAIMABLE, prod);
        let failed = f64::from(u8::from(prediction.reclaimable.is_err()));
        external.set(&external::PRIORITY_RECLAIMABLE_STATUS, &[("priority", "koord-prod")], failed);
    }
}

/// CPU in cores and memory in bytes.
fn amounts(resources: Resources) -> [(&'static str, &'static str, f64); 2] {
    [("cpu", "core", resources.cpu.get() as f64 / 1000.0), ("memory", "byte", resources.memory.get() as f64)]
}

/// What a node can give to pods.
fn allocatable(node: &Observed<koord_kube::k8s_openapi::api::core::v1::Node>) -> Option<Resources> {
    let node = node.present()?;
    let annotations = node.metadata.annotations.clone().unwrap_or_default();
    let list = node.status.as_ref().and_then(|status| status.allocatable.clone()).unwrap_or_default();
    koord_prediction::prod::allocatable(&annotations, &quantities(&list))
}

/// Quantities of the API, those that can be read.
pub fn quantities(
    list: &std::collections::BTreeMap<
        String,
        koord_kube::k8s_openapi::apimachinery::pkg::api::resource::Quantity,
    >,
) -> koord_extension::quantity::ResourceList {
    list.iter()
        .filter_map(|(name, quantity)| {
            Some((name.clone(), koord_extension::quantity::Quantity::parse(&quantity.0).ok()?))
        })
        .collect()
}
