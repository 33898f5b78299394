//! Putting the parts of the proxy together.

use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::weight::Conversion;
use koord_hooks::chain::{self, BuiltIn};
use koord_hooks::isolated::{Children, THIS_PROGRAM};
use koord_hooks::plugins::Plugins;
use koord_intercept::skip::SkipRule;
use koord_runtime::admin::{serve_tcp, serve_unix};
use koord_runtime::environment::{Environment, HandoverRole};
use koord_runtime::error_chain::Chain;
use koord_runtime::exit::Exit;
use koord_runtime::life::{Life, Phase};
use koord_runtime::metrics::{MetricsPage, ProcessCollector};
use koord_runtime::notify::{Notifier, start_watchdog_of};
use koord_runtime::signals::Signals;
use koord_runtime::supervisor::{Backoff, Policy, Supervisor};
use koord_runtime::telemetry::LogControl;
use koord_runtime::unix_socket::Occupied;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};

use crate::admin::{Admin, Build, QosAdmin, Readiness, View};
use crate::backend_client::BackendClient;
use crate::checkpoint::{self, Checkpointer};
use crate::dispatcher::Dispatcher;
use crate::dispatcher::budget::Limits;
use crate::failover::{Failover, Progress, layout};
use crate::failpoint::Failpoints;
use crate::flags::{Config, ConversionChoice, DriverChoice, RelayServices};
use crate::handover::{self, Program, Succession};
use crate::hook_view;
use crate::listener::Listener;
use crate::metrics::{Metrics, PREFIX, UsageCollector, WriteCounter};
use crate::peer::PeerRule;
use crate::pipeline::{self, Pipeline};
use crate::process::{self, ORDER_QUEUE, Process, State};
use crate::qos::{self, FixedNode, MachineRoots, NodePolicy, Qos, TreeOptions};
use crate::registration::{Registrations, Table};
use crate::relay::{Acceptor, Relay, RelayOptions, Serving};
use crate::state_directory::StateDirectory;
use crate::status_line;
use crate::store::Store;
use crate::store_view;
use crate::trust::Trust;
use crate::unix_channel::UnixChannel;
use crate::usage::{Sampling, Usage};

/// How long a start waits for a predecessor's lock on the state directory.
const STATE_LOCK_LIMIT: Duration = Duration::from_secs(2);

/// What `main` knows before anything runs.
pub struct Start {
    /// The flags.
    pub config: Config,
    /// The captured environment.
    pub environment: Environment,
    /// The arguments this process was started with, for a successor.
    pub arguments: Vec<OsString>,
    /// The log's verbosity.
    pub log: LogControl,
    /// Points at which tests stop the process.
    pub failpoints: Failpoints,
}

