//! What begins and ends on the node, seen by the directories of control groups.
//!
//! For nodes without a proxy. A new directory of a pod is a reason to ask the kubelet at once. Directories are watched
//! by inotify; what a watch may have missed is found by listing them and comparing, always after a watch is added and
//! once a minute. Where nothing can be watched they are listed every 5 s.

mod watcher;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::path::{parse_container_name, parse_pod_name};
use koord_extension::qos::KubeQos;

pub use watcher::{Health, Watcher};

/// What the directories of pods hold: by class and name of the pod's directory, the names of its containers'.
pub type Listing = BTreeMap<(KubeQos, String), BTreeSet<String>>;

/// Something that began or ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A pod has a directory.
    PodAdded {
        /// Its UID, as its directory says it.
        uid: String,
    },
    /// A pod's directory is gone.
    PodDeleted {
        /// Its UID.
        uid: String,
    },
    /// A container has a directory.
    ContainerAdded {
        /// UID of its pod.
        uid: String,
        /// Its id.
        id: String,
    },
    /// A container's directory is gone, while its pod's is there.
    ContainerDeleted {
        /// UID of its pod.
        uid: String,
        /// Its id.
        id: String,
    },
}

/// The UID that a directory of either driver is named after.
fn pod_uid(name: &str) -> Option<String> {
    [CgroupDriver::Systemd, CgroupDriver::Cgroupfs]
        .into_iter()
        .find_map(|driver| parse_pod_name(driver, name))
        .map(|group| group.uid)
}

/// The id that a directory of either driver is named after.
fn container_id(name: &str) -> Option<&str> {
    let driver = if name.ends_with(".scope") { CgroupDriver::Systemd } else { CgroupDriver::Cgroupfs };
    parse_container_name(driver, name).map(|(_runtime, id)| id)
}

/// What became different from `before` to `after`. Directories that are named like no pod or container do not count.
pub fn changes(before: &Listing, after: &Listing) -> Vec<Change> {
    let none = BTreeSet::new();
    let mut changes = Vec::new();
    for (key, containers) in after {
        let Some(uid) = pod_uid(&key.1) else { continue };
        let known = before.get(key);
        if known.is_none() {
            changes.push(Change::PodAdded { uid: uid.clone() });
        }
        let known = known.unwrap_or(&none);
        for id in containers.difference(known).filter_map(|name| container_id(name)) {
            changes.push(Change::ContainerAdded { uid: uid.clone(), id: id.to_owned() });
        }
        for id in known.difference(containers).filter_map(|name| container_id(name)) {
            changes.push(Change::ContainerDeleted { uid: uid.clone(), id: id.to_owned() });
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        changes.extend(pod_uid(&key.1).map(|uid| Change::PodDeleted { uid }));
    }
    changes
}

/// Whether a change is a reason to ask the kubelet at once.
pub fn wants_sync(changes: &[Change]) -> bool {
    changes.iter().any(|change| matches!(change, Change::PodAdded { .. } | Change::ContainerAdded { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(pods: &[(KubeQos, &str, &[&str])]) -> Listing {
        pods.iter()
            .map(|(qos, name, containers)| {
                ((*qos, (*name).to_owned()), containers.iter().map(|name| (*name).to_owned()).collect())
            })
            .collect()
    }

    #[test]
    fn both_drivers_are_understood_and_other_names_ignored() {
        let before = listing(&[]);
        let after = listing(&[
            (KubeQos::BestEffort, "poda-b", &["0123", ".hidden"]),
            (
                KubeQos::Burstable,
                "kubepods-burstable-podc_d.slice",
                &["cri-containerd-4567.scope", "x.scope"],
            ),
            (KubeQos::Guaranteed, "burstable", &[]),
            (KubeQos::Guaranteed, "kubepods-besteffort.slice", &["kubepods-besteffort-podz.slice"]),
        ]);
        let mut found = changes(&before, &after);
        found.sort();
        assert_eq!(
            found,
            [
                Change::PodAdded { uid: "a-b".to_owned() },
                Change::PodAdded { uid: "c-d".to_owned() },
                Change::ContainerAdded { uid: "a-b".to_owned(), id: "0123".to_owned() },
                Change::ContainerAdded { uid: "c-d".to_owned(), id: "4567".to_owned() },
            ]
        );
        assert!(wants_sync(&found));
    }

    #[test]
    fn ends_are_told_and_want_no_sync() {
        let before =
            listing(&[(KubeQos::BestEffort, "poda", &["1", "2"]), (KubeQos::BestEffort, "podb", &["3"])]);
        let after = listing(&[(KubeQos::BestEffort, "poda", &["1"])]);
        let found = changes(&before, &after);
        assert_eq!(
            found,
            [
                Change::ContainerDeleted { uid: "a".to_owned(), id: "2".to_owned() },
                Change::PodDeleted { uid: "b".to_owned() },
            ]
        );
        assert!(!wants_sync(&found));
        assert_eq!(changes(&after, &after), []);
    }
}
