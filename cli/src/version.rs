//! `koordctl version`.

use serde::{Deserialize, Serialize};

use crate::arguments::Version;
use crate::outcome::{Failure, Outcome};
use crate::surroundings::Session;

/// Release of this program.
pub const NUMBER: &str = env!("CARGO_PKG_VERSION");

/// Source commit of this program, or `unknown`. `KOORD_COMMIT` names it at compile time.
pub const COMMIT: &str = match option_env!("KOORD_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Release of this program as `--version` shows it.
pub const TEXT: &str = NUMBER;

/// A release and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Release.
    pub version: String,
    /// Source commit, or `unknown`.
    pub commit: String,
}

/// Versions of both programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Versions {
    /// This program's.
    pub koordctl: Build,
    /// The proxy's; nothing if it was not asked or did not answer.
    pub proxy: Option<Build>,
}

/// Shows this program's version, and the proxy's if there is one.
///
/// # Errors
/// The output cannot be written.
pub fn run(options: &Version, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    let koordctl = Build { version: NUMBER.to_owned(), commit: COMMIT.to_owned() };
    let answer = if options.client { None } else { Some(session.client.get::<Build>("/version")) };
    let (proxy, missing) = match answer {
        Some(Ok(build)) => (Some(build), None),
        Some(Err(error)) => (None, Some(error.to_string())),
        None => (None, None),
    };
    let versions = Versions { koordctl, proxy };
    session.print(&versions, |_| text(&versions))?;
    if let Some(missing) = missing {
        session.note(&format!("version of the proxy: {missing}"))?;
    }
    Ok(Outcome::Success)
}

fn text(versions: &Versions) -> String {
    let line = |name: &str, build: &Build| {
        crate::output::printable(&format!("{name} {} (commit {})", build.version, build.commit)) + "\n"
    };
    let mut text = line(crate::NAME, &versions.koordctl);
    if let Some(proxy) = &versions.proxy {
        text.push_str(&line("koord-runtime-proxy", proxy));
    }
    text
}
