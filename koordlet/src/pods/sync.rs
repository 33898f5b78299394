//! Asking for pods.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use koord_kube::k8s_openapi::api::core::v1::{Node, Pod as ApiPod};
use koord_kube::kube::Client;
use koord_kube::kubelet::{KubeletAccess, KubeletClient, KubeletError, KubeletOptions, Verify};
use koord_kube::limit::{Bucket, Rate};
use koord_kube::watch::SetWatch;
use koord_kube::{Access, Observed};
use koord_prediction::pod::Pod;
use koord_runtime::CancellationToken;
use koord_runtime::error_chain::Chain;
use koord_runtime::supervisor::{Backoff, Policy, Supervisor};
use koord_usage::time::Tick;
use tokio::time::Instant;

use super::PodSet;
use super::failover::{Current, Failover};
use super::kubelet::{Heard, KubeletPods};
use crate::flags::{AddressType, KubeletConfig, KubeletVerify, PodSource};
use crate::metrics::internal;
use crate::state::State;

/// Looks at pods that something on the node asks for.
pub const REQUESTED: Rate = Rate { per_second: 5.0, burst: 10 };

/// Pause between looks while the proxy's stream tells what happens.
pub const WITH_STREAM: Duration = Duration::from_secs(60);

/// The longest wait before the API server is asked for pods: after a fault of many nodes they do not all come at once.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// The file with the token of this program's service account.
pub const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The authorities of the cluster.
const AUTHORITY_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// Why the kubelet cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAddress {
    /// The node is not known yet.
    #[error("the node is not known yet")]
    UnknownNode,
    /// The node does not exist.
    #[error("there is no such node")]
    NoNode,
    /// It has no address of the type.
    #[error("the node has no address of type {0}")]
    NoSuchType(&'static str),
    /// It says no port.
    #[error("the node does not say on which port its kubelet listens")]
    NoPort,
}

/// Where the kubelet of a node is.
///
/// # Errors
/// The node does not say.
pub fn address(node: &Observed<Node>, config: &KubeletConfig) -> Result<(String, u16), NoAddress> {
    let node = match node {
        Observed::Unknown => return Err(NoAddress::UnknownNode),
        Observed::Absent => return Err(NoAddress::NoNode),
        Observed::Present(node) => node,
    };
    let status = node.status.as_ref();
    let wanted: AddressType = config.address_type;
    let host = status
        .and_then(|status| status.addresses.as_ref())
        .and_then(|addresses| addresses.iter().find(|address| address.type_ == wanted.as_str()))
        .map(|address| address.address.clone())
        .ok_or(NoAddress::NoSuchType(wanted.as_str()))?;
    if let Some(port) = config.read_only_port {
        return Ok((host, port));
    }
    let port = status
        .and_then(|status| status.daemon_endpoints.as_ref())
        .and_then(|endpoints| endpoints.kubelet_endpoint.as_ref())
        .and_then(|endpoint| u16::try_from(endpoint.port).ok())
        .filter(|port| *port > 0)
        .ok_or(NoAddress::NoPort)?;
    Ok((host, port))
}

/// How the kubelet at an address is spoken to.
pub fn options(config: &KubeletConfig, host: String, port: u16) -> KubeletOptions {
    let access = if config.read_only_port.is_some() {
        KubeletAccess::ReadOnly
    } else {
        let verify = match &config.verify {
            KubeletVerify::Off => Verify::Off,
            KubeletVerify::Authorities(file) => {
                Verify::AuthorityFile(file.clone().unwrap_or_else(|| AUTHORITY_FILE.into()))
            }
        };
        let token = std::path::Path::new(TOKEN_FILE);
        KubeletAccess::Authenticated { token: token.exists().then(|| token.into()), verify }
    };
    KubeletOptions { host, port, access, limit: config.timeout, user_agent: "koordlet".to_owned() }
}

/// The kubelet, wherever the node says it is.
#[derive(Debug, Default)]
pub struct Kubelet {
    client: Option<(KubeletOptions, KubeletClient)>,
}

