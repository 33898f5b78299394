//! Which files change, and to what.
//!
//! The endpoint changes where it is set today, and in every place from which kubeadm would restore it. Files of packages
//! are not edited: a drop-in goes over them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::discover::{
    Discovery, Flavor, IMAGE_FLAG, IMAGE_KEY, PlaceKind, Purpose, RUNTIME_FLAG, RUNTIME_KEY, Version,
    rancher_drop_in,
};
use crate::endpoint::{Endpoint, PROXY_SOCKET};
use crate::flags;
use crate::system::{FileState, Files};
use crate::unit::{Unit, assignments, settings};
use crate::yaml::{self, EditError};

/// The socket unit of the proxy.
pub const PROXY_SOCKET_UNIT: &str = "koord-runtime-proxy.socket";
/// The service unit of the proxy.
pub const PROXY_SERVICE_UNIT: &str = "koord-runtime-proxy.service";
/// The program.
pub const PROXY_PROGRAM: &str = "/usr/bin/koord-runtime-proxy";
/// Its flags, as an environment file.
pub const PROXY_FLAGS_FILE: &str = "/etc/default/koord-runtime-proxy";
/// The variable in it.
pub const PROXY_FLAGS_VARIABLE: &str = "KOORD_RUNTIME_PROXY_FLAGS";
/// Name of the drop-in that orders the kubelet after the proxy.
pub const DROP_IN: &str = "20-koord-runtime-proxy.conf";
/// The proxy's own default for the runtime.
const PROXY_DEFAULT_RUNTIME: &str = "/run/containerd/containerd.sock";

/// The drop-in that orders the kubelet after the proxy. `Wants`, not `Requires`: stopping the proxy must never stop the
/// kubelet.
pub const DROP_IN_TEXT: &str = concat!(
    "# Made by `koordctl node enable`; `koordctl node disable` removes it.\n",
    include_str!("../../../packaging/systemd/kubelet.service.d/20-koord-runtime-proxy.conf")
);

/// Runtimes that the proxy's unit is ordered after as it is shipped.
const ORDERED: [&str; 2] = ["containerd.service", "crio.service"];

/// Whose file it is: the proxy's files change before it is started, the kubelet's after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// The proxy or one of its units.
    Proxy,
    /// The kubelet, its unit, or kubeadm.
    Kubelet,
}

/// A file to be changed or made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The file.
    pub path: PathBuf,
    /// Whose it is.
    pub owner: Owner,
    /// As it is; nothing if it is not there.
    pub before: Option<FileState>,
    /// As it will be.
    pub after: FileState,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file cannot be changed in place.
    #[error("{}", path.display())]
    Edit {
        /// The file.
        path: PathBuf,
        /// Why.
        source: EditError,
    },
    /// No drop-in can go over a file of a package.
    #[error(
        "{} sets --{RUNTIME_FLAG} and no drop-in in /etc can go over it; copy the file to /etc/systemd/system and change \
         it there",
        path.display()
    )]
    Override {
        /// The file.
        path: PathBuf,
    },
    /// There is no place to write the endpoint to.
    #[error("the kubelet has no unit and no configuration file that an endpoint could be written to")]
    NoPlace,
}

/// What to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The runtime's endpoint.
    pub runtime: Endpoint,
    /// The proxy's endpoint.
    pub proxy: Endpoint,
    /// The kubelet's release, if it is known.
    pub version: Option<Version>,
}

/// All edits that are left to do; none if the node is as it should be.
///
/// # Errors
/// See [`PlanError`].
pub fn plan(files: &dyn Files, found: &Discovery, target: &Target) -> Result<Vec<Edit>, PlanError> {
    let mut draft = Draft { files, edits: BTreeMap::new() };
    proxy_files(&mut draft, target)?;
    kubelet_files(&mut draft, found, target)?;
    Ok(draft.finished())
}

/// Texts that were begun to be changed.
struct Draft<'a> {
    files: &'a dyn Files,
    edits: BTreeMap<(u8, PathBuf), Edit>,
}

