//! The files of the audit log.
//!
//! Records are appended to `audit.log`. When it has reached its size it is renamed to
//! `audit-YEAR-MONTH-DAY-HOUR-MINUTE-SECOND-N.log` (UTC), and the oldest files beyond the limit are removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use koord_extension::timestamp::Timestamp;

use crate::event::Event;

/// The file that is written to.
pub const CURRENT_FILE: &str = "audit.log";

/// A file of at least this size is rotated, in bytes.
pub const FILE_SIZE: u64 = 2 << 20;

/// Records wait in memory at most this long while others come.
pub const FLUSH_INTERVAL: Duration = Duration::from_secs(5);

/// Records that wait in memory, in bytes. A full buffer is written at once.
const BUFFER: usize = 64 * 1024;

/// The last of the numbers that tell apart files of one second.
const LAST_NUMBER: u32 = 8;

/// What of the log failed. The log goes on with the next record.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct LogError {
    /// What was tried, as in "open".
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

impl LogError {
    fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
        let path = path.to_owned();
        move |source| LogError { action, path, source }
    }
}

/// The writer of the log. Nothing is opened before the first record.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    /// Files there may be, the current one among them; at least one.
    most_files: usize,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    writer: BufWriter<File>,
    size: u64,
    flushed: SystemTime,
}

impl Log {
    /// A log in `folder` that takes about `most_megabytes` MiB of disk space: one file of 2 MiB for every two of them, and
    /// always one.
    pub fn new(folder: PathBuf, most_megabytes: u64) -> Log {
        let files = most_megabytes.saturating_mul(1 << 20) / FILE_SIZE;
        Log { folder, most_files: usize::try_from(files).unwrap_or(usize::MAX).max(1), current: None }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Appends a record. It may stay in memory until [`Log::flush`] or until records come [`FLUSH_INTERVAL`] later. After
    /// an error the record is lost, and the file is opened anew for the next one.
    pub fn append(&mut self, event: &Event, now: SystemTime) -> Result<(), LogError> {
        let mut line = event.to_line();
        line.push('\n');
        let path = self.folder.join(CURRENT_FILE);
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.open(&path, now)?,
        };
        current.writer.write_all(line.as_bytes()).map_err(LogError::of("write", &path))?;
        current.size += line.len() as u64;
        if current.size >= FILE_SIZE {
            current.writer.flush().map_err(LogError::of("write", &path))?;
            drop(current);
            return self.rotate(&path, now);
        }
        // A clock that was set back counts as an interval that has passed.
        if now.duration_since(current.flushed).is_ok_and(|since| since < FLUSH_INTERVAL) {
            self.current = Some(current);
            return Ok(());
        }
        current.writer.flush().map_err(LogError::of("write", &path))?;
        current.flushed = now;
        self.current = Some(current);
        Ok(())
    }

    /// Writes what waits in memory.
    pub fn flush(&mut self, now: SystemTime) -> Result<(), LogError> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        current.writer.flush().map_err(LogError::of("write", &self.folder.join(CURRENT_FILE)))?;
        current.flushed = now;
        self.current = Some(current);
        Ok(())
    }

    fn open(&self, path: &Path, now: SystemTime) -> Result<Current, LogError> {
        fs::create_dir_all(&self.folder).map_err(LogError::of("create", &self.folder))?;
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(LogError::of("open", path))?;
        let mut size = file.metadata().map_err(LogError::of("examine", path))?.len();
        // Whoever died while writing left half a record; the next one must not become part of it.
        if size > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))
                .and_then(|_| file.read_exact(&mut last))
                .map_err(LogError::of("read", path))?;
            if last != [b'\n'] {
                file.write_all(b"\n").map_err(LogError::of("write", path))?;
                size += 1;
            }
        }
        // The first record is written at once: the folder may be out of space.
        let flushed = now.checked_sub(FLUSH_INTERVAL).unwrap_or(now);
        Ok(Current { writer: BufWriter::with_capacity(BUFFER, file), size, flushed })
    }

    fn rotate(&self, path: &Path, now: SystemTime) -> Result<(), LogError> {
        let mut rotated = self.folder.join(rotated_name(now, 0));
        for number in 1..=LAST_NUMBER {
            if !rotated.exists() {
                break;
            }
            rotated = self.folder.join(rotated_name(now, number));
        }
        fs::rename(path, &rotated).map_err(LogError::of("rename", path))?;
        let files = rotated_files(&self.folder).map_err(LogError::of("list", &self.folder))?;
        // One file is the current one, which comes with the next record.
        for oldest in files.iter().skip(self.most_files.saturating_sub(1)) {
            fs::remove_file(oldest).map_err(LogError::of("remove", oldest))?;
        }
        Ok(())
    }
}

/// The name of a file that was rotated at a time, to the second in UTC.
fn rotated_name(at: SystemTime, number: u32) -> String {
    let time = Timestamp::from_system_time(at).to_string();
    let time: String = time.trim_end_matches('Z').replace(['T', ':'], "-");
    format!("audit-{time}-{number}.log")
}

/// The files that were rotated, newest first. Their names are in the order of their times.
pub(crate) fn rotated_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with("audit-") && name.ends_with(".log"));
        if is_ours && entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort_unstable_by(|one, other| other.cmp(one));
    Ok(files)
}

#[cfg(test)]
mod tests;
