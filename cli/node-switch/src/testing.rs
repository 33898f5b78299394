//! A node in memory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::system::{FileState, Files};

/// Files in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemoryFiles(pub(crate) BTreeMap<PathBuf, FileState>);

impl MemoryFiles {
    pub(crate) fn of(files: &[(&str, &str)]) -> MemoryFiles {
        MemoryFiles(files.iter().map(|(path, text)| (PathBuf::from(path), FileState::new(*text))).collect())
    }
}

impl Files for MemoryFiles {
    fn read(&self, path: &Path) -> io::Result<Option<FileState>> {
        Ok(self.0.get(path).cloned())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let name = |path: &PathBuf| path.file_name()?.to_str().map(str::to_owned);
        Ok(self.0.keys().filter(|path| path.parent() == Some(directory)).filter_map(name).collect())
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.keys().any(|file| file.starts_with(path))
    }
}