impl std::fmt::Debug for Start {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Start").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Serves until told to end.
///
/// # Errors
/// The socket, the state directory or another thing that serving needs cannot be had.
pub async fn serve(start: Start) -> anyhow::Result<Exit> {
    let Start { config, environment, arguments, log, failpoints } = start;
    let config = Arc::new(config);
    let supervisor = Supervisor::new(tokio::runtime::Handle::current());
    let signals = Signals::install()?;
    let notifier = Arc::new(Notifier::new(environment.notify_socket.as_deref())?);
    let life = Life::new();
    let program = environment.program.clone().map(|file| Program { file, arguments });

    let mut succession = match environment.handover {
        Some(HandoverRole::Succeed) => Some(Succession::from_standard_input()?),
        _ => None,
    };
    for (name, reason) in &environment.unusable_descriptors {
        tracing::warn!(name, reason, "a passed descriptor is of no use");
    }
    let backend_path = config.runtime.path().to_owned();
    let listener = match &mut succession {
        Some(succession) => {
            let inheritance = succession.receive().await?;
            Listener::inherit(inheritance.listener, inheritance.ownership, &config.listen)?
        }
        None => {
            let passed = environment.listeners;
            let listener = Listener::obtain(&config.listen, config.socket_mode, &backend_path, passed)?;
            listener.keep(&notifier);
            listener
        }
    };

    let mut registry = Registry::default();
    let metrics = Metrics::register(registry.sub_registry_with_prefix(PREFIX));
    metrics.build(Build::THIS.version, Build::THIS.commit);
    let observer = Arc::new(WriteCounter::register(registry.sub_registry_with_prefix(PREFIX)));
    let usage =
        config.usage.enabled.then(|| Arc::new(Usage::new(&config.usage, &MachineRoots::default().proc_root)));
    if let Some(usage) = &usage {
        UsageCollector::register(registry.sub_registry_with_prefix(PREFIX), Arc::clone(usage));
    }
    ProcessCollector::register(&mut registry);
    let page = MetricsPage::new(registry);

    let trust = Trust::new(nix::unistd::geteuid().as_raw(), config.hook_trusted_uid);
    let registrations = Arc::new(Registrations::new(config.hook_config_dir.clone(), trust, metrics.clone()));
    registrations.reload();
    let store = Arc::new(Store::new(metrics.clone()));
    let directory = match &config.state_dir {
        Some(path) => Some(Arc::new(StateDirectory::open(path)?)),
        None => None,
    };
    if succession.is_none() {
        acquire_and_load(directory.as_deref(), &store).await;
    }

    let channel = UnixChannel::new(config.runtime.clone());
    let failover = Arc::new(Failover::new(
        BackendClient::new(channel),
        Arc::clone(&store),
        metrics.clone(),
        layout::USUAL_ROOTS.iter().map(PathBuf::from).collect(),
    ));
    let skip = SkipRule {
        key: config.skip_label.key.clone(),
        value: config.skip_label.value.clone(),
        namespaces: config.skip_label.namespaces.clone(),
    };
    let qos = quality_of_service(&config, trust, &store, observer, skip.clone());
    let built_in = qos.as_ref().map(|_| BuiltIn::default());
    let plugins = config.qos.plugin_dir.clone().map(|directory| {
        let children = Arc::new(Children::new(THIS_PROGRAM, supervisor.clone()));
        Arc::new(Plugins::new(directory, trust, metrics.clone(), supervisor.clone(), children))
    });
    if let Some(plugins) = &plugins {
        plugins.reload().await;
    }
    let chain = Arc::new(chain::Chain::new(Arc::clone(&registrations), plugins.clone(), built_in));
    let dispatcher = Arc::new(Dispatcher::new(trust, metrics.clone()));
    let pipeline = Arc::new(Pipeline::new(pipeline::Parts {
        chain: Arc::clone(&chain),
        dispatcher: Arc::clone(&dispatcher),
        store: Arc::clone(&store),
        failover: Arc::clone(&failover),
        metrics: metrics.clone(),
        limits: Limits { hook_timeout: config.hook_timeout, deadline_share: config.hook_deadline_share },
        skip,
        qos: qos.clone(),
        failpoints: failpoints.clone(),
    }));

    let options = RelayOptions {
        backend: backend_path.clone(),
        image_backend: config.image.as_ref().map(|endpoint| endpoint.path().to_owned()),
        backend_wait: config.backend_wait,
        max_message_bytes: config.max_message_bytes,
        filter: match &config.relay_services {
            RelayServices::All => None,
            services => {
                let services = services.clone();
                Some(Arc::new(move |path: &str| services.admits(path)))
            }
        },
    };
    let relay = Relay::new(options, Arc::clone(&pipeline), metrics.clone(), supervisor.clone());
    let peers = PeerRule::new(config.peer_check, backend_path.clone());

    // Before a predecessor says go, this process must not accept; everything else is prepared meanwhile.
    start_tasks(&supervisor, &failover, &registrations, &pipeline);
    if let Some(qos) = &qos {
        follow_values(&supervisor, qos, &failover);
    }
    if let Some(plugins) = plugins {
        follow_plugins(&supervisor, plugins);
    }
    let mut admin_tasks = Vec::new();
    if let (Some(qos), Some(usage)) = (&qos, &usage) {
        let (usage, qos, store) = (Arc::clone(usage), Arc::clone(qos), Arc::clone(&store));
        let sampling = Sampling { usage, qos, store, config: config.usage.clone() };
        admin_tasks.push(sampling.start(&supervisor));
    }
    let progress = failover.progress();
    let rebuilt = |mut progress: watch::Receiver<Progress>| async move {
        // The sender lives in the failover, which lives as long as the process.
        let _ = progress.wait_for(|progress| progress.rebuilt).await;
    };
    if let Some(succession) = &mut succession {
        process::become_ready(&life, None, rebuilt(progress.clone())).await;
        // Handed over or orphaned: either way nobody else writes the checkpoint now.
        succession.prepared().await?;
        acquire_and_load(directory.as_deref(), &store).await;
        failover.backend_restarted();
    }
    let acceptor = Acceptor::start(&relay, listener.socket(), peers, &supervisor)?;
    let serving = Arc::new(Serving { relay, acceptor });
    let (orders_in, orders) = mpsc::channel(ORDER_QUEUE);
    let occupied = if succession.is_some() { Occupied::TakeOver } else { Occupied::Refuse };
    let admin = Admin {
        life: life.clone(),
        view: Arc::new(Parts {
            failover: Arc::clone(&failover),
            registrations: Arc::clone(&registrations),
            store: Arc::clone(&store),
        }),
        metrics: page,
        supervisor: supervisor.clone(),
        config: Arc::clone(&config),
        orders: orders_in.clone(),
        qos: qos.as_ref().map(|qos| QosAdmin {
            qos: Arc::clone(qos),
            failover: Arc::clone(&failover),
            supervisor: supervisor.clone(),
            hooks: {
                let (chain, dispatcher) = (Arc::clone(&chain), Arc::clone(&dispatcher));
                Arc::new(move || hook_view::entries(&chain, &dispatcher))
            },
        }),
        usage,
    };
    let admin_socket = match &config.admin_socket {
        Some(endpoint) => {
            let (task, file) = serve_unix(&supervisor, endpoint.path(), occupied, admin.routes())?;
            admin_tasks.push(task);
            Some(file)
        }
        None => None,
    };
    if let Some(address) = config.metrics_bind_address {
        let (task, bound) = serve_tcp(&supervisor, address, admin.metrics_routes())?;
        admin_tasks.push(task);
        tracing::info!(address = %bound, "metrics on TCP");
    }
    process::forward_signals(&supervisor, signals, orders_in);

    let checkpointer = directory
        .as_ref()
        .map(|directory| Arc::new(Checkpointer::new(Arc::clone(&store), Arc::clone(directory), failpoints)));
    if let Some(checkpointer) = &checkpointer {
        let checkpointer = Arc::clone(checkpointer);
        let _detached = supervisor.spawn("checkpoint", Policy::Restart(Backoff::default()), move |token| {
            let checkpointer = Arc::clone(&checkpointer);
            async move {
                tokio::select! {
                    () = token.cancelled() => {}
                    () = checkpointer.run() => {}
                }
                Ok(())
            }
        });
    }
    if let Some(interval) = environment.watchdog {
        // Weak: the relay ends with its last owner. The end of the process has time limits of its own.
        let (life, serving) = (life.clone(), Arc::downgrade(&serving));
        start_watchdog_of(&supervisor, Arc::clone(&notifier), interval, move || match serving.upgrade() {
            Some(serving) if life.phase() < Phase::Draining => serving.silent(),
            _ => Vec::new(),
        });
    }
    let status = status_line::follow(&supervisor, &notifier, &life, qos.as_ref());
    match &mut succession {
        Some(succession) => succession.serving().await,
        None => {
            let (life, notifier, rebuilt) = (life.clone(), Arc::clone(&notifier), rebuilt(progress.clone()));
            let token = supervisor.token();
            let _detached = supervisor.spawn_once("start", async move {
                tokio::select! {
                    () = token.cancelled() => {}
                    () = process::become_ready(&life, Some(&notifier), rebuilt) => {}
                }
                Ok(())
            });
        }
    }
    let (access, mut progress) = (listener.access_copy(config.socket_mode, &backend_path), progress);
    let token = supervisor.token();
    let _detached = supervisor.spawn_once("socket access", async move {
        let connected = progress.wait_for(|progress| progress.connected);
        tokio::select! {
            () = token.cancelled() => {}
            Ok(_) = connected => access.copy(),
        }
        Ok(())
    });

    let process = Process {
        life,
        supervisor,
        notifier,
        listener,
        admin_socket,
        admin_tasks,
        program,
        relay: serving,
        state: Arc::new(Saved { checkpointer, directory, failover }),
        orders,
        log: Some(log),
        status,
        shutdown_grace: config.shutdown_grace,
        handover_drain: config.handover_drain,
        limits: handover::Limits::default(),
        predecessor: succession,
    };
    Ok(process.run().await)
}

/// Starts what follows the world beside the relay.
fn start_tasks(
    supervisor: &Supervisor,
    failover: &Arc<Failover>,
    registrations: &Arc<Registrations>,
    pipeline: &Arc<Pipeline>,
) {
    let failover = Arc::clone(failover);
    let _detached = supervisor.spawn("failover", Policy::Restart(Backoff::default()), move |token| {
        let failover = Arc::clone(&failover);
        async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = failover.run() => {}
            }
            Ok(())
        }
    });
    let pipeline = Arc::clone(pipeline);
    let _detached = supervisor.spawn("hook servers", Policy::Restart(Backoff::default()), move |token| {
        let pipeline = Arc::clone(&pipeline);
        async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = pipeline.follow_hooks() => {}
            }
            Ok(())
        }
    });
    let registrations = Arc::clone(registrations);
    let _detached = supervisor.spawn("registrations", Policy::Restart(Backoff::default()), move |token| {
        let registrations = Arc::clone(&registrations);
        async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = registrations.watch() => {}
            }
            Ok(())
        }
    });
}

