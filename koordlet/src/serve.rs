//! Puts the agent together and runs it.
//!
//! The order of the start: what was kept of before, then the watches and the pods, then samples, then what is made of
//! them. Nothing waits for anything without limit: what has nothing to work with yet says so in readiness, and the rest
//! goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use koord_audit::{AuditOptions, Auditor, Event, Subject};
use koord_cgroup::driver::{DriverEvidence, DriverSource, kubelet};
use koord_cgroup::layout::{DetectError, DetectOptions, Layout};
use koord_crd::{node_metric, node_resource_topology, node_slo};
use koord_extension::gates::Gate;
use koord_kube::client::{ClientOptions, Source, connect};
use koord_kube::k8s_openapi::api::core::v1::Node;
use koord_kube::limit::Rate;
use koord_kube::observe::{Observer, Outcome, RequestInfo};
use koord_kube::resource::api_resource;
use koord_kube::watch::{MetadataWatch, ObjectWatch};
use koord_kube::{Access, Observed};
use koord_node_report::policy::Policy as ReportPolicy;
use koord_prediction::Predictor;
use koord_runtime::CancellationToken;
use koord_runtime::admin::{serve_tcp, serve_unix};
use koord_runtime::environment::Environment;
use koord_runtime::error_chain::Chain;
use koord_runtime::exit::Exit;
use koord_runtime::notify::{Notification, Notifier, start_watchdog};
use koord_runtime::signals::{ProcessSignal, Signals};
use koord_runtime::supervisor::{Backoff, Policy, Supervisor, ThreadOptions};
use koord_runtime::telemetry::LogControl;
use koord_runtime::unix_socket::Occupied;
use koord_usage::snapshot::file::{SnapshotFile, boot_id};
use koord_usage::store::Store;
use koord_usage::time::Tick;
use tokio::sync::watch;

use crate::admin::Admin;
use crate::facts;
use crate::flags::Config;
use crate::intake::Intake;
use crate::metrics::internal;
use crate::pods::lifecycle::{Health, Watcher, wants_sync};
use crate::pods::sync::PodSync;
use crate::reporter::{self, Reporter};
use crate::sampling::{self, Desk};
use crate::state::{Lenient, Parts, State};
use crate::topology::{Topology, TopologyReporter};
use crate::{predict, stream};

/// How often samples are saved.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// How often the driver of the control groups is looked for.
const FIND_DRIVER_EVERY: Duration = Duration::from_secs(10);

/// How long the parts may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Under which name fields are written.
const MANAGER: &str = "koordlet";

/// What `main` knows before anything runs.
#[derive(Debug)]
pub struct Start {
    /// The flags.
    pub config: Config,
    /// The captured environment.
    pub environment: Environment,
    /// Where the API server is.
    pub server: Source,
    /// The log's verbosity.
    pub log: LogControl,
}

/// The control groups of the machine, and how sure that is.
fn layout(config: &Config) -> Result<(Layout, DriverSource), DetectError> {
    let mut driver = DriverEvidence { configured: config.paths.cgroup_driver, ..DriverEvidence::default() };
    if let Some(found) = kubelet::find(&config.paths.proc) {
        found.add_to(&mut driver);
    }
    let options = DetectOptions {
        root: config.paths.cgroup.clone(),
        kubelet_root: config.paths.kubelet_cgroup_root.clone(),
        declared: Vec::new(),
        driver,
    };
    Layout::detect(&options)
}

/// Counts requests to the API server.
#[derive(Debug, Default)]
struct Requests(std::sync::OnceLock<Arc<State>>);

impl Observer for Requests {
    fn finished(&self, request: &RequestInfo, outcome: Outcome, _elapsed: Duration) {
        let Some(state) = self.0.get() else { return };
        let code = outcome.code();
        let labels = [
            ("verb", request.verb.as_str()),
            ("resource", request.resource.as_str()),
            ("code", code.as_str()),
        ];
        state.internal.add(&internal::API_REQUESTS, &labels, 1.0);
    }
}

