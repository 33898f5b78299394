//! Who makes the groups of pods and containers, and in which style their names are.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

pub mod kubelet;

/// How the kubelet and the runtime name and make groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CgroupDriver {
    /// Slices and scopes that systemd makes.
    Systemd,
    /// Plain directories.
    Cgroupfs,
}

/// A word that is none of the accepted ones.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} {text:?} is unknown; accepted are {accepted}")]
pub struct UnknownName {
    /// What the word should have named.
    pub what: &'static str,
    /// The word.
    pub text: String,
    /// All that is accepted.
    pub accepted: &'static str,
}

impl CgroupDriver {
    /// `systemd` or `cgroupfs`.
    pub const fn as_str(self) -> &'static str {
        match self {
            CgroupDriver::Systemd => "systemd",
            CgroupDriver::Cgroupfs => "cgroupfs",
        }
    }

    /// The driver that a kubelet must use if it sends this `cgroup_parent` over the CRI: with systemd it is the name of a
    /// slice, otherwise an absolute path. Nothing for a text that is neither.
    pub fn of_cri_parent(text: &str) -> Option<CgroupDriver> {
        if text.ends_with(".slice") {
            Some(CgroupDriver::Systemd)
        } else if text.starts_with('/') && text.len() > 1 {
            Some(CgroupDriver::Cgroupfs)
        } else {
            None
        }
    }
}

impl fmt::Display for CgroupDriver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for CgroupDriver {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<CgroupDriver, UnknownName> {
        match text {
            "systemd" => Ok(CgroupDriver::Systemd),
            "cgroupfs" => Ok(CgroupDriver::Cgroupfs),
            other => Err(UnknownName {
                what: "cgroup driver",
                text: other.to_owned(),
                accepted: "systemd, cgroupfs",
            }),
        }
    }
}

/// What is known about the driver of a node, from the surest to the weakest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriverEvidence {
    /// What the operator said.
    pub configured: Option<CgroupDriver>,
    /// What the runtime answers to the CRI's RuntimeConfig, which kubelets from Kubernetes 1.31 on follow.
    pub runtime: Option<CgroupDriver>,
    /// The slice of all pods exists.
    pub has_kubepods_slice: bool,
    /// The plain directory of all pods exists.
    pub has_kubepods_directory: bool,
    /// The kubelet was found.
    pub has_kubelet: bool,
    /// The kubelet's flag `--cgroup-driver`.
    pub kubelet_flag: Option<CgroupDriver>,
    /// Key `cgroupDriver` of the kubelet's configuration file or of its `/configz`.
    pub kubelet_configuration: Option<CgroupDriver>,
}

/// What a driver was concluded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DriverSource {
    /// The operator's word.
    Configured,
    /// The runtime's word.
    Runtime,
    /// Directories found.
    Directories,
    /// The kubelet's flag.
    KubeletFlag,
    /// The kubelet's configuration.
    KubeletConfiguration,
    /// A kubelet that says nothing: its default is cgroupfs.
    KubeletDefault,
    /// Nothing was found, and systemd is the usual case. Worth asking again.
    Assumed,
}

impl DriverSource {
    /// A word for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            DriverSource::Configured => "configured",
            DriverSource::Runtime => "runtime",
            DriverSource::Directories => "directories",
            DriverSource::KubeletFlag => "kubelet-flag",
            DriverSource::KubeletConfiguration => "kubelet-configuration",
            DriverSource::KubeletDefault => "kubelet-default",
            DriverSource::Assumed => "assumed",
        }
    }
}

impl DriverEvidence {
    /// The driver that follows. Koordinator's order, with the operator and the runtime before it.
    pub const fn conclude(&self) -> (CgroupDriver, DriverSource) {
        if let Some(driver) = self.configured {
            (driver, DriverSource::Configured)
        } else if let Some(driver) = self.runtime {
            (driver, DriverSource::Runtime)
        } else if self.has_kubepods_slice {
            (CgroupDriver::Systemd, DriverSource::Directories)
        } else if self.has_kubepods_directory {
            (CgroupDriver::Cgroupfs, DriverSource::Directories)
        } else if let Some(driver) = self.kubelet_flag {
            (driver, DriverSource::KubeletFlag)
        } else if let Some(driver) = self.kubelet_configuration {
            (driver, DriverSource::KubeletConfiguration)
        } else if self.has_kubelet {
            (CgroupDriver::Cgroupfs, DriverSource::KubeletDefault)
        } else {
            (CgroupDriver::Systemd, DriverSource::Assumed)
        }
    }
}