/// The built-in rules; none on a machine without cgroups, where there is nothing to rule.
fn quality_of_service(
    config: &Config,
    trust: Trust,
    store: &Arc<Store>,
    observer: Arc<WriteCounter>,
    skip: SkipRule,
) -> Option<Arc<Qos>> {
    let flags = &config.qos;
    let tree = TreeOptions {
        root: flags.cgroup_root.clone(),
        kubelet_root: flags.kubelet_cgroup_root.clone(),
        driver: match flags.cgroup_driver {
            DriverChoice::Auto => None,
            DriverChoice::Systemd => Some(CgroupDriver::Systemd),
            DriverChoice::Cgroupfs => Some(CgroupDriver::Cgroupfs),
        },
        conversion: match flags.cpu_weight_conversion {
            ConversionChoice::Auto => None,
            ConversionChoice::Linear => Some(Conversion::Linear),
            ConversionChoice::Quadratic => Some(Conversion::Quadratic),
        },
    };
    let executor = match tree.executor(None, &observer) {
        Ok(executor) => executor,
        Err(error) => {
            tracing::error!(error = %Chain(&error), "no control groups: rules are off");
            return None;
        }
    };
    let machine = MachineRoots::default();
    let topology = match koord_topology::sysfs::read(&machine.sys_root) {
        Ok(topology) => Some(topology),
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "the CPUs are not known: no CPUs are shared out");
            None
        }
    };
    let mut options = koord_rules::Options {
        cpu_qos_backend: flags.cpu_qos_backend,
        be_idle_scope: flags.be_idle_scope,
        ..koord_rules::Options::default()
    };
    if flags.keep_cpu_quota {
        options.cpuset_quota = koord_rules::CpusetQuota::Keep;
    }
    let fixed =
        FixedNode { machine, topology, gates: flags.gates, options, kubelet_dir: flags.kubelet_dir.clone() };
    Some(Arc::new(Qos::new(qos::Parts {
        mode: flags.mode,
        policy: NodePolicy::new(flags.node_policy.clone(), trust),
        fixed,
        tree,
        executor,
        observer,
        store: Arc::clone(store),
        async_runtime: tokio::runtime::Handle::current(),
        interval: flags.reconcile_interval,
        skip,
    })))
}