fn spawn<F>(
    supervisor: &Supervisor,
    name: &'static str,
    make: impl Fn(CancellationToken) -> F + Send + Sync + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let make = Arc::new(make);
    let _detached = supervisor.spawn(name, Policy::Restart(Backoff::default()), move |token| {
        let make = Arc::clone(&make);
        async move {
            make(token).await;
            Ok(())
        }
    });
}

/// Serves until told to end.
///
/// # Errors
/// Something that the flags name cannot be used.
pub async fn serve(start: Start) -> anyhow::Result<Exit> {
    let Start { config, environment, server, log } = start;
    let mut signals = Signals::install()?;
    let notifier = Arc::new(Notifier::new(environment.notify_socket.as_deref())?);
    let supervisor = Supervisor::new(tokio::runtime::Handle::current());
    for (flag, reason) in &config.ignored {
        tracing::info!(flag, reason, "a flag has no effect");
    }
    for warning in &config.gate_warnings {
        tracing::info!(%warning, "a feature gate has no effect");
    }
    let (layout, certainty) = layout(&config)?;
    tracing::info!(version = ?layout.version(), driver = ?layout.driver(), source = ?certainty, "control groups");
    let requests = Arc::new(Requests::default());
    let mut options = ClientOptions::new(server, "koordlet");
    options.rate = Some(Rate {
        per_second: f64::from(config.process.requests_per_second),
        burst: config.process.request_burst,
    });
    let observer: Arc<dyn Observer> = Arc::clone(&requests) as Arc<dyn Observer>;
    let client = connect(&options, observer).await?;

    // The watches are made first, for what they have seen is part of the state; they run later.
    let name = config.node_name.clone();
    let node = Arc::new(ObjectWatch::<Node>::new(Access::all(&client, &(), MANAGER), &name));
    let of = |group, version, kind, plural| api_resource(group, version, kind, plural);
    let metric_kind = of(node_metric::GROUP, node_metric::VERSION, node_metric::KIND, node_metric::PLURAL);
    let metric_access: Access<Lenient> = Access::all(&client, &metric_kind, MANAGER);
    let metric = Arc::new(MetadataWatch::new(metric_access.clone(), &name));
    let slo_kind = of(node_slo::GROUP, node_slo::VERSION, node_slo::KIND, node_slo::PLURAL);
    let slo = Arc::new(ObjectWatch::<Lenient>::new(Access::all(&client, &slo_kind, MANAGER), &name));
    let topology_kind = of(
        node_resource_topology::GROUP,
        node_resource_topology::VERSION,
        node_resource_topology::KIND,
        node_resource_topology::PLURAL,
    );
    let topology_access: Access<Topology> = Access::all(&client, &topology_kind, MANAGER);
    let topology = Arc::new(ObjectWatch::new(topology_access.clone(), &name));

    let policy = ReportPolicy::default();
    let store = Arc::new(Store::new(reporter::retention(&policy, config.store.retention)));
    let boot = boot_id(&config.paths.proc).unwrap_or_else(|error| {
        tracing::warn!(error = %Chain(&error), "the boot is not known, samples do not survive a restart");
        String::new()
    });
    let snapshot =
        SnapshotFile::new(&config.store.directory, u64::try_from(config.store.limit.get()).unwrap_or(0));
    restore(&store, &snapshot, &boot);
    let audit = config.gates.enabled(Gate::AuditEvents).then(|| {
        Arc::new(Auditor::new(AuditOptions {
            folder: config.audit.directory.clone(),
            verbosity: config.audit.verbosity,
            most_megabytes: u64::try_from(config.audit.disk_space.get() / (1024 * 1024)).unwrap_or(1),
            most_readers: config.audit.readers,
            most_events: config.audit.events_limit,
        }))
    });
    let state = Arc::new(State::new(Parts {
        intake: Arc::new(Intake::new(Arc::clone(&store), reporter::completion(&policy, &config))),
        predictor: Predictor::new(predict::options(&config.prediction)),
        layout,
        audit,
        node: node.subscribe(),
        node_metric: metric.subscribe(),
        config,
    }));
    let _first = requests.0.set(Arc::clone(&state));
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    state.internal.set(&internal::START_TIME, &[], started.as_secs_f64().floor());
    state.set_degraded(false);
    record(&state, "start", "the agent starts");

    let reporter = Arc::new(Reporter::new(Arc::clone(&state)));
    let admin =
        Admin { state: Arc::clone(&state), reporter: Arc::clone(&reporter), supervisor: supervisor.clone() };
    let mut admin_tasks = Vec::new();
    if let Some(address) = state.config.process.address {
        let (task, bound) = serve_tcp(&supervisor, address, admin.routes())?;
        tracing::info!(address = %bound, "metrics and health");
        admin_tasks.push(task);
    }
    if let Some(address) = state.config.process.profile_address {
        let (task, _bound) = serve_tcp(&supervisor, address, Admin::profile_routes())?;
        admin_tasks.push(task);
    }
    let admin_file = match serve_unix(
        &supervisor,
        &state.config.process.admin_socket,
        Occupied::Refuse,
        admin.socket_routes(),
    ) {
        Ok((task, file)) => {
            admin_tasks.push(task);
            Some(file)
        }
        Err(error) => {
            // The agent does its work without it.
            tracing::warn!(error = %Chain(&error), "there is no admin socket");
            None
        }
    };

    // Watches.
    let watched = Arc::clone(&node);
    spawn(&supervisor, "node", move |token| run_watch(Arc::clone(&watched), token));
    let watched = Arc::clone(&slo);
    spawn(&supervisor, "policy", move |token| run_watch(Arc::clone(&watched), token));
    let (following, policies) = (Arc::clone(&state), slo.subscribe());
    spawn(&supervisor, "policy in force", move |token| {
        follow_policy(Arc::clone(&following), policies.clone(), token)
    });
    if state.config.report.node_metric {
        let watched = Arc::clone(&metric);
        spawn(&supervisor, "report object", move |token| {
            let watched = Arc::clone(&watched);
            async move { watched.run(token).await }
        });
    }

    // Pods.
    let syncing = (Arc::clone(&state), client.clone(), supervisor.clone());
    spawn(&supervisor, "pods", move |token| {
        let (state, client, supervisor) = syncing.clone();
        async move { PodSync::new(state, &client, supervisor).run(token).await }
    });
    let watching = Arc::clone(&state);
    spawn(&supervisor, "directories of pods", move |token| watch_directories(Arc::clone(&watching), token));
    let looking = Arc::clone(&state);
    spawn(&supervisor, "machine", move |token| look_at_machine(Arc::clone(&looking), token));

    // Samples.
    let desk = Arc::new(Desk::default());
    let (sampling, orders) = (Arc::clone(&state), Arc::clone(&desk));
    let options = ThreadOptions { stack_bytes: 1024 * 1024, essential: false };
    supervisor.thread("sampler", options, move |_token| {
        sampling::thread(&sampling, &orders);
        Ok(())
    })?;
    let (conducting, orders) = (Arc::clone(&state), Arc::clone(&desk));
    spawn(&supervisor, "source of samples", move |token| {
        let (state, desk) = (Arc::clone(&conducting), Arc::clone(&orders));
        async move { sampling::conduct(&state, &desk, token).await }
    });
    if let Some(path) = state.config.proxy.path().map(PathBuf::from) {
        let (streaming, boot) = (Arc::clone(&state), boot.clone());
        spawn(&supervisor, "usage stream", move |token| {
            stream::follow(Arc::clone(&streaming), path.clone(), boot.clone(), token)
        });
    }

    // What is made of them.
    let predicting = Arc::clone(&state);
    spawn(&supervisor, "predictor", move |token| predict::run(Arc::clone(&predicting), token));
    if state.config.report.node_metric {
        let (reporting, access) = (Arc::clone(&reporter), metric_access.clone());
        spawn(&supervisor, "node metric", move |token| {
            let (reporter, access) = (Arc::clone(&reporting), access.clone());
            async move { reporter.run(&access, token).await }
        });
    }
    let watched = Arc::clone(&topology);
    spawn(&supervisor, "topology object", move |token| {
        let watched = Arc::clone(&watched);
        async move { watched.run(token).await }
    });
    let describing = (Arc::clone(&state), topology_access, topology_kind, topology.subscribe());
    spawn(&supervisor, "node topology", move |token| {
        let (state, access, kind, published) = describing.clone();
        async move { TopologyReporter::new(state, access, kind, published).run(token).await }
    });
    let keeping = (Arc::clone(&state), snapshot.clone(), boot.clone());
    spawn(&supervisor, "housekeeping", move |token| {
        let (state, snapshot, boot) = keeping.clone();
        async move { keep_house(&state, &snapshot, &boot, token).await }
    });
    if certainty == DriverSource::Assumed {
        let assuming = Arc::clone(&state);
        spawn(&supervisor, "cgroup driver", move |token| find_driver(Arc::clone(&assuming), token));
    }

    if let Some(interval) = environment.watchdog {
        start_watchdog(&supervisor, Arc::clone(&notifier), interval, || true);
    }
    tell(&notifier, Notification::Ready);
    let end = loop {
        tokio::select! {
            signal = signals.next() => match signal {
                signal if signal.ends_process() => break Exit::Success,
                ProcessSignal::ToggleLogLevel => {
                    let verbosity = log.toggle();
                    tracing::info!(verbosity, "log verbosity");
                }
                _ => tracing::info!("nothing is read anew by this program"),
            },
            failure = supervisor.failed() => {
                tracing::error!(error = %failure, "ending");
                break Exit::RuntimeError;
            }
        }
    };
    tell(&notifier, Notification::Stopping);
    tracing::info!("ending");
    let ending = async {
        let late = supervisor.shut_down(END_LIMIT).await;
        if !late.is_empty() {
            tracing::warn!(?late, "did not end in time");
        }
        save(&state, &snapshot, &boot);
        record(&state, "end", "the agent ends");
        if let Some(audit) = &state.audit
            && let Err(error) = audit.flush(SystemTime::now())
        {
            tracing::warn!(error = %Chain(&error), "the audit log was not written");
        }
    };
    tokio::select! {
        () = ending => {}
        _second = signals.next_end() => tracing::warn!("asked to end at once"),
    }
    if let Some(file) = admin_file {
        file.remove();
    }
    Ok(end)
}

