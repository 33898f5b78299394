//! Endpoints of container runtimes, and where the proxy listens.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Where the proxy listens unless the runtime is CRI-O.
pub const PROXY_SOCKET: &str = "/run/koord-runtimeproxy/runtimeproxy.sock";

/// Where the proxy listens in front of CRI-O. The kubelet takes its statistics from its built-in cAdvisor if its
/// endpoint ends with [`CRI_O_SUFFIX`], else from the CRI; this path keeps that choice as it was.
pub const PROXY_SOCKET_FOR_CRI_O: &str = "/run/koord-runtimeproxy/run/crio/crio.sock";

/// The end of an endpoint by which a kubelet recognises CRI-O.
pub const CRI_O_SUFFIX: &str = "run/crio/crio.sock";

/// The endpoint of a kubelet from 1.27 on that is told none.
pub const KUBELET_DEFAULT: &str = "/run/containerd/containerd.sock";

/// A unix socket of a container runtime. Held is its cleaned path as it was written, so `/var/run` stays; see
/// [`Endpoint::is_same`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Endpoint(String);

impl Endpoint {
    /// Reads an absolute path, `unix:/path` or `unix:///path`; nothing for anything else.
    pub fn parse(text: &str) -> Option<Endpoint> {
        let text = text.trim();
        let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
        if !path.starts_with('/') || path.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return None;
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        (!parts.is_empty() && !parts.contains(&"..")).then(|| Endpoint(format!("/{}", parts.join("/"))))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The path as a text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// With the scheme, as kubelets want it.
    pub fn url(&self) -> String {
        format!("unix://{}", self.0)
    }

    /// Whether both mean one socket; `/var/run` is `/run` on every system with systemd.
    pub fn is_same(&self, other: &Endpoint) -> bool {
        real(&self.0) == real(&other.0)
    }

    /// What listens there by the path's name.
    pub fn kind(&self) -> Kind {
        let path = real(&self.0);
        if path.starts_with("/run/koord-runtimeproxy/") {
            return Kind::Proxy;
        }
        if path.ends_with(CRI_O_SUFFIX) {
            return Kind::Runtime("CRI-O");
        }
        for (socket, name) in RUNTIMES {
            if path == socket {
                return Kind::Runtime(name);
            }
        }
        for (part, name) in OTHER_PROXIES {
            if path.contains(part) {
                return Kind::OtherProxy(name);
            }
        }
        Kind::Unknown
    }

    /// Where the proxy has to listen in front of this runtime.
    pub fn proxy(&self) -> Endpoint {
        let socket = if self.0.ends_with(CRI_O_SUFFIX) { PROXY_SOCKET_FOR_CRI_O } else { PROXY_SOCKET };
        Endpoint(socket.to_owned())
    }

    /// The unit that serves the socket, as far as the path tells.
    pub fn runtime_unit(&self) -> Option<&'static str> {
        match self.kind() {
            Kind::Runtime("containerd") => Some("containerd.service"),
            Kind::Runtime("CRI-O") => Some("crio.service"),
            Kind::Runtime("cri-dockerd") => Some("cri-docker.service"),
            _ => None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.url())
    }
}

/// What listens at an endpoint, judged by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A runtime of this name.
    Runtime(&'static str),
    /// Our proxy.
    Proxy,
    /// A proxy of another make.
    OtherProxy(&'static str),
    /// Something else.
    Unknown,
}

/// Sockets that runtimes listen at by default.
const RUNTIMES: [(&str, &str); 6] = [
    ("/run/containerd/containerd.sock", "containerd"),
    ("/run/cri-dockerd.sock", "cri-dockerd"),
    ("/run/k3s/containerd/containerd.sock", "containerd of k3s"),
    ("/run/k3s/cri-dockerd/cri-dockerd.sock", "cri-dockerd of k3s"),
    ("/run/k0s/containerd.sock", "containerd of k0s"),
    ("/run/dockershim.sock", "dockershim"),
];

/// Parts of paths that proxies of others have.
const OTHER_PROXIES: [(&str, &str); 4] = [
    ("/cri-resmgr/", "CRI resource manager"),
    ("/cri-resource-manager/", "CRI resource manager"),
    ("/cri-rm/", "CRI resource manager"),
    ("/koordlet/", "koordlet"),
];

fn real(path: &str) -> &str {
    if path.starts_with("/var/run/") { path.trim_start_matches("/var") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Endpoint {
        Endpoint::parse(text).unwrap()
    }

    #[test]
    fn spellings() {
        for text in ["/run/a.sock", "unix:/run/a.sock", "unix:///run/a.sock", " unix:////run//./a.sock\n"] {
            assert_eq!(endpoint(text).as_str(), "/run/a.sock", "{text:?}");
        }
        assert_eq!(endpoint("/run/a.sock").url(), "unix:///run/a.sock");
        for text in
            ["", "/", "run/a.sock", "tcp://1.2.3.4:5", "unix://a", "/run/../a", "/run/a b", "npipe:////./x"]
        {
            assert_eq!(Endpoint::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn var_run_is_run() {
        assert!(endpoint("/var/run/a/b.sock").is_same(&endpoint("unix:///run/a/b.sock")));
        assert!(!endpoint("/var/runs/a.sock").is_same(&endpoint("/runs/a.sock")));
        assert!(!endpoint("/var/run/a.sock").is_same(&endpoint("/run/b.sock")));
    }

    #[test]
    fn kinds() {
        for (text, kind) in [
            ("unix:///var/run/containerd/containerd.sock", Kind::Runtime("containerd")),
            ("/run/crio/crio.sock", Kind::Runtime("CRI-O")),
            ("/var/run/crio/crio.sock", Kind::Runtime("CRI-O")),
            ("/run/k3s/containerd/containerd.sock", Kind::Runtime("containerd of k3s")),
            ("/var/run/koord-runtimeproxy/runtimeproxy.sock", Kind::Proxy),
            // Ends as CRI-O's does, and is the proxy's.
            (PROXY_SOCKET_FOR_CRI_O, Kind::Proxy),
            ("/var/run/cri-resmgr/cri-resmgr.sock", Kind::OtherProxy("CRI resource manager")),
            ("/run/mine.sock", Kind::Unknown),
        ] {
            assert_eq!(endpoint(text).kind(), kind, "{text}");
        }
    }

    #[test]
    fn the_proxy_keeps_the_end_that_kubelets_look_at() {
        for (runtime, proxy) in [
            ("/run/containerd/containerd.sock", PROXY_SOCKET),
            ("unix:///var/run/crio/crio.sock", PROXY_SOCKET_FOR_CRI_O),
            ("/opt/run/crio/crio.sock", PROXY_SOCKET_FOR_CRI_O),
            ("/run/crio/other.sock", PROXY_SOCKET),
        ] {
            let proxy_endpoint = endpoint(runtime).proxy();
            assert_eq!(proxy_endpoint.as_str(), proxy, "{runtime}");
            assert_eq!(
                proxy_endpoint.url().ends_with(CRI_O_SUFFIX),
                runtime.ends_with(CRI_O_SUFFIX),
                "{runtime}"
            );
        }
    }
}
