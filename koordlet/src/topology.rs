//! Writes the NodeResourceTopology of the node.
//!
//! What it says is computed by `koord_topology_report`. It is computed anew when something it depends on changes, and
//! once a minute; it is written when it differs from what is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use koord_crd::node_resource_topology::NodeResourceTopology;
use koord_extension::cpuset::CpuSet;
use koord_extension::gates::Gate;
use koord_extension::keys::annotation;
use koord_extension::qos::QosClass;
use koord_kube::access::Modified;
use koord_kube::k8s_openapi::api::core::v1::Node;
use koord_kube::k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use koord_kube::kube::core::ApiResource;
use koord_kube::{Access, ApiError, Observed, Plain};
use koord_prediction::pod::Pod;
use koord_runtime::CancellationToken;
use koord_runtime::error_chain::Chain;
use koord_topology::kubelet::{CpuManagerState, STATE_FILE};
use koord_topology::pools;
use koord_topology_report::pace::{ConfigPace, KubeletIdentity, Pace};
use koord_topology_report::{
    Input, KubeletConfig, NodeFacts, PodFacts, Published, Report, Warning, creation, report,
};
use tokio::sync::watch;

use crate::metrics::internal;
use crate::pods::sync::Kubelet;
use crate::reporter::quantities;
use crate::state::State;

