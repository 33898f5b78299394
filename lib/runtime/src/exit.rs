//! Exit codes of the product's programs.

use std::process::ExitCode;

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Asked to end, and did (code 0).
    Success,
    /// Something went wrong that a restart may cure: cannot bind, an essential task ended (code 1).
    RuntimeError,
    /// The command line or a file named by it is wrong; a restart does not help (code 2).
    Usage,
}

impl Exit {
    /// The number the process ends with.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::RuntimeError => 1,
            Exit::Usage => 2,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
