//! Files of checkpoints: the only part of this crate that touches the disk.
//!
//! A file is written beside its place and moved there, so that a reader never sees half of one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::checkpoint::{CheckpointPlan, ModelCheckpoint, read_file, read_lines};
use crate::model::ModelName;
use crate::predictor::Predictor;

/// Name of the one file with all models. It is no name of a model, so Koordinator's koordlet, should it run
/// again in its place, takes the file for one of a pod that is gone.
pub const ONE_FILE: &str = "models.jsonl";

/// End of the names of files that are being written.
const UNFINISHED: &str = ".tmp";

/// A file larger than this is no checkpoint: a model takes some kilobytes, a node has some hundred.
const LARGEST: u64 = 64 << 20;

/// The directory of checkpoints.
#[derive(Debug, Clone)]
pub struct CheckpointDirectory {
    path: PathBuf,
}

/// A file or directory that could not be read or written. The predictor works without it.
#[derive(Debug, thiserror::Error)]
#[error("checkpoint {}: cannot {action}", path.display())]
pub struct CheckpointError {
    /// The file.
    pub path: PathBuf,
    /// What was tried: "read", "write", "remove".
    pub action: &'static str,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl CheckpointError {
    /// Whether the disk, or the quota of the volume, is full: it will pass, or somebody must make room.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// What a directory holds.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The checkpoints, those of the one file and those of files of their own.
    pub checkpoints: Vec<(ModelName, ModelCheckpoint)>,
    /// Files that are no checkpoint, with the reason. They are to be removed.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Files that could not be read at all.
    pub errors: Vec<CheckpointError>,
}

impl CheckpointDirectory {
    /// A directory, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> CheckpointDirectory {
        CheckpointDirectory { path: path.into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all checkpoints of either layout. A directory that is not there holds none.
    pub fn load(&self) -> Loaded {
        let mut loaded = Loaded::default();
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return loaded,
            Err(source) => {
                loaded.errors.push(CheckpointError { path: self.path.clone(), action: "read", source });
                return loaded;
            }
        };
        let mut paths: Vec<PathBuf> =
            entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_file() && metadata.len() <= LARGEST => {}
                Ok(metadata) if metadata.is_file() => {
                    let problem = format!("it has {} bytes, more than {LARGEST}", metadata.len());
                    loaded.unreadable.push((path, problem));
                    continue;
                }
                // Directories and links are not ours.
                Ok(_) => continue,
                Err(source) => {
                    loaded.errors.push(CheckpointError { path, action: "read", source });
                    continue;
                }
            }
            if name.ends_with(UNFINISHED) {
                loaded.unreadable.push((path, "it was not finished".to_owned()));
                continue;
            }
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
                Err(source) => {
                    loaded.errors.push(CheckpointError { path, action: "read", source });
                    continue;
                }
            };
            let text = String::from_utf8_lossy(&bytes);
            if name == ONE_FILE {
                let (read, bad) = read_lines(&text);
                if let (true, Some(first)) = (read.is_empty(), bad.first()) {
                    loaded.unreadable.push((path, first.to_string()));
                }
                loaded.checkpoints.extend(read);
            } else {
                match read_file(&name, &text) {
                    Ok(checkpoint) => loaded.checkpoints.push(checkpoint),
                    Err(problem) => loaded.unreadable.push((path, problem)),
                }
            }
        }
        loaded
    }

    /// Writes what a plan names, and tells what could not be written. The one file takes the place of files
    /// of single models, which are removed once it is there.
    pub fn write(&self, plan: &CheckpointPlan, predictor: &Predictor) -> Vec<CheckpointError> {
        match plan {
            CheckpointPlan::Nothing => Vec::new(),
            CheckpointPlan::OneFile => match self.replace(ONE_FILE, &predictor.checkpoint_lines()) {
                Ok(()) => self.remove_single_files(),
                Err(error) => vec![error],
            },
            CheckpointPlan::Files(names) => names
                .iter()
                .filter_map(|name| predictor.checkpoint(name))
                .filter_map(|checkpoint| self.replace(&checkpoint.uid, &checkpoint.to_line()).err())
                .collect(),
        }
    }

    /// Removes the file of a model, if it has one.
    pub fn remove(&self, name: &ModelName) -> Result<(), CheckpointError> {
        remove(self.path.join(name.to_string()))
    }

    /// Removes files that were found to be of no use.
    pub fn remove_unreadable(&self, loaded: &Loaded) -> Vec<CheckpointError> {
        loaded.unreadable.iter().filter_map(|(path, _)| remove(path.clone()).err()).collect()
    }

    fn remove_single_files(&self) -> Vec<CheckpointError> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        entries
            .filter_map(Result::ok)
            .filter(|entry| {
                let is_model =
                    entry.file_name().to_str().is_some_and(|name| name.parse::<ModelName>().is_ok());
                is_model && entry.file_type().is_ok_and(|kind| kind.is_file())
            })
            .filter_map(|entry| remove(entry.path()).err())
            .collect()
    }

    fn replace(&self, name: &str, text: &str) -> Result<(), CheckpointError> {
        let path = self.path.join(name);
        let unfinished = self.path.join(format!("{name}{UNFINISHED}"));
        let written = fs::create_dir_all(&self.path)
            .and_then(|()| File::create(&unfinished))
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                // Else a crash of the machine may leave an empty file in the place of the old one.
                file.sync_data()
            })
            .and_then(|()| fs::rename(&unfinished, &path));
        written.map_err(|source| {
            // It takes room that may be what is missing; if it cannot be removed, the next reading does it.
            let _ = fs::remove_file(&unfinished);
            CheckpointError { path, action: "write", source }
        })
    }
}