fn tell(notifier: &Notifier, notification: Notification) {
    if let Err(error) = notifier.send(&[notification]) {
        tracing::warn!(error = %Chain(&error), "the service manager cannot be told");
    }
}

/// Records an event about this node.
fn record(state: &State, reason: &str, message: &str) {
    let Some(audit) = &state.audit else { return };
    let event = Event::about(Subject::Node).reason(reason).message(message);
    if let Err(error) = audit.record(1, event, SystemTime::now()) {
        tracing::warn!(error = %Chain(&error), "the audit log was not written");
    }
}

async fn run_watch<K>(watched: Arc<ObjectWatch<K>>, token: CancellationToken)
where
    K: koord_kube::kube::Resource
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    watched.run(token).await;
}

/// Puts each version of the node's policy in force. Without one the defaults are.
async fn follow_policy(
    state: Arc<State>,
    mut policies: watch::Receiver<Observed<Lenient>>,
    token: CancellationToken,
) {
    loop {
        let observed = policies.borrow_and_update().clone();
        let spec = match &observed {
            Observed::Present(object) => {
                let (spec, problems) = node_slo::NodeSloSpec::clamped(&object.spec);
                for problem in problems {
                    tracing::warn!(%problem, "a field of the NodeSLO is not as it should be");
                }
                Some(spec)
            }
            Observed::Absent => Some(node_slo::NodeSloSpec::default()),
            Observed::Unknown => None,
        };
        if let Some(spec) = spec {
            state.publish_policy(spec.effective());
        }
        tokio::select! {
            () = token.cancelled() => return,
            changed = policies.changed() => if changed.is_err() { return },
        }
    }
}

