use std::collections::BTreeSet;

use super::*;

/// A sysfs in a folder of its own.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        Tree(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, path: &str, text: &str) -> &Tree {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, format!("{text}\n")).expect("a file");
        self
    }

    fn online(&self, list: &str) -> &Tree {
        self.file("devices/system/cpu/online", list)
    }

    fn node(&self, node: u32, cpus: &str) -> &Tree {
        self.file(&format!("devices/system/node/node{node}/cpulist"), cpus)
    }

    fn cpu(&self, id: u32, package: i64, siblings: &str, cache: Option<(&str, &str)>) -> &Tree {
        let cpu = format!("devices/system/cpu/cpu{id}");
        self.file(&format!("{cpu}/topology/physical_package_id"), &package.to_string());
        self.file(&format!("{cpu}/topology/core_cpus_list"), siblings);
        self.file(&format!("{cpu}/cache/index0/level"), "1").file(&format!("{cpu}/cache/index0/id"), "77");
        if let Some((cache_id, shared)) = cache {
            self.file(&format!("{cpu}/cache/index3/level"), "3");
            self.file(&format!("{cpu}/cache/index3/id"), cache_id);
            self.file(&format!("{cpu}/cache/index3/shared_cpu_list"), shared);
        }
        self
    }

    fn read(&self) -> Topology {
        read(self.0.path()).expect("a layout")
    }
}

/// Each CPU as (id, core, socket, node, cache).
fn rows(topology: &Topology) -> Vec<(u32, u32, u32, u32, Option<u32>)> {
    topology.cpus().iter().map(|cpu| (cpu.id, cpu.core, cpu.socket, cpu.node, cpu.cache)).collect()
}

#[test]
fn two_sockets_two_nodes_each_with_threads_numbered_apart() {
    // The usual order of a server: all first threads, then all second ones. Two cores in each of four nodes.
    let tree = Tree::new();
    tree.online("0-15");
    for id in 0..16_u32 {
        let first = id % 8;
        let package = i64::from(first / 4);
        tree.cpu(
            id,
            package,
            &format!("{first},{}", first + 8),
            Some(if package == 0 { ("0", "0-3,8-11") } else { ("1", "4-7,12-15") }),
        );
    }
    for node in 0..4 {
        tree.node(node, &format!("{}-{},{}-{}", node * 2, node * 2 + 1, node * 2 + 8, node * 2 + 9));
    }
    let topology = tree.read();
    assert_eq!(topology.cpus().len(), 16);
    assert_eq!(rows(&topology)[0], (0, 0, 0, 0, Some(0)));
    assert_eq!(rows(&topology)[5], (5, 5, 1, 2, Some(1)));
    assert_eq!(rows(&topology)[13], (13, 5, 1, 2, Some(1)));
    assert_eq!(topology.cores()[&5].to_string(), "5,13");
    assert_eq!(topology.nodes()[&3].to_string(), "6-7,14-15");
    assert_eq!(topology.sockets()[&1].to_string(), "4-7,12-15");
    assert_eq!(topology.caches()[&0].to_string(), "0-3,8-11");
    assert_eq!(topology.cpus_per_core(), 2);
    assert!(topology.memory_only_nodes().is_empty());
}

#[test]
fn numbers_with_gaps_and_offline_threads() {
    // CPU 9 is offline, so core {8, 9} has one thread left; the kernel drops it from lists of siblings, but a list
    // that still names it does no harm. Packages 1 and 3, nodes 1 and 4, caches 2 and 8.
    let tree = Tree::new();
    tree.online("2-3,8,20");
    tree.cpu(2, 1, "2-3", Some(("2", "2-3"))).cpu(3, 1, "2-3", Some(("2", "2-3")));
    tree.cpu(8, 3, "8-9", Some(("8", "8,20"))).cpu(9, 3, "8-9", Some(("8", "8,20")));
    tree.cpu(20, 3, "20", Some(("8", "8,20")));
    tree.node(1, "2-3").node(4, "8,20");
    assert_eq!(
        rows(&tree.read()),
        [(2, 0, 0, 1, Some(2)), (3, 0, 0, 1, Some(2)), (8, 1, 1, 4, Some(8)), (20, 2, 1, 4, Some(8)),]
    );
}

#[test]
fn a_core_whose_first_thread_is_offline() {
    let tree = Tree::new();
    tree.online("1-3");
    tree.cpu(1, 0, "0-1", None).cpu(2, 0, "2-3", None).cpu(3, 0, "2-3", None);
    assert_eq!(rows(&tree.read()), [(1, 0, 0, 0, None), (2, 1, 0, 0, None), (3, 1, 0, 0, None)]);
}

