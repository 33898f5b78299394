//! The endpoints for operators.
//!
//! | request | answer |
//! |---|---|
//! | `GET /healthz` | 200 while the process works |
//! | `GET /readyz` | 200 only while calls are served: backend connected, store rebuilt, not draining; else 503 |
//! | `GET /metrics` | metrics, Prometheus text or OpenMetrics |
//! | `GET /config` | flags in force, effective registrations, and what is wrong with rejected ones |
//! | `GET /store` | pod and container records, env values redacted |
//! | `GET /tasks` | running tasks and threads |
//! | `GET /version` | version, commit, process id |
//! | `GET /qos/status`, `/qos/pods`, `/qos/hooks` | mode, policy and backends; values of pods; the chain of hooks |
//! | gRPC `koord.usage.v1.UsageService` | what pods use, as a stream |
//! | `POST /qos/mode` | `{"mode": "enforce"}`, `"shadow"` or `"off"` |
//! | `POST /restore` | goes to the mode `off` and puts back what the kubelet asked |
//! | `POST /drain` | begins an orderly end, as SIGTERM does |
//! | `POST /reload` | begins a hand-over to a new process, as SIGHUP does |

mod qos;

use std::sync::Arc;

use http::{Method, StatusCode};
use koord_runtime::admin::{Answer, Routes, json, text};
use koord_runtime::duration::format_go_duration;
use koord_runtime::life::{Life, Phase};
use koord_runtime::metrics::MetricsPage;
use koord_runtime::supervisor::Supervisor;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::flags::Config;
use crate::process::Order;
use crate::registration::{FileReport, Registration, ResourceMerge, Server, Table, UpdateScope};
use crate::usage::{self, Usage};

pub use qos::QosAdmin;

/// What stands in the place of a redacted value.
pub const REDACTED: &str = "<redacted>";

/// Keys whose objects hold env values, in any JSON handed to this module.
const ENV_KEYS: [&str; 4] = ["envs", "env", "container_envs", "containerEnvs"];

/// Version of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    /// Release version.
    pub version: &'static str,
    /// Source commit, or `unknown`.
    pub commit: &'static str,
}

impl Build {
    /// The build this code is part of. `KOORD_COMMIT` names the commit at compile time.
    pub const THIS: Build = Build {
        version: env!("CARGO_PKG_VERSION"),
        commit: match option_env!("KOORD_COMMIT") {
            Some(commit) => commit,
            None => "unknown",
        },
    };
}

impl std::fmt::Display for Build {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "koord-runtime-proxy {} (commit {})", self.version, self.commit)
    }
}

/// Whether calls are served, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// The backend answered on its connection and the connection stands.
    pub backend_connected: bool,
    /// The store has been rebuilt after the start.
    pub rebuild_done: bool,
}

/// The parts of the proxy that can be looked into.
pub trait View: Send + Sync + 'static {
    /// Whether calls are served.
    fn readiness(&self) -> Readiness;

    /// The registrations in force.
    fn registrations(&self) -> Arc<Table>;

    /// The store's records as JSON. Env values may be left in: they are redacted here.
    fn store(&self) -> Value;
}

/// Everything the endpoints need.
#[derive(Clone)]
pub struct Admin {
    /// The process's phase.
    pub life: Life,
    /// The proxy's parts.
    pub view: Arc<dyn View>,
    /// The metrics.
    pub metrics: MetricsPage,
    /// The running tasks.
    pub supervisor: Supervisor,
    /// The flags in force.
    pub config: Arc<Config>,
    /// Takes orders to the process.
    pub orders: mpsc::Sender<Order>,
    /// Rules and their ledger.
    pub qos: Option<QosAdmin>,
    /// What pods use.
    pub usage: Option<Arc<Usage>>,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Admin").field("life", &self.life).finish_non_exhaustive()
    }
}

impl Admin {
    /// The routes of the admin socket.
    pub fn routes(&self) -> Routes {
        let view = |answer: fn(&Admin) -> Answer| {
            let admin = self.clone();
            move || answer(&admin)
        };
        let ask = |order: Order| {
            let orders = self.orders.clone();
            move |_call| std::future::ready(ask(&orders, order))
        };
        let routes = Routes::new()
            .get("/healthz", || text(StatusCode::OK, "ok\n"))
            .get("/readyz", view(Admin::ready))
            .metrics(self.metrics.clone())
            .get("/config", view(Admin::configuration))
            .get("/store", view(Admin::store))
            .get("/tasks", view(|admin| json(StatusCode::OK, &admin.supervisor.status())))
            .get("/version", version)
            .route(Method::POST, "/drain", ask(Order::Drain))
            .route(Method::POST, "/reload", ask(Order::Reload));
        let routes = match &self.qos {
            Some(qos) => qos.routes(routes),
            None => routes,
        };
        match &self.usage {
            Some(usage) => usage::routes(routes, Arc::clone(usage)),
            None => routes,
        }
    }

