//! A library in this process, on threads of its own.
//!
//! A call is handed to one of the library's threads and waited for as long as its time lasts. A call that takes
//! longer is given up and its thread with it, until the library returns; another thread takes its place. A library
//! that has [`MAX_HUNG`] threads in such calls is not called any more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::Bytes;
use koord_hook::HookType;
use koord_runtime::supervisor::{SpawnError, Supervisor, ThreadOptions};
use tokio::sync::oneshot;
use tonic::Status;

use super::image::Image;
use super::in_place;
use super::native::{CallError, Native};
use super::{Description, Health, LOAD_LIMIT, StartError, deadline_exceeded, status_of};

/// Threads for calls that have not been given up: a slow library may serve so many at once.
const MAX_WORKERS: usize = 4;

/// Calls given up and not come back at which a library is left alone.
const MAX_HUNG: usize = 4;

/// Libraries are written for stacks of this size, the usual one of a thread.
const STACK_BYTES: usize = 2 * 1024 * 1024;

const QUEUED: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;
const GIVEN_UP: u8 = 3;

struct Job {
    stage: HookType,
    request: Bytes,
    claim: Arc<AtomicU8>,
    answer: oneshot::Sender<Result<Vec<u8>, CallError>>,
    /// May sleep until the answer is there.
    caller: Thread,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    workers: usize,
    idle: usize,
    hung: usize,
    closed: bool,
}

struct Shared {
    thread_name: String,
    description: Description,
    state: Mutex<State>,
    wake: Condvar,
    /// The library, until it is shut down. Borrowed by calls through the `Arc`.
    native: Mutex<Option<Arc<Native>>>,
    /// Duration of the last call, in nanoseconds.
    last_call: AtomicU64,
    supervisor: Supervisor,
}

