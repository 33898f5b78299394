//! One leader of several candidates, by a Lease of the API server.
//!
//! The rules are those of client-go (`tools/leaderelection`), so that our programs and Koordinator's can stand for the
//! same Lease. Clocks of other machines are not trusted: a lease runs out when *this* process has seen it unchanged for
//! its whole duration, whatever times are written in it.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use koord_runtime::CancellationToken;
use koord_runtime::error_chain::Chain;
use kube::api::{Api, PostParams};
use kube::{Client, Resource as _};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{ApiError, Failure, Verb};
use crate::retry::jitter;

/// How much the pause of a candidate that waits may grow at random, as in client-go.
const JITTER: f64 = 1.2;

/// The three times of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Others may take the lease when they have seen it unchanged for this long.
    pub lease: Duration,
    /// The leader gives up when it could not renew for this long.
    pub renew_deadline: Duration,
    /// Between two tries.
    pub retry: Duration,
}

impl Default for Timing {
    /// 15 s, 10 s and 2 s: the defaults of Kubernetes' components.
    fn default() -> Timing {
        Timing {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// The times do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The lease is written in whole seconds.
    #[error("lease duration is {lease:?}; accepted is 1 s or more, in whole seconds")]
    Lease {
        /// Given duration.
        lease: Duration,
    },
    /// A leader must know that it is none before another one is.
    #[error("renew deadline is {renew_deadline:?}; accepted is less than the lease duration {lease:?}")]
    RenewDeadline {
        /// Given deadline.
        renew_deadline: Duration,
        /// Given duration.
        lease: Duration,
    },
    /// A leader must be able to try twice.
    #[error(
        "retry period is {retry:?}; accepted is more than 0 and less than {JITTER} times below the renew deadline {renew_deadline:?}"
    )]
    Retry {
        /// Given period.
        retry: Duration,
        /// Given deadline.
        renew_deadline: Duration,
    },
    /// Nobody can be told from nobody.
    #[error("the identity of a candidate is empty")]
    Identity,
}

impl Timing {
    /// Checks that the times go together.
    ///
    /// # Errors
    /// They do not.
    pub fn check(self) -> Result<Timing, TimingError> {
        let Timing { lease, renew_deadline, retry } = self;
        if lease.as_secs() == 0 || lease.subsec_nanos() != 0 || i32::try_from(lease.as_secs()).is_err() {
            return Err(TimingError::Lease { lease });
        }
        if renew_deadline >= lease {
            return Err(TimingError::RenewDeadline { renew_deadline, lease });
        }
        if retry.is_zero() || retry.mul_f64(JITTER) >= renew_deadline {
            return Err(TimingError::Retry { retry, renew_deadline });
        }
        Ok(self)
    }
}

/// What a Lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who leads; empty if nobody does.
    pub holder: String,
    /// How long it is good without renewal.
    pub lease: Duration,
    /// When the holder got it, by the holder's clock.
    pub acquired: Option<Timestamp>,
    /// When the holder renewed it, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// How often it changed hands.
    pub transitions: i32,
}

impl Record {
    /// Reads a Lease; what is missing is empty.
    pub fn of(spec: Option<&LeaseSpec>) -> Record {
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        Record {
            holder: spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default(),
            lease: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
            acquired: spec.and_then(|spec| spec.acquire_time.as_ref()).map(|time| time.0),
            renewed: spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0),
            transitions: spec.and_then(|spec| spec.lease_transitions).unwrap_or(0),
        }
    }

    /// Writes it into a Lease, whose other fields stay.
    pub fn write(&self, spec: &mut LeaseSpec) {
        spec.holder_identity = Some(self.holder.clone());
        spec.lease_duration_seconds = Some(i32::try_from(self.lease.as_secs()).unwrap_or(i32::MAX));
        spec.acquire_time = self.acquired.map(MicroTime);
        spec.renew_time = self.renewed.map(MicroTime);
        spec.lease_transitions = Some(self.transitions);
    }
}

/// A record and since when it has been unchanged, by this process's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// What the Lease says; `None` if there is none.
    pub record: Option<Record>,
    /// Since when it has been seen to say that.
    pub since: Instant,
}

impl Observation {
    /// Takes note of what the Lease says now.
    pub fn update(&mut self, record: Option<Record>, now: Instant) {
        if self.record != record {
            *self = Observation { record, since: now };
        }
    }

