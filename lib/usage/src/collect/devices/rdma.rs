//! Network functions with remote direct memory access.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use koord_cgroup::system_file::SystemRoots;

/// The list of PCI functions cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct RdmaError {
    /// The folder.
    path: PathBuf,
    /// What the kernel said.
    source: io::Error,
}

/// One function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Name of its InfiniBand device; the first in order where it has several.
    pub name: String,
    /// The number in the names of Mellanox's driver, else its place in the list of all.
    pub minor: u32,
    /// Address on the bus.
    pub bus: String,
    /// NUMA node; absent where the machine does not tell.
    pub node: Option<u32>,
    /// Whether every port is active.
    pub is_healthy: bool,
    /// Addresses of its virtual functions, in order.
    pub virtual_functions: Vec<String>,
}

/// The number in a name as `mlx5_2`.
pub fn minor_of_name(name: &str) -> Option<u32> {
    let (generation, minor) = name.strip_prefix("mlx")?.split_once('_')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
    if is_number(generation) && is_number(minor) { minor.parse().ok() } else { None }
}

/// Finds the functions of PCI class 02 (network) that are not virtual and have an InfiniBand device, in the order of their
/// addresses.
///
/// # Errors
/// The list of PCI functions cannot be read. A machine without PCI has none.
pub fn read(roots: &SystemRoots) -> Result<Vec<RdmaDevice>, RdmaError> {
    let folder = roots.sys_root.join("bus/pci/devices");
    let mut devices = Vec::new();
    for bus in names(&folder)? {
        let function = folder.join(&bus);
        let class = fs::read_to_string(function.join("class")).unwrap_or_default();
        if !class.starts_with("0x02") || function.join("physfn").exists() {
            continue;
        }
        let infiniband = function.join("infiniband");
        let Some(name) = names(&infiniband)?.into_iter().next() else { continue };
        let node = fs::read_to_string(function.join("numa_node")).ok();
        let links = names(&function)?.into_iter().filter(|name| name.starts_with("virtfn"));
        let mut virtual_functions: Vec<String> = links
            .filter_map(|link| {
                fs::read_link(function.join(link)).ok()?.file_name()?.to_str().map(str::to_owned)
            })
            .collect();
        virtual_functions.sort_unstable();
        devices.push(RdmaDevice {
            minor: minor_of_name(&name).unwrap_or(u32::MAX),
            is_healthy: is_active(&infiniband.join(&name).join("ports"))?,
            // -1 where the firmware does not tell.
            node: node.and_then(|node| node.trim().parse().ok()),
            name,
            bus,
            virtual_functions,
        });
    }
    for (index, device) in (0..).zip(&mut devices) {
        if device.minor == u32::MAX {
            device.minor = index;
        }
    }
    Ok(devices)
}

/// Whether every port says `ACTIVE`. A device without ports is not.
fn is_active(ports: &Path) -> Result<bool, RdmaError> {
    let names = names(ports)?;
    let active = |port: &String| {
        fs::read_to_string(ports.join(port).join("state")).is_ok_and(|state| state.contains("ACTIVE"))
    };
    Ok(!names.is_empty() && names.iter().all(active))
}

fn names(folder: &Path) -> Result<Vec<String>, RdmaError> {
    let wrong = |source| RdmaError { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(wrong)?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn numbers_of_names() {
        let table = [
            ("mlx5_2", Some(2)),
            ("mlx4_10", Some(10)),
            ("bond0_rdma", None),
            ("mlx5_bond_0", None),
            ("mlx_1", None),
            ("mlx5_", None),
            ("xmlx5_2", None),
            ("mlx5_+2", None),
        ];
        for (name, minor) in table {
            assert_eq!(minor_of_name(name), minor, "{name}");
        }
    }

    #[test]
    fn functions_of_a_machine() {
        let folder = tempfile::tempdir().expect("a folder");
        let devices = folder.path().join("bus/pci/devices");
        let set = |path: &str, text: &str| {
            let path = devices.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, text).expect("written");
        };
        let function = |bus: &str, class: &str, ib: &str, states: &[&str]| {
            set(&format!("{bus}/class"), class);
            for (port, state) in states.iter().enumerate() {
                set(&format!("{bus}/infiniband/{ib}/ports/{}/state", port + 1), state);
            }
        };
        function("0000:01:00.0", "0x020700\n", "mlx5_2", &["4: ACTIVE\n", "4: ACTIVE\n"]);
        set("0000:01:00.0/numa_node", "1\n");
        function("0000:01:00.1", "0x020000\n", "bond0_rdma", &["4: ACTIVE\n", "1: DOWN\n"]);
        set("0000:01:00.1/numa_node", "-1\n");
        set("0000:01:00.1/infiniband/xib/x", "");
        // A virtual function, a card without the feature, a disk.
        function("0000:01:00.2", "0x020000\n", "mlx5_3", &["4: ACTIVE\n"]);
        symlink("../0000:01:00.0", devices.join("0000:01:00.2/physfn")).expect("a link");
        symlink("../0000:01:00.2", devices.join("0000:01:00.0/virtfn0")).expect("a link");
        function("0000:02:00.0", "0x020000\n", "", &[]);
        function("0000:03:00.0", "0x010802\n", "mlx5_9", &["4: ACTIVE\n"]);
        let roots = SystemRoots { sys_root: folder.path().to_owned(), ..SystemRoots::default() };
        let found = read(&roots).expect("devices");
        let expected = [
            RdmaDevice {
                name: "mlx5_2".to_owned(),
                minor: 2,
                bus: "0000:01:00.0".to_owned(),
                node: Some(1),
                is_healthy: true,
                virtual_functions: vec!["0000:01:00.2".to_owned()],
            },
            RdmaDevice {
                name: "bond0_rdma".to_owned(),
                minor: 1,
                bus: "0000:01:00.1".to_owned(),
                node: None,
                is_healthy: false,
                virtual_functions: Vec::new(),
            },
        ];
        assert_eq!(found, expected);
        let nowhere = SystemRoots { sys_root: folder.path().join("none"), ..SystemRoots::default() };
        assert_eq!(read(&nowhere).expect("none"), []);
    }
}
