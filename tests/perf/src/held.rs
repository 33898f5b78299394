//! The proxy's relay with an interceptor of its own process: the cost of holding and editing, without a hook server's.

use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use koord_cri::edit::{Edit, Patch};
use koord_runtime::supervisor::Supervisor;
use koord_runtime_proxy::flags::PeerCheck;
use koord_runtime_proxy::metrics::Metrics;
use koord_runtime_proxy::peer::PeerRule;
use koord_runtime_proxy::pipeline::{BoxFuture, Outcome, RequestHead, TapMode, Verdict};
use koord_runtime_proxy::relay::{Acceptor, Begun, Interceptor, Relay, RelayOptions};

use crate::messages::Case;

/// Adds an annotation to every pod.
#[derive(Debug)]
struct Annotate {
    patch: Patch,
}

impl Annotate {
    fn new() -> Self {
        let mut patch = Patch::new();
        let note = BTreeMap::from([("example.com/added".to_owned(), "by-the-bench".to_owned())]);
        // PodSandboxConfig is field 1 of the request; its annotations are field 7.
        patch.message(1).set(7, Edit::Map(note));
        Self { patch }
    }
}

impl Interceptor for Annotate {
    type Call = ();

    fn mode(&self, path: &str) -> TapMode {
        if path == Case::Hold7k1.path() { TapMode::Hold } else { TapMode::Pass }
    }

    fn start(self: &Arc<Self>, _head: RequestHead, message: Vec<u8>) -> Begun<()> {
        let verdict = match self.patch.apply(&message) {
            Ok(Some(edited)) => Verdict::Replace(edited),
            Ok(None) | Err(_) => Verdict::Forward,
        };
        Begun::Ready(verdict, ())
    }

    fn finish(self: &Arc<Self>, _call: (), _outcome: Outcome<'_>) -> Option<BoxFuture<()>> {
        None
    }
}

/// Serves for ever.
pub(crate) fn serve(listen: &Path, backend: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let supervisor = Supervisor::new(runtime.handle().clone());
    let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
    let options = RelayOptions {
        backend: backend.to_owned(),
        image_backend: None,
        backend_wait: Duration::from_secs(3),
        max_message_bytes: 32 << 20,
        filter: None,
    };
    let listener = UnixListener::bind(listen).with_context(|| listen.display().to_string())?;
    listener.set_nonblocking(true)?;
    let relay = Relay::new(options, Arc::new(Annotate::new()), metrics, supervisor.clone());
    let _acceptor =
        Acceptor::start(&relay, &listener, PeerRule::new(PeerCheck::Off, backend.to_owned()), &supervisor)?;
    runtime.block_on(std::future::pending::<()>());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_adds_one_annotation() {
        let request = Case::Hold7k1.request();
        let edited = Annotate::new().patch.apply(&request).unwrap().unwrap();
        let decoded: koord_cri::v1::RunPodSandboxRequest = koord_testing::hooks::decode(&edited);
        let annotations = decoded.config.unwrap().annotations;
        assert_eq!(annotations.len(), 21);
        assert_eq!(annotations["example.com/added"], "by-the-bench");
    }
}