    /// The routes of the TCP listener: metrics only, since it has no access control.
    pub fn metrics_routes(&self) -> Routes {
        Routes::new().metrics(self.metrics.clone())
    }

    fn ready(&self) -> Answer {
        let (ready, body) = readiness(self.life.phase(), self.view.readiness());
        json(if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
    }

    fn configuration(&self) -> Answer {
        let registrations = table(&self.view.registrations());
        json(
            StatusCode::OK,
            &json!({
                "flags": self.config.to_json(),
                "registrations": registrations,
            }),
        )
    }

    fn store(&self) -> Answer {
        let mut store = self.view.store();
        redact(&mut store);
        json(StatusCode::OK, &store)
    }
}

fn version() -> Answer {
    let Build { version, commit } = Build::THIS;
    json(StatusCode::OK, &json!({ "version": version, "commit": commit, "pid": std::process::id() }))
}

fn ask(orders: &mpsc::Sender<Order>, order: Order) -> Answer {
    match orders.try_send(order) {
        Ok(()) => text(StatusCode::ACCEPTED, "accepted\n"),
        Err(mpsc::error::TrySendError::Full(_)) => {
            text(StatusCode::CONFLICT, "an earlier request is still being worked on\n")
        }
        Err(mpsc::error::TrySendError::Closed(_)) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "the process is ending\n")
        }
    }
}

fn readiness(phase: Phase, readiness: Readiness) -> (bool, Value) {
    let Readiness { backend_connected, rebuild_done } = readiness;
    // A recovering process serves already; what counts beyond the phase is in the two facts.
    let serving = matches!(phase, Phase::Recovering | Phase::Serving);
    let ready = serving && backend_connected && rebuild_done;
    let body = json!({
        "ready": ready,
        "phase": phase.name(),
        "backend_connected": backend_connected,
        "rebuild_done": rebuild_done,
    });
    (ready, body)
}

fn table(table: &Table) -> Value {
    let servers: Vec<Value> = table.servers().iter().map(|entry| server(entry)).collect();
    let files: Vec<Value> = table.files().iter().map(file).collect();
    json!({ "directory_error": table.directory_error(), "servers": servers, "files": files })
}

/// In the order servers are asked; keys are those of registration files.
fn server(server: &Server) -> Value {
    let Registration {
        endpoint,
        failure_policy_text,
        failure_policy,
        hooks,
        timeout,
        priority,
        resource_merge,
        apply_pod_resources,
        update_scope,
    } = &server.registration;
    json!({
        "file": server.name,
        "remote-endpoint": endpoint.as_str(),
        "failure-policy": failure_policy_text,
        "effective-failure-policy": failure_policy.as_str(),
        "runtime-hooks": hooks.iter().map(|hook| hook.as_str()).collect::<Vec<_>>(),
        "timeout": timeout.map(format_go_duration),
        "priority": priority,
        "resource-merge": match resource_merge {
            ResourceMerge::Koordinator => "koordinator",
            ResourceMerge::Overlay => "overlay",
        },
        "apply-pod-resources": apply_pod_resources,
        "update-scope": match update_scope {
            UpdateScope::Full => "full",
            UpdateScope::Changed => "changed",
        },
    })
}

fn file(report: &FileReport) -> Value {
    json!({ "file": report.name, "error": report.error, "in_force": report.in_force })
}

/// Replaces env values, wherever they are: objects under a key of [`ENV_KEYS`] keep their keys, lists
/// of `{key, value}` keep their keys as well.
fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                if ENV_KEYS.contains(&key.as_str()) { redact_values(field) } else { redact(field) }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

fn redact_values(value: &mut Value) {
    match value {
        Value::Null => {}
        Value::Object(fields) if fields.contains_key("key") => {
            for (name, field) in fields {
                if name != "key" {
                    *field = REDACTED.into();
                }
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| *field = REDACTED.into()),
        Value::Array(items) => items.iter_mut().for_each(redact_values),
        // A text may be `NAME=VALUE`; nothing of it is shown.
        other => *other = REDACTED.into(),
    }
}

#[cfg(test)]
mod tests;
