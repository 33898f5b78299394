//! The endpoints about quality of service; their JSON is that of [`koord_admin`].

use std::sync::Arc;

use http::{Method, StatusCode};
use koord_admin::{ErrorBody, HookEntry, ModeChange, RuntimeStatus, path, query, selection};
use koord_runtime::admin::{Answer, Call, Routes, json};
use koord_runtime::supervisor::Supervisor;

use crate::failover::Failover;
use crate::qos::Qos;

/// What the endpoints need.
#[derive(Clone)]
pub struct QosAdmin {
    /// Rules and ledger.
    pub qos: Arc<Qos>,
    /// The connection to the runtime.
    pub failover: Arc<Failover>,
    /// Runs what outlives its caller.
    pub supervisor: Supervisor,
    /// The chain of hooks.
    pub hooks: Arc<dyn Fn() -> Vec<HookEntry> + Send + Sync>,
}

impl std::fmt::Debug for QosAdmin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("QosAdmin").field("qos", &self.qos).finish_non_exhaustive()
    }
}

impl QosAdmin {
    /// Adds the routes.
    pub(super) fn routes(&self, routes: Routes) -> Routes {
        let (status, pods, hooks) = (self.clone(), self.clone(), self.clone());
        let (mode, restore) = (self.clone(), self.clone());
        routes
            .get(path::STATUS, move || json(StatusCode::OK, &status.status()))
            .route(Method::GET, path::PODS, move |call| pods.clone().pods(call))
            .get(path::HOOKS, move || json(StatusCode::OK, &(hooks.hooks)()))
            .route(Method::POST, path::MODE, move |call| std::future::ready(mode.change_mode(&call)))
            .route(Method::POST, path::RESTORE, move |_call| restore.clone().restore())
    }

    fn status(&self) -> koord_admin::NodeStatus {
        let progress = *self.failover.progress().borrow();
        let (name, version) = self.failover.client().runtime_name().unwrap_or_default();
        self.qos.status(RuntimeStatus { connected: progress.connected, name, version })
    }

    async fn pods(self, call: Call) -> Answer {
        let wanted = match query::pod_of_query(call.uri().query()) {
            Ok(wanted) => wanted,
            Err(error) => return refused(StatusCode::BAD_REQUEST, error.to_string()),
        };
        let qos = self.qos.clone();
        let pods = match tokio::task::spawn_blocking(move || qos.pods()).await {
            Ok(pods) => pods,
            Err(error) => return refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        let pods = match wanted {
            Some(text) => selection::filter(pods, &text),
            None => pods,
        };
        json(StatusCode::OK, &pods)
    }

    fn change_mode(&self, call: &Call) -> Answer {
        match serde_json::from_slice::<ModeChange>(call.body()) {
            Ok(change) => {
                self.qos.set_mode(change.mode);
                json(StatusCode::OK, &self.status())
            }
            Err(error) => refused(
                StatusCode::BAD_REQUEST,
                format!("{error}; accepted: {{\"mode\": \"enforce\"}}, \"shadow\" or \"off\""),
            ),
        }
    }

    async fn restore(self) -> Answer {
        // A caller that hangs up must not leave half of it undone.
        let (done, report) = tokio::sync::oneshot::channel();
        self.supervisor.clone().spawn_once("restore", async move {
            let _hung_up = done.send(self.qos.restore(self.failover.client()).await);
            Ok(())
        });
        match report.await {
            Ok(report) => json(StatusCode::OK, &report),
            Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

fn refused(status: StatusCode, error: String) -> Answer {
    json(status, &ErrorBody { error })
}
