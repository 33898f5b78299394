//! One way from the load to the backend, measured round by round.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use nix::unistd::Pid;

use crate::backend::Backend;
use crate::load::Load;
use crate::messages::{Case, is_held};
use crate::process::family_cpu_time;
use crate::report::{Figures, Round, summarize};

/// A way from the load to the backend.
pub(crate) struct Route {
    pub(crate) name: String,
    loads: BTreeMap<Case, (Load, Option<Pid>)>,
    pub(crate) rounds: BTreeMap<Case, Vec<Round>>,
    /// Whether the request of a held case must arrive edited.
    edits: bool,
}

impl Route {
    pub(crate) fn new(name: &str, edits: bool) -> Self {
        Self { name: name.into(), loads: BTreeMap::new(), rounds: BTreeMap::new(), edits }
    }

    pub(crate) fn connect(&mut self, cases: &[Case], socket: &Path, pid: Option<Pid>) -> anyhow::Result<()> {
        for case in cases {
            let load = Load::connect(socket, *case).with_context(|| socket.display().to_string())?;
            self.loads.insert(*case, (load, pid));
        }
        Ok(())
    }

    pub(crate) fn run(&mut self, case: Case, calls: usize, backend: &Backend) -> anyhow::Result<()> {
        let Some((load, pid)) = self.loads.get_mut(&case) else { return Ok(()) };
        let context = || format!("{} through {}", case.name(), self.name);
        load.run(calls.div_ceil(20)).with_context(context)?;
        backend.take_largest_held_request();
        let before = pid.map(family_cpu_time).transpose()?;
        let times = load.run(calls).with_context(context)?;
        let after = pid.map(family_cpu_time).transpose()?;
        if is_held(case.path()) {
            let (arrived, sent) = (backend.take_largest_held_request(), case.request().len() + 5);
            ensure!(
                if self.edits { arrived != sent } else { arrived == sent },
                "{}: a request of {sent} bytes arrived with {arrived}",
                self.name
            );
        }
        let cpu = before.zip(after).map(|(before, after)| after.saturating_sub(before));
        if let Some(round) = Round::new(times, cpu) {
            self.rounds.entry(case).or_default().push(round);
        }
        Ok(())
    }

    pub(crate) fn figures(&self) -> Figures {
        let cases =
            self.rounds.iter().filter_map(|(case, rounds)| Some((*case, summarize(rounds)?))).collect();
        Figures { cases, ..Figures::default() }
    }
}

/// Measures all cases on all routes, in turns.
pub(crate) fn run_rounds(
    routes: &mut [Route],
    cases: &[Case],
    rounds: usize,
    percent: usize,
    backend: &Backend,
) -> anyhow::Result<()> {
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for case in cases {
            let calls = (case.calls() * percent / 100).max(1);
            // Each route gets each place in the order equally often.
            let first = round % routes.len().max(1);
            let (behind, ahead) = routes.split_at_mut(first);
            for route in ahead.iter_mut().chain(behind) {
                route.run(*case, calls, backend)?;
            }
        }
    }
    Ok(())
}
