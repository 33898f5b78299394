//! Reads the audit log newest first.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::path::PathBuf;

use crate::event::Event;
use crate::log::{CURRENT_FILE, rotated_files};

/// Octets read at a time.
const BLOCK: usize = 8 * 1024;

/// A longer line is no record and is passed over, in bytes.
pub const LONGEST_LINE: usize = 256 * 1024;

/// Lines of a file, last first. Empty lines are passed over, and so are lines beyond [`LONGEST_LINE`].
#[derive(Debug)]
pub struct ReverseLines {
    file: File,
    /// Where what has been read begins.
    start: u64,
    /// The octets from there to the last line that was given away.
    held: Vec<u8>,
    /// True while the line at the end of `held` is too long and its beginning is looked for.
    is_overlong: bool,
}

impl ReverseLines {
    /// Lines of the file as it is now; what is appended later is not seen.
    pub fn new(file: File) -> io::Result<ReverseLines> {
        let start = file.metadata()?.len();
        Ok(ReverseLines { file, start, held: Vec::new(), is_overlong: false })
    }

    /// The next line without its end; none at the beginning of the file.
    pub fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.held.iter().rposition(|octet| *octet == b'\n') {
                let line = self.held.split_off(end + 1);
                self.held.truncate(end);
                if !std::mem::take(&mut self.is_overlong) && !line.is_empty() {
                    return Ok(Some(line));
                }
                continue;
            }
            if self.held.len() > LONGEST_LINE {
                self.held.clear();
                self.is_overlong = true;
            }
            if self.start == 0 {
                let line = std::mem::take(&mut self.held);
                let is_line = !std::mem::take(&mut self.is_overlong) && !line.is_empty();
                return Ok(is_line.then_some(line));
            }
            self.read_block()?;
        }
    }

    fn read_block(&mut self) -> io::Result<()> {
        let length = self.start.min(BLOCK as u64);
        let from = self.start - length;
        let mut block = vec![0; usize::try_from(length).unwrap_or(BLOCK)];
        self.file.read_exact_at(&mut block, from)?;
        block.append(&mut self.held);
        self.held = block;
        self.start = from;
        Ok(())
    }
}

/// Records of the whole log as it was when the reader was made, newest first.
#[derive(Debug)]
pub struct ReverseReader {
    lines: Option<ReverseLines>,
    /// Files still to read, the next one last.
    files: Vec<PathBuf>,
    /// Lines that were no records.
    malformed: u64,
}

impl ReverseReader {
    /// A reader of the log in `folder`. A folder or file that is missing has no records.
    pub fn open(folder: &Path) -> io::Result<ReverseReader> {
        // The current file comes first: if it is rotated in between, it is met again under its new name.
        let current = absent_as_none(File::open(folder.join(CURRENT_FILE)))?;
        let mut files = absent_as_none(rotated_files(folder))?.unwrap_or_default();
        if let Some(file) = &current {
            let open = file.metadata()?;
            let is_same = |path: &PathBuf| {
                path.metadata().is_ok_and(|other| (other.dev(), other.ino()) == (open.dev(), open.ino()))
            };
            files.retain(|path| !is_same(path));
        }
        files.reverse();
        Ok(ReverseReader { lines: current.map(ReverseLines::new).transpose()?, files, malformed: 0 })
    }

    /// The next record; none at the end. Files that are gone meanwhile and lines that are no records are passed over.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        loop {
            let Some(lines) = &mut self.lines else {
                let Some(path) = self.files.pop() else { return Ok(None) };
                self.lines = absent_as_none(File::open(path))?.map(ReverseLines::new).transpose()?;
                continue;
            };
            match lines.next_line() {
                Ok(Some(line)) => match Event::parse(&line) {
                    Ok(event) => return Ok(Some(event)),
                    Err(_) => self.malformed += 1,
                },
                Ok(None) => self.lines = None,
                Err(error) => {
                    self.lines = None;
                    return Err(error);
                }
            }
        }
    }

    /// How many lines were no records.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }
}

fn absent_as_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