#[test]
fn siblings_in_two_packages_are_two_cores() {
    let tree = Tree::new();
    tree.online("0-1").cpu(0, 0, "0-1", None).cpu(1, 1, "0-1", None);
    assert_eq!(rows(&tree.read()), [(0, 0, 0, 0, None), (1, 1, 1, 0, None)]);
}

#[test]
fn a_machine_that_tells_little() {
    // No list of those online, no NUMA folder, package -1, no siblings: what a small ARM board shows.
    let tree = Tree::new();
    tree.file("devices/system/cpu/cpu0/topology/physical_package_id", "-1");
    tree.file("devices/system/cpu/cpu1/topology/physical_package_id", "-1");
    tree.file("devices/system/cpu/cpu2/online", "0");
    tree.file("devices/system/cpu/cpufreq/policy0/x", "1").file("devices/system/cpu/cpuidle/x", "1");
    assert_eq!(rows(&tree.read()), [(0, 0, 0, 0, None), (1, 1, 0, 0, None)]);
}

#[test]
fn the_name_of_the_list_of_siblings_before_5_3() {
    let tree = Tree::new();
    tree.online("0-1");
    for id in 0..2 {
        tree.file(&format!("devices/system/cpu/cpu{id}/topology/thread_siblings_list"), "0-1");
    }
    assert_eq!(rows(&tree.read()), [(0, 0, 0, 0, None), (1, 0, 0, 0, None)]);
}

#[test]
fn nodes_of_memory_only() {
    let tree = Tree::new();
    tree.online("0-1").cpu(0, 0, "0", None).cpu(1, 0, "1", None);
    tree.node(0, "0-1").node(1, "").node(7, "");
    let topology = tree.read();
    assert_eq!(topology.memory_only_nodes(), &BTreeSet::from([1, 7]));
    assert_eq!(topology.nodes().keys().copied().collect::<Vec<_>>(), [0]);
}

#[test]
fn a_cache_without_id_is_named_after_its_lowest_cpu() {
    let tree = Tree::new();
    tree.online("0-3");
    for id in 0..4_u32 {
        tree.cpu(id, 0, &id.to_string(), None);
        let shared = if id < 2 { "0-1" } else { "2-3" };
        tree.file(&format!("devices/system/cpu/cpu{id}/cache/index2/level"), "3");
        tree.file(&format!("devices/system/cpu/cpu{id}/cache/index2/shared_cpu_list"), shared);
    }
    let caches: Vec<Option<u32>> = tree.read().cpus().iter().map(|cpu| cpu.cache).collect();
    assert_eq!(caches, [Some(0), Some(0), Some(2), Some(2)]);
}

#[test]
fn switches_of_the_processor() {
    let tree = Tree::new();
    assert_eq!(smt_active(tree.0.path()).expect("no file"), None);
    assert_eq!(turbo_enabled(tree.0.path()).expect("no file"), None);
    tree.file("devices/system/cpu/smt/active", "1").file("devices/system/cpu/intel_pstate/no_turbo", "1");
    assert_eq!(smt_active(tree.0.path()).expect("a file"), Some(true));
    assert_eq!(turbo_enabled(tree.0.path()).expect("a file"), Some(false));
    tree.file("devices/system/cpu/smt/active", "0").file("devices/system/cpu/intel_pstate/no_turbo", "0");
    assert_eq!(smt_active(tree.0.path()).expect("a file"), Some(false));
    assert_eq!(turbo_enabled(tree.0.path()).expect("a file"), Some(true));
}

#[test]
fn damage_names_the_file() {
    let empty = Tree::new();
    assert!(matches!(read(empty.0.path()), Err(SysfsError::Layout { source: TopologyError::Empty, .. })));

    let tree = Tree::new();
    tree.online("0-x");
    let error = read(tree.0.path()).expect_err("no list");
    assert!(
        matches!(&error, SysfsError::CpuList { path, .. } if path.ends_with("devices/system/cpu/online"))
    );

    tree.online("0").file("devices/system/cpu/cpu0/topology/physical_package_id", "one");
    let error = read(tree.0.path()).expect_err("no number");
    assert!(
        matches!(&error, SysfsError::Number { path, text } if path.ends_with("physical_package_id") && text == "one\n")
    );

    tree.cpu(0, 0, "0", Some(("-1", "0")));
    assert!(matches!(read(tree.0.path()), Err(SysfsError::Number { text, .. }) if text == "-1"));
}
