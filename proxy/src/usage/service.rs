//! The stream for other programs, on the admin socket.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::Stream;
use http_body_util::BodyExt as _;
use koord_runtime::admin::{BodyError, Closing, Routes};
use koord_usage::time::Tick;
use koord_usage::wire::{Backfill, Parts, Teller};
use koord_usage_api::v1;
use koord_usage_api::v1::usage_service_server::{UsageService, UsageServiceServer};
use koord_usage_api::v1::watch_response::Event;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service as _;
use tonic::{Request, Response, Status};

use super::{Published, Usage};
use crate::admin::Build;

/// Full name of the service.
pub const SERVICE: &str = "koord.usage.v1.UsageService";

/// Clients at a time: koordlet and a few people with koordctl.
const MOST_WATCHERS: usize = 16;

/// How often the state of collectors is told without a change.
const COLLECTORS_INTERVAL: Duration = Duration::from_secs(10);

/// Adds the service.
#[must_use]
pub fn routes(routes: Routes, usage: Arc<Usage>) -> Routes {
    let server = UsageServiceServer::new(Server(usage));
    routes.service(SERVICE, move |call| {
        let mut server = server.clone();
        async move {
            let answer = match server.call(call).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            answer.map(|body| body.map_err(|status| BodyError(Box::new(status))).boxed_unsync())
        }
    })
}

#[derive(Debug, Clone)]
struct Server(Arc<Usage>);

type Messages = Pin<Box<dyn Stream<Item = Result<v1::WatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl UsageService for Server {
    type WatchStream = Messages;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Messages>, Status> {
        let closing = request
            .extensions()
            .get::<Closing>()
            .map_or_else(CancellationToken::new, |closing| closing.0.clone());
        let slot = Slot::take(&self.0)
            .ok_or_else(|| Status::resource_exhausted(format!("{MOST_WATCHERS} clients watch already")))?;
        let watcher = Watcher::new(slot, request.get_ref(), closing);
        let messages = futures_util::stream::unfold(watcher, |mut watcher| async move {
            let message = watcher.next().await?;
            Some((message, watcher))
        });
        Ok(Response::new(Box::pin(messages)))
    }
}

/// The place of one client.
#[derive(Debug)]
struct Slot(Arc<Usage>);

impl Slot {
    fn take(usage: &Arc<Usage>) -> Option<Slot> {
        let room = |taken: usize| (taken < MOST_WATCHERS).then_some(taken + 1);
        usage.watchers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Slot(Arc::clone(usage)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What one client gets. It works only when the client has room for more.
#[derive(Debug)]
struct Watcher {
    slot: Slot,
    teller: Teller,
    passes: broadcast::Receiver<Arc<Published>>,
    messages: VecDeque<v1::WatchResponse>,
    backfill: Option<Backfill>,
    /// Passes up to this tick are told.
    told: Option<Tick>,
    collectors: Option<(Arc<Vec<v1::CollectorState>>, Tick)>,
    closing: CancellationToken,
    has_ended: bool,
}

impl Watcher {
    fn new(slot: Slot, request: &v1::WatchRequest, closing: CancellationToken) -> Watcher {
        let usage = &slot.0;
        let passes = usage.listeners.subscribe();
        let parts = Parts::of(request);
        let mut teller = Teller::new(parts);
        let now = Tick::now();
        let mut messages = VecDeque::from([response(Event::Start(v1::Start {
            boot_id: usage.boot_id.clone(),
            now_tick: now.milliseconds(),
            interval_milliseconds: u32::try_from(usage.interval.as_millis()).unwrap_or(u32::MAX),
            server: Build::THIS.to_string(),
            cpus: usage.cpus,
            memory_bytes: usage.memory,
        }))]);
        let (mut backfill, mut told) = (None, None);
        // A pass that is published meanwhile is among those to come as well, and is told once.
        if let Some(latest) = usage.latest() {
            messages.extend(teller.inventory(&latest.measured.pods));
            told = Some(latest.pass.tick);
            if request.backfill_milliseconds > 0 {
                let from = latest.pass.tick.back(Duration::from_millis(request.backfill_milliseconds));
                let windows = Arc::clone(usage.windows());
                backfill = Some(Backfill::new(windows, parts, from, latest.pass.tick));
            }
        }
        Watcher {
            slot,
            teller,
            passes,
            messages,
            backfill,
            told,
            collectors: None,
            closing,
            has_ended: false,
        }
    }

    /// The next message; waits for one. After an error there is nothing more.
    async fn next(&mut self) -> Option<Result<v1::WatchResponse, Status>> {
        loop {
            if self.has_ended {
                return None;
            }
            if let Some(message) = self.messages.pop_front() {
                return Some(Ok(message));
            }
            if let Some(backfill) = &mut self.backfill {
                match backfill.next() {
                    Some(pass) => return Some(Ok(self.teller.pass(&pass, true))),
                    None => self.backfill = None,
                }
            }
            let published = tokio::select! {
                biased;
                () = self.closing.cancelled() => Err(RecvError::Closed),
                published = self.passes.recv() => published,
            };
            match published {
                Ok(published) => self.take(&published),
                Err(RecvError::Lagged(passes)) => {
                    self.slot.0.dropped.fetch_add(passes, Ordering::Relaxed);
                    self.messages.push_back(response(Event::Dropped(v1::Dropped { passes })));
                }
                Err(RecvError::Closed) => {
                    self.has_ended = true;
                    return Some(Err(Status::unavailable("the server is ending")));
                }
            }
        }
    }

    fn take(&mut self, published: &Published) {
        let tick = published.pass.tick;
        if self.told.is_some_and(|told| tick <= told) {
            return;
        }
        self.told = Some(tick);
        self.messages.extend(self.teller.inventory(&published.measured.pods));
        self.messages.push_back(self.teller.pass(&published.pass, false));
        let is_known = self.collectors.as_ref().is_some_and(|(told, at)| {
            tick.since(*at) < COLLECTORS_INTERVAL && are_alike(told, &published.collectors)
        });
        if !is_known {
            let collectors = Vec::clone(&published.collectors);
            self.collectors = Some((Arc::clone(&published.collectors), tick));
            self.messages.push_back(response(Event::Collectors(v1::CollectorStates { collectors })));
        }
    }
}

/// Whether collectors stand as they stood; figures change all the time.
fn are_alike(one: &[v1::CollectorState], two: &[v1::CollectorState]) -> bool {
    one.len() == two.len()
        && one
            .iter()
            .zip(two)
            .all(|(one, two)| (&one.name, one.phase, &one.reason) == (&two.name, two.phase, &two.reason))
}

fn response(event: Event) -> v1::WatchResponse {
    v1::WatchResponse { event: Some(event) }
}
