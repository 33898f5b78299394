//! Rebuilding the store from the runtime: after a start, after a loss of the runtime, and for one object that
//! is asked for and unknown.

pub mod layout;
mod lookup;
mod records;
pub mod status;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use koord_cri::v1;
use koord_intercept::record::PodRecord;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tonic::Status;

use crate::backend_client::BackendClient;
use crate::metrics::{FailoverSource, Metrics};
use crate::store::Store;

/// Questions to the runtime under way at once during a rebuild.
const CONCURRENCY: usize = 8;
/// Longest time of a list, and of one status during a rebuild.
const REBUILD_CALL: Duration = Duration::from_secs(30);
/// Longest time of the look-up of one object that a call waits for.
pub const LOOKUP: Duration = Duration::from_secs(1);
/// Time between comparisons of the store with the runtime's lists.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Pause between attempts to reach a runtime that is away.
const RETRY_BASE: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(3);

/// How far the proxy is on its way to serving calls well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// The runtime answers on the proxy's own connection.
    pub connected: bool,
    /// The store has been compared with the runtime since the start.
    pub rebuilt: bool,
}

/// What a rebuild met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Objects the store knew already.
    pub known: usize,
    /// Objects described by their verbose status.
    pub status: usize,
    /// Pods whose parent cgroup was found by the kubelet's naming.
    pub cgroup: usize,
    /// Objects about which something or everything stays unknown.
    pub missing: usize,
}

/// Keeps the store in step with the runtime.
#[derive(Debug)]
pub struct Failover {
    client: BackendClient,
    store: Arc<Store>,
    metrics: Metrics,
    cgroup_roots: Vec<PathBuf>,
    lookups: lookup::Lookups,
    progress: watch::Sender<Progress>,
    restarted: Notify,
}

impl Failover {
    /// Asks `client`; pods' cgroups are looked for under `cgroup_roots` (see [`layout::USUAL_ROOTS`]).
    pub fn new(
        client: BackendClient,
        store: Arc<Store>,
        metrics: Metrics,
        cgroup_roots: Vec<PathBuf>,
    ) -> Self {
        Self {
            client,
            store,
            metrics,
            cgroup_roots,
            lookups: lookup::Lookups::default(),
            progress: watch::Sender::default(),
            restarted: Notify::new(),
        }
    }

    /// How far the start has got.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// The runtime as the proxy itself calls it.
    pub fn client(&self) -> &BackendClient {
        &self.client
    }

    /// Tells that the runtime was restarted, if somebody else noticed it first.
    pub fn backend_restarted(&self) {
        self.restarted.notify_one();
    }

    /// Rebuilds the store once the runtime answers, again after each loss of it, and sweeps the store now and
    /// then, until the future is dropped.
    pub async fn run(self: &Arc<Self>) {
        let mut connection = self.client.channel().connection();
        loop {
            self.rebuild_until_done().await;
            self.set_progress(true, true);
            let mut next_sweep = Instant::now() + SWEEP_INTERVAL;
            let lost = loop {
                tokio::select! {
                    () = ended(&mut connection) => break true,
                    () = self.restarted.notified() => break false,
                    () = tokio::time::sleep_until(next_sweep) => {
                        self.store.forget_stopped(SystemTime::now());
                        if let Err(error) = self.rebuild().await {
                            tracing::debug!(%error, "sweep of the store failed");
                        }
                        next_sweep = Instant::now() + SWEEP_INTERVAL;
                    }
                }
            };
            self.set_progress(!lost, true);
        }
    }