/// Follows the directory of plugins.
fn follow_plugins(supervisor: &Supervisor, plugins: Arc<Plugins>) {
    let _detached = supervisor.spawn("plugins", Policy::Restart(Backoff::default()), move |token| {
        let plugins = Arc::clone(&plugins);
        async move {
            tokio::select! {
                () = token.cancelled() => plugins.close(),
                () = plugins.watch() => {}
            }
            Ok(())
        }
    });
}

/// Keeps values as rules wish them, beside the relay.
fn follow_values(supervisor: &Supervisor, qos: &Arc<Qos>, failover: &Arc<Failover>) {
    let (qos, failover) = (Arc::clone(qos), Arc::clone(failover));
    let _detached =
        supervisor.spawn("values of cgroups", Policy::Restart(Backoff::default()), move |token| {
            let (qos, failover) = (Arc::clone(&qos), Arc::clone(&failover));
            async move {
                let work = async {
                    // Before the records are there, pods would be taken for strangers.
                    let mut progress = failover.progress();
                    let _ = progress.wait_for(|progress| progress.rebuilt).await;
                    qos.ask_driver(failover.client()).await;
                    qos.run().await;
                };
                tokio::select! {
                    () = token.cancelled() => {}
                    () = work => {}
                }
                Ok(())
            }
        });
}

