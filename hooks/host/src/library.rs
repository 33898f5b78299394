//! Hook libraries: shared objects that are called in this process or in a child of it.
//!
//! What has been checked of a file is what is loaded of it: the file is copied into memory once, the copy is sealed,
//! and only the copy is looked at and loaded. A file that is written anew in its place does not change code that
//! runs.

mod elf;
pub(crate) mod image;
pub(crate) mod in_place;
mod in_process;
pub(crate) mod native;
pub(crate) mod settings;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use koord_hook::{HookSet, HookType};
use koord_runtime::supervisor::Supervisor;
use tonic::Status;

use crate::isolated::{Children, Isolated};
use image::Image;
use in_process::InProcess;

pub use image::ImageError;
pub use native::{CallError, LoadError};
pub use settings::{Mode, Settings};

/// How long a library may take to load and to get ready.
pub const LOAD_LIMIT: Duration = Duration::from_secs(5);

/// Largest answer, the limit of hook servers too.
pub const MAX_ANSWER_BYTES: usize = crate::unix_channel::DEFAULT_MESSAGE_LIMIT;

/// What a library says of itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Major version of the interface it was compiled for.
    pub abi_major: u16,
    /// Minor version of that.
    pub abi_minor: u16,
    /// The stages it wants to be asked at, as the interface's mask.
    stages: u64,
    /// Whether it takes one call at a time only.
    pub serial: bool,
}

impl Description {
    /// The stages it wants to be asked at.
    pub fn stages(&self) -> HookSet {
        koord_hook_sdk::abi::stages_of_mask(self.stages)
    }
}

/// Why a library could not be put to work.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It, or what it needs, cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It did not get ready in time.
    #[error("is not ready after {} s", LOAD_LIMIT.as_secs())]
    Time,
    /// No thread for its calls.
    #[error("no thread for its calls")]
    Thread(#[source] koord_runtime::supervisor::SpawnError),
    /// No second descriptor of its copy in memory.
    #[error("no descriptor for it")]
    Copy(#[source] std::io::Error),
    /// No child to run it.
    #[error("no child process to run it")]
    Child(#[source] std::io::Error),
    /// The child ended before the library was ready; its end is logged.
    #[error("its process ended while it got ready")]
    Ended,
    /// The program shuts down.
    #[error("the program shuts down")]
    Closed,
}

impl StartError {
    /// Whether the same file would fail again: otherwise it is tried again later.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::Load(_) | Self::Ended)
    }
}

/// How a library fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// Calls that were given up and have not come back; in-process only.
    pub hung_calls: usize,
    /// Whether it is not called any more, because so many hang.
    pub quarantined: bool,
    /// How often its child was started again; isolated only.
    pub restarts: u64,
    /// The child's process number, while it runs.
    pub child: Option<u32>,
}

/// A library at work.
pub struct Plugin {
    description: Description,
    generation: u64,
    carrier: Carrier,
}

enum Carrier {
    InProcess(InProcess),
    Isolated(Isolated),
}

impl fmt::Debug for Plugin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Plugin")
            .field("description", &self.description)
            .field("mode", &self.mode())
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// Tells loads apart; a breaker's memory is of one of them.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

impl Plugin {
    /// Loads a library and waits until it is ready, at most [`LOAD_LIMIT`].
    ///
    /// One that is to run in this process is loaded in a child first: a library that crashes or hangs as soon as it
    /// is loaded is found there.
    pub(crate) async fn start(
        name: &str,
        image: Arc<Image>,
        settings: &Settings,
        supervisor: &Supervisor,
        children: &Arc<Children>,
    ) -> Result<Self, StartError> {
        let isolated = Isolated::start(
            name,
            image.clone(),
            settings.max_address_space,
            supervisor.clone(),
            children.clone(),
        )
        .await?;
        let (description, carrier) = match settings.mode {
            Mode::Isolated => (isolated.description().clone(), Carrier::Isolated(isolated)),
            Mode::InProcess => {
                drop(isolated);
                let in_process = InProcess::start(name, &image, supervisor.clone()).await?;
                (in_process.description().clone(), Carrier::InProcess(in_process))
            }
        };
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        Ok(Self { description, generation, carrier })
    }

    /// What the library says of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Where it runs.
    pub fn mode(&self) -> Mode {
        match self.carrier {
            Carrier::InProcess(_) => Mode::InProcess,
            Carrier::Isolated(_) => Mode::Isolated,
        }
    }

    /// A number that no other load of a library has, from 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How it fares.
    pub fn health(&self) -> Health {
        match &self.carrier {
            Carrier::InProcess(in_process) => in_process.health(),
            Carrier::Isolated(isolated) => isolated.health(),
        }
    }

    /// Calls it; an answer of no bytes changes nothing.
    ///
    /// # Errors
    ///
    /// UNKNOWN with the library's text when it failed, DEADLINE_EXCEEDED after `within`, UNAVAILABLE when it cannot
    /// be called, RESOURCE_EXHAUSTED for an answer beyond [`MAX_ANSWER_BYTES`].
    pub async fn call(&self, stage: HookType, request: Bytes, within: Duration) -> Result<Bytes, Status> {
        match &self.carrier {
            Carrier::InProcess(in_process) => in_process.call(stage, request, within).await,
            Carrier::Isolated(isolated) => isolated.call(stage, request, within).await,
        }
    }

    /// Takes no further calls; threads and children end when those under way have.
    pub(crate) fn close(&self) {
        match &self.carrier {
            Carrier::InProcess(in_process) => in_process.close(),
            Carrier::Isolated(isolated) => isolated.close(),
        }
    }
}

/// As a server's failure would read.
pub(crate) fn status_of(error: CallError) -> Status {
    match &error {
        CallError::TooLarge { .. } => Status::resource_exhausted(error.to_string()),
        CallError::Hook { status, .. } if *status == koord_hook_sdk::abi::STATUS_BAD_REQUEST => {
            Status::invalid_argument(error.to_string())
        }
        CallError::Hook { status, .. } if *status == koord_hook_sdk::abi::STATUS_UNKNOWN_STAGE => {
            Status::unimplemented(error.to_string())
        }
        CallError::Hook { .. } | CallError::NoBuffer { .. } => Status::unknown(error.to_string()),
    }
}

pub(crate) fn deadline_exceeded() -> Status {
    Status::deadline_exceeded("context deadline exceeded")
}