/// The object.
pub type Topology = Plain<NodeResourceTopology>;

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    /// Something it is computed from is not known yet.
    #[error("{0} not known yet")]
    Missing(&'static str),
    /// The kubelet's configuration is needed and cannot be read.
    #[error("the kubelet's configuration cannot be read")]
    Configuration(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The state of the CPU manager cannot be read.
    #[error("the state of the kubelet's CPU manager cannot be read")]
    CpuManager(#[from] koord_topology::kubelet::KubeletStateError),
    /// The report cannot be computed.
    #[error("the report cannot be computed")]
    Report(#[from] koord_topology_report::ReportError),
    /// The API server refused it or is away.
    #[error("the object was not written")]
    Api(#[from] ApiError),
}

/// What tells whether the kubelet is another one.
fn identity(state: &State, node: &Node) -> KubeletIdentity {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    KubeletIdentity {
        version: info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
        boot_id: info.map(|info| info.boot_id.clone()).unwrap_or_default(),
        resets: state.kubelet_resets.load(Ordering::Relaxed),
    }
}

/// Reports the topology.
#[derive(Debug)]
pub struct TopologyReporter {
    state: Arc<State>,
    access: Access<Topology>,
    resource: ApiResource,
    published: watch::Receiver<Observed<Topology>>,
    kubelet: Kubelet,
    configuration: Option<KubeletConfig>,
    asking: ConfigPace,
    /// Warnings of the last round.
    warned: Vec<Warning>,
}

impl TopologyReporter {
    /// One that has reported nothing. `published` is the object as the server has it.
    pub fn new(
        state: Arc<State>,
        access: Access<Topology>,
        resource: ApiResource,
        published: watch::Receiver<Observed<Topology>>,
    ) -> TopologyReporter {
        TopologyReporter {
            state,
            access,
            resource,
            published,
            kubelet: Kubelet::default(),
            configuration: None,
            asking: ConfigPace::default(),
            warned: Vec::new(),
        }
    }

    /// Reports until `token` is cancelled.
    pub async fn run(&mut self, token: CancellationToken) {
        let (mut pods, mut node) = (self.state.pods.subscribe(), self.state.node.clone());
        let (mut facts, mut published) = (self.state.facts.subscribe(), self.published.clone());
        let mut told = String::new();
        let mut pace = Pace::new();
        loop {
            pods.borrow_and_update();
            node.borrow_and_update();
            facts.borrow_and_update();
            published.borrow_and_update();
            let outcome = self.round().await;
            let now = Instant::now();
            match outcome {
                Ok(written) => {
                    if written {
                        self.count("written");
                    }
                    told.clear();
                    pace.succeeded(now);
                }
                Err(RoundError::Missing(what)) => {
                    tracing::debug!(what, "no topology is reported yet");
                    pace.failed(now);
                }
                Err(error) => {
                    self.count("failed");
                    let text = Chain(&error).to_string();
                    if text != told {
                        tracing::warn!(error = text, "the topology was not reported");
                        told = text;
                    }
                    pace.failed(now);
                }
            }
            loop {
                let changed = async {
                    tokio::select! {
                        changed = pods.changed() => changed,
                        changed = node.changed() => changed,
                        changed = facts.changed() => changed,
                        changed = published.changed() => changed,
                    }
                };
                tokio::select! {
                    () = token.cancelled() => return,
                    () = tokio::time::sleep(pace.wait(Instant::now())) => break,
                    changed = changed => match changed {
                        Ok(()) => pace.changed(Instant::now()),
                        // Whoever told of changes has ended; so does this, in a moment.
                        Err(_ended) => {
                            token.cancelled().await;
                            return;
                        }
                    },
                }
            }
        }
    }

    fn count(&self, result: &str) {
        self.state.internal.add(&internal::NODE_TOPOLOGY_WRITES, &[("result", result)], 1.0);
    }

    /// The kubelet's configuration, read again when it may be another one.
    async fn configuration(&mut self, node: &Node) -> Result<KubeletConfig, RoundError> {
        let identity = identity(&self.state, node);
        if let Some(configuration) = &self.configuration
            && !self.asking.is_due(&identity, Instant::now())
        {
            return Ok(configuration.clone());
        }
        let body = self.kubelet.get(&self.state, "/configz").await;
        let body: Result<_, Box<dyn std::error::Error + Send + Sync>> = body.map_err(Into::into);
        let read = body.and_then(|body| KubeletConfig::from_configz(&body).map_err(Into::into));
        match read {
            Ok(configuration) => {
                self.asking.succeeded(identity, Instant::now());
                Ok(self.configuration.insert(configuration).clone())
            }
            Err(error) => {
                self.asking.failed(identity, Instant::now());
                self.configuration = None;
                Err(RoundError::Configuration(error))
            }
        }
    }

    /// Computes and, if need be, writes. True if it was written.
    async fn round(&mut self) -> Result<bool, RoundError> {
        let Some(node) = self.state.node.borrow().present().cloned() else {
            return Err(RoundError::Missing("the node is"));
        };
        let Some(facts) = self.state.facts.borrow().clone() else {
            return Err(RoundError::Missing("the CPUs are"));
        };
        let published = self.published.borrow().clone();
        if !published.is_known() {
            return Err(RoundError::Missing("the object is"));
        }
        let pods = self.state.pods.borrow().clone();
        if pods.heard.is_none() {
            return Err(RoundError::Missing("the pods are"));
        }
        let configuration = match self.state.config.kubelet.reads_configuration {
            true => Some(self.configuration(&node).await?),
            false => None,
        };
        let report = {
            let cpu_manager = cpu_manager(&self.state.config.paths.kubelet, configuration.as_ref())?;
            let empty = BTreeMap::new();
            let existing = published.present().map(|object| Published {
                labels: object.metadata.labels.as_ref().unwrap_or(&empty),
                annotations: object.metadata.annotations.as_ref().unwrap_or(&empty),
                body: &object.fields,
            });
            let live: Vec<PodFacts<'_>> = pods.set.live().map(|pod| pod_facts(pod)).collect();
            let status = node.status.clone().unwrap_or_default();
            let (capacity, allocatable) = (
                quantities(&status.capacity.unwrap_or_default()),
                quantities(&status.allocatable.unwrap_or_default()),
            );
            let report = report(&Input {
                node: NodeFacts {
                    labels: node.metadata.labels.as_ref().unwrap_or(&empty),
                    annotations: node.metadata.annotations.as_ref().unwrap_or(&empty),
                    capacity: &capacity,
                    allocatable: &allocatable,
                },
                topology: &facts.topology,
                processor: &facts.processor,
                memory: &facts.memory,
                kubelet: configuration.as_ref(),
                cpu_manager_state: cpu_manager.as_ref(),
                pods: &live,
                published: existing,
                report_huge_pages: self.state.config.gates.enabled(Gate::HugePageReport),
            })?;
            self.tell(&report);
            let is_wanted = self.state.config.report.node_topology
                && self.state.config.gates.enabled(Gate::NodeTopologyReport);
            match existing.map(|existing| report.change(&existing)) {
                _ if !is_wanted => return Ok(false),
                Some(None) => return Ok(false),
                Some(Some(change)) => tracing::info!(%change, "the node's topology is written"),
                None => tracing::info!("the node's topology is written for the first time"),
            }
            report
        };
        self.write(&report, &node).await
    }

    async fn write(&self, report: &Report, node: &Node) -> Result<bool, RoundError> {
        let name = &self.state.config.node_name;
        let modified = self
            .access
            .modify(name, |object| {
                let (labels, annotations) = (
                    object.metadata.labels.clone().unwrap_or_default(),
                    object.metadata.annotations.clone().unwrap_or_default(),
                );
                let published =
                    Published { labels: &labels, annotations: &annotations, body: &object.fields };
                if report.change(&published).is_none() {
                    return false;
                }
                object.metadata.labels = Some(report.labels_over(&labels));
                object.metadata.annotations = Some(report.annotations_over(&annotations));
                object.fields = report.body.clone();
                true
            })
            .await?;
        match modified {
            Modified::Done(_) => return Ok(true),
            Modified::Unchanged(_) => return Ok(false),
            Modified::Missing => {}
        }
        let creation = creation(name, node.metadata.uid.as_deref().unwrap_or_default());
        let mut object = Topology::new(name, &self.resource, report.body.clone());
        object.metadata.labels = Some(report.labels_over(&creation.labels));
        object.metadata.annotations = Some(report.annotations_over(&BTreeMap::new()));
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: creation.owner.api_version.to_owned(),
            kind: creation.owner.kind.to_owned(),
            name: creation.owner.name,
            uid: creation.owner.uid,
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]);
        let created = self.access.create_if_missing(&object).await?;
        Ok(matches!(created, koord_kube::access::Created::New(_)))
    }

    /// Tells logs and metrics.
    fn tell(&mut self, report: &Report) {
        for warning in report.warnings.iter().filter(|warning| !self.warned.contains(warning)) {
            tracing::warn!(%warning, "about the node's topology");
        }
        self.warned.clone_from(&report.warnings);
        let internal = &self.state.internal;
        let cpus = |pool: &[pools::SharePool]| -> CpuSet { pools::all_cpus(pool) };
        for (cores, info, pool) in [
            (&internal::SHARE_POOL_CORES, &internal::SHARE_POOL_INFO, cpus(&report.pools.latency_sensitive)),
            (&internal::BE_SHARE_POOL_CORES, &internal::BE_SHARE_POOL_INFO, cpus(&report.pools.best_effort)),
        ] {
            internal.set(cores, &[], pool.len() as f64);
            let mut rows = crate::metrics::Rows::new();
            rows.push([("cpu", pool.to_string().as_str())], 1.0);
            internal.replace(info, rows);
        }
    }
}

/// The state of the kubelet's CPU manager. Under another policy than the static one a broken file does not matter.
fn cpu_manager(
    folder: &std::path::Path,
    configuration: Option<&KubeletConfig>,
) -> Result<Option<CpuManagerState>, koord_topology::kubelet::KubeletStateError> {
    match CpuManagerState::read(&folder.join(STATE_FILE)) {
        Err(error) if configuration.is_some_and(KubeletConfig::is_static) => Err(error),
        Err(_) => Ok(None),
        Ok(state) => Ok(state),
    }
}

fn pod_facts(pod: &Pod) -> PodFacts<'_> {
    PodFacts {
        uid: &pod.metadata.uid,
        namespace: &pod.metadata.namespace,
        name: &pod.metadata.name,
        qos: QosClass::raw(&pod.metadata.labels),
        resource_status: pod.metadata.annotations.get(annotation::RESOURCE_STATUS).map(String::as_str),
    }
}