    /// Whether somebody other than `identity` leads, as far as can be known.
    fn is_held_by_another(&self, identity: &str, now: Instant) -> bool {
        self.record.as_ref().is_some_and(|record| {
            !record.holder.is_empty()
                && record.holder != identity
                && now.saturating_duration_since(self.since) < record.lease
        })
    }
}

/// What a candidate does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// There is no Lease: create it with this record.
    Create(Record),
    /// Nobody leads, or the leader has not renewed: write this record.
    Take(Record),
    /// We lead: write this record.
    Renew(Record),
    /// Somebody else leads.
    Wait,
}

/// Decides. `now` is this process's clock, `wall` the time to be written.
pub fn decide(
    observed: &Observation,
    identity: &str,
    timing: Timing,
    now: Instant,
    wall: Timestamp,
) -> Action {
    let ours = |acquired, transitions| Record {
        holder: identity.to_owned(),
        lease: timing.lease,
        acquired,
        renewed: Some(wall),
        transitions,
    };
    match &observed.record {
        None => Action::Create(ours(Some(wall), 0)),
        Some(record) if record.holder == identity => {
            Action::Renew(ours(record.acquired.or(Some(wall)), record.transitions))
        }
        Some(_) if observed.is_held_by_another(identity, now) => Action::Wait,
        Some(record) => Action::Take(ours(Some(wall), record.transitions.saturating_add(1))),
    }
}

/// The record of a leader that leaves: anybody may take it at once. One second and not zero, since zero is no duration
/// that a Lease may have.
pub fn released(record: &Record, wall: Timestamp) -> Record {
    Record {
        holder: String::new(),
        lease: Duration::from_secs(1),
        acquired: Some(wall),
        renewed: Some(wall),
        transitions: record.transitions,
    }
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// Not asked yet, or the server is away and nothing is known.
    Unknown,
    /// Somebody else, or nobody when empty.
    Follower {
        /// Identity of the leader.
        leader: String,
    },
    /// This process, until it hears otherwise or cannot renew.
    Leader {
        /// How often the lease had changed hands when we got it: a number that grows from leader to leader.
        term: i32,
    },
}

impl Leadership {
    /// Whether this process leads.
    pub fn is_leader(&self) -> bool {
        matches!(self, Leadership::Leader { .. })
    }
}

/// One candidate.
pub struct Election {
    api: Api<Lease>,
    namespace: String,
    name: String,
    identity: String,
    timing: Timing,
    state: watch::Sender<Leadership>,
}

impl fmt::Debug for Election {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Election")
            .field("lease", &format_args!("{}/{}", self.namespace, self.name))
            .field("identity", &self.identity)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

impl Election {
    /// A candidate for the Lease `namespace/name`. `identity` must differ between candidates, for example by the
    /// pod's name. A process that comes back with the identity of the leader leads on.
    ///
    /// # Errors
    /// The times do not go together, or the identity is empty.
    pub fn new(
        client: &Client,
        namespace: &str,
        name: &str,
        identity: &str,
        timing: Timing,
    ) -> Result<Election, TimingError> {
        if identity.is_empty() {
            return Err(TimingError::Identity);
        }
        Ok(Election {
            api: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing: timing.check()?,
            state: watch::Sender::new(Leadership::Unknown),
        })
    }

    /// Who leads, now and later. Whoever works as the leader stops at once when this says otherwise.
    pub fn subscribe(&self) -> watch::Receiver<Leadership> {
        self.state.subscribe()
    }

