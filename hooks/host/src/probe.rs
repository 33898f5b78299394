//! Trying a library out, for operators: what it says of itself, and what it answers to a request of each stage.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use koord_hook::HookType;
use koord_hook::v1alpha1::{
    ContainerMetadata, ContainerResourceHookRequest, ContainerResourceHookResponse, LinuxContainerResources,
    PodSandboxHookRequest, PodSandboxHookResponse, PodSandboxMetadata,
};
use prost::Message;

use crate::isolated::frame::{self, Answer, AnswerHead, HEAD_BYTES};
use crate::isolated::{Running, Started, start_child};
use crate::library::image::OpenLibrary;
use crate::library::{CallError, Description, ImageError, LOAD_LIMIT, MAX_ANSWER_BYTES, StartError};
use crate::registration::DirectoryError;
use crate::registration::directory::list;
use crate::trust::Trust;

/// How a library is tried.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The program a child runs; its `main` calls [`crate::isolated::main_if_child`].
    pub program: PathBuf,
    /// Whose files are accepted.
    pub trust: Trust,
    /// How long each call may take.
    pub call_limit: Duration,
    /// Bound of the child's address space in bytes.
    pub max_address_space: Option<u64>,
    /// Whether each stage the library wants is called once.
    pub call: bool,
    /// Call this stage only, whether or not the library wants it.
    pub only: Option<HookType>,
    /// The request to send, an encoded message of the stage; without it, [`sample`] of the stage.
    pub request: Option<Vec<u8>>,
}

impl Probe {
    /// Tries libraries in children of this program, each stage once, two seconds each.
    pub fn of_this_program() -> Self {
        Self {
            program: PathBuf::from(crate::isolated::THIS_PROGRAM),
            trust: Trust::of_this_process(),
            call_limit: Duration::from_secs(2),
            max_address_space: crate::library::Settings::default().max_address_space,
            call: true,
            only: None,
            request: None,
        }
    }
}

/// Why a library could not be tried. The caller adds the file's name.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The file is not acceptable.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The library cannot be put to work.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// What became of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    /// The stage.
    pub stage: HookType,
    /// How long it took, with the way to the child and back.
    pub elapsed: Duration,
    /// What came of it.
    pub outcome: Result<ProbeAnswer, String>,
}

/// The answer to a sample request.
#[derive(Debug, Clone, PartialEq)]
pub enum ProbeAnswer {
    /// Nothing is to change.
    Nothing,
    /// Of a stage of pods.
    Pod(PodSandboxHookResponse),
    /// Of a stage of containers.
    Container(ContainerResourceHookResponse),
}

/// What is known of a library after it was tried.
#[derive(Debug)]
pub struct ProbeReport {
    /// What it says of itself.
    pub description: Description,
    /// Why the proxy would not take it from the folder it is in, if so.
    pub folder: Option<DirectoryError>,
    /// One call of each stage it wants, until one ends its process.
    pub calls: Vec<CallReport>,
}

impl Probe {
    /// Tries the library at `path`. Blocks the thread for as long as it takes.
    ///
    /// # Errors
    ///
    /// The file cannot be used, or the library does not get ready.
    pub fn run(&self, path: &Path) -> Result<ProbeReport, ProbeError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let image = OpenLibrary::open(path, &self.trust)?.image(&name)?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder = list(folder, &self.trust).err();
        let Started { socket, running } =
            start_child(&self.program, name.clone(), self.max_address_space).map_err(StartError::Child)?;
        let mut child = Tried { socket, running };
        frame::send_image(child.socket.as_fd(), image.memory(), &name).map_err(StartError::Child)?;
        let greeting = child.answer(0, LOAD_LIMIT).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => StartError::Time,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => StartError::Ended,
            _ => StartError::Child(error),
        })?;
        let description = frame::read_greeting(greeting)?;
        let mut calls = Vec::new();
        if self.call {
            let stages: Vec<HookType> = match self.only {
                Some(stage) => vec![stage],
                None => description.stages().iter().collect(),
            };
            for (number, stage) in (1..).zip(stages) {
                let request = self.request.clone().unwrap_or_else(|| sample(stage));
                let (report, goes_on) = child.call(number, stage, &request, self.call_limit);
                calls.push(report);
                if !goes_on {
                    break;
                }
            }
        }
        Ok(ProbeReport { description, folder, calls })
    }
}

