//! The child's side.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, Signal};

use super::{CHILD_ARGUMENT, frame};
use crate::library::CallError;
use crate::library::native::{Native, close_inherited_descriptors};

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;

/// Serves a library if this process was started for that; `None` if it was not.
///
/// `main` calls it before anything else, with the arguments behind the program's name: a child must not start what
/// the program consists of, and holds no descriptor but its socket.
pub fn main_if_child(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    if arguments.next()? != CHILD_ARGUMENT {
        return None;
    }
    let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
    let (Some(parent), Some(max_address_space)) = (number(), number()) else {
        return Some(ExitCode::FAILURE);
    };
    Some(match serve(parent, max_address_space) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is nowhere else to say it.
            let _ = writeln!(io::stderr(), "child of a hook library ends: {error}");
            ExitCode::FAILURE
        }
    })
}

/// `max_address_space` is in bytes, 0 for no bound.
fn serve(parent: u64, max_address_space: u64) -> io::Result<()> {
    close_inherited_descriptors();
    confine(max_address_space)?;
    let parent_now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if parent_now.map(u64::from) != Some(parent) {
        // It has ended before its end could be noticed.
        return Ok(());
    }
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // A library that reads its standard input must not take requests away.
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    let (memory, _name) = frame::receive_image(socket.as_fd())?;
    let native = match Native::load(memory) {
        Ok(native) => native,
        Err(error) => return frame::write_greeting(&mut &socket, Err(&error)),
    };
    frame::write_greeting(&mut &socket, Ok(native.description()))?;
    // One read for most requests.
    let mut requests = io::BufReader::with_capacity(READ_BYTES, &socket);
    while let Some(request) = frame::read_request(&mut requests)? {
        let outcome = match request.stage {
            Some(stage) => native.call(stage, &request.body),
            None => Err(CallError::Hook {
                status: koord_hook_sdk::abi::STATUS_UNKNOWN_STAGE,
                text: format!("stage {} is not known", request.stage_number),
            }),
        };
        frame::write_outcome(&mut &socket, request.number, &outcome)?;
    }
    native.shut_down();
    Ok(())
}

fn confine(max_address_space: u64) -> io::Result<()> {
    // Fails for the leader of a group, which a shell may have made of it; then signals of a terminal reach it.
    let _ = rustix::process::setsid();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    limit(Resource::Core, 0)?;
    if max_address_space != 0 {
        limit(Resource::As, max_address_space)?;
    }
    std::env::set_current_dir("/")?;
    be_killed_before_the_parent();
    Ok(())
}

fn limit(resource: Resource, value: u64) -> io::Result<()> {
    let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let value = Some(value.min(most));
    Ok(rustix::process::setrlimit(resource, Rlimit { current: value, maximum: value })?)
}

/// The program may be protected from the killer of processes that is called when memory ends; its libraries are not.
fn be_killed_before_the_parent() {
    const FILE: &str = "/proc/self/oom_score_adj";
    let protected = std::fs::read_to_string(FILE).is_ok_and(|text| text.trim_start().starts_with('-'));
    if protected && let Err(error) = std::fs::write(FILE, "0") {
        let _ = writeln!(io::stderr(), "cannot write {FILE}: {error}");
    }
}