/// Why the kubelet gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It is not known where it is.
    #[error("the kubelet cannot be asked")]
    Address(#[from] NoAddress),
    /// It did not answer.
    #[error("the kubelet did not answer")]
    Kubelet(#[from] KubeletError),
}

impl Kubelet {
    /// Fetches a path.
    ///
    /// # Errors
    /// There is no good answer.
    pub async fn get(&mut self, state: &State, path: &'static str) -> Result<bytes::Bytes, AskError> {
        let config = &state.config.kubelet;
        let (host, port) = address(&state.node.borrow(), config)?;
        let wanted = options(config, host, port);
        let client = match &self.client {
            Some((known, client)) if *known == wanted => client.clone(),
            _ => {
                let client = KubeletClient::new(&wanted)?;
                self.client = Some((wanted, client.clone()));
                client
            }
        };
        let start = Instant::now();
        let answer = client.get(path).await;
        let code = match &answer {
            Ok(_) => "200".to_owned(),
            Err(KubeletError::Refused { status, .. }) => status.as_u16().to_string(),
            Err(_) => "error".to_owned(),
        };
        let labels = [("verb", "get"), ("path", path), ("code", code.as_str())];
        state.internal.observe(&internal::KUBELET_REQUEST, &labels, start.elapsed().as_secs_f64());
        Ok(answer?)
    }
}

/// Keeps the pods up to date.
#[derive(Debug)]
pub struct PodSync {
    state: Arc<State>,
    access: Access<ApiPod>,
    supervisor: Supervisor,
    kubelet: Kubelet,
    pods: KubeletPods,
    failover: Failover,
    /// What the kubelet said last, whether or not it counted then.
    heard: Option<Arc<PodSet>>,
    /// When a failure counted last.
    failed_at: Option<Instant>,
    /// Ends the watch of the API server.
    watch: Option<CancellationToken>,
    is_failing: bool,
}

impl PodSync {
    /// One that has heard nothing.
    pub fn new(state: Arc<State>, client: &Client, supervisor: Supervisor) -> PodSync {
        let config = &state.config.kubelet;
        let (pods, failover) = (KubeletPods::new(config.is_pod), Failover::new(config.source));
        PodSync {
            state,
            access: Access::all(client, &(), "koordlet"),
            supervisor,
            kubelet: Kubelet::default(),
            pods,
            failover,
            heard: None,
            failed_at: None,
            watch: None,
            is_failing: false,
        }
    }

    /// Asks until `token` is cancelled: at intervals, and when asked to.
    pub async fn run(&mut self, token: CancellationToken) {
        if self.state.config.kubelet.source == PodSource::ApiServer {
            self.watch_server(Duration::ZERO);
        }
        let mut bucket = Bucket::new(REQUESTED, Instant::now());
        let mut node = self.state.node.clone();
        while self.failover.asks_kubelet() {
            self.round().await;
            let interval =
                if self.state.has_stream.load(Ordering::Relaxed) && self.pods.is_synced() && !self.is_failing
                {
                    WITH_STREAM
                } else {
                    self.state.config.kubelet.sync_interval
                };
            tokio::select! {
                () = token.cancelled() => break,
                () = tokio::time::sleep(interval) => {}
                // At the start the address of the kubelet is what is waited for.
                _ = node.changed(), if !self.pods.is_synced() => {}
                () = self.state.wants_pods.notified() => {
                    // Further requests meanwhile are this one.
                    let wait = bucket.reserve(Instant::now());
                    tokio::select! {
                        () = token.cancelled() => break,
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
        token.cancelled().await;
        if let Some(watch) = self.watch.take() {
            watch.cancel();
        }
    }

    async fn round(&mut self) {
        let answer = self.kubelet.get(&self.state, "/pods/").await;
        let now = Tick::now();
        let (result, succeeded) = match answer {
            Ok(body) => {
                let heard = self.pods.answer(&body, now);
                let word = heard.as_str();
                if let Heard::Changed(set) = &heard {
                    self.heard = Some(Arc::clone(set));
                }
                match heard {
                    Heard::Changed(set) if self.failover.current() == Current::Kubelet => {
                        self.state.publish_pods(set, now);
                    }
                    Heard::Unchanged if self.failover.current() == Current::Kubelet => {
                        self.state.pods_unchanged(now)
                    }
                    Heard::Unreadable(error) => {
                        tracing::warn!(error = %error, "the kubelet's list of pods cannot be read");
                    }
                    _ => {}
                }
                (word, matches!(word, "changed" | "unchanged"))
            }
            // At the start, and no fault of the kubelet's: nobody has been asked.
            Err(AskError::Address(error @ NoAddress::UnknownNode)) => {
                tracing::debug!(error = %error, "pods cannot be asked for yet");
                return;
            }
            Err(error) => {
                self.pods.failed();
                if matches!(error, AskError::Kubelet(_)) && !self.is_failing {
                    self.state.kubelet_resets.fetch_add(1, Ordering::Relaxed);
                }
                if self.is_failing {
                    tracing::debug!(error = %Chain(&error), "pods cannot be asked for");
                } else {
                    tracing::warn!(error = %Chain(&error), "pods cannot be asked for, the last ones are kept");
                }
                ("failed", false)
            }
        };
        self.is_failing = result == "failed";
        self.state.internal.add(&internal::POD_SYNCS, &[("source", "kubelet"), ("result", result)], 1.0);
        if !succeeded && !self.counts_as_failed() {
            return;
        }
        if self.failover.round(succeeded) {
            tracing::info!(source = self.failover.current().as_str(), "pods come from elsewhere");
            match self.failover.current() {
                Current::ApiServer => self.watch_server(LONGEST_DELAY.mul_f64(random_share())),
                Current::Kubelet => {
                    if let Some(watch) = self.watch.take() {
                        watch.cancel();
                    }
                    // It said so while it did not count, and will not say it again before it changes.
                    if let Some(set) = &self.heard {
                        self.state.publish_pods(Arc::clone(set), now);
                    }
                }
            }
        }
    }

    /// Whether a failure is a round of its own. Looks that were asked for come in groups; a group is one failure.
    fn counts_as_failed(&mut self) -> bool {
        let now = Instant::now();
        let interval = self.state.config.kubelet.sync_interval;
        let counts = self.failed_at.is_none_or(|at| now.saturating_duration_since(at) >= interval / 2);
        if counts {
            self.failed_at = Some(now);
        }
        counts
    }

    /// Follows the pods of the node at the API server, after a delay.
    fn watch_server(&mut self, delay: Duration) {
        let token = self.supervisor.token();
        self.watch = Some(token.clone());
        let fields = format!("spec.nodeName={}", self.state.config.node_name);
        let watch = Arc::new(SetWatch::new(self.access.clone(), &fields));
        let state = Arc::clone(&self.state);
        let _detached = self.supervisor.spawn(
            "pods of the API server",
            Policy::Restart(Backoff::default()),
            move |ending| {
                let (watch, state, token) = (Arc::clone(&watch), Arc::clone(&state), token.clone());
                async move {
                    tokio::select! {
                        () = token.cancelled() => return Ok(()),
                        () = ending.cancelled() => return Ok(()),
                        () = tokio::time::sleep(delay) => {}
                    }
                    let mut sets = watch.subscribe();
                    let publish = async {
                        while sets.changed().await.is_ok() {
                            let set = sets.borrow_and_update().clone();
                            if let Some(set) = set {
                                state.publish_pods(
                                    Arc::new(slim(set.values().map(AsRef::as_ref))),
                                    Tick::now(),
                                );
                                state.internal.add(
                                    &internal::POD_SYNCS,
                                    &[("source", "apiserver"), ("result", "changed")],
                                    1.0,
                                );
                            }
                        }
                    };
                    tokio::select! {
                        () = watch.run(token.clone()) => {}
                        () = ending.cancelled() => {}
                        () = publish => {}
                    }
                    Ok(())
                }
            },
        );
    }
}

/// The parts of the API server's pods that are needed.
fn slim<'a>(pods: impl Iterator<Item = &'a ApiPod>) -> PodSet {
    let pods = pods.filter_map(|pod| {
        let pod = serde_json::to_value(pod).and_then(serde_json::from_value::<Pod>);
        pod.inspect_err(|error| tracing::warn!(error = %error, "a pod of the API server cannot be read")).ok()
    });
    PodSet::new(pods.map(Arc::new).collect())
}

/// A number from 0 to 1 that differs from node to node.
fn random_share() -> f64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let number = std::collections::hash_map::RandomState::new().build_hasher().finish();
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> KubeletConfig {
        KubeletConfig {
            source: PodSource::Auto,
            address_type: AddressType::InternalIp,
            sync_interval: Duration::from_secs(10),
            timeout: Duration::from_secs(3),
            read_only_port: None,
            verify: KubeletVerify::Off,
            reads_configuration: true,
            is_pod: true,
        }
    }

    fn node() -> Observed<Node> {
        let value = serde_json::json!({
            "metadata": {"name": "n"},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}, {"type": "ExternalIP", "address": "1.2.3.4"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            },
        });
        Observed::Present(Arc::new(serde_json::from_value(value).expect("a node")))
    }

    #[test]
    fn the_node_says_where_its_kubelet_is() {
        assert_eq!(address(&node(), &config()), Ok(("10.0.0.7".to_owned(), 10250)));
        let external = KubeletConfig { address_type: AddressType::ExternalIp, ..config() };
        assert_eq!(address(&node(), &external), Ok(("1.2.3.4".to_owned(), 10250)));
        let missing = KubeletConfig { address_type: AddressType::Hostname, ..config() };
        assert_eq!(address(&node(), &missing), Err(NoAddress::NoSuchType("Hostname")));
        assert_eq!(address(&Observed::Unknown, &config()), Err(NoAddress::UnknownNode));
        assert_eq!(address(&Observed::Absent, &config()), Err(NoAddress::NoNode));
    }

    #[test]
    fn the_read_only_port_is_asked_without_a_token() {
        let config = KubeletConfig { read_only_port: Some(10_255), ..config() };
        let (host, port) = address(&node(), &config).expect("an address");
        let options = options(&config, host, port);
        assert_eq!((options.port, options.access), (10_255, KubeletAccess::ReadOnly));
    }

    #[tokio::test(start_paused = true)]
    async fn thirty_requests_in_a_second_are_at_most_fifteen_looks() {
        // As the loop does it: each request takes its place in the bucket when the one before is through.
        let wants = tokio::sync::Notify::new();
        let mut bucket = Bucket::new(REQUESTED, Instant::now());
        let start = Instant::now();
        let mut looks = 0;
        let asking = async {
            for _ in 0..30 {
                wants.notify_one();
                tokio::time::sleep(Duration::from_millis(33)).await;
            }
            std::future::pending::<()>().await;
        };
        let looking = async {
            loop {
                wants.notified().await;
                tokio::time::sleep(bucket.reserve(Instant::now())).await;
                if start.elapsed() > Duration::from_secs(1) {
                    return;
                }
                looks += 1;
            }
        };
        tokio::select! {
            () = asking => {}
            () = looking => {}
            () = tokio::time::sleep(Duration::from_secs(2)) => {}
        }
        assert!((10..=15).contains(&looks), "{looks}");
    }
}
