//! Asking hook servers, before and after the backend.

use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_admin::Mode;
use koord_hook::v1alpha1::{ContainerResourceHookResponse, PodSandboxHookResponse};
use koord_hooks::chain::{Carrier, Entry};
use koord_intercept::working::{HookAnswer, Stage, Working};
use koord_intercept::{CriMethod, HookType};
use prost::Message;
use tonic::Status;

use super::{Before, CallState, Held, Pipeline, UNKNOWN, is_past, pass, refuse};
use crate::dispatcher::HookError;
use crate::dispatcher::budget::Budget;
use crate::metrics::BypassReason;
use crate::registration::FailurePolicy;

/// Hooks after a call are given at least this, however little of the caller's time is left: they tell of
/// something that has happened.
const SHORTEST_AFTER: Duration = Duration::from_millis(100);

/// What the hooks after a call are told.
pub(super) enum After {
    /// This message.
    Known(HookType, Vec<u8>),
    /// The record of this container, which is to be looked up first.
    LookUp(HookType, String),
}

impl Pipeline {
    /// Asks all servers of all stages, merges their answers and decides.
    pub(super) async fn ask(self: &Arc<Self>, held: Held, mut call: CallState) -> Before {
        call.order = held.order;
        let deadline = held.head.deadline();
        if is_past(deadline) {
            // Looking up, or waiting for another call, took all the time.
            return self.decide(deadline, &held.message, call);
        }
        let Some(mut working) = call.working.take() else { return pass(call) };
        let budget = Budget::new(&self.parts.limits, deadline, Instant::now());
        call.rules = self.begin_rules(working.method());
        let mode = call.rules.mode();
        // In shadow mode everybody is asked about a copy, and the request goes as it came.
        let asked = (mode == Some(Mode::Shadow)).then(|| working.clone());
        for stage in working.stages() {
            let mut draft = self.begin_draft(&working, stage, &call);
            for server in held.hooks.entries_for(stage.hook) {
                if server.carrier == Carrier::BuiltIn {
                    let container_id = call.container_id.as_deref();
                    if let Err(problem) =
                        self.ask_rules(stage, &mut working, &mut draft, container_id, mode).await
                    {
                        return refuse(call, UNKNOWN, problem);
                    }
                    continue;
                }
                let before = draft.as_ref().and_then(|_| working.container_at(stage).cloned());
                match self.ask_one(server, stage, &budget, &mut working, &mut call).await {
                    Err(error) if mode != Some(Mode::Shadow) => {
                        return refuse(call, UNKNOWN, format!("hook server err: {error}"));
                    }
                    _ => {}
                }
                if let (Some(draft), Some(before), Some(after)) =
                    (&mut draft, before, working.container_at(stage))
                {
                    draft.hook(&server.name, stage.hook.as_str(), &before, after);
                }
            }
            call.rules.push(draft);
        }
        if call.report.asked() {
            call.report.asking_done();
        }
        call.working = Some(asked.unwrap_or(working));
        self.decide(deadline, &held.message, call)
    }

    /// Asks one server; an error is one that fails the call.
    async fn ask_one(
        &self,
        server: &Entry,
        stage: Stage,
        budget: &Budget,
        working: &mut Working,
        call: &mut CallState,
    ) -> Result<(), HookError> {
        let within = budget.for_call(server.timeout, Instant::now());
        let request = working.hook_request(stage);
        let answer = self
            .parts
            .dispatcher
            .call(server, stage.hook, request.into(), within, |bytes| decode(stage, bytes))
            .await;
        match answer {
            Ok(answer) => {
                let merged = working.merge(stage, answer, server.options);
                call.report.answered(&server.name, stage.hook);
                match merged {
                    Ok(ignored) => {
                        for ignored in ignored {
                            tracing::warn!(server = server.name, hook = stage.hook.as_str(), %ignored, "part of an answer not taken");
                        }
                    }
                    Err(error) => {
                        call.report.failed(&server.name, stage.hook, "wrong_kind");
                        tracing::error!(server = server.name, %error, "answer not taken");
                    }
                }
                Ok(())
            }
            Err(error) => {
                call.report.failed(&server.name, stage.hook, error.reason());
                match server.failure_policy {
                    FailurePolicy::Fail => {
                        tracing::error!(
                            server = server.name,
                            hook = stage.hook.as_str(),
                            %error,
                            "hook failed, and with it the call"
                        );
                        Err(error)
                    }
                    FailurePolicy::Ignore => {
                        self.parts.dispatcher.failed_open(server, stage.hook, &error);
                        Ok(())
                    }
                }
            }
        }
    }