/// Looks for the driver of the control groups until something tells: at the start of a machine the agent may come before
/// the kubelet.
async fn find_driver(state: Arc<State>, token: CancellationToken) {
    loop {
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(FIND_DRIVER_EVERY) => {}
        }
        match tokio::task::block_in_place(|| layout(&state.config)) {
            Ok((_, DriverSource::Assumed)) => {}
            Ok((layout, source)) => {
                tracing::info!(driver = ?layout.driver(), ?source, "control groups");
                state.layout.send_replace(Arc::new(layout));
                state.publish_again();
                return;
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the driver of the control groups is not known")
            }
        }
    }
}

/// Asks for pods when something begins, on nodes where no proxy tells.
async fn watch_directories(state: Arc<State>, token: CancellationToken) {
    let mut layouts = state.layout.subscribe();
    loop {
        let layout = Arc::clone(&layouts.borrow_and_update());
        let (asking, feeling) = (Arc::clone(&state), Arc::clone(&state));
        let watching = Watcher::new(&layout).run(
            token.clone(),
            move |changes| {
                if wants_sync(changes) && !asking.has_stream.load(Ordering::Relaxed) {
                    asking.wants_pods.notify_one();
                }
            },
            move |health| feeling.set_degraded(health == Health::Scanning),
        );
        tokio::select! {
            () = watching => return,
            _ = layouts.changed() => {}
        }
    }
}

