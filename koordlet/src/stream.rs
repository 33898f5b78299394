//! The proxy's usage stream.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use koord_runtime::CancellationToken;
use koord_runtime::error_chain::Chain;
use koord_usage::inventory::Inventory;
use koord_usage::time::Tick;
use koord_usage::wire::{Event, Origin, Reader, WireError};
use koord_usage_api::v1;
use koord_usage_api::v1::usage_service_client::UsageServiceClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::source::Source;
use crate::state::{CollectorView, State};

/// Pause between tries to connect.
const CONNECT_EVERY: Duration = Duration::from_secs(1);

/// A stream that is silent for this long is connected anew.
const SILENCE: Duration = Duration::from_secs(15);

/// The largest message: the inventory of some thousand pods.
const LARGEST_MESSAGE: usize = 64 * 1024 * 1024;

/// Why the stream ended.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// There is no socket.
    #[error("there is no socket {}", path.display())]
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be connected to.
    #[error("cannot connect to {}", path.display())]
    Connect {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
    /// The proxy ended the stream.
    #[error("the proxy ended the stream")]
    Ended,
    /// The proxy said no, or the connection broke.
    #[error("the stream broke")]
    Broken(#[source] Box<tonic::Status>),
    /// Nothing came for long.
    #[error("nothing came for {} s", SILENCE.as_secs())]
    Silent,
    /// A message is against the protocol.
    #[error("a message cannot be used")]
    Message(#[from] WireError),
    /// Its times count from another boot.
    #[error("the proxy counts time from boot {theirs}, not from {ours}")]
    Boot {
        /// Its boot.
        theirs: String,
        /// This boot.
        ours: String,
    },
}

fn collectors(states: Vec<v1::CollectorState>) -> Vec<CollectorView> {
    use v1::collector_state::Phase;
    states
        .into_iter()
        .map(|state| CollectorView {
            state: match state.phase() {
                Phase::Ready => "ready",
                Phase::Failed => "failed",
                Phase::Disabled => "disabled",
                Phase::Waiting | Phase::Unspecified => "waiting",
            }
            .to_owned(),
            name: state.name,
            reason: state.reason,
            last_success: state.last_success_tick,
            duration_microseconds: state.duration_microseconds,
            errors: state.errors,
            open_descriptors: state.open_descriptors,
        })
        .collect()
}

/// Applies the messages of one stream.
#[derive(Debug)]
pub struct Follower {
    state: Arc<State>,
    boot_id: String,
    reader: Reader,
    live: Inventory,
    /// The newest sample from before the stream: what is older is known.
    known_to: Option<Tick>,
}

impl Follower {
    /// One that has heard nothing. `boot_id` is that of this machine.
    pub fn new(state: Arc<State>, boot_id: &str) -> Follower {
        let known_to = state.intake.store().stats().newest;
        Follower {
            state,
            boot_id: boot_id.to_owned(),
            reader: Reader::new(),
            live: Inventory::default(),
            known_to,
        }
    }

    /// What is asked for: passes since the newest that is known.
    pub fn request(&self, now: Tick) -> v1::WatchRequest {
        let longest = self.state.intake.store().retention().longest();
        let missing = self.known_to.map_or(longest, |known| now.since(known).min(longest));
        v1::WatchRequest {
            backfill_milliseconds: u64::try_from(missing.as_millis()).unwrap_or(u64::MAX),
            // The system's usage is found here, where host applications are known.
            parts: vec![v1::Part::Node.into(), v1::Part::Pod.into(), v1::Part::Container.into()],
        }
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// It cannot be used; the stream is of no use from then on.
    pub fn message(&mut self, message: v1::WatchResponse, now: Tick) -> Result<(), StreamError> {
        match self.reader.apply(message, now)? {
            Event::Started => {
                let theirs = self.reader.start().map(|start| start.boot_id.clone()).unwrap_or_default();
                if theirs != self.boot_id {
                    return Err(StreamError::Boot { theirs, ours: self.boot_id.clone() });
                }
            }
            Event::InventoryChanged => {
                let layout = Arc::clone(&self.state.layout.borrow());
                let (inventory, refused) = self.reader.inventory(&layout);
                for pod in refused {
                    tracing::debug!(namespace = pod.namespace, pod = pod.name, error = %Chain(&pod.source), "a pod of the stream is passed over");
                }
                self.live = inventory;
                // What is new to the node is new to the kubelet's list as well.
                self.state.wants_pods.notify_one();
            }
            Event::Pass(pass, Origin::Backfill) => {
                if self.known_to.is_none_or(|known| pass.tick > known) {
                    let live = self.state.streamed_inventory(&self.live);
                    self.state.intake.backfill(pass, &live);
                }
            }
            Event::Pass(pass, Origin::Live) => {
                let source = self.state.choice(|choice| {
                    choice.pass(now);
                    choice.at(now)
                });
                if source == Source::Proxy {
                    let live = self.state.streamed_inventory(&self.live);
                    self.state.intake.streamed(pass, &live);
                }
            }
            Event::Collectors(states) => self.state.proxy_collectors(collectors(states)),
            Event::Dropped(passes) => {
                tracing::warn!(passes, "the proxy left passes out, this program reads too slowly");
            }
            Event::Nothing => {}
        }
        Ok(())
    }
}

async fn connect(path: &Path) -> Result<UsageServiceClient<Channel>, StreamError> {
    if !path.exists() {
        return Err(StreamError::Absent { path: path.to_owned() });
    }
    let socket = path.to_owned();
    let connector = tower::service_fn(move |_uri: Uri| {
        let socket = socket.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(socket).await?)) }
    });
    // The address is for the protocol only.
    let channel = Endpoint::from_static("http://koord-runtime-proxy")
        .connect_with_connector(connector)
        .await
        .map_err(|source| StreamError::Connect { path: path.to_owned(), source })?;
    Ok(UsageServiceClient::new(channel).max_decoding_message_size(LARGEST_MESSAGE))
}

