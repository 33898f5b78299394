//! The proxy's usage stream.

use std::sync::Arc;
use std::sync::Mutex;

use hyper_util::rt::TokioIo;
use koord_runtime::error_chain::Chain;
use koord_usage::time::Tick;
use koord_usage::wire::{Event, Reader};
use koord_usage_api::v1;
use koord_usage_api::v1::usage_service_client::UsageServiceClient;
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Status, Streaming};

use super::AVERAGED;
use crate::client::{Client, ClientError};

/// The call, as mistakes name it.
pub(super) const REQUEST: &str = "UsageService/Watch";

/// The largest message: the inventory of some thousand pods.
const LARGEST_MESSAGE: usize = 64 * 1024 * 1024;

/// The proxy's usage stream.
pub(super) struct Stream {
    messages: Streaming<v1::WatchResponse>,
    reader: Reader,
    client: Client,
}

impl Stream {
    /// Asks for the stream, and for the passes that averages are made of.
    pub(super) async fn open(client: &Client) -> Result<Stream, ClientError> {
        // Connected here, since the operating system's reasons are lost on the way through the channel.
        let connection = Arc::new(Mutex::new(Some(client.connect().await?)));
        let connector = tower::service_fn(move |_address: Uri| {
            let connection = connection.lock().ok().and_then(|mut connection| connection.take());
            // There is no second connection: the end of this one is the end of the stream.
            let ended = || std::io::Error::from(std::io::ErrorKind::NotConnected);
            std::future::ready(connection.map(TokioIo::new).ok_or_else(ended))
        });
        let channel = Endpoint::from_static("http://localhost")
            .connect_with_connector(connector)
            .await
            .map_err(|source| lost(client, source.into()))?;
        let request = v1::WatchRequest {
            backfill_milliseconds: u64::try_from(AVERAGED.as_millis()).unwrap_or(u64::MAX),
            parts: Vec::new(),
        };
        let messages = UsageServiceClient::new(channel)
            .max_decoding_message_size(LARGEST_MESSAGE)
            .watch(request)
            .await
            .map_err(|status| failed(client, status))?
            .into_inner();
        Ok(Stream { messages, reader: Reader::new(), client: client.clone() })
    }

    /// What the next message brings.
    pub(super) async fn next(&mut self) -> Result<Event, ClientError> {
        match self.messages.message().await {
            Ok(Some(message)) => {
                self.reader.apply(message, Tick::now()).map_err(|error| lost(&self.client, error.into()))
            }
            Ok(None) => Err(lost(&self.client, "the proxy ended the stream".into())),
            Err(status) => Err(failed(&self.client, status)),
        }
    }

    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }
}

fn lost(client: &Client, source: Box<dyn std::error::Error + Send + Sync>) -> ClientError {
    ClientError::Lost { socket: client.socket().to_owned(), request: REQUEST.to_owned(), source }
}

fn failed(client: &Client, status: Status) -> ClientError {
    match status.code() {
        // Older proxies do not know the service; one with --usage=off does not offer it.
        Code::Unimplemented => ClientError::NoUsage { socket: client.socket().to_owned() },
        Code::ResourceExhausted => {
            ClientError::Busy { request: REQUEST.to_owned(), message: status.message().to_owned() }
        }
        _ => {
            // What broke the connection says more than the status made of it.
            let reason = match std::error::Error::source(&status) {
                Some(source) => Chain(source).to_string(),
                None => format!("{} ({})", status.message(), status.code().description()),
            };
            lost(client, reason.into())
        }
    }
}
