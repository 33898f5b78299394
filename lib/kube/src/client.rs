//! Where the API server is, who we are there, and the client.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::ServiceBuilder;

use crate::limit::{LimitLayer, Rate};
use crate::observe::{ObserveLayer, Observer};
use crate::token::TokenFile;
use crate::transport::transport;

/// Where a pod finds the files of its service account.
pub const SERVICE_ACCOUNT_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Time until the head of an answer. Longer than the server's own limit would leave a hung connection in use; the
/// server ends a request that is no watch after 60 s.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// Where the API server is and who we are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A kubeconfig file.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Another context than the file's current one.
        context: Option<String>,
    },
    /// The service account of a pod.
    InCluster {
        /// Address or name: `KUBERNETES_SERVICE_HOST`.
        host: String,
        /// `KUBERNETES_SERVICE_PORT`.
        port: u16,
        /// Folder with `token`, `ca.crt` and `namespace`.
        folder: PathBuf,
    },
}

/// The API server's place or a setting cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Neither a file nor the variables of a pod.
    #[error("no API server: give --kubeconfig, or run in a pod (KUBERNETES_SERVICE_HOST is not set)")]
    NoServer,
    /// The port of the API server is no port.
    #[error("KUBERNETES_SERVICE_PORT is {value:?}; accepted is 1 to 65535")]
    Port {
        /// What was given.
        value: String,
    },
    /// The kubeconfig file cannot be used.
    #[error("cannot use the kubeconfig file {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// A file of the service account cannot be read.
    #[error("cannot read {}", path.display())]
    ServiceAccount {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The address of the server is no URL.
    #[error("{value:?} is no address of an API server")]
    Address {
        /// What was given.
        value: String,
    },
    /// The user agent has characters that no header may have.
    #[error("user agent {value:?} has characters that a header may not have")]
    UserAgent {
        /// What was given.
        value: String,
    },
    /// The limit of requests makes no sense.
    #[error(
        "{per_second} requests per second with a burst of {burst}: accepted is more than 0 and at least 1"
    )]
    Rate {
        /// Given requests per second.
        per_second: f64,
        /// Given burst.
        burst: u32,
    },
    /// Certificates, keys or credentials cannot be used.
    #[error("cannot set up the connection to {server}")]
    Connection {
        /// The server.
        server: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
}

impl Source {
    /// The file if one is given, else the pod's service account. `host` and `port` are the values of
    /// `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`.
    ///
    /// # Errors
    /// Neither is given, or the port is none.
    pub fn choose(
        kubeconfig: Option<PathBuf>,
        host: Option<&str>,
        port: Option<&str>,
    ) -> Result<Source, ConfigError> {
        if let Some(path) = kubeconfig {
            return Ok(Source::Kubeconfig { path, context: None });
        }
        let Some(host) = host.filter(|host| !host.is_empty()) else { return Err(ConfigError::NoServer) };
        let port = port.filter(|port| !port.is_empty()).unwrap_or("443");
        match port.parse() {
            Ok(number) if number > 0 => Ok(Source::InCluster {
                host: host.to_owned(),
                port: number,
                folder: PathBuf::from(SERVICE_ACCOUNT_FOLDER),
            }),
            _ => Err(ConfigError::Port { value: port.to_owned() }),
        }
    }
}

/// Settings of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientOptions {
    /// Where the server is.
    pub source: Source,
    /// Who asks, for the server's log and audit.
    pub user_agent: String,
    /// Limit of requests; `None` for none. A watch counts as one request.
    pub rate: Option<Rate>,
    /// Time until the head of an answer.
    pub request_limit: Duration,
}

impl ClientOptions {
    /// The usual settings.
    pub fn new(source: Source, user_agent: &str) -> ClientOptions {
        ClientOptions {
            source,
            user_agent: user_agent.to_owned(),
            rate: Some(Rate::default()),
            request_limit: REQUEST_LIMIT,
        }
    }
}

/// Makes a client. Nothing is asked of the server: it may be away, now and later. `observer` is told of every request;
/// `Arc::new(())` listens to none. Call it inside the async runtime.
///
/// # Errors
/// A file or a setting cannot be used.
pub async fn connect(options: &ClientOptions, observer: Arc<dyn Observer>) -> Result<Client, ConfigError> {
    if let Some(rate) = options.rate
        && !(rate.per_second > 0.0 && rate.per_second.is_finite() && rate.burst >= 1)
    {
        return Err(ConfigError::Rate { per_second: rate.per_second, burst: rate.burst });
    }
    let (mut config, token) = configuration(&options.source).await?;
    let agent = HeaderValue::try_from(options.user_agent.as_str())
        .map_err(|_invalid| ConfigError::UserAgent { value: options.user_agent.clone() })?;
    config.headers.push((USER_AGENT, agent));
    let stack = transport(&config, token, options.request_limit).map_err(|source| {
        ConfigError::Connection { server: config.cluster_url.to_string(), source: Box::new(source) }
    })?;
    // From outside to inside: the queue, the count of what is really sent, the wire.
    let service = ServiceBuilder::new()
        .layer(tower::util::option_layer(options.rate.map(LimitLayer::new)))
        .layer(ObserveLayer::new(observer))
        .service(stack);
    Ok(Client::new(service, config.default_namespace))
}