async fn follow_once(state: &Arc<State>, path: &Path, boot_id: &str) -> Result<(), StreamError> {
    let mut client = connect(path).await?;
    let mut follower = Follower::new(Arc::clone(state), boot_id);
    let request = follower.request(Tick::now());
    let broken = |status: tonic::Status| StreamError::Broken(Box::new(status));
    let mut stream = client.watch(request).await.map_err(broken)?.into_inner();
    state.has_stream.store(true, Ordering::Relaxed);
    tracing::info!(socket = %path.display(), "the proxy's usage stream is read");
    loop {
        let message =
            tokio::time::timeout(SILENCE, stream.message()).await.map_err(|_elapsed| StreamError::Silent)?;
        match message.map_err(broken)? {
            Some(message) => follower.message(message, Tick::now())?,
            None => return Err(StreamError::Ended),
        }
    }
}

/// Reads the stream, again and again, until `token` is cancelled.
pub async fn follow(state: Arc<State>, path: PathBuf, boot_id: String, token: CancellationToken) {
    let mut told = false;
    loop {
        let end = tokio::select! {
            () = token.cancelled() => return,
            end = follow_once(&state, &path, &boot_id) => end,
        };
        let had_stream = state.has_stream.swap(false, Ordering::Relaxed);
        if had_stream {
            // Its last word on collectors is no longer true.
            state.proxy_collectors(Vec::new());
        }
        if let Err(error) = end {
            match &error {
                StreamError::Absent { .. } | StreamError::Connect { .. } => {
                    state.choice(|choice| choice.absent())
                }
                _ => state.choice(|choice| choice.lost()),
            }
            if had_stream || !told {
                tracing::info!(error = %Chain(&error), "no usage stream of the proxy");
            } else {
                tracing::debug!(error = %Chain(&error), "no usage stream of the proxy");
            }
            told = true;
        }
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(CONNECT_EVERY) => {}
        }
    }
}