    async fn rebuild_until_done(self: &Arc<Self>) {
        let mut pause = RETRY_BASE;
        let mut told = false;
        loop {
            let result = match self.client.probe(REBUILD_CALL).await {
                Ok((version, answer)) => {
                    let rebuilt = self.progress.borrow().rebuilt;
                    self.set_progress(true, rebuilt);
                    tracing::info!(
                        runtime = answer.runtime_name,
                        version = answer.runtime_version,
                        cri = version.as_str(),
                        "runtime answers"
                    );
                    self.rebuild().await
                }
                Err(status) => Err(status),
            };
            match result {
                Ok(report) => {
                    let (pods, containers) = self.store.len();
                    tracing::info!(pods, containers, ?report, "store rebuilt");
                    return;
                }
                Err(error) => {
                    let rebuilt = self.progress.borrow().rebuilt;
                    self.set_progress(false, rebuilt);
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(
                            endpoint = %self.client.channel().endpoint(),
                            %error,
                            "runtime does not answer; trying again until it does"
                        );
                    }
                    sleep(pause).await;
                    pause = pause.mul_f64(1.6).min(RETRY_CAP);
                }
            }
        }
    }

    fn set_progress(&self, connected: bool, rebuilt: bool) {
        self.metrics.backend_connected("runtime", connected);
        self.progress.send_replace(Progress { connected, rebuilt });
    }

    /// Compares the store with the runtime's lists once: forgets what is not listed, looks up what is listed
    /// and not known. Exited containers are left for the look-up of the call that needs them.
    ///
    /// # Errors
    ///
    /// A list failed. An object whose status fails is left for a later look-up.
    pub async fn rebuild(&self) -> Result<Report, Status> {
        let started = Instant::now();
        let moment = self.store.moment();
        let (pods, containers) = tokio::try_join!(
            self.client.list_pod_sandboxes(REBUILD_CALL),
            self.client.list_containers(REBUILD_CALL)
        )?;
        if pods.complete {
            let listed: HashSet<&str> = pods.items.iter().map(|pod| pod.id.as_str()).collect();
            self.store.retain_pods(moment, |id| listed.contains(id));
        }
        if containers.complete {
            let listed: HashSet<&str> =
                containers.items.iter().map(|container| container.id.as_str()).collect();
            self.store.retain_containers(moment, |id| listed.contains(id));
        }

        let mut report = Report::default();
        let met: Vec<FailoverSource> = futures_util::stream::iter(pods.items)
            .map(|pod| self.rebuild_pod(pod))
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        met.into_iter().for_each(|source| self.count(&mut report, source));
        let exited = i32::from(v1::ContainerState::ContainerExited);
        let met: Vec<FailoverSource> = futures_util::stream::iter(containers.items)
            .filter(|container| std::future::ready(container.state != exited))
            .map(|container| self.rebuild_container(container))
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        met.into_iter().for_each(|source| self.count(&mut report, source));
        self.metrics.failover_finished(started.elapsed());
        Ok(report)
    }

    fn count(&self, report: &mut Report, source: FailoverSource) {
        self.metrics.failover_object(source);
        match source {
            FailoverSource::Checkpoint => report.known += 1,
            FailoverSource::Status => report.status += 1,
            FailoverSource::Cgroup => report.cgroup += 1,
            FailoverSource::Missing => report.missing += 1,
        }
    }

    async fn rebuild_pod(&self, listed: v1::PodSandbox) -> FailoverSource {
        if self.store.pod(&listed.id).is_some() {
            return FailoverSource::Checkpoint;
        }
        let id = listed.id.clone();
        let record = match self.client.pod_sandbox_status(&id, REBUILD_CALL).await {
            Ok(answer) => answer.and_then(records::pod_of_status),
            Err(error) => {
                tracing::debug!(sandbox_id = id, %error, "status failed");
                None
            }
        };
        let (record, source) = self.with_cgroup(record.unwrap_or_else(|| records::pod_of_list(listed)));
        self.store.put_pod_if_absent(&id, record);
        source
    }

    /// Completes a pod's record by what its cgroup tells, which the kubelet makes before it asks for the pod.
    fn with_cgroup(&self, mut record: PodRecord) -> (PodRecord, FailoverSource) {
        let of_kubelet = layout::probe(&self.cgroup_roots, &record.metadata.uid);
        let source = match (&of_kubelet, record.cgroup_parent.is_empty()) {
            (_, false) => FailoverSource::Status,
            (Some(found), true) => {
                record.cgroup_parent.clone_from(found);
                FailoverSource::Cgroup
            }
            (None, true) => FailoverSource::Missing,
        };
        // If the two differ, a hook has moved the pod.
        record.kubelet_cgroup_parent = of_kubelet;
        (record, source)
    }

    async fn rebuild_container(&self, listed: v1::Container) -> FailoverSource {
        if self.store.container(&listed.id).is_some() {
            return FailoverSource::Checkpoint;
        }
        if self.store.pod(&listed.pod_sandbox_id).is_none() {
            tracing::debug!(
                container_id = listed.id,
                sandbox_id = listed.pod_sandbox_id,
                "container without a sandbox skipped"
            );
            return FailoverSource::Missing;
        }
        match self.client.container_status(&listed.id, REBUILD_CALL).await {
            Ok(answer) => match answer.and_then(records::container_of_status) {
                Some(mut record) => {
                    record.pod_id = listed.pod_sandbox_id;
                    self.store.put_container_if_absent(&listed.id, record, true);
                    FailoverSource::Status
                }
                None => FailoverSource::Missing,
            },
            Err(error) => {
                tracing::debug!(container_id = listed.id, %error, "status failed");
                FailoverSource::Missing
            }
        }
    }
}

/// Waits until there is no connection.
async fn ended(connection: &mut watch::Receiver<u64>) {
    if connection.wait_for(|number| *number == 0).await.is_err() {
        // The channel lives as long as whoever waits here.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
