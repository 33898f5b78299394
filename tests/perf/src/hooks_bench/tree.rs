//! A directory in the shape of cgroup v1 on a kernel that has every file the rules write.

use std::fs;
use std::io;
use std::path::PathBuf;

/// Files of a cgroup as the kernel makes them, by controller.
const FILES: [(&str, &[(&str, &str)]); 3] = [
    (
        "cpu",
        &[
            ("cpu.shares", "1024\n"),
            ("cpu.cfs_quota_us", "-1\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.cfs_burst_us", "0\n"),
            ("cpu.bvt_warp_ns", "0\n"),
        ],
    ),
    ("cpuset", &[("cpuset.cpus", "0-1\n"), ("cpuset.mems", "0\n")]),
    (
        "memory",
        &[
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.min", "0\n"),
            ("memory.low", "0\n"),
            ("memory.high", "9223372036854771712\n"),
            ("memory.wmark_ratio", "0\n"),
            ("memory.wmark_scale_factor", "50\n"),
            ("memory.wmark_min_adj", "0\n"),
            ("memory.oom.group", "0\n"),
        ],
    ),
];

/// The policy of the benchmark, in YAML's subset JSON: every class has every quality of service switched on.
const POLICY: &str = r#"{
  "resourceQOSStrategy": {
    "lsrClass": CLASS,
    "lsClass": CLASS,
    "beClass": {
      "cpuQOS": {"enable": true, "groupIdentity": -1},
      "memoryQOS": {"enable": true, "minLimitPercent": 20, "lowLimitPercent": 30, "throttlingPercent": 80, "wmarkRatio": 95},
      "resctrlQOS": {"enable": true, "catRangeEndPercent": 30},
      "blkioQOS": {"enable": true}
    },
    "systemClass": CLASS,
    "cgroupRoot": CLASS
  },
  "cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 1000}
}
"#;

const CLASS: &str = r#"{
      "cpuQOS": {"enable": true, "groupIdentity": 2},
      "memoryQOS": {"enable": true, "minLimitPercent": 50, "lowLimitPercent": 75, "throttlingPercent": 80},
      "resctrlQOS": {"enable": true},
      "blkioQOS": {"enable": true}
    }"#;

/// The tree.
#[derive(Debug)]
pub(super) struct Tree(PathBuf);

impl Tree {
    /// A tree in `root` with the directories of the QoS classes.
    pub(super) fn new(root: PathBuf) -> io::Result<Self> {
        let tree = Self(root);
        for group in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
            tree.make(group)?;
        }
        Ok(tree)
    }

    /// Makes a cgroup; those above it must be there.
    pub(super) fn make(&self, group: &str) -> io::Result<()> {
        for (controller, files) in FILES {
            let directory = self.0.join(controller).join(group.trim_start_matches('/'));
            fs::create_dir_all(&directory)?;
            for (file, text) in files {
                fs::write(directory.join(file), text)?;
            }
        }
        Ok(())
    }
}

/// The text of the policy file.
pub(super) fn policy() -> String {
    POLICY.replace("CLASS", CLASS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_its_files_under_each_controller() {
        let place = tempfile::tempdir().unwrap();
        let tree = Tree::new(place.path().join("cgroup")).unwrap();
        tree.make("/kubepods/besteffort/podu").unwrap();
        let read = |file: &str| fs::read_to_string(tree.0.join(file)).unwrap();
        assert_eq!(read("cpu/kubepods/besteffort/podu/cpu.cfs_quota_us"), "-1\n");
        assert_eq!(read("memory/kubepods/memory.min"), "0\n");
    }

    #[test]
    fn the_policy_is_one_document() {
        let policy: serde_json::Value = serde_json::from_str(&policy()).unwrap();
        assert_eq!(policy["resourceQOSStrategy"]["cgroupRoot"]["cpuQOS"]["groupIdentity"], 2);
    }
}
