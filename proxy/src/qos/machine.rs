//! Devices, disks and memory of the machine, as rules look them up.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use koord_extension::units::Bytes;
use koord_rules::{DeviceNode, DiskNumber, HostDevices, HostDisks};

use super::probe::MachineRoots;

/// What can be plugged in and out while the process runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) devices: HostDevices,
    pub(super) disks: HostDisks,
    pub(super) memory: Option<Bytes>,
}

impl Machine {
    /// Looks at the machine.
    pub(super) fn read(roots: &MachineRoots) -> Self {
        Self { devices: devices(roots), disks: disks(&roots.sys_root), memory: memory(&roots.proc_root) }
    }
}

/// Names in a directory, sorted; none if it cannot be read.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().to_str().map(str::to_owned)).collect();
    names.sort();
    names
}

/// Character devices that rules give to containers: those of GPUs and of RDMA.
fn devices(roots: &MachineRoots) -> HostDevices {
    let mut nodes = BTreeMap::new();
    let mut add = |path: String, found: &Path| {
        let Ok(metadata) = fs::metadata(found) else { return };
        if metadata.file_type().is_char_device() {
            let number = metadata.rdev();
            let node = DeviceNode {
                path: path.clone(),
                major: rustix::fs::major(number),
                minor: rustix::fs::minor(number),
                permissions: "rwm",
                file_mode: metadata.permissions().mode() & 0o777,
            };
            nodes.insert(path, node);
        }
    };
    for name in names(&roots.dev_root).iter().filter(|name| name.starts_with("nvidia")) {
        add(format!("/dev/{name}"), &roots.dev_root.join(name));
    }
    let infiniband = roots.dev_root.join("infiniband");
    for name in names(&infiniband) {
        add(format!("/dev/infiniband/{name}"), &infiniband.join(&name));
    }
    let mut infiniband_verbs = BTreeMap::new();
    if nodes.keys().any(|path| path.starts_with("/dev/infiniband/")) {
        let buses = roots.sys_root.join("bus/pci/devices");
        for bus in names(&buses) {
            let verbs = buses.join(&bus).join("infiniband_verbs");
            if verbs.is_dir() {
                infiniband_verbs.insert(bus, names(&verbs));
            }
        }
    }
    HostDevices { nodes, infiniband_verbs }
}

/// Block devices and the whole disk behind each: throttling and weights are of whole disks.
fn disks(sys_root: &Path) -> HostDisks {
    let mut devices = BTreeMap::new();
    let block = sys_root.join("block");
    for name in names(&block) {
        let folder = block.join(&name);
        let Some(disk) = fs::read_to_string(folder.join("dev")).ok().and_then(|text| disk_number(&text))
        else {
            continue;
        };
        for part in names(&folder).iter().filter(|part| folder.join(part).join("partition").exists()) {
            devices.insert(format!("/dev/{part}"), disk);
        }
        devices.insert(format!("/dev/{name}"), disk);
    }
    HostDisks { devices, ..HostDisks::default() }
}

fn disk_number(text: &str) -> Option<DiskNumber> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(DiskNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Memory of the machine, which stands for what pods can have where the kubelet's part is not known.
fn memory(proc_root: &Path) -> Option<Bytes> {
    let text = fs::read_to_string(proc_root.join("meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_lead_to_their_disk() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("sys/block/sda/dev", "8:0\n");
        write("sys/block/sda/sda1/partition", "1\n");
        write("sys/block/sda/queue/rotational", "0\n");
        write("sys/block/odd/dev", "x\n");
        write("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
        write("dev/nvidia0", "no device\n");
        let roots = MachineRoots {
            proc_root: root.path().join("proc"),
            sys_root: root.path().join("sys"),
            dev_root: root.path().join("dev"),
            ..MachineRoots::default()
        };
        let machine = Machine::read(&roots);
        let sda = DiskNumber { major: 8, minor: 0 };
        assert_eq!(
            machine.disks.devices,
            [("/dev/sda".to_owned(), sda), ("/dev/sda1".to_owned(), sda)].into()
        );
        assert_eq!(machine.memory, Some(Bytes(16 << 20)));
        // A plain file is no device.
        assert_eq!(machine.devices, HostDevices::default());
    }

    #[test]
    fn a_machine_that_tells_nothing_has_nothing() {
        let root = tempfile::tempdir().expect("a directory");
        let gone = root.path().join("gone");
        let roots = MachineRoots {
            proc_root: gone.clone(),
            sys_root: gone.clone(),
            dev_root: gone,
            ..MachineRoots::default()
        };
        assert_eq!(Machine::read(&roots), Machine::default());
    }
}