    /// The hooks that follow a successful call.
    pub(super) fn after(&self, working: &Working, call: &CallState, first_stop: bool) -> Option<After> {
        let method = working.method();
        let hook = method.after()?;
        if !self.parts.chain.stages().contains(hook)
            || self.parts.qos.as_ref().is_some_and(|qos| !qos.is_on())
        {
            return None;
        }
        let starts = method == CriMethod::StartContainer;
        if call.skipped {
            self.bypassed(method, BypassReason::SkipLabel);
            return None;
        }
        match working.post_hook() {
            Some((hook, request)) if starts || first_stop => match &call.container_id {
                Some(id) if !call.envs_known => Some(After::LookUp(hook, id.clone())),
                _ => Some(After::Known(hook, request)),
            },
            // Stopped before: its hook has run.
            Some(_) => None,
            None if starts => call.container_id.clone().map(|id| After::LookUp(hook, id)),
            None => {
                if working.pod().is_none() {
                    self.bypassed(method, BypassReason::UnknownId);
                }
                None
            }
        }
    }

    /// Tells the servers, whose answers and failures mean nothing to the call.
    pub(super) async fn run_after(self: &Arc<Self>, after: After, mut call: CallState) {
        let started = Instant::now();
        let (hook, request) = match after {
            After::Known(hook, request) => (hook, request),
            After::LookUp(hook, container_id) => {
                let Some(known) = self.parts.failover.find_container(&container_id, true).await else {
                    self.parts.metrics.intercept_bypassed(call.report.method(), BypassReason::UnknownId);
                    call.report.write(0);
                    return;
                };
                if self.parts.skip.skips(&known.pod) {
                    self.parts.metrics.intercept_bypassed(call.report.method(), BypassReason::SkipLabel);
                    call.report.write(0);
                    return;
                }
                (hook, known.container.hook_request(&known.pod).encode_to_vec())
            }
        };
        let request = bytes::Bytes::from(request);
        let budget = Budget::new(&self.parts.limits, call.head.deadline(), started);
        let hooks = self.parts.chain.snapshot();
        for server in hooks.entries_for(hook) {
            let floor = SHORTEST_AFTER.min(self.parts.limits.hook_timeout);
            let within = budget.for_call(server.timeout, Instant::now()).max(floor);
            // What is answered has no use, but it must be an answer.
            let decode = |bytes: &[u8]| decode_any(hook, bytes).map(drop);
            match self.parts.dispatcher.call(server, hook, request.clone(), within, decode).await {
                Ok(()) => call.report.answered(&server.name, hook),
                Err(error) => {
                    call.report.failed(&server.name, hook, error.reason());
                    self.parts.dispatcher.failed_open(server, hook, &error);
                }
            }
        }
        call.report.after_took(started.elapsed());
        call.report.write(0);
    }
}

/// The answer at a stage. Bytes that are an answer of the other kind are one too, and are refused later:
/// they do not mean that the server has failed.
fn decode(stage: Stage, bytes: &[u8]) -> Result<HookAnswer, Status> {
    Working::decode(stage, bytes).or_else(|error| {
        let other = match stage.hook {
            HookType::PreRunPodSandbox | HookType::PostStopPodSandbox => {
                ContainerResourceHookResponse::decode(bytes).map(HookAnswer::Container)
            }
            _ => PodSandboxHookResponse::decode(bytes).map(HookAnswer::Pod),
        };
        other.map_err(|_| {
            let cause =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            undecodable(&cause)
        })
    })
}

fn decode_any(hook: HookType, bytes: &[u8]) -> Result<HookAnswer, Status> {
    let answer = match hook {
        HookType::PreRunPodSandbox | HookType::PostStopPodSandbox => {
            PodSandboxHookResponse::decode(bytes).map(HookAnswer::Pod)
        }
        _ => ContainerResourceHookResponse::decode(bytes).map(HookAnswer::Container),
    };
    answer.map_err(|error| undecodable(&error.to_string()))
}

fn undecodable(cause: &str) -> Status {
    Status::internal(format!("grpc: failed to unmarshal the received message: {cause}"))
}