async fn configuration(source: &Source) -> Result<(Config, Option<TokenFile>), ConfigError> {
    match source {
        Source::Kubeconfig { path, context } => {
            let failed = |source| ConfigError::Kubeconfig { path: path.clone(), source: Box::new(source) };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
            let config = Config::from_custom_kubeconfig(file, &options).await.map_err(failed)?;
            Ok((config, None))
        }
        Source::InCluster { host, port, folder } => {
            let value = authority(host, *port);
            let address = format!("https://{value}").parse();
            let mut config = Config::new(address.map_err(|_invalid| ConfigError::Address { value })?);
            // Read anew by the connector when it is replaced; it must be there at the start.
            let authority = folder.join("ca.crt");
            readable(&authority)?;
            config.root_cert_file = Some(authority);
            if let Ok(namespace) = fs::read_to_string(folder.join("namespace")) {
                config.default_namespace = namespace.trim().to_owned();
            }
            Ok((config, Some(TokenFile::new(folder.join("token")))))
        }
    }
}

fn readable(path: &Path) -> Result<(), ConfigError> {
    fs::File::open(path)
        .map(|_opened| ())
        .map_err(|source| ConfigError::ServiceAccount { path: path.to_path_buf(), source })
}

/// Host and port as they stand in a URL.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_wins_over_the_pod_s_variables() {
        let file = Some(PathBuf::from("/etc/kubeconfig"));
        let expected = Source::Kubeconfig { path: "/etc/kubeconfig".into(), context: None };
        assert_eq!(Source::choose(file, Some("10.0.0.1"), Some("443")).unwrap(), expected);
    }

    #[test]
    fn a_pod_s_variables_name_the_server() {
        let in_cluster =
            |port| Source::InCluster { host: "10.0.0.1".into(), port, folder: SERVICE_ACCOUNT_FOLDER.into() };
        for (port, expected) in [(Some("6443"), 6443), (Some("65535"), 65535), (Some(""), 443), (None, 443)] {
            assert_eq!(Source::choose(None, Some("10.0.0.1"), port).unwrap(), in_cluster(expected));
        }
        for port in ["0", "65536", "-1", "https", "443 "] {
            let error = Source::choose(None, Some("10.0.0.1"), Some(port)).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("KUBERNETES_SERVICE_PORT is {port:?}; accepted is 1 to 65535")
            );
        }
        for host in [None, Some("")] {
            assert!(matches!(Source::choose(None, host, Some("443")), Err(ConfigError::NoServer)));
        }
    }

    #[test]
    fn addresses_of_version_six_have_brackets() {
        assert_eq!(authority("fd00::1", 10250), "[fd00::1]:10250");
        assert_eq!(authority("[fd00::1]", 10250), "[fd00::1]:10250");
        assert_eq!(authority("10.0.0.1", 443), "10.0.0.1:443");
        assert_eq!(authority("node-1.example", 443), "node-1.example:443");
    }

    fn options(source: Source) -> ClientOptions {
        ClientOptions::new(source, "koordlet")
    }

    async fn refused(options: &ClientOptions) -> String {
        connect(options, Arc::new(())).await.map(|_client| ()).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn settings_that_cannot_be_used_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("kubeconfig");
        let mut wrong = options(Source::Kubeconfig { path: missing.clone(), context: None });
        assert_eq!(refused(&wrong).await, format!("cannot use the kubeconfig file {}", missing.display()));
        let pod = Source::InCluster { host: "10.0.0.1".into(), port: 443, folder: folder.path().into() };
        let authority = folder.path().join("ca.crt");
        assert_eq!(refused(&options(pod)).await, format!("cannot read {}", authority.display()));
        for (per_second, burst) in [(0.0, 30), (-1.0, 30), (f64::NAN, 30), (f64::INFINITY, 30), (20.0, 0)] {
            wrong.rate = Some(Rate { per_second, burst });
            assert!(refused(&wrong).await.contains("accepted is more than 0 and at least 1"));
        }
    }

    #[tokio::test]
    async fn a_client_is_made_while_the_server_is_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        // The port of a listener that is gone: nobody answers there.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        fs::write(
            &path,
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n\
                 users: [{{name: u, user: {{token: t}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: u, namespace: here}}}}]\n"
            ),
        )
        .unwrap();
        let client =
            connect(&options(Source::Kubeconfig { path, context: None }), Arc::new(())).await.unwrap();
        assert_eq!(client.default_namespace(), "here");
        let failure = crate::Failure::of(client.apiserver_version().await.unwrap_err());
        assert_eq!(failure.reason(), "no_answer");
    }
}
