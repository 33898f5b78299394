//! Disks of a node, what lies on them, and where it is mounted.
//!
//! Read from sysfs and the table of mounts; nothing is run. [`MountTable`] tells without reading whether mounts changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use koord_cgroup::io::DeviceNumber;
use koord_cgroup::system_file::SystemRoots;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Block devices that are no disks: memory, files, removable media.
const NO_DISKS: [&str; 5] = ["loop", "ram", "zram", "sr", "fd"];

/// Levels of devices on devices that are followed: more than anybody stacks, so that a loop ends.
const DEPTH: usize = 8;

/// Storage cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct StorageError {
    /// The file or folder.
    path: PathBuf,
    /// What the kernel said.
    source: io::Error,
}

/// Storage of a node. Names are the kernel's, without `/dev/`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StorageFacts {
    /// Number of each disk.
    pub disks: BTreeMap<String, DeviceNumber>,
    /// The disk of each partition.
    pub partitions: BTreeMap<String, String>,
    /// The disks of each volume group of LVM that has active volumes.
    pub volume_groups: BTreeMap<String, BTreeSet<String>>,
    /// Number of each active logical volume, by group and name.
    pub logical_volumes: BTreeMap<(String, String), DeviceNumber>,
    /// The disks below each mount point of a file system on block devices.
    pub mounts: BTreeMap<PathBuf, BTreeSet<String>>,
}

/// A block device.
#[derive(Debug, Clone, Default)]
struct Block {
    number: Option<DeviceNumber>,
    /// The disk of a partition.
    disk: Option<String>,
    /// What a stacked device lies on.
    slaves: Vec<String>,
    /// Name that the device mapper has for it, if LVM made it.
    volume: Option<(String, String)>,
}

impl StorageFacts {
    /// Reads everything. A device that goes meanwhile is left out.
    ///
    /// # Errors
    /// The list of block devices or the table of mounts.
    pub fn read(roots: &SystemRoots) -> Result<StorageFacts, StorageError> {
        let folder = roots.sys_root.join("class/block");
        let mut blocks = BTreeMap::new();
        for name in names(&folder)? {
            let block = block(&folder.join(&name));
            blocks.insert(name, block);
        }
        let path = roots.proc_root.join("self/mountinfo");
        let table = fs::read(&path).map_err(|source| StorageError { path, source })?;
        Ok(StorageFacts::of(&blocks, &table))
    }

    fn of(blocks: &BTreeMap<String, Block>, table: &[u8]) -> StorageFacts {
        let mut facts = StorageFacts::default();
        for (name, block) in blocks {
            if let Some(disk) = &block.disk {
                facts.partitions.insert(name.clone(), disk.clone());
            } else if is_disk(name, block) {
                facts.disks.extend(block.number.map(|number| (name.clone(), number)));
            }
            let Some((group, volume)) = &block.volume else { continue };
            let disks = disks_below(blocks, name);
            facts.volume_groups.entry(group.clone()).or_default().extend(disks);
            let number = block.number.map(|number| ((group.clone(), volume.clone()), number));
            facts.logical_volumes.extend(number);
        }
        let by_number: BTreeMap<DeviceNumber, &str> =
            blocks.iter().filter_map(|(name, block)| Some((block.number?, name.as_str()))).collect();
        for mount in mounts(table) {
            // File systems on several devices have a number that is no device's; their source names one of them.
            let device = by_number.get(&mount.number).copied().or_else(|| mount.source.strip_prefix("/dev/"));
            let disks = device.map(|device| disks_below(blocks, device)).unwrap_or_default();
            if !disks.is_empty() {
                facts.mounts.insert(mount.point, disks);
            }
        }
        facts
    }
}

fn is_disk(name: &str, block: &Block) -> bool {
    let kind = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    block.disk.is_none() && block.slaves.is_empty() && !NO_DISKS.contains(&kind) && !name.starts_with("dm-")
}

/// The disks that a device lies on; itself, if it is one.
fn disks_below(blocks: &BTreeMap<String, Block>, name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut level = vec![name.to_owned()];
    for _ in 0..DEPTH {
        let mut below = Vec::new();
        for name in level {
            let Some(block) = blocks.get(&name) else { continue };
            if is_disk(&name, block) {
                found.insert(name);
            } else if let Some(disk) = &block.disk {
                below.push(disk.clone());
            } else {
                below.extend(block.slaves.iter().cloned());
            }
        }
        if below.is_empty() {
            break;
        }
        level = below;
    }
    found
}

fn block(folder: &Path) -> Block {
    let text = |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
    // The entry is a link into the tree of devices, where a partition lies in the folder of its disk.
    let disk = folder
        .join("partition")
        .exists()
        .then(|| fs::canonicalize(folder).ok())
        .flatten()
        .and_then(|place| Some(place.parent()?.file_name()?.to_str()?.to_owned()));
    let is_lvm = text("dm/uuid").is_some_and(|uuid| uuid.starts_with("LVM-"));
    Block {
        number: text("dev").and_then(|number| number.parse().ok()),
        disk,
        slaves: names(&folder.join("slaves")).unwrap_or_default(),
        volume: if is_lvm { text("dm/name").as_deref().and_then(split_volume) } else { None },
    }
}

/// The group and the volume of a name of the device mapper: a hyphen parts them, two stand for one.
fn split_volume(name: &str) -> Option<(String, String)> {
    let octets = name.as_bytes();
    let mut index = 0;
    while index < octets.len() {
        if octets.get(index) == Some(&b'-') {
            if octets.get(index + 1) != Some(&b'-') {
                let (group, volume) = (name.get(..index)?, name.get(index + 1..)?);
                let whole = !group.is_empty() && !volume.is_empty();
                return whole.then(|| (group.replace("--", "-"), volume.replace("--", "-")));
            }
            index += 1;
        }
        index += 1;
    }
    None
}

fn names(folder: &Path) -> Result<Vec<String>, StorageError> {
    let wrong = |source| StorageError { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        names.extend(entry.map_err(wrong)?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// A line of the table of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    number: DeviceNumber,
    point: PathBuf,
    source: String,
}

/// Reads `mountinfo`. Lines of another shape are left out.
fn mounts(table: &[u8]) -> impl Iterator<Item = Mount> {
    super::text::lines(table).filter_map(|line| {
        let line = String::from_utf8_lossy(line);
        let (mount, rest) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(2);
        let number = fields.next()?.parse().ok()?;
        let point = PathBuf::from(unescape(fields.nth(1)?));
        let source = unescape(rest.split(' ').nth(1)?);
        Some(Mount { number, point, source })
    })
}

/// Blanks and line ends stand as three octal digits after a backslash.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let octet = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octet.filter(u8::is_ascii) {
            Some(octet) => {
                out.push(char::from(octet));
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

/// The table of mounts, kept open: the kernel marks it when mounts change.
#[derive(Debug)]
pub struct MountTable(File);

impl MountTable {
    /// Opens the table of this process.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(roots: &SystemRoots) -> Result<MountTable, StorageError> {
        let path = roots.proc_root.join("self/mountinfo");
        File::open(&path).map(MountTable).map_err(|source| StorageError { path, source })
    }

    /// Whether mounts changed since the last call, or since the table was opened. Never waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn has_changed(&mut self) -> io::Result<bool> {
        let mut files = [PollFd::new(&self.0, PollFlags::PRI)];
        poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        let changed = files.iter().any(|file| file.revents().intersects(PollFlags::PRI | PollFlags::ERR));
        if changed {
            // A read from the start takes note of the change.
            self.0.rewind()?;
            let mut first = [0; 1];
            let _ = self.0.read(&mut first)?;
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod tests;