impl Draft<'_> {
    fn read(&self, path: &Path) -> Result<Option<FileState>, PlanError> {
        self.files.read(path).map_err(|source| PlanError::Read { path: path.to_owned(), source })
    }

    /// Changes the text of `path`; a missing file has an empty one.
    fn change(
        &mut self,
        path: &Path,
        owner: Owner,
        change: impl FnOnce(&str) -> Result<String, EditError>,
    ) -> Result<(), PlanError> {
        let rank = match owner {
            Owner::Proxy => 0,
            Owner::Kubelet => 1,
        };
        let key = (rank, path.to_owned());
        if !self.edits.contains_key(&key) {
            let before = self.read(path)?;
            let after = before.clone().unwrap_or_else(|| FileState::new(""));
            self.edits.insert(key.clone(), Edit { path: path.to_owned(), owner, before, after });
        }
        if let Some(edit) = self.edits.get_mut(&key) {
            let text = change(&edit.after.text)
                .map_err(|source| PlanError::Edit { path: path.to_owned(), source })?;
            edit.after.text = text;
        }
        Ok(())
    }

    fn whole(&mut self, path: &Path, owner: Owner, text: &str) -> Result<(), PlanError> {
        self.change(path, owner, |_before| Ok(text.to_owned()))
    }

    fn finished(self) -> Vec<Edit> {
        self.edits.into_values().filter(|edit| edit.before.as_ref() != Some(&edit.after)).collect()
    }
}

fn system_drop_in(unit: &str, name: &str) -> PathBuf {
    PathBuf::from(format!("/etc/systemd/system/{unit}.d/{name}"))
}

/// The proxy's flags and units, where they are not its defaults.
fn proxy_files(draft: &mut Draft<'_>, target: &Target) -> Result<(), PlanError> {
    let mut wanted = Vec::new();
    if let Some(default) = Endpoint::parse(PROXY_DEFAULT_RUNTIME)
        && !target.runtime.is_same(&default)
    {
        wanted.push(("remote-runtime-service-endpoint", target.runtime.as_str()));
    }
    if target.proxy.as_str() != PROXY_SOCKET {
        wanted.push(("koord-runtimeproxy-endpoint", target.proxy.as_str()));
    }
    let present = proxy_flags(draft)?;
    let stale_flag = |name: &str, default: &str| {
        flags::value(&present, name)
            .and_then(Endpoint::parse)
            .is_some_and(|value| Endpoint::parse(default).is_some_and(|default| !value.is_same(&default)))
    };
    // A flag that names another socket than the default beats a default that would be right.
    if !wanted.iter().any(|(name, _)| *name == "remote-runtime-service-endpoint")
        && stale_flag("remote-runtime-service-endpoint", PROXY_DEFAULT_RUNTIME)
    {
        wanted.push(("remote-runtime-service-endpoint", target.runtime.as_str()));
    }
    if !wanted.iter().any(|(name, _)| *name == "koord-runtimeproxy-endpoint")
        && stale_flag("koord-runtimeproxy-endpoint", PROXY_SOCKET)
    {
        wanted.push(("koord-runtimeproxy-endpoint", target.proxy.as_str()));
    }
    for (name, value) in wanted {
        if flags::value(&present, name) == Some(value) {
            continue;
        }
        draft.change(Path::new(PROXY_FLAGS_FILE), Owner::Proxy, |text| {
            Ok(with_flag(text, PROXY_FLAGS_VARIABLE, name, value))
        })?;
    }
    if target.proxy.as_str() != PROXY_SOCKET {
        let text = format!(
            "# Made by `koordctl node enable`; `koordctl node disable` removes it.\n# The kubelet takes its statistics \
             as with CRI-O only if its endpoint ends as CRI-O's does.\n[Socket]\nListenStream=\nListenStream={}\n",
            target.proxy.as_str()
        );
        draft.whole(&system_drop_in(PROXY_SOCKET_UNIT, "20-koord-endpoint.conf"), Owner::Proxy, &text)?;
    }
    if let Some(unit) = target.runtime.runtime_unit().filter(|unit| !ORDERED.contains(unit)) {
        let text = format!(
            "# Made by `koordctl node enable`; `koordctl node disable` removes it.\n[Unit]\nAfter={unit}\n"
        );
        draft.whole(&system_drop_in(PROXY_SERVICE_UNIT, "20-koord-runtime.conf"), Owner::Proxy, &text)?;
    }
    Ok(())
}

/// Flags of the proxy as its environment file has them.
fn proxy_flags(draft: &Draft<'_>) -> Result<Vec<String>, PlanError> {
    let text = draft.read(Path::new(PROXY_FLAGS_FILE))?.map(|file| file.text).unwrap_or_default();
    Ok(variable_words(&text, PROXY_FLAGS_VARIABLE))
}