/// A library at work in this process.
pub(super) struct InProcess {
    shared: Arc<Shared>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InProcess {
    /// Loads a library on the first of its threads.
    pub(super) async fn start(name: &str, image: &Image, supervisor: Supervisor) -> Result<Self, StartError> {
        // A second descriptor of the copy, which the loaded library keeps.
        let memory = image.memory().try_clone().map_err(StartError::Copy)?;
        let (ready, loaded) = oneshot::channel();
        let thread_name = format!("hook-{name}");
        let owner = supervisor.clone();
        let body = {
            let thread_name = thread_name.clone();
            move |_token| {
                match Native::load(memory) {
                    Ok(native) => {
                        let shared = Arc::new(Shared::new(thread_name, native, supervisor));
                        // Nobody waits any more: the library is not wanted.
                        if let Err(Ok(unwanted)) = ready.send(Ok(shared.clone())) {
                            locked(&unwanted.state).closed = true;
                        }
                        shared.work();
                    }
                    // Nobody to tell means nobody waits.
                    Err(error) => drop(ready.send(Err(error))),
                }
                Ok(())
            }
        };
        owner
            .thread(thread_name, ThreadOptions { stack_bytes: STACK_BYTES, essential: false }, body)
            .map_err(StartError::Thread)?;
        match tokio::time::timeout(LOAD_LIMIT, loaded).await {
            Err(_) => Err(StartError::Time),
            // The thread panicked.
            Ok(Err(_)) => Err(StartError::Ended),
            Ok(Ok(Err(error))) => Err(StartError::Load(error)),
            Ok(Ok(Ok(shared))) => Ok(Self { shared }),
        }
    }

    pub(super) fn description(&self) -> &Description {
        &self.shared.description
    }

    pub(super) fn health(&self) -> Health {
        let state = locked(&self.shared.state);
        Health {
            hung_calls: state.hung,
            quarantined: state.hung >= self.shared.max_hung(),
            ..Health::default()
        }
    }

    pub(super) fn close(&self) {
        locked(&self.shared.state).closed = true;
        self.shared.wake.notify_all();
    }

    pub(super) async fn call(
        &self,
        stage: HookType,
        request: Bytes,
        within: Duration,
    ) -> Result<Bytes, Status> {
        let started = Instant::now();
        let (answer, mut answered) = oneshot::channel();
        let claim = Arc::new(AtomicU8::new(QUEUED));
        let waiting = Waiting { shared: &self.shared, claim: claim.clone() };
        self.shared.submit(Job { stage, request, claim, answer, caller: thread::current() })?;
        let last = Duration::from_nanos(self.shared.last_call.load(Ordering::Relaxed));
        let until = in_place::wait_limit(last).min(within);
        loop {
            match answered.try_recv() {
                Ok(answer) => return finished(answer),
                Err(oneshot::error::TryRecvError::Closed) => return Err(lost()),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let left = until.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            thread::park_timeout(left);
        }
        let answer = tokio::time::timeout(within.saturating_sub(started.elapsed()), answered).await;
        drop(waiting);
        match answer {
            Ok(Ok(answer)) => finished(answer),
            Ok(Err(_)) => Err(lost()),
            Err(_) => Err(deadline_exceeded()),
        }
    }
}

impl Drop for InProcess {
    /// Calls under way finish; the last thread ends the library.
    fn drop(&mut self) {
        self.close();
    }
}

fn finished(answer: Result<Vec<u8>, CallError>) -> Result<Bytes, Status> {
    answer.map(Bytes::from).map_err(status_of)
}

fn lost() -> Status {
    Status::unavailable("hook library was closed")
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Gives a call up when its caller goes, unless it has ended.
struct Waiting<'a> {
    shared: &'a Shared,
    claim: Arc<AtomicU8>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.claim.load(Ordering::Acquire) == DONE {
            return;
        }
        // Under the lock, so that a thread that comes back finds itself counted.
        let mut state = locked(&self.shared.state);
        if self.claim.compare_exchange(QUEUED, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            // Its request need not wait for a thread to take it out.
            state.queue.retain(|job| !Arc::ptr_eq(&job.claim, &self.claim));
        } else if self.claim.compare_exchange(RUNNING, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok()
        {
            state.hung += 1;
        }
    }
}

impl Shared {
    fn new(thread_name: String, native: Native, supervisor: Supervisor) -> Self {
        Self {
            thread_name,
            description: native.description().clone(),
            state: Mutex::new(State { workers: 1, ..State::default() }),
            wake: Condvar::new(),
            native: Mutex::new(Some(Arc::new(native))),
            last_call: AtomicU64::new(0),
            supervisor,
        }
    }

    /// A serial library has one thread, and a call that hangs in it leaves none.
    fn max_workers(&self) -> usize {
        if self.description.serial { 1 } else { MAX_WORKERS }
    }

    fn max_hung(&self) -> usize {
        if self.description.serial { 1 } else { MAX_HUNG }
    }

    fn submit(self: &Arc<Self>, job: Job) -> Result<(), Status> {
        let mut state = locked(&self.state);
        if state.closed {
            return Err(lost());
        }
        if state.hung >= self.max_hung() {
            return Err(Status::unavailable(format!(
                "hook library is not called any more: {} of its calls hang",
                state.hung
            )));
        }
        state.queue.push_back(job);
        let grow =
            state.queue.len() > state.idle && state.workers.saturating_sub(state.hung) < self.max_workers();
        if grow {
            state.workers += 1;
        }
        drop(state);
        self.wake.notify_one();
        if grow && let Err(error) = self.another_thread() {
            let mut state = locked(&self.state);
            state.workers -= 1;
            if state.workers == state.hung {
                // Nobody is left to take the call.
                state.queue.clear();
                tracing::warn!(%error, "no thread for a hook library");
                return Err(Status::unavailable("no thread for the hook library"));
            }
        }
        Ok(())
    }

    fn another_thread(self: &Arc<Self>) -> Result<(), SpawnError> {
        let shared = self.clone();
        let options = ThreadOptions { stack_bytes: STACK_BYTES, essential: false };
        self.supervisor.thread(self.thread_name.clone(), options, move |_token| {
            shared.work();
            Ok(())
        })
    }

    /// The body of a thread.
    fn work(&self) {
        let Some(native) = locked(&self.native).clone() else { return };
        let mut state = locked(&self.state);
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                state = self.run(&native, job);
                // One has taken the place of this thread while it hung.
                if state.workers - state.hung > self.max_workers() {
                    break;
                }
            } else if state.closed {
                break;
            } else {
                state.idle += 1;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
        // Before it is counted out: the last one out must hold the only one.
        drop(native);
        state.workers -= 1;
        let last = state.closed && state.workers == 0;
        drop(state);
        if last && let Some(native) = locked(&self.native).take().and_then(Arc::into_inner) {
            native.shut_down();
        }
    }

    fn run(&self, native: &Native, job: Job) -> MutexGuard<'_, State> {
        if job.claim.compare_exchange(QUEUED, RUNNING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return locked(&self.state);
        }
        let started = Instant::now();
        let answer = native.call(job.stage, &job.request);
        self.last_call.store(nanoseconds(started.elapsed()), Ordering::Relaxed);
        if job.claim.compare_exchange(RUNNING, DONE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            // The caller may have gone this moment.
            drop(job.answer.send(answer));
            job.caller.unpark();
            return locked(&self.state);
        }
        let mut state = locked(&self.state);
        state.hung -= 1;
        state
    }
}
