//! A folder that looks like a mounted `resctrl`.

use std::fs;
use std::path::Path;

pub(crate) struct Tree(tempfile::TempDir);

impl Tree {
    pub(crate) fn new() -> Tree {
        Tree(tempfile::tempdir().expect("a folder"))
    }

    /// Two caches of twelve ways with ids 0 and 1, four classes of service.
    pub(crate) fn intel() -> Tree {
        let tree = Tree::new();
        tree.file("info/L3/cbm_mask", "fff\n").file("info/L3/min_cbm_bits", "2\n");
        tree.file("info/L3/num_closids", "4\n").file("info/L3/shareable_bits", "0\n");
        tree.file("info/MB/num_closids", "8\n").file("info/MB/bandwidth_gran", "10\n");
        tree.file("info/MB/min_bandwidth", "10\n").file("info/last_cmd_status", "ok\n");
        tree.file("info/L3_MON/num_rmids", "128\n");
        tree.file("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\n");
        tree.group("", "    L3:0=fff;1=fff\n    MB:0= 100;1= 100\n");
        fs::create_dir_all(tree.root().join("mon_data")).expect("a folder");
        fs::create_dir_all(tree.root().join("mon_groups")).expect("a folder");
        tree
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, path: &str, text: &str) -> &Tree {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, text).expect("a file");
        self
    }

    /// The files the kernel puts into a group.
    pub(crate) fn group(&self, name: &str, schemata: &str) -> &Tree {
        self.file(format!("{name}/schemata").trim_start_matches('/'), schemata)
            .file(format!("{name}/tasks").trim_start_matches('/'), "")
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).expect("a file")
    }
}
