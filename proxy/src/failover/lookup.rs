//! The look-up of one object at the time it is needed.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use koord_intercept::record::PodRecord;
use tokio::time::timeout;
use tonic::Status;

use super::{Failover, LOOKUP, records};
use crate::store::KnownContainer;

type Question = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The look-ups under way, one for each object however many calls wait for it.
#[derive(Default)]
pub(super) struct Lookups {
    under_way: Mutex<HashMap<String, WeakShared<Question>>>,
}

impl std::fmt::Debug for Lookups {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Lookups")
    }
}

impl Lookups {
    fn join(&self, object: String, ask: impl FnOnce() -> Question) -> Shared<Question> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(question) = under_way.get(&object).and_then(WeakShared::upgrade)
            && question.peek().is_none()
        {
            return question;
        }
        under_way.retain(|_, question| question.upgrade().is_some_and(|question| question.peek().is_none()));
        let question = ask().shared();
        if let Some(weak) = question.downgrade() {
            under_way.insert(object, weak);
        }
        question
    }
}

impl Failover {
    /// The record of a pod, from the store or else from the runtime, within [`LOOKUP`].
    pub async fn find_pod(self: &Arc<Self>, pod_id: &str) -> Option<Arc<PodRecord>> {
        if let Some(pod) = self.store.pod(pod_id) {
            return Some(pod);
        }
        let question = self.lookups.join(format!("pod {pod_id}"), || {
            let (failover, pod_id) = (self.clone(), pod_id.to_owned());
            Box::pin(async move {
                let answer = timeout(LOOKUP, failover.look_up_pod(&pod_id)).await;
                report("pod", &pod_id, answer.ok());
            })
        });
        question.await;
        self.store.pod(pod_id)
    }

    /// A container and its pod, from the store or else from the runtime, within [`LOOKUP`].
    ///
    /// With `need_envs` the runtime is also asked for an environment the store has not kept; if that fails the
    /// container is returned without.
    pub async fn find_container(
        self: &Arc<Self>,
        container_id: &str,
        need_envs: bool,
    ) -> Option<KnownContainer> {
        if let Some(known) = self.store.container_and_pod(container_id)
            && (known.envs_known || !need_envs)
        {
            return Some(known);
        }
        let question = self.lookups.join(format!("container {container_id}"), || {
            let (failover, container_id) = (self.clone(), container_id.to_owned());
            Box::pin(async move {
                let answer = timeout(LOOKUP, failover.look_up_container(&container_id)).await;
                report("container", &container_id, answer.ok());
            })
        });
        question.await;
        self.store.container_and_pod(container_id)
    }

    async fn look_up_pod(&self, pod_id: &str) -> Result<(), Status> {
        let answer = self.client.pod_sandbox_status(pod_id, LOOKUP).await?;
        if let Some(record) = answer.and_then(records::pod_of_status) {
            let (record, _) = self.with_cgroup(record);
            self.store.put_pod_if_absent(pod_id, record);
        }
        Ok(())
    }

    async fn look_up_container(&self, container_id: &str) -> Result<(), Status> {
        let answer = self.client.container_status(container_id, LOOKUP).await?;
        let Some(mut record) = answer.and_then(records::container_of_status) else { return Ok(()) };
        if record.pod_id.is_empty() {
            record.pod_id = match self.client.sandbox_of(container_id, LOOKUP).await? {
                Some(pod_id) => pod_id,
                None => return Ok(()),
            };
        }
        if self.store.pod(&record.pod_id).is_none() {
            self.look_up_pod(&record.pod_id).await?;
        }
        // A container whose pod is unknown cannot be described to a hook.
        if self.store.pod(&record.pod_id).is_some() {
            self.store.put_container_if_absent(container_id, record, true);
        }
        Ok(())
    }
}

fn report(kind: &str, id: &str, answer: Option<Result<(), Status>>) {
    match answer {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(kind, id, %error, "look-up failed"),
        None => tracing::debug!(kind, id, "look-up took too long"),
    }
}
