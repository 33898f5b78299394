//! Finding a pod's cgroup by the kubelet's naming, when the runtime does not tell it.

use std::path::{Path, PathBuf};

/// Where a cgroup file system is usually mounted: the unified hierarchy, then controllers of version 1 that
/// every kubelet uses, then the one systemd keeps for itself.
pub const USUAL_ROOTS: [&str; 4] =
    ["/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/systemd"];

/// The paths a kubelet may have given to the pod `uid`, in the form it sends as `cgroup_parent`: for each
/// QoS class, with the systemd driver and with the cgroupfs driver. Empty for a text that is no uid.
pub fn candidates(uid: &str) -> Vec<String> {
    if uid.is_empty() || !uid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Vec::new();
    }
    let escaped = uid.replace('-', "_");
    let mut paths = Vec::with_capacity(6);
    for class in ["burstable", "besteffort"] {
        paths.push(format!("/kubepods.slice/kubepods-{class}.slice/kubepods-{class}-pod{escaped}.slice"));
    }
    paths.push(format!("/kubepods.slice/kubepods-pod{escaped}.slice"));
    for class in ["burstable", "besteffort"] {
        paths.push(format!("/kubepods/{class}/pod{uid}"));
    }
    paths.push(format!("/kubepods/pod{uid}"));
    paths
}

/// The first of the [`candidates`] that exists under one of `roots`.
pub fn probe(roots: &[PathBuf], uid: &str) -> Option<String> {
    candidates(uid).into_iter().find(|candidate| roots.iter().any(|root| below(root, candidate).is_dir()))
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// The full path of a systemd slice: `a-b-c.slice` is `/a.slice/a-b.slice/a-b-c.slice`. Anything else is
/// returned as it is.
pub fn expand_slice(name: &str) -> String {
    koord_cgroup::path::expand_slice(name).map_or_else(|_no_slice| name.to_owned(), |path| format!("/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "6f1f4a5e-0000-1111-2222-333344445555";

    #[test]
    fn every_class_and_driver_is_found() {
        for path in [
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f1f4a5e_0000_1111_2222_333344445555.slice",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod6f1f4a5e_0000_1111_2222_333344445555.slice",
            "/kubepods.slice/kubepods-pod6f1f4a5e_0000_1111_2222_333344445555.slice",
            "/kubepods/burstable/pod6f1f4a5e-0000-1111-2222-333344445555",
            "/kubepods/besteffort/pod6f1f4a5e-0000-1111-2222-333344445555",
            "/kubepods/pod6f1f4a5e-0000-1111-2222-333344445555",
        ] {
            let root = tempfile::tempdir().expect("a directory");
            let roots = [root.path().join("unified"), root.path().join("memory")];
            assert_eq!(probe(&roots, UID), None);
            std::fs::create_dir_all(below(&roots[1], path)).expect("created");
            assert_eq!(probe(&roots, UID).as_deref(), Some(path));
            assert_eq!(probe(&roots, "6f1f4a5e-0000-1111-2222-333344445556"), None);
        }
    }

    #[test]
    fn a_uid_cannot_lead_elsewhere() {
        for uid in ["", "../x", "a/b", "a b", "ü"] {
            assert!(candidates(uid).is_empty(), "{uid}");
        }
        // The uid of a static pod has no dashes.
        assert_eq!(candidates("0a1b").len(), 6);
    }

    #[test]
    fn slices_are_expanded_by_their_dashes() {
        for (name, path) in [
            (
                "kubepods-burstable-djf.slice",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-djf.slice",
            ),
            ("kubepods-x.slice", "/kubepods.slice/kubepods-x.slice"),
            ("x.slice", "/x.slice"),
            ("/kubepods/podx", "/kubepods/podx"),
            ("/a.slice/a-b.slice", "/a.slice/a-b.slice"),
            ("", ""),
            (".slice", ".slice"),
            ("a--b.slice", "a--b.slice"),
            ("-.slice", "-.slice"),
        ] {
            assert_eq!(expand_slice(name), path, "{name}");
        }
    }
}