fn remove(path: PathBuf) -> Result<(), CheckpointError> {
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(CheckpointError { path, action: "remove", source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::checkpoint::{CheckpointLayout, CheckpointSchedule};
    use crate::model::Usage;
    use crate::predictor::{PodUsage, PredictorOptions, TrainingRound};
    use crate::wall_time::WallTime;

    fn trained(uids: &[&str]) -> Predictor {
        let mut predictor = Predictor::new(PredictorOptions::default());
        let usage = Usage { cpu: 1.0, memory: 1e9 };
        let pods = uids.iter().map(|uid| PodUsage { uid: (*uid).into(), class: None, usage }).collect();
        predictor.train(&TrainingRound { node: None, pods }, now());
        predictor
    }

    fn now() -> WallTime {
        "2026-07-24T08:00:00Z".parse().unwrap()
    }

    fn names(directory: &CheckpointDirectory) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn restored(directory: &CheckpointDirectory) -> Predictor {
        let mut predictor = Predictor::new(PredictorOptions::default());
        let loaded = directory.load();
        assert!(loaded.errors.is_empty() && loaded.unreadable.is_empty(), "{loaded:?}");
        predictor.restore(loaded.checkpoints, |_| true, now());
        predictor
    }

    #[test]
    fn both_layouts_are_written_and_read() {
        let root = tempfile::tempdir().unwrap();
        let directory = CheckpointDirectory::new(root.path().join("below/that"));
        assert!(directory.load().checkpoints.is_empty());
        let mut predictor = trained(&["a", "b"]);

        let layout = CheckpointLayout::FilePerModel { most: 12 };
        let mut schedule = CheckpointSchedule::new(layout, Duration::from_secs(600));
        let plan = schedule.plan(&predictor, now());
        assert!(directory.write(&plan, &predictor).is_empty());
        schedule.tried(&mut predictor, &plan, now());
        assert_eq!(names(&directory), ["a", "b"]);
        assert_eq!(restored(&directory).checkpoint_lines(), predictor.checkpoint_lines());
        assert!(directory.remove(&ModelName::pod("b")).is_ok());
        assert!(directory.remove(&ModelName::pod("b")).is_ok());
        assert_eq!(names(&directory), ["a"]);

        // The one file takes their place; what is not a model's stays.
        fs::write(directory.path().join("README.txt"), "x").unwrap();
        assert!(directory.write(&CheckpointPlan::OneFile, &predictor).is_empty());
        assert_eq!(names(&directory), ["README.txt", ONE_FILE]);
        fs::remove_file(directory.path().join("README.txt")).unwrap();
        assert_eq!(restored(&directory).checkpoint_lines(), predictor.checkpoint_lines());
    }

    #[test]
    fn files_that_are_no_checkpoint_are_told_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let directory = CheckpointDirectory::new(root.path());
        directory.write(&CheckpointPlan::OneFile, &trained(&["a"]));
        for (name, text) in [("b", "{"), ("c.tmp", "{}"), ("d", ""), ("e", "\u{0}\u{0}")] {
            fs::write(root.path().join(name), text).unwrap();
        }
        fs::create_dir(root.path().join("folder")).unwrap();
        let loaded = directory.load();
        assert_eq!(loaded.checkpoints.len(), 1);
        let unreadable: Vec<_> =
            loaded.unreadable.iter().map(|(path, _)| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(unreadable, ["b", "c.tmp", "d", "e"]);
        assert!(directory.remove_unreadable(&loaded).is_empty());
        assert_eq!(names(&directory), ["folder", ONE_FILE]);
    }

    #[test]
    fn what_cannot_be_written_is_told() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let directory = CheckpointDirectory::new(&file);
        let errors = directory.write(&CheckpointPlan::OneFile, &trained(&["a"]));
        assert_eq!(errors.len(), 1);
        assert_eq!((errors[0].action, errors[0].is_full()), ("write", false));
        assert_eq!(directory.load().errors.len(), 1);
        let full = CheckpointError { path: file, action: "write", source: io::Error::from_raw_os_error(28) };
        assert!(full.is_full());
    }
}