/// The words of a variable of an environment file.
pub fn variable_words(text: &str, variable: &str) -> Vec<String> {
    assignments(text)
        .into_iter()
        .rev()
        .find(|found| found.name == variable)
        .map(|found| flags::words(&found.value))
        .unwrap_or_default()
}

/// An environment file with a flag in a variable: changed where it is, else added.
pub fn with_flag(text: &str, variable: &str, name: &str, value: &str) -> String {
    let Some(found) = assignments(text).into_iter().rev().find(|found| found.name == variable) else {
        let line_end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return format!("{text}{line_end}{variable}=\"--{name}={value}\"\n");
    };
    let raw = text.get(found.span.clone()).unwrap_or_default();
    let spans = flags::spans(raw, name);
    let changed = if spans.is_empty() {
        match raw.chars().next_back().filter(|quote| matches!(quote, '"' | '\'') && raw.len() > 1) {
            // One pair of quotes around everything.
            Some(quote) if raw.starts_with(quote) => {
                let inner = raw.get(1..raw.len() - 1).unwrap_or_default();
                let space = if inner.trim().is_empty() { "" } else { " " };
                format!("{quote}{inner}{space}--{name}={value}{quote}")
            }
            _ => {
                let words = found.value.replace(['\\', '"'], "");
                let space = if words.trim().is_empty() { "" } else { " " };
                format!("\"{words}{space}--{name}={value}\"")
            }
        }
    } else {
        flags::replaced(raw, &spans, value)
    };
    flags::replaced(text, std::slice::from_ref(&found.span), &changed)
}

fn kubelet_files(draft: &mut Draft<'_>, found: &Discovery, target: &Target) -> Result<(), PlanError> {
    if let Some(unit) = &found.unit {
        draft.whole(&system_drop_in(&unit.name, DROP_IN), Owner::Kubelet, DROP_IN_TEXT)?;
    }
    for place in &found.places {
        if !place.endpoint.is_same(&target.runtime) {
            continue;
        }
        let (flag, key) = match place.purpose {
            Purpose::Runtime => (RUNTIME_FLAG, RUNTIME_KEY),
            Purpose::Image => (IMAGE_FLAG, IMAGE_KEY),
        };
        match place.kind {
            PlaceKind::Unit => {
                // Of a unit in /etc the file itself changes; others belong to packages or generators.
                if place.file.starts_with("/etc") {
                    draft.change(&place.file, Owner::Kubelet, |text| Ok(redirected(text, flag, target)))?;
                } else if let Some(unit) = &found.unit {
                    override_unit(draft, unit, &place.file, target)?;
                }
            }
            PlaceKind::Environment => {
                draft.change(&place.file, Owner::Kubelet, |text| Ok(redirected(text, flag, target)))?;
            }
            PlaceKind::Configuration | PlaceKind::DropIn | PlaceKind::Instance => {
                let url = target.proxy.url();
                draft.change(&place.file, Owner::Kubelet, |text| yaml::with_text(text, key, &url))?;
            }
            PlaceKind::RancherRuntime => {
                let url = target.proxy.url();
                draft
                    .change(&place.file, Owner::Kubelet, |text| yaml::with_text(text, RUNTIME_FLAG, &url))?;
            }
            PlaceKind::RancherArgument => {
                draft.change(&place.file, Owner::Kubelet, |text| Ok(arguments_redirected(text, target)))?
            }
        }
    }
    let is_set = found.places.iter().any(|place| {
        place.purpose == Purpose::Runtime
            && place.kind != PlaceKind::Instance
            && (place.endpoint.is_same(&target.runtime) || place.endpoint.is_same(&target.proxy))
    });
    if !is_set { added(draft, found, target) } else { Ok(()) }
}

/// `text` with each value of a flag that means the runtime meaning the proxy.
fn redirected(text: &str, flag: &str, target: &Target) -> String {
    let mut spans = flags::spans(text, flag);
    spans.retain(|span| {
        text.get(span.clone()).and_then(Endpoint::parse).is_some_and(|value| value.is_same(&target.runtime))
    });
    flags::replaced(text, &spans, &target.proxy.url())
}

/// The same for items of `kubelet-arg`, which may have no dashes.
fn arguments_redirected(text: &str, target: &Target) -> String {
    let start = format!("{RUNTIME_FLAG}=");
    let mut spans: Vec<_> = text
        .match_indices(&start)
        .filter_map(|(offset, _)| {
            let begin = offset + start.len();
            let rest = text.get(begin..)?;
            let end =
                begin + rest.find(|c: char| c.is_whitespace() || "\"',]".contains(c)).unwrap_or(rest.len());
            Some(begin..end)
        })
        .collect();
    spans.retain(|span| {
        text.get(span.clone()).and_then(Endpoint::parse).is_some_and(|value| value.is_same(&target.runtime))
    });
    flags::replaced(text, &spans, &target.proxy.url())
}