/// Tries the library at `path` in a child of this program, see [`Probe::of_this_program`].
///
/// # Errors
///
/// As [`Probe::run`].
pub fn probe(path: &Path) -> Result<ProbeReport, ProbeError> {
    Probe::of_this_program().run(path)
}

struct Tried {
    socket: std::os::unix::net::UnixStream,
    running: Running,
}

impl Drop for Tried {
    fn drop(&mut self) {
        // Of no effect after its end.
        let _ = self.running.kill();
    }
}

impl Tried {
    /// Calls one stage; false if the child is not of use any more.
    fn call(&mut self, number: u64, stage: HookType, request: &[u8], limit: Duration) -> (CallReport, bool) {
        let started = Instant::now();
        let answer = self.exchange(number, stage, request, limit);
        let elapsed = started.elapsed();
        let (outcome, goes_on) = match answer {
            Ok(outcome) => {
                (outcome.map_err(|error| error.to_string()).and_then(|bytes| decoded(stage, &bytes)), true)
            }
            Err(error) => {
                let text = match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("no answer after {} ms", limit.as_millis())
                    }
                    _ => match self.running.kill() {
                        Ok(status) => format!("its process ended: {status}"),
                        Err(_) => format!("its process ended: {error}"),
                    },
                };
                (Err(text), false)
            }
        };
        (CallReport { stage, elapsed, outcome }, goes_on)
    }

    fn exchange(
        &mut self,
        number: u64,
        stage: HookType,
        request: &[u8],
        limit: Duration,
    ) -> io::Result<Result<Bytes, CallError>> {
        let head = frame::request_head(stage, number, request).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.socket.write_all(&[&head[..], request].concat())?;
        let answer = self.answer(number, limit)?;
        Ok(answer.head.outcome(answer.body))
    }

    fn answer(&mut self, number: u64, limit: Duration) -> io::Result<Answer> {
        self.socket.set_read_timeout(Some(limit))?;
        let mut bytes = [0; HEAD_BYTES];
        self.socket.read_exact(&mut bytes)?;
        let head = AnswerHead::read(&bytes);
        if head.number != number || head.length > MAX_ANSWER_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; head.length];
        self.socket.read_exact(&mut body)?;
        Ok(Answer { head, body: body.into() })
    }
}

fn decoded(stage: HookType, bytes: &[u8]) -> Result<ProbeAnswer, String> {
    let answer = match stage {
        _ if bytes.is_empty() => return Ok(ProbeAnswer::Nothing),
        HookType::PreRunPodSandbox | HookType::PostStopPodSandbox => {
            PodSandboxHookResponse::decode(bytes).map(ProbeAnswer::Pod)
        }
        _ => ContainerResourceHookResponse::decode(bytes).map(ProbeAnswer::Container),
    };
    answer.map_err(|error| format!("its answer cannot be decoded: {error}"))
}

/// A request like the kubelet's for a burstable pod with one container.
pub fn sample(stage: HookType) -> Vec<u8> {
    let pod_meta = Some(PodSandboxMetadata {
        name: "sample".to_owned(),
        uid: "00000000-0000-4000-8000-000000000000".to_owned(),
        namespace: "default".to_owned(),
        attempt: 0,
    });
    let resources = LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 100_000,
        cpu_shares: 512,
        memory_limit_in_bytes: 268_435_456,
        oom_score_adj: 900,
        ..Default::default()
    };
    let cgroup_parent = "/kubepods/burstable/pod00000000-0000-4000-8000-000000000000".to_owned();
    match stage {
        HookType::PreRunPodSandbox | HookType::PostStopPodSandbox => PodSandboxHookRequest {
            pod_meta,
            cgroup_parent,
            resources: Some(resources),
            ..Default::default()
        }
        .encode_to_vec(),
        _ => ContainerResourceHookRequest {
            pod_meta,
            container_meta: Some(ContainerMetadata {
                name: "sample".to_owned(),
                attempt: 0,
                id: String::new(),
            }),
            container_resources: Some(resources),
            pod_cgroup_parent: cgroup_parent,
            ..Default::default()
        }
        .encode_to_vec(),
    }
}
