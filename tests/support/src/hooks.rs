//! Hook servers for tests: answers worked out by the protocol's rules, and a server that misbehaves on demand.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use koord_hook::v1alpha1::{
    ContainerResourceHookRequest, ContainerResourceHookResponse, PodSandboxHookRequest,
    PodSandboxHookResponse,
};
use prost::Message;

use crate::runtime::{Behaviour, Ending, FakeRuntime, Recorded, Reply, unary};

/// All hook types the proxy calls, as a registration names them.
pub const ALL_HOOKS: [&str; 7] = [
    "PreRunPodSandbox",
    "PostStopPodSandbox",
    "PreCreateContainer",
    "PreStartContainer",
    "PostStartContainer",
    "PreUpdateContainerResources",
    "PostStopContainer",
];

/// The answer that changes nothing: every request field that the answer has too.
pub fn echo_pod(request: PodSandboxHookRequest) -> PodSandboxHookResponse {
    PodSandboxHookResponse {
        labels: request.labels,
        annotations: request.annotations,
        cgroup_parent: request.cgroup_parent,
        resources: request.resources,
    }
}

/// The answer that changes nothing: every request field that the answer has too.
pub fn echo_container(request: ContainerResourceHookRequest) -> ContainerResourceHookResponse {
    ContainerResourceHookResponse {
        container_annotations: request.container_annotations,
        container_resources: request.container_resources,
        pod_cgroup_parent: request.pod_cgroup_parent,
        container_envs: request.container_envs,
    }
}

/// The text of a registration file.
pub fn registration(socket: &Path, policy: &str, hooks: &[&str]) -> String {
    format!(
        "{:#}\n",
        serde_json::json!({ "remote-endpoint": socket, "failure-policy": policy, "runtime-hooks": hooks })
    )
}

/// A function from a hook request to a hook answer.
pub type Answerer<Request, Response> = Arc<dyn Fn(Request) -> Response + Send + Sync>;

/// What the fake hook server does with a call.
#[derive(Clone)]
pub enum Script {
    /// Sends back what the request said.
    Echo,
    /// Answers through these functions.
    Answer {
        /// For pods.
        pod: Answerer<PodSandboxHookRequest, PodSandboxHookResponse>,
        /// For containers.
        container: Answerer<ContainerResourceHookRequest, ContainerResourceHookResponse>,
    },
    /// Sends this payload, whatever was asked.
    Bytes(Vec<u8>),
    /// Accepts the call and never answers.
    Hang,
    /// Echoes after this time.
    Slow(Duration),
    /// Ends the connection within the call.
    Crash,
    /// Answers a gRPC status.
    Status(u32, String),
    /// Resets the stream.
    Reset(u32),
}

impl std::fmt::Debug for Script {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Echo => "Echo",
            Self::Answer { .. } => "Answer",
            Self::Bytes(_) => "Bytes",
            Self::Hang => "Hang",
            Self::Slow(_) => "Slow",
            Self::Crash => "Crash",
            Self::Status(..) => "Status",
            Self::Reset(_) => "Reset",
        })
    }
}

/// A hook server on raw frames.
#[derive(Debug)]
pub struct FakeHookServer {
    server: FakeRuntime,
    script: Arc<Mutex<Script>>,
}

impl FakeHookServer {
    /// Listens on `socket`.
    pub fn start(socket: impl Into<PathBuf>, script: Script) -> io::Result<Self> {
        let script = Arc::new(Mutex::new(script));
        let server = FakeRuntime::start(socket, behaviour(Arc::clone(&script)))?;
        Ok(Self { server, script })
    }

    /// Calls from now on are treated like this.
    pub fn script(&self, script: Script) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
    }

    /// Writes a registration of this server into `directory` under `name`, in one step.
    pub fn register(&self, directory: &Path, name: &str, policy: &str, hooks: &[&str]) -> io::Result<()> {
        write_registration(directory, name, &registration(self.server.socket(), policy, hooks))
    }

    /// Ends all connections and removes the socket.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Listens again after [`FakeHookServer::kill`].
    pub fn listen(&mut self) -> io::Result<()> {
        self.server.listen()
    }

    /// The server, for its records.
    pub fn server(&self) -> &FakeRuntime {
        &self.server
    }

    /// Calls of a hook so far; `hook` without the `Hook` at the end.
    pub fn calls(&self, hook: &str) -> Vec<Recorded> {
        self.server.calls_of(&format!("{hook}Hook"))
    }

    /// All calls so far, as hook names in order.
    pub fn sequence(&self) -> Vec<String> {
        let name = |call: &Recorded| call.method().strip_suffix("Hook").unwrap_or_default().to_owned();
        self.server.calls().iter().map(name).collect()
    }

    /// The requests of a pod hook, decoded.
    ///
    /// # Panics
    /// When one does not decode.
    #[track_caller]
    pub fn pod_requests(&self, hook: &str) -> Vec<PodSandboxHookRequest> {
        self.calls(hook).iter().map(|call| decode(&call.message())).collect()
    }

    /// The requests of a container hook, decoded.
    ///
    /// # Panics
    /// When one does not decode.
    #[track_caller]
    pub fn container_requests(&self, hook: &str) -> Vec<ContainerResourceHookRequest> {
        self.calls(hook).iter().map(|call| decode(&call.message())).collect()
    }
}

/// Decodes a message of the test's own making or the proxy's.
///
/// # Panics
/// When it does not decode.
#[track_caller]
pub fn decode<M: Message + Default>(bytes: &[u8]) -> M {
    match M::decode(bytes) {
        Ok(message) => message,
        Err(error) => panic!("{error}: {bytes:02x?}"),
    }
}

/// Writes a file into a registration directory under a hidden name and renames it.
pub fn write_registration(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    let hidden = directory.join(format!(".{name}.new"));
    std::fs::write(&hidden, text)?;
    std::fs::rename(&hidden, directory.join(name))
}

fn behaviour(script: Arc<Mutex<Script>>) -> Behaviour {
    unary(move |call, message| {
        let script = script.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_pod = call.method().contains("PodSandbox");
        let echo = |message: &[u8]| {
            if is_pod {
                PodSandboxHookRequest::decode(message).map(|request| echo_pod(request).encode_to_vec())
            } else {
                ContainerResourceHookRequest::decode(message)
                    .map(|request| echo_container(request).encode_to_vec())
            }
        };
        let answer = match script {
            Script::Echo => echo(message),
            Script::Slow(delay) => return echo(message).map_or_else(undecodable, Reply::ok).after(delay),
            Script::Answer { pod, container } => {
                if is_pod {
                    PodSandboxHookRequest::decode(message).map(|request| pod(request).encode_to_vec())
                } else {
                    ContainerResourceHookRequest::decode(message)
                        .map(|request| container(request).encode_to_vec())
                }
            }
            Script::Bytes(bytes) => Ok(bytes),
            Script::Hang => return Reply::ending(Ending::Hang),
            Script::Crash => return Reply::ending(Ending::Disconnect),
            Script::Status(status, text) => return Reply::error(status, &text),
            Script::Reset(code) => return Reply::ending(Ending::Reset(code)),
        };
        answer.map_or_else(undecodable, Reply::ok)
    })
}

fn undecodable(error: prost::DecodeError) -> Reply {
    Reply::error(3, &error.to_string().replace(' ', "%20"))
}
