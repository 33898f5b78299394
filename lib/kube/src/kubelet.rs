//! The HTTP endpoints of a kubelet: its pods, its configuration.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Config;
use kube::client::Body;
use tower::ServiceExt as _;

use crate::client::authority;
use crate::token::TokenFile;
use crate::transport::{Transport, transport};

/// `--kubelet-sync-timeout` of koordlet: for the whole answer.
pub const KUBELET_LIMIT: Duration = Duration::from_secs(3);

/// No kubelet sends more; some ten thousand pods are below.
const LARGEST_ANSWER_BYTES: usize = 128 * 1024 * 1024;

/// How far the kubelet's certificate is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verify {
    /// Not at all, as Koordinator does it: a kubelet's certificate is mostly signed by itself.
    Off,
    /// It must come from an authority in this file. The file is read anew when it is replaced.
    AuthorityFile(PathBuf),
}

/// Which of the kubelet's ports is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeletAccess {
    /// The port with TLS, with a bearer token that the file holds.
    Authenticated {
        /// Token file; read again when it is replaced. `None` sends no token.
        token: Option<PathBuf>,
        /// The kubelet's certificate.
        verify: Verify,
    },
    /// The port without TLS and credentials, which clusters mostly have switched off.
    ReadOnly,
}

/// Where a kubelet is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletOptions {
    /// Address or name of the node.
    pub host: String,
    /// Port.
    pub port: u16,
    /// How it is spoken to.
    pub access: KubeletAccess,
    /// Time for a whole answer.
    pub limit: Duration,
    /// Who asks, for the kubelet's log.
    pub user_agent: String,
}

/// The kubelet did not answer as hoped.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// A file or the address cannot be used.
    #[error("cannot set up the connection to the kubelet at {url}")]
    SetUp {
        /// The kubelet.
        url: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There was no answer, or it broke off. A kubelet that is started again looks like this.
    #[error("no answer from {url}")]
    NoAnswer {
        /// What was asked.
        url: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer was not complete in time.
    #[error("no complete answer from {url} within {} ms", limit.as_millis())]
    Timeout {
        /// What was asked.
        url: String,
        /// How long was waited.
        limit: Duration,
    },
    /// The kubelet says no.
    #[error("{url} answers {status}: {text}")]
    Refused {
        /// What was asked.
        url: String,
        /// The HTTP status.
        status: StatusCode,
        /// The start of what it says.
        text: String,
    },
    /// The answer is larger than any kubelet's.
    #[error("{url} answers with more than {LARGEST_ANSWER_BYTES} octets")]
    TooLarge {
        /// What was asked.
        url: String,
    },
}

/// Asks one kubelet. Clones share connections. When the node's address changes, make another one.
#[derive(Clone)]
pub struct KubeletClient {
    url: String,
    limit: Duration,
    /// Behind a lock, held while it is cloned, so that a shared client can be used by tasks on any thread.
    transport: Arc<Mutex<Transport>>,
}

impl std::fmt::Debug for KubeletClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KubeletClient").field("url", &self.url).finish_non_exhaustive()
    }
}

impl KubeletClient {
    /// Makes a client. Nothing is asked yet. Call it inside the async runtime.
    ///
    /// # Errors
    /// The address is none, or the file of authorities cannot be used.
    pub fn new(options: &KubeletOptions) -> Result<KubeletClient, KubeletError> {
        let (scheme, token) = match &options.access {
            KubeletAccess::Authenticated { token, .. } => ("https", token.clone().map(TokenFile::new)),
            KubeletAccess::ReadOnly => ("http", None),
        };
        let url = format!("{scheme}://{}", authority(&options.host, options.port));
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| KubeletError::SetUp {
            url: url.clone(),
            source,
        };
        let mut config =
            Config::new(url.parse().map_err(|error: http::uri::InvalidUri| failed(error.into()))?);
        config.connect_timeout = Some(options.limit);
        match &options.access {
            KubeletAccess::Authenticated { verify: Verify::AuthorityFile(path), .. } => {
                config.root_cert_file = Some(path.clone());
            }
            // No authorities of the system are needed either way.
            KubeletAccess::Authenticated { verify: Verify::Off, .. } | KubeletAccess::ReadOnly => {
                config.accept_invalid_certs = true;
            }
        }
        let agent =
            HeaderValue::try_from(options.user_agent.as_str()).map_err(|error| failed(error.into()))?;
        config.headers.push((USER_AGENT, agent));
        let transport = transport(&config, token, options.limit).map_err(|error| failed(error.into()))?;
        Ok(KubeletClient { url, limit: options.limit, transport: Arc::new(Mutex::new(transport)) })
    }

    fn transport(&self) -> Transport {
        self.transport.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Scheme, host and port.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Fetches a path such as `/pods/` or `/configz`.
    ///
    /// # Errors
    /// There is no complete answer in time, or it is not 200.
    pub async fn get(&self, path: &str) -> Result<Bytes, KubeletError> {
        let url = format!("{}{path}", self.url);
        match tokio::time::timeout(self.limit, self.fetch(path, &url)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(KubeletError::Timeout { url, limit: self.limit }),
        }
    }

    async fn fetch(&self, path: &str, url: &str) -> Result<Bytes, KubeletError> {
        let no_answer = |source: Box<dyn std::error::Error + Send + Sync>| KubeletError::NoAnswer {
            url: url.to_owned(),
            source,
        };
        let request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(ACCEPT, "application/json")
            .body(Body::empty())
            .map_err(|error| no_answer(error.into()))?;
        let answer = self.transport().oneshot(request).await.map_err(|source| {
            if source.is::<crate::transport::NoAnswerInTime>() {
                KubeletError::Timeout { url: url.to_owned(), limit: self.limit }
            } else {
                no_answer(source)
            }
        })?;
        let status = answer.status();
        let mut body = answer.into_body();
        let mut octets = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| no_answer(error.into()))?;
            if let Ok(data) = frame.into_data() {
                if octets.len() + data.len() > LARGEST_ANSWER_BYTES {
                    return Err(KubeletError::TooLarge { url: url.to_owned() });
                }
                octets.extend_from_slice(&data);
            }
        }
        if status != StatusCode::OK {
            let text = String::from_utf8_lossy(&octets).trim().chars().take(200).collect();
            return Err(KubeletError::Refused { url: url.to_owned(), status, text });
        }
        Ok(octets.freeze())
    }
}

#[cfg(test)]
mod tests;
