//! `koordctl explain -f`: what Koordinator makes of the pods of a manifest.
//!
//! Everything follows from the manifest alone. What only a cluster knows (profiles that match, values of
//! PriorityClasses that are not Koordinator's) is said to be unknown.

pub mod keys;
pub mod outlook;
pub mod pod;
pub mod report;
pub mod source;
pub mod text;

use std::io::Read as _;
use std::path::Path;

use koord_runtime::yaml;

use crate::outcome::{Failure, Outcome};
use crate::surroundings::Session;

/// Name of standard input on a command line.
const STANDARD_INPUT: &str = "-";

/// Explains the pods of a manifest.
///
/// # Errors
/// The file cannot be read, is not YAML or JSON, or has no pod.
pub fn run(path: &Path, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    let text = read(path, session)?;
    let documents =
        yaml::documents(&text).map_err(|source| Failure::Malformed { path: path.to_owned(), source })?;
    let found = source::pods_of(&documents);
    for skipped in &found.skipped {
        session.note(&format!("skipped: {skipped}"))?;
    }
    if found.pods.is_empty() {
        return Err(Failure::NoPods { path: path.to_owned() });
    }
    let reports: Vec<report::PodReport> = found.pods.iter().map(report::of_pod).collect();
    session.print(&reports, |session| text::of_reports(&reports, session))?;
    Ok(Outcome::Success)
}

/// One byte more than is accepted is read, so that a text that is too large is told as such.
fn read(path: &Path, session: &mut Session<'_, '_>) -> Result<String, Failure> {
    let failed = |source| Failure::Read { path: path.to_owned(), source };
    let limit = u64::try_from(yaml::LARGEST_TEXT).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    if path.as_os_str() == STANDARD_INPUT {
        session.surroundings.input.take(limit).read_to_string(&mut text).map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(limit).read_to_string(&mut text).map_err(failed)?;
    }
    Ok(text)
}