/// A container runtime, as it appears in container ids (`containerd://ID`) and in names of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuntimeName {
    /// containerd.
    Containerd,
    /// Docker, by cri-dockerd.
    Docker,
    /// CRI-O.
    CriO,
    /// Pouch.
    Pouch,
}

impl RuntimeName {
    /// All of them.
    pub const ALL: [RuntimeName; 4] =
        [RuntimeName::Containerd, RuntimeName::Docker, RuntimeName::CriO, RuntimeName::Pouch];

    /// The word in container ids.
    pub const fn as_str(self) -> &'static str {
        match self {
            RuntimeName::Containerd => "containerd",
            RuntimeName::Docker => "docker",
            RuntimeName::CriO => "cri-o",
            RuntimeName::Pouch => "pouch",
        }
    }

    /// What stands before the id in the name of a scope.
    pub const fn scope_prefix(self) -> &'static str {
        match self {
            RuntimeName::Containerd => "cri-containerd-",
            RuntimeName::Docker => "docker-",
            RuntimeName::CriO => "crio-",
            RuntimeName::Pouch => "pouch-",
        }
    }

    /// Names that the group of a container may have below its pod's. CRI-O puts its prefix before the id with plain
    /// directories too; Koordinator expects the bare id there, so both are candidates, and the one that exists wins.
    pub fn group_names(self, driver: CgroupDriver, container_id: &str) -> Vec<String> {
        match (driver, self) {
            (CgroupDriver::Systemd, _) => vec![format!("{}{container_id}.scope", self.scope_prefix())],
            (CgroupDriver::Cgroupfs, RuntimeName::CriO) => {
                vec![format!("crio-{container_id}"), container_id.to_owned()]
            }
            (CgroupDriver::Cgroupfs, _) => vec![container_id.to_owned()],
        }
    }
}

impl fmt::Display for RuntimeName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for RuntimeName {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<RuntimeName, UnknownName> {
        RuntimeName::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| UnknownName {
            what: "container runtime",
            text: text.to_owned(),
            accepted: "containerd, docker, cri-o, pouch",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_surest_evidence_of_the_driver_wins() {
        use CgroupDriver::{Cgroupfs, Systemd};
        let mut evidence = DriverEvidence::default();
        assert_eq!(evidence.conclude(), (Systemd, DriverSource::Assumed));
        evidence.has_kubelet = true;
        assert_eq!(evidence.conclude(), (Cgroupfs, DriverSource::KubeletDefault));
        evidence.kubelet_configuration = Some(Systemd);
        assert_eq!(evidence.conclude(), (Systemd, DriverSource::KubeletConfiguration));
        evidence.kubelet_flag = Some(Cgroupfs);
        assert_eq!(evidence.conclude(), (Cgroupfs, DriverSource::KubeletFlag));
        evidence.kubelet_flag = Some(Systemd);
        evidence.has_kubepods_directory = true;
        assert_eq!(evidence.conclude(), (Cgroupfs, DriverSource::Directories));
        evidence.has_kubepods_slice = true;
        assert_eq!(evidence.conclude(), (Systemd, DriverSource::Directories));
        evidence.runtime = Some(Cgroupfs);
        assert_eq!(evidence.conclude(), (Cgroupfs, DriverSource::Runtime));
        evidence.configured = Some(Systemd);
        assert_eq!(evidence.conclude(), (Systemd, DriverSource::Configured));
    }

    #[test]
    fn the_parent_in_a_call_tells_the_driver() {
        assert_eq!(CgroupDriver::of_cri_parent("kubepods-poda_b.slice"), Some(CgroupDriver::Systemd));
        assert_eq!(CgroupDriver::of_cri_parent("/kubepods/besteffort/poda"), Some(CgroupDriver::Cgroupfs));
        assert_eq!(CgroupDriver::of_cri_parent(""), None);
        assert_eq!(CgroupDriver::of_cri_parent("/"), None);
    }

    #[test]
    fn names_are_read_back() {
        for name in RuntimeName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
        }
        let error = "rkt".parse::<RuntimeName>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "container runtime \"rkt\" is unknown; accepted are containerd, docker, cri-o, pouch"
        );
        assert_eq!("systemd".parse(), Ok(CgroupDriver::Systemd));
        assert!("Systemd".parse::<CgroupDriver>().is_err());
    }
}
