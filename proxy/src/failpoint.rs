//! Named points in the program at which a test can make it fail, wait or die.
//!
//! Without the cargo feature `failpoints` every point is nothing.

use std::io;

/// The points, in the order they are passed.
pub const NAMES: [&str; 8] = [
    "checkpoint-create",
    "checkpoint-write",
    "checkpoint-sync",
    "checkpoint-rename",
    "checkpoint-done",
    "call-before-backend",
    "call-after-backend",
    "call-committed",
];

/// What happens at the points.
#[derive(Debug, Clone, Default)]
pub struct Failpoints {
    #[cfg(feature = "failpoints")]
    actions: std::sync::Arc<Vec<(String, Action)>>,
}

/// What a point does once it is reached.
#[cfg(feature = "failpoints")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Kill,
    Panic,
    Error,
    Sleep(std::time::Duration),
}

/// A text describes no failpoints.
#[cfg(feature = "failpoints")]
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no failpoint: give point=kill, point=panic, point=error or point=sleep(duration), joined by ;"
)]
pub struct FailpointError(String);

#[cfg(feature = "failpoints")]
impl Failpoints {
    /// Reads `point=action`, several joined by `;`.
    ///
    /// # Errors
    ///
    /// An unknown point or action.
    pub fn parse(text: &str) -> Result<Self, FailpointError> {
        let mut actions = Vec::new();
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let wrong = || FailpointError(part.to_owned());
            let (name, action) = part.split_once('=').ok_or_else(wrong)?;
            if !NAMES.contains(&name) {
                return Err(wrong());
            }
            let action = match action {
                "kill" => Action::Kill,
                "panic" => Action::Panic,
                "error" => Action::Error,
                action => {
                    let pause = action
                        .strip_prefix("sleep(")
                        .and_then(|rest| rest.strip_suffix(')'))
                        .and_then(|text| koord_runtime::duration::parse_go_duration(text).ok())
                        .ok_or_else(wrong)?;
                    Action::Sleep(pause)
                }
            };
            actions.push((name.to_owned(), action));
        }
        Ok(Self { actions: std::sync::Arc::new(actions) })
    }

    /// Passes a point.
    ///
    /// # Errors
    ///
    /// The point is set to `error`.
    ///
    /// # Panics
    ///
    /// The point is set to `panic`.
    pub fn pass(&self, name: &'static str) -> io::Result<()> {
        let Some((_, action)) = self.actions.iter().find(|(point, _)| point == name) else { return Ok(()) };
        match action {
            Action::Kill => {
                let own = nix::unistd::getpid();
                nix::sys::signal::kill(own, nix::sys::signal::Signal::SIGKILL)?;
                // The signal ends the process before anything else happens.
                loop {
                    std::thread::park();
                }
            }
            Action::Panic => panic!("failpoint {name}"),
            Action::Error => Err(io::Error::other(format!("failpoint {name}"))),
            Action::Sleep(pause) => {
                std::thread::sleep(*pause);
                Ok(())
            }
        }
    }
}

#[cfg(not(feature = "failpoints"))]
impl Failpoints {
    /// Passes a point.
    ///
    /// # Errors
    ///
    /// Never, in this build.
    #[inline]
    pub fn pass(&self, _name: &'static str) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(all(test, feature = "failpoints"))]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_and_obeyed() {
        let failpoints =
            Failpoints::parse("checkpoint-write=error;checkpoint-sync=sleep(1ms)").expect("failpoints");
        assert!(failpoints.pass("checkpoint-create").is_ok());
        assert!(failpoints.pass("checkpoint-write").is_err());
        assert!(failpoints.pass("checkpoint-sync").is_ok());
        for text in ["x=kill", "checkpoint-write", "checkpoint-write=", "checkpoint-write=sleep(x)"] {
            assert!(Failpoints::parse(text).is_err(), "{text}");
        }
    }
}
