//! Asking the built-in rules, and what follows from them once the runtime has agreed.

use std::sync::Arc;

use koord_admin::Mode;
use koord_intercept::record::Change;
use koord_intercept::working::{Stage, Working};
use koord_intercept::{CriMethod, HookType};

use super::{BoxFuture, CallState, Pipeline};
use crate::qos::Sending;
use crate::qos::draft::Draft;

/// What came of asking the rules about a call.
#[derive(Debug, Default)]
pub(super) struct RulesAsked {
    /// The mode they were asked in; `None` without rules.
    mode: Option<Mode>,
    /// What is recorded in the ledger if the call succeeds: a draft of each stage, in their order.
    drafts: Vec<Draft>,
    /// Values are not put back while the request carries others.
    sending: Option<Sending>,
}

impl RulesAsked {
    pub(super) fn mode(&self) -> Option<Mode> {
        self.mode
    }

    pub(super) fn push(&mut self, draft: Option<Draft>) {
        self.drafts.extend(draft);
    }
}

/// The pods and containers that exist or were changed by a call.
#[derive(Debug, Default)]
pub(super) struct Ids {
    pods: Vec<String>,
    /// Identifiers and names.
    containers: Vec<(String, String)>,
}

pub(super) fn ids_of(changes: &[Change]) -> Ids {
    let mut ids = Ids::default();
    for change in changes {
        match change {
            Change::PutPod { id, .. } => ids.pods.push(id.clone()),
            Change::PutContainer { id, record } => {
                ids.containers.push((id.clone(), record.metadata.name.clone()));
            }
            _ => {}
        }
    }
    ids
}

fn is_about_a_pod(stage: Stage) -> bool {
    matches!(stage.hook, HookType::PreRunPodSandbox)
}

impl Pipeline {
    /// Before the first stage of a call: the mode is the same in all of them.
    pub(super) fn begin_rules(&self, method: CriMethod) -> RulesAsked {
        let Some(qos) = &self.parts.qos else { return RulesAsked::default() };
        let carries = matches!(method, CriMethod::CreateContainer | CriMethod::UpdateContainerResources);
        // First, so that the mode holds for as long as values are not put back.
        let sending = if carries { qos.begin_sending() } else { None };
        RulesAsked { mode: Some(qos.mode()), drafts: Vec::new(), sending }
    }

    /// The record of a stage in the ledger, begun with what the kubelet asks.
    pub(super) fn begin_draft(&self, working: &Working, stage: Stage, call: &CallState) -> Option<Draft> {
        let qos = self.parts.qos.as_ref()?;
        if is_about_a_pod(stage) {
            return Some(Draft::of_pod());
        }
        let container = working.container_at(stage)?;
        let known = call.container_id.as_deref().and_then(|id| qos.ledger().container(id));
        let asked = match known.as_ref().and_then(|level| level.asked.as_ref()) {
            // What the kubelet asked before this update counts, not what rules made of it.
            Some(known) => working.asked_over(known),
            None => container.resources.clone().unwrap_or_default(),
        };
        let (name, is_adopted) = (&container.metadata.name, known.is_none() && call.container_id.is_some());
        Some(if is_adopted {
            Draft::of_adopted_container(name, asked)
        } else {
            Draft::of_container(name, asked)
        })
    }

    /// Asks the rules about one stage and applies their wishes to `working`; values of a pod's cgroup are
    /// written before this returns, if the cgroup is there.
    ///
    /// # Errors
    ///
    /// Why the pod or container must not run.
    pub(super) async fn ask_rules(
        &self,
        stage: Stage,
        working: &mut Working,
        draft: &mut Option<Draft>,
        container_id: Option<&str>,
        mode: Option<Mode>,
    ) -> Result<(), String> {
        let (Some(qos), Some(draft), Some(mode)) = (&self.parts.qos, draft, mode) else { return Ok(()) };
        if is_about_a_pod(stage) {
            if let Some(pod) = working.pod().cloned() {
                qos.prepare_pod(Arc::new(pod), draft, mode).await;
            }
            return Ok(());
        }
        let Some(pod) = working.pod_shared() else { return Ok(()) };
        if !qos.concerns(&pod) {
            return Ok(());
        }
        let known = container_id.and_then(|id| self.parts.store.container(id));
        let pod_id = match &known {
            Some(known) => Some(known.pod_id.as_str()),
            None => working.pod_id(),
        };
        let (plan, carried) = qos.decide_container(pod_id, &pod, draft);
        if mode == Mode::Enforce {
            if let Some(refusal) = qos.refusal(&plan) {
                return Err(refusal);
            }
            if !carried.directories.is_empty() {
                qos.make_directories(carried.directories).await;
            }
        }
        working.apply(stage, &carried.patch);
        let quota = working.container_at(stage).and_then(|container| container.resources.as_ref());
        if let (Mode::Enforce, Some(id), Some(resources)) = (mode, container_id, quota)
            && stage.hook == HookType::PreUpdateContainerResources
            && qos.has_burst_above(id, resources.cpu_quota)
        {
            qos.make_room_for_quota(id, resources.cpu_quota).await;
        }
        Ok(())
    }

    /// Records what was decided, after the runtime has agreed; gives what is to be done before the caller hears
    /// of it.
    pub(super) fn settle(&self, working: &Working, call: &mut CallState, ids: Ids) -> Option<BoxFuture<()>> {
        let qos = self.parts.qos.clone()?;
        let RulesAsked { mode, drafts, sending: _until_recorded } = std::mem::take(&mut call.rules);
        // Whatever the mode is by now: what the request carried is what counts.
        let applied = mode == Some(Mode::Enforce);
        let method = working.method();
        let ledger = qos.ledger();
        match method {
            CriMethod::RunPodSandbox | CriMethod::RestorePod => {
                let pod_id = ids.pods.into_iter().next()?;
                for draft in drafts {
                    if draft.name().is_empty() {
                        ledger.put_pod(&pod_id, draft.finish_pod());
                    } else if let Some((id, _)) =
                        // A restored pod may leave containers out.
                        ids.containers.iter().find(|(_, name)| name == draft.name())
                    {
                        ledger.put_container(id, draft.finish(applied, None));
                    }
                }
                applied.then(|| Box::pin(async move { qos.settle_pod(&pod_id).await }) as BoxFuture<()>)
            }
            CriMethod::CreateContainer | CriMethod::UpdateContainerResources => {
                let (id, _) = ids.containers.into_iter().next()?;
                let earlier = ledger.container(&id);
                ledger.put_container(&id, drafts.into_iter().next()?.finish(applied, earlier.as_deref()));
                if applied && method == CriMethod::UpdateContainerResources {
                    qos.check_soon(&id);
                }
                None
            }
            CriMethod::StartContainer => {
                let id = call.container_id.clone()?;
                // No rule is asked about a start, so the call has no mode of its own.
                (qos.mode() == Mode::Enforce && qos.has_files(&id))
                    .then(|| Box::pin(async move { qos.settle_container(&id).await }) as BoxFuture<()>)
            }
            _ => None,
        }
    }
}
