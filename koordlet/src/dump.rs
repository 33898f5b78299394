//! `koordlet metrics dump`: asks a running agent.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::admin::DUMP_PATH;

/// Time for the answer.
const LIMIT: Duration = Duration::from_secs(30);

/// Why there is nothing to print.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The agent is not there, or does not speak.
    #[error("cannot ask the agent at {}", path.display())]
    Ask {
        /// Its socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The agent refused.
    #[error("the agent at {} answers: {line}", path.display())]
    Refused {
        /// Its socket.
        path: PathBuf,
        /// The first line of its answer.
        line: String,
    },
    /// An object cannot be asked for.
    #[error("object {0:?} has characters that no object has")]
    Object(String),
}

/// What the agent behind a socket tells of its samples.
///
/// # Errors
/// It cannot be asked, or refuses.
pub fn dump(path: &Path, object: &str, explain: bool) -> Result<String, DumpError> {
    let allowed =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '/' | '-' | '_' | '.' | ':');
    if !object.chars().all(allowed) {
        return Err(DumpError::Object(object.to_owned()));
    }
    let failed = |source| DumpError::Ask { path: path.to_owned(), source };
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed)?;
    // HTTP/1.0 ends the answer with the connection: no part of it needs to be counted.
    write!(stream, "GET {DUMP_PATH}?object={object}&explain={explain} HTTP/1.0\r\nHost: koordlet\r\n\r\n")
        .map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let line = head.lines().next().unwrap_or_default();
    if line.split(' ').nth(1) != Some("200") {
        return Err(DumpError::Refused { path: path.to_owned(), line: line.to_owned() });
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_names() {
        let path = Path::new("/nonexistent");
        assert!(matches!(dump(path, "a b", false), Err(DumpError::Object(_))));
        assert!(matches!(dump(path, "a\r\nX: y", false), Err(DumpError::Object(_))));
        assert!(matches!(dump(path, "pod/a-b", false), Err(DumpError::Ask { .. })));
    }
}