    /// Stands until `token` is cancelled, then gives the lease back if it is ours: cancel it only when the leader's
    /// work has ended.
    pub async fn run(&self, token: CancellationToken) {
        let mut observed = Observation { record: None, since: Instant::now() };
        // When it is certain that the lease was ours; it may not be used longer than the renew deadline.
        let mut renewed = Instant::now();
        loop {
            let leads = self.state.borrow().is_leader();
            let limit = match leads {
                true => (renewed + self.timing.renew_deadline).saturating_duration_since(Instant::now()),
                false => self.timing.renew_deadline,
            };
            let asked = Instant::now();
            let attempt = tokio::select! {
                () = token.cancelled() => break,
                attempt = tokio::time::timeout(limit, self.attempt(&mut observed)) => attempt,
            };
            let result =
                attempt.unwrap_or_else(|_elapsed| Err(self.error(Verb::Update, Failure::Timeout { limit })));
            match result {
                Ok(Some(term)) => {
                    // Counted from before the request: the answer may have come late.
                    renewed = asked;
                    self.publish(Leadership::Leader { term });
                }
                Ok(None) => {
                    let leader =
                        observed.record.as_ref().map(|record| record.holder.clone()).unwrap_or_default();
                    self.publish(Leadership::Follower { leader });
                }
                Err(error) => {
                    tracing::debug!(error = %Chain(&error), lease = %self.name, leads, "lease was not renewed");
                    if leads && renewed.elapsed() >= self.timing.renew_deadline {
                        tracing::warn!(error = %Chain(&error), lease = %self.name, "leadership is lost: the lease could not be renewed");
                        self.publish(Leadership::Unknown);
                    }
                }
            }
            let pause = match self.state.borrow().is_leader() {
                true => self
                    .timing
                    .retry
                    .min((renewed + self.timing.renew_deadline).saturating_duration_since(Instant::now())),
                false => self.timing.retry.mul_f64(1.0 + JITTER * jitter()),
            };
            tokio::select! {
                () = token.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.release(&mut observed).await;
    }

    fn publish(&self, next: Leadership) {
        self.state.send_if_modified(|state| {
            let changed = *state != next;
            if changed {
                tracing::info!(lease = %self.name, identity = %self.identity, leadership = ?next, "leadership");
                *state = next;
            }
            changed
        });
    }

    fn error(&self, verb: Verb, failure: Failure) -> ApiError {
        let object = format!("{}.{} {}/{}", Lease::plural(&()), Lease::group(&()), self.namespace, self.name);
        ApiError { verb, object, failure }
    }

    /// Asks, decides, writes. Gives the term if the lease is ours.
    async fn attempt(&self, observed: &mut Observation) -> Result<Option<i32>, ApiError> {
        let failed = |verb| move |error| self.error(verb, Failure::of(error));
        let stored = self.api.get_opt(&self.name).await.map_err(failed(Verb::Get))?;
        let record = stored.as_ref().map(|lease| Record::of(lease.spec.as_ref()));
        observed.update(record, Instant::now());
        let action = decide(observed, &self.identity, self.timing, Instant::now(), Timestamp::now());
        let parameters = PostParams::default();
        let (verb, record, result) = match (action, stored) {
            (Action::Wait, _) => return Ok(None),
            (Action::Create(record), _) => {
                let mut lease = Lease::default();
                lease.metadata.name = Some(self.name.clone());
                lease.metadata.namespace = Some(self.namespace.clone());
                record.write(lease.spec.get_or_insert_default());
                (Verb::Create, record, self.api.create(&parameters, &lease).await)
            }
            (Action::Take(record) | Action::Renew(record), Some(mut lease)) => {
                record.write(lease.spec.get_or_insert_default());
                (Verb::Update, record, self.api.replace(&self.name, &parameters, &lease).await)
            }
            (Action::Take(_) | Action::Renew(_), None) => return Ok(None),
        };
        match result {
            Ok(_stored) => {
                let term = record.transitions;
                observed.update(Some(record), Instant::now());
                Ok(Some(term))
            }
            Err(error) => {
                let error = self.error(verb, Failure::of(error));
                match error.failure {
                    // Another candidate was faster; the next round sees who.
                    Failure::Conflict { .. } | Failure::AlreadyExists { .. } => self.beaten(error),
                    _ => Err(error),
                }
            }
        }
    }

    /// A leader that meets a conflict cannot tell who leads, and keeps trying until its deadline.
    fn beaten(&self, error: ApiError) -> Result<Option<i32>, ApiError> {
        if self.state.borrow().is_leader() { Err(error) } else { Ok(None) }
    }

    async fn release(&self, observed: &mut Observation) {
        if !self.state.borrow().is_leader() {
            return;
        }
        self.publish(Leadership::Unknown);
        let give_back = async {
            let Some(mut lease) = self.api.get_opt(&self.name).await? else { return Ok(false) };
            let record = Record::of(lease.spec.as_ref());
            if record.holder != self.identity {
                return Ok(false);
            }
            released(&record, Timestamp::now()).write(lease.spec.get_or_insert_default());
            self.api.replace(&self.name, &PostParams::default(), &lease).await?;
            observed.update(None, Instant::now());
            Ok::<_, kube::Error>(true)
        };
        match tokio::time::timeout(self.timing.retry, give_back).await {
            Ok(Ok(true)) => tracing::info!(lease = %self.name, "lease is given back"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                tracing::debug!(error = %Chain(&error), lease = %self.name, "lease was not given back; it runs out");
            }
            Err(_elapsed) => {
                tracing::debug!(lease = %self.name, "lease was not given back in time; it runs out")
            }
        }
    }
}

#[cfg(test)]
mod tests;