/// Looks at CPUs and memory of the machine.
async fn look_at_machine(state: Arc<State>, token: CancellationToken) {
    loop {
        let paths = state.config.paths.clone();
        let looked =
            tokio::task::spawn_blocking(move || facts::look(&paths.proc, &paths.sys, &paths.sys_fs)).await;
        let status = |succeeded: bool| [("status", if succeeded { "succeeded" } else { "failed" })];
        match looked {
            Ok(Ok(facts)) => {
                state.internal.add(&internal::CPU_INFO_STATUS, &status(true), 1.0);
                state.internal.add(&internal::NUMA_INFO_STATUS, &status(true), 1.0);
                state.facts.send_if_modified(|known| {
                    let changed = known.as_deref() != Some(&facts);
                    if changed {
                        *known = Some(Arc::new(facts));
                    }
                    changed
                });
            }
            Ok(Err(error)) => {
                let of_numa = error.is_of_numa();
                state.internal.add(&internal::CPU_INFO_STATUS, &status(of_numa), 1.0);
                state.internal.add(&internal::NUMA_INFO_STATUS, &status(false), 1.0);
                tracing::warn!(error = %Chain(&error), "the machine cannot be looked at");
            }
            Err(error) => tracing::error!(error = %error, "the machine cannot be looked at"),
        }
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(state.config.collect.node_facts_interval) => {}
        }
    }
}

/// Takes over the samples of before.
fn restore(store: &Store, snapshot: &SnapshotFile, boot: &str) {
    match snapshot.load() {
        Ok(Some(bytes)) => match store.restore(&bytes, boot, Tick::now()) {
            Ok(restored) => {
                tracing::info!(series = restored.series, samples = restored.samples, "samples of before")
            }
            Err(error) => tracing::info!(error = %Chain(&error), "samples of before are not used"),
        },
        Ok(None) => {}
        Err(error) => tracing::warn!(error = %Chain(&error), "samples of before are not used"),
    }
}

/// Saves the samples.
fn save(state: &State, snapshot: &SnapshotFile, boot: &str) {
    if boot.is_empty() {
        return;
    }
    let result = snapshot.save(&state.intake.store().snapshot(boot));
    let is_full = result.as_ref().is_err_and(koord_usage::snapshot::file::FileError::is_no_space);
    state.internal.set(&internal::STORE_DISK_FULL, &[("content", "samples")], f64::from(u8::from(is_full)));
    if let Err(error) = result {
        tracing::warn!(error = %Chain(&error), "samples are not saved, they are kept in memory");
    }
}

/// What is to be done from time to time.
async fn keep_house(state: &State, snapshot: &SnapshotFile, boot: &str, token: CancellationToken) {
    loop {
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(SAVE_EVERY) => {}
        }
        tokio::task::block_in_place(|| {
            save(state, snapshot, boot);
            if let Some(audit) = &state.audit
                && let Err(error) = audit.housekeep(SystemTime::now(), Instant::now())
            {
                tracing::warn!(error = %Chain(&error), "the audit log was not written");
            }
        });
    }
}
