//! `koordctl node`.

pub mod diff;
pub mod mode;
pub mod pods;
pub mod status;
pub mod switch;

use koord_admin::selection::{self, Selected};
use koord_admin::{PodEntry, path, query};

use crate::arguments::{NodeAction, Which};
use crate::client::Client;
use crate::outcome::{Failure, Outcome};
use crate::surroundings::Session;

/// Carries out one command about the node.
///
/// # Errors
/// See [`Failure`].
pub fn run(action: NodeAction, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    match action {
        NodeAction::Status(kubelet) => status::run(&kubelet, session),
        NodeAction::Pods(which) => pods::run(&which, session),
        NodeAction::Diff { which, exit_code } => {
            let differences = diff::run(&which, session)?;
            Ok(if exit_code && differences > 0 { Outcome::Differences } else { Outcome::Success })
        }
        NodeAction::Mode { mode: koord_admin::Mode::Off, restore: true, yes } => mode::restore(yes, session),
        NodeAction::Mode { mode, restore: true, .. } => {
            Err(Failure::Usage(format!("--restore goes with mode off, not with {mode}")))
        }
        NodeAction::Mode { mode, restore: false, .. } => mode::change(mode, session),
        NodeAction::Enable(options) => switch::enable(&options, session),
        NodeAction::Disable(options) => switch::disable(&options, session),
    }
}

/// The pods that are meant: all, or those that `which` names.
///
/// # Errors
/// The proxy does not answer, or there is no such pod.
pub fn pods(client: &Client, which: &Which) -> Result<Vec<PodEntry>, Failure> {
    let in_namespace = |pod: &PodEntry| which.namespace.as_ref().is_none_or(|name| *name == pod.namespace);
    let Some(what) = &which.what else {
        let mut pods: Vec<PodEntry> = client.get(path::PODS)?;
        pods.retain(in_namespace);
        return Ok(pods);
    };
    let mut pods: Vec<PodEntry> = client.get(&query::pods_target(what))?;
    pods.retain(in_namespace);
    if selection::select(&pods, what).is_empty() {
        return Err(Failure::NotFound(what.clone()));
    }
    Ok(pods)
}

/// Of pods that [`pods()`] gave, what is meant; everything if nothing is named.
pub fn selected<'a>(pods: &'a [PodEntry], which: &Which) -> Vec<Selected<'a>> {
    match &which.what {
        Some(what) => selection::select(pods, what),
        None => pods.iter().map(Selected::Pod).collect(),
    }
}
