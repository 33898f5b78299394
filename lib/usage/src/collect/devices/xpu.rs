//! Accelerators, as files of vendors' programs describe them.
//!
//! Every file of a folder is a JSON array of devices. All values but truth values are texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A file that cannot be used. The others are.
#[derive(Debug, thiserror::Error)]
pub enum XpuError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or the folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is no array of devices.
    #[error("{} is no JSON array of devices", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where it goes wrong.
        source: serde_json::Error,
    },
}

/// One accelerator. What a file leaves out is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct XpuDevice {
    /// Who makes it.
    pub vendor: String,
    /// What it is.
    pub model: String,
    /// Its identity.
    pub uuid: String,
    /// Its number.
    pub minor: String,
    /// Quantities of what it offers.
    pub resources: BTreeMap<String, String>,
    /// Where it is.
    pub topology: Option<XpuTopology>,
    /// How it is; absent means well.
    pub status: Option<XpuStatus>,
}

/// Where an accelerator is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct XpuTopology {
    /// Links to others.
    #[serde(rename = "p2pLinks")]
    pub links: Vec<XpuLink>,
    /// Whether only devices that are linked may be used together.
    #[serde(rename = "mustHonorPartition")]
    pub must_honor_partition: bool,
    /// Socket.
    #[serde(rename = "socketID")]
    pub socket: String,
    /// NUMA node.
    #[serde(rename = "nodeID")]
    pub node: String,
    /// PCIe root.
    #[serde(rename = "pcieID")]
    pub pcie: String,
    /// Bus address.
    #[serde(rename = "busID")]
    pub bus: String,
}

/// A link of an accelerator to others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct XpuLink {
    /// Numbers of the others, separated by commas.
    #[serde(rename = "peerMinor")]
    pub peers: String,
    /// Sort of the link.
    #[serde(rename = "type")]
    pub kind: String,
}

/// How an accelerator is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct XpuStatus {
    /// Whether it works.
    pub healthy: bool,
    /// Code of the error.
    #[serde(rename = "errCode")]
    pub error_code: String,
    /// The error in words.
    #[serde(rename = "errMessage")]
    pub error_message: String,
}

impl XpuDevice {
    /// Whether it works.
    pub fn is_healthy(&self) -> bool {
        self.status.as_ref().is_none_or(|status| status.healthy)
    }

    /// Its number; 0 for a text that is none.
    pub fn minor_number(&self) -> u32 {
        self.minor.parse().unwrap_or(0)
    }

    /// The numbers of the devices on one of its links, itself included, each once and in order. What is no number, as marks in
    /// vendors' files, is left out. Empty for a link without peers or without a sort.
    pub fn linked_minors(&self, link: &XpuLink) -> BTreeSet<u32> {
        if link.peers.is_empty() || link.kind.is_empty() {
            return BTreeSet::new();
        }
        let peers = link.peers.split(',').filter_map(|minor| minor.trim().parse().ok());
        peers.chain([self.minor_number()]).collect()
    }
}

/// Reads all files of a folder, in the order of their names. A folder that is not there has no devices. The devices are in the
/// order of their identities.
pub fn read(folder: &Path) -> (Vec<XpuDevice>, Vec<XpuError>) {
    let (mut devices, mut errors) = (Vec::new(), Vec::new());
    let mut paths = Vec::new();
    match fs::read_dir(folder) {
        Ok(entries) => {
            paths.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => errors.push(XpuError::Read { path: folder.to_owned(), source }),
    }
    paths.sort_unstable();
    for path in paths {
        let octets = match fs::read(&path) {
            Ok(octets) => octets,
            Err(source) => {
                errors.push(XpuError::Read { path, source });
                continue;
            }
        };
        match serde_json::from_slice::<Vec<XpuDevice>>(&octets) {
            Ok(found) => devices.extend(found),
            Err(source) => errors.push(XpuError::Parse { path, source }),
        }
    }
    devices.sort_by(|one, other| one.uuid.cmp(&other.uuid));
    (devices, errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked(minor: &str, peers: &str, kind: &str) -> Vec<u32> {
        let device = XpuDevice { minor: minor.to_owned(), ..XpuDevice::default() };
        let link = XpuLink { peers: peers.to_owned(), kind: kind.to_owned() };
        device.linked_minors(&link).into_iter().collect()
    }

    #[test]
    fn numbers_on_a_link() {
        assert_eq!(linked("0", "1,2,3,g", "HCCS"), [0, 1, 2, 3]);
        assert_eq!(linked("4", "5,6,7,7,g", "HCCS"), [4, 5, 6, 7]);
        assert_eq!(linked("1", "0", "x"), linked("0", "1", "x"));
        assert!(linked("0", "", "HCCS").is_empty());
        assert!(linked("0", "1", "").is_empty());
        assert_eq!(linked("none", "1", "x"), [0, 1]);
    }

    #[test]
    fn files_of_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let set = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        set(
            "b.json",
            r#"[{"vendor":"v","model":"m","uuid":"2","minor":"1","resources":{"gpu-core":"100"},"new":1,
                "topology":{"p2pLinks":[{"peerMinor":"0","type":"x"}],"mustHonorPartition":true,"nodeID":"1"},
                "status":{"healthy":false,"errCode":"-8001"}}]"#,
        );
        set("a.json", r#"[{"uuid":"3"},{"uuid":"1"}]"#);
        set("c.json", r#"{"uuid":"4"}"#);
        set("d.json", r#"[{"uuid":4}]"#);
        fs::create_dir(folder.path().join("e.json")).expect("a folder");
        let (devices, errors) = read(folder.path());
        let uuids: Vec<&str> = devices.iter().map(|device| device.uuid.as_str()).collect();
        assert_eq!(uuids, ["1", "2", "3"]);
        assert_eq!(devices.iter().map(XpuDevice::is_healthy).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(devices[1].minor_number(), 1);
        assert!(devices[1].topology.as_ref().is_some_and(|topology| topology.must_honor_partition));
        assert!(matches!(errors.as_slice(), [XpuError::Parse { .. }, XpuError::Parse { .. }]), "{errors:?}");
        assert!(
            matches!(read(&folder.path().join("none")), (devices, errors) if devices.is_empty() && errors.is_empty())
        );
    }
}