/// A drop-in over the settings of a file that is not edited.
fn override_unit(
    draft: &mut Draft<'_>,
    unit: &Unit,
    origin: &Path,
    target: &Target,
) -> Result<(), PlanError> {
    let text = draft.read(origin)?.map(|file| file.text).unwrap_or_default();
    let mut lines = String::from("# Made by `koordctl node enable`; `koordctl node disable` removes it.\n");
    lines.push_str(&format!("# As in {}, with the proxy's endpoint.\n[Service]\n", origin.display()));
    for setting in settings(&text).iter().filter(|setting| setting.section == "Service") {
        let in_force = unit
            .command
            .iter()
            .chain(&unit.environment)
            .any(|located| located.file == origin && located.span == setting.span);
        let raw = text.get(setting.span.clone()).unwrap_or_default();
        let mut changed = redirected(raw, RUNTIME_FLAG, target);
        changed = redirected(&changed, IMAGE_FLAG, target);
        if in_force && changed != raw {
            if setting.key == "ExecStart" {
                lines.push_str("ExecStart=\n");
            }
            lines.push_str(&format!("{}={changed}\n", setting.key));
        }
    }
    draft.whole(&over(unit, origin)?, Owner::Kubelet, &lines)
}

/// A drop-in of ours that systemd reads after `origin`.
fn over(unit: &Unit, origin: &Path) -> Result<PathBuf, PlanError> {
    let directory = format!("{}.d", unit.name);
    let is_drop_in = origin.parent().is_some_and(|parent| parent.ends_with(&directory));
    let file_name =
        origin.file_name().and_then(|name| name.to_str()).filter(|_| is_drop_in).unwrap_or_default();
    ["90-koord-endpoint.conf", "zz-koord-endpoint.conf", "zzzz-koord-endpoint.conf"]
        .into_iter()
        .find(|name| *name > file_name)
        .map(|name| system_drop_in(&unit.name, name))
        .ok_or_else(|| PlanError::Override { path: origin.to_owned() })
}

/// The endpoint was nowhere: it is added where it is least in the way.
fn added(draft: &mut Draft<'_>, found: &Discovery, target: &Target) -> Result<(), PlanError> {
    let url = target.proxy.url();
    if let Flavor::Rancher(folder) = found.flavor {
        // The sign + adds to the list that other files may have.
        let text = format!(
            "# Made by `koordctl node enable`; `koordctl node disable` removes it.\nkubelet-arg+:\n  - {RUNTIME_FLAG}={url}\n"
        );
        return draft.whole(&rancher_drop_in(folder), Owner::Kubelet, &text);
    }
    let in_file = target.version.is_none_or(|version| version >= Version::ENDPOINT_IN_FILE);
    if let Some(path) = found.configuration.as_ref().filter(|_| in_file) {
        return draft.change(path, Owner::Kubelet, |text| yaml::with_text(text, RUNTIME_KEY, &url));
    }
    let Some(unit) = &found.unit else { return Err(PlanError::NoPlace) };
    let used = unit.used_variables();
    for path in unit.environment_paths().iter().rev() {
        let text = draft.read(path)?.map(|file| file.text).unwrap_or_default();
        let set: Vec<String> = assignments(&text).into_iter().map(|found| found.name).collect();
        let variable = used.iter().rev().find(|name| set.contains(name));
        if let Some(variable) = variable {
            return draft
                .change(path, Owner::Kubelet, |text| Ok(with_flag(text, variable, RUNTIME_FLAG, &url)));
        }
    }
    let Some(command) = &unit.command else { return Err(PlanError::NoPlace) };
    let text = draft.read(&command.file)?.map(|file| file.text).unwrap_or_default();
    let raw = text.get(command.span.clone()).unwrap_or_default().trim();
    let lines = format!(
        "# Made by `koordctl node enable`; `koordctl node disable` removes it.\n# As in {}, with the proxy's endpoint.\n\
         [Service]\nExecStart=\nExecStart={raw} --{RUNTIME_FLAG}={url}\n",
        command.file.display()
    );
    draft.whole(&over(unit, &command.file)?, Owner::Kubelet, &lines)
}

#[cfg(test)]
mod tests;
