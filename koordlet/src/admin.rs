//! What the agent serves over HTTP: metrics, health and audit on TCP, and the samples on its admin socket.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use http::{HeaderValue, StatusCode, header};
use koord_audit::query::NEXT_PAGE_HEADER;
use koord_node_report::status::MemoryFallback;
use koord_runtime::admin::{self, Answer, Call, Routes};
use koord_runtime::supervisor::Supervisor;
use koord_usage::kind::Kind;
use koord_usage::time::Tick;

use crate::metrics::page;
use crate::readiness::{self, Facts};
use crate::reporter::Reporter;
use crate::scrape::{self, Which};
use crate::state::State;

/// Path of the samples on the admin socket.
pub const DUMP_PATH: &str = "/dump";

/// What is served.
#[derive(Debug, Clone)]
pub struct Admin {
    /// Everything shared.
    pub state: Arc<State>,
    /// The reporter, which knows the next report.
    pub reporter: Arc<Reporter>,
    /// Its tasks are shown.
    pub supervisor: Supervisor,
}

impl Admin {
    fn facts(&self) -> Facts {
        let state = &self.state;
        let now = Tick::now();
        let age = |kind| state.intake.newest(kind).map(|tick| now.since(tick));
        let mut notes = Vec::new();
        if state.is_degraded.load(Ordering::Relaxed) {
            notes.push("directories of pods are scanned because they cannot be watched".to_owned());
        }
        match self.reporter.memory_fallback() {
            Some(MemoryFallback::HotPageCacheUnsupported) => notes.push(
                "memory is reported without page cache, as the kernel does not tell which page cache is in use"
                    .to_owned(),
            ),
            Some(MemoryFallback::NoSamples(_)) => notes
                .push("some memory is reported without page cache, as there are no samples of the wanted sort".to_owned()),
            None => {}
        }
        if !state.node.borrow().is_known() {
            notes.push("the API server has not been heard yet".to_owned());
        }
        Facts {
            pods_age: state.pods_age(now),
            has_pods: !state.inventory.borrow().pods.is_empty(),
            node_sample_age: age(Kind::NodeCpuUsage),
            pod_sample_age: age(Kind::PodCpuUsage),
            source: state.source().as_str(),
            collectors: state.collectors(),
            notes,
        }
    }

    /// Whether the agent does its work, and a line for everything.
    pub fn readiness(&self) -> (bool, String) {
        readiness::judge(&self.facts())
    }

    fn metrics(&self, which: Which) -> Answer {
        admin::answer(
            StatusCode::OK,
            page::CONTENT_TYPE,
            scrape::text(&self.state, Some(&*self.reporter), which),
        )
    }

    fn debug_state(&self) -> Answer {
        let state = &self.state;
        let stats = state.intake.store().stats();
        let (ready, _) = self.readiness();
        let value = serde_json::json!({
            "node": state.config.node_name,
            "ready": ready,
            "source": state.source().as_str(),
            "collectors": state.collectors(),
            "pods": state.pods.borrow().set.pods.len(),
            "measuredPods": state.inventory.borrow().pods.len(),
            "podsAgeSeconds": state.pods_age(Tick::now()).map(|age| age.as_secs_f64()),
            "store": {
                "objects": stats.objects,
                "series": stats.series,
                "bytes": stats.bytes,
                "passes": stats.passes,
                "refused": stats.refused,
            },
            "models": state.predictor().len(),
            "lastReportAgeSeconds": self.reporter.age().map(|age| age.as_secs_f64()),
            "tasks": self.supervisor.status(),
        });
        admin::json(StatusCode::OK, &value)
    }

    fn events(&self, call: &Call) -> Answer {
        let Some(audit) = &self.state.audit else { return admin::text(StatusCode::OK, "") };
        let accept: Vec<&str> =
            call.headers().get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        let reply = audit.answer(
            call.uri().query(),
            &accept,
            koord_audit::auditor::random_token,
            SystemTime::now(),
            Instant::now(),
        );
        let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = admin::answer(status, reply.content_type, reply.body);
        if let Some(Ok(token)) = reply.next_page_token.as_deref().map(HeaderValue::from_str) {
            answer.headers_mut().insert(NEXT_PAGE_HEADER, token);
        }
        answer
    }

    /// The routes of the TCP address.
    pub fn routes(&self) -> Routes {
        let of = |admin: &Admin, which| {
            let admin = admin.clone();
            move || admin.metrics(which)
        };
        let (ready, debug, events) = (self.clone(), self.clone(), self.clone());
        let serves_events = self.state.audit.is_some()
            && self.state.config.gates.enabled(koord_extension::gates::Gate::AuditEventsHttpHandler);
        Routes::new()
            .get("/metrics", of(self, Which::All))
            .get("/internal-metrics", of(self, Which::Internal))
            .get("/external-metrics", of(self, Which::External))
            // That it is answered at all says that the loop of the process runs.
            .get("/healthz", || admin::text(StatusCode::OK, "ok\n"))
            .get("/readyz", move || {
                let (is_ready, text) = ready.readiness();
                let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                admin::text(status, text)
            })
            .get("/debug/state", move || debug.debug_state())
            .route(http::Method::GET, "/events", move |call| {
                let answer =
                    if serves_events { events.events(&call) } else { admin::text(StatusCode::OK, "") };
                std::future::ready(answer)
            })
    }

    /// The routes of the address of the profiler: there is none in this build.
    pub fn profile_routes() -> Routes {
        Routes::new()
    }

    /// The samples whose objects begin with a text, and the report of this moment.
    pub fn dump(&self, object: &str, explain: bool) -> String {
        let mut text = String::new();
        let now = Tick::now();
        // Writing to a String cannot fail, here and below.
        let _infallible = writeln!(
            text,
            "{:<60} {:<44} {:>7} {:>9} {:>9} {:>20}",
            "OBJECT", "SERIES", "SAMPLES", "FIRST", "LAST", "LATEST"
        );
        let ago = |tick: Tick| format!("{:.1}s", now.since(tick).as_secs_f64());
        for info in self.state.intake.store().list() {
            let name = info.object.to_string();
            if !name.starts_with(object) {
                continue;
            }
            let _infallible = writeln!(
                text,
                "{name:<60} {:<44} {:>7} {:>9} {:>9} {:>20}",
                info.kind.as_str(),
                info.count,
                ago(info.first_tick),
                ago(info.last_tick),
                info.last
            );
        }
        let report = self.reporter.report(explain);
        let _infallible = match serde_json::to_string(&report.status) {
            Ok(status) => writeln!(text, "\nstatus of the NodeMetric, if it were written now:\n{status}"),
            Err(error) => writeln!(text, "\nthe status cannot be written as JSON: {error}"),
        };
        if explain {
            let _infallible = writeln!(text, "\nwhere its figures come from:");
            for evidence in &report.evidence {
                let line = serde_json::to_string(evidence).unwrap_or_else(|error| error.to_string());
                let _infallible = writeln!(text, "{line}");
            }
        }
        text
    }

    /// The routes of the admin socket: those of TCP, and the samples.
    pub fn socket_routes(&self) -> Routes {
        let dump = self.clone();
        self.routes().route(http::Method::GET, DUMP_PATH, move |call| {
            let query = call.uri().query().unwrap_or_default();
            let object = query.split('&').find_map(|pair| pair.strip_prefix("object=")).unwrap_or_default();
            let explain = query.split('&').any(|pair| pair == "explain=true");
            std::future::ready(admin::text(StatusCode::OK, dump.dump(object, explain)))
        })
    }
}