/// Takes the state directory and reads the checkpoint. Without it the runtime's own lists have to do.
async fn acquire_and_load(directory: Option<&StateDirectory>, store: &Store) {
    let Some(directory) = directory else { return };
    match directory.acquire(STATE_LOCK_LIMIT).await {
        Ok(true) => {}
        Ok(false) => tracing::warn!(
            directory = %directory.path().display(),
            "another process holds the state directory: nothing is saved until it ends"
        ),
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "the state directory cannot be locked: nothing is saved")
        }
    }
    let (pods, containers) = checkpoint::load(directory.path(), store);
    tracing::info!(pods, containers, "checkpoint read");
}

/// What the admin socket shows.
struct Parts {
    failover: Arc<Failover>,
    registrations: Arc<Registrations>,
    store: Arc<Store>,
}

impl View for Parts {
    fn readiness(&self) -> Readiness {
        let progress = *self.failover.progress().borrow();
        Readiness { backend_connected: progress.connected, rebuild_done: progress.rebuilt }
    }

    fn registrations(&self) -> Arc<Table> {
        self.registrations.table()
    }

    fn store(&self) -> serde_json::Value {
        store_view::records(&self.store.snapshot())
    }
}

/// The checkpoint and its directory.
struct Saved {
    checkpointer: Option<Arc<Checkpointer>>,
    directory: Option<Arc<StateDirectory>>,
    failover: Arc<Failover>,
}

impl State for Saved {
    fn release(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            if let Some(checkpointer) = &self.checkpointer {
                checkpointer.write().await;
            }
            if let Some(directory) = &self.directory {
                directory.release();
            }
        })
    }

    fn retake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            if let Some(directory) = &self.directory
                && let Err(error) = directory.acquire(STATE_LOCK_LIMIT).await
            {
                tracing::warn!(error = %Chain(&error), "the state directory cannot be locked again: nothing is saved");
            }
        })
    }

    fn predecessor_ended(&self) {
        // Its last calls changed what the runtime has.
        self.failover.backend_restarted();
    }
}
