use koord_cgroup::version::CgroupVersion;

use super::*;
use crate::collect::fake::FakeNode;

const NODE_0: &str = "Node 0 MemTotal: 1000 kB\nNode 0 MemFree: 400 kB\n";
const NODE_1: &str = "Node 1 MemTotal: 500 kB\nNode 1 MemFree: 100 kB\n";

fn machine() -> FakeNode {
    let node = FakeNode::new(CgroupVersion::V2);
    node.cpus(&[0, 1]);
    node.set("sys/devices/system/node/node0/meminfo", NODE_0);
    node.set("sys/devices/system/node/node1/meminfo", NODE_1);
    node.set("sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "3\n");
    node.set("sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages", "0\n");
    node.set("sys/devices/system/node/node0/hugepages/hugepages-16777216kB/nr_hugepages", "1\n");
    node
}

#[test]
fn numa_nodes_and_their_memory() {
    let found = numa_nodes(&machine().roots()).expect("nodes");
    let memory = |total: u64, free: u64| MemoryInfo {
        total: total * 1024,
        free: free * 1024,
        ..MemoryInfo::default()
    };
    let huge_pages =
        vec![HugePages { page_size: 2 << 20, pages: 3 }, HugePages { page_size: 1 << 30, pages: 0 }];
    let expected = [
        NumaFacts { number: 0, memory: memory(1000, 400), huge_pages },
        NumaFacts { number: 1, memory: memory(500, 100), huge_pages: Vec::new() },
    ];
    assert_eq!(found, expected);
}

#[test]
fn devices_are_no_numa_nodes() {
    let node = machine();
    node.set("sys/devices/system/node/node2/cpulist", "\n");
    node.set("sys/devices/system/node/has_generic_initiator", "2\n");
    assert_eq!(numa_nodes(&node.roots()).expect("nodes").len(), 2);
    node.set("sys/devices/system/node/has_generic_initiator", "\n");
    let nodes = numa_nodes(&node.roots()).expect("nodes");
    assert_eq!((nodes.len(), nodes[2].memory), (3, MemoryInfo::default()), "a node without memory has none");
    node.set("sys/devices/system/node/has_generic_initiator", "1\n");
    let error = numa_nodes(&node.roots()).expect_err("a gap");
    assert!(matches!(&error, FactsError::NumaNumbers(numbers) if numbers == &[0, 2]), "{error}");
    node.set("sys/devices/system/node/has_generic_initiator", "x\n");
    assert!(matches!(numa_nodes(&node.roots()), Err(FactsError::List { .. })));
    node.set("sys/devices/system/node/has_generic_initiator", "2\n");
    node.set("sys/devices/system/node/node1/meminfo", "nothing\n");
    assert!(matches!(numa_nodes(&node.roots()), Err(FactsError::Text { .. })));
}

#[test]
fn a_kernel_without_numa_is_one_node() {
    let node = FakeNode::new(CgroupVersion::V2);
    fs::remove_dir_all(node.roots().sys_root.join("devices/system/node")).expect("it was there");
    node.meminfo(100, 20, 50);
    let found = numa_nodes(&node.roots()).expect("one");
    assert_eq!((found.len(), found[0].memory.total), (1, 102_400));
}

#[test]
fn the_processor() {
    let node = machine();
    let text = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some CPU: 3 GHz\n\nprocessor\t: 1\nmodel name\t: other\n";
    node.set("proc/cpuinfo", text);
    let basic = CpuFacts::read(&node.roots()).expect("facts").basic;
    let expected = BasicInfo {
        cpu_model: "Some CPU: 3 GHz".to_owned(),
        vendor_id: "GenuineIntel".to_owned(),
        ..BasicInfo::default()
    };
    assert_eq!(basic, expected);
    for (files, hyper, turbo) in [
        (vec![("devices/system/cpu/smt/active", "1\n")], true, false),
        (
            vec![("devices/system/cpu/smt/active", "0\n"), ("devices/system/cpu/cpufreq/boost", "1\n")],
            false,
            true,
        ),
        (vec![("devices/system/cpu/cpufreq/boost", "0\n")], false, false),
        // Intel's own switch counts before the common one.
        (
            vec![
                ("devices/system/cpu/cpufreq/boost", "1\n"),
                ("devices/system/cpu/intel_pstate/no_turbo", "1\n"),
            ],
            false,
            false,
        ),
        (vec![("devices/system/cpu/intel_pstate/no_turbo", "0\n")], false, true),
    ] {
        for (file, text) in files {
            node.set(&format!("sys/{file}"), text);
        }
        let basic = CpuFacts::read(&node.roots()).expect("facts").basic;
        assert_eq!((basic.hyper_thread_enabled, basic.turbo_enabled), (hyper, turbo));
    }
    node.set("sys/fs/resctrl/info/L3/cbm_mask", "fffff\n");
    assert_eq!(CpuFacts::read(&node.roots()).expect("facts").basic.cat_l3_cbm_mask, "fffff");
    node.set("sys/devices/system/cpu/smt/active", "maybe\n");
    assert!(matches!(CpuFacts::read(&node.roots()), Err(FactsError::Cpus(_))));
}

#[test]
fn changes_are_seen() {
    let node = machine();
    let before = Fingerprint::read(&node.roots()).expect("lists");
    assert_eq!(Fingerprint::read(&node.roots()).expect("lists"), before);
    node.set("sys/devices/system/node/online", "0-1\n");
    let nodes = Fingerprint::read(&node.roots()).expect("lists");
    assert_ne!(nodes, before);
    node.set("sys/devices/system/cpu/online", "0\n");
    assert_ne!(Fingerprint::read(&node.roots()).expect("lists"), nodes);
}

/// A row of `lscpu -e=CPU,NODE,SOCKET,CORE,CACHE,ONLINE` as CPU, node, socket, core, level 3 cache; `None` for one that names no
/// CPU: a heading, or a CPU that is off. Words that follow do not matter: they are localised.
fn row(line: &str) -> Option<[u32; 5]> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [cpu, node, socket, core, cache, _, ..] = words.as_slice() else { return None };
    let parts: Vec<&str> = cache.split(':').collect();
    if parts.len() < 3 {
        return None;
    }
    let level_3 = parts.get(3).map_or(Some(0), |id| id.parse().ok())?;
    let node = node.parse().unwrap_or(0);
    Some([cpu.parse().ok()?, node, socket.parse().ok()?, core.parse().ok()?, level_3])
}

#[test]
fn rows_of_the_tool() {
    assert_eq!(row("3 0 1 3 3:3:3:0 yes"), Some([3, 0, 1, 3, 0]));
    assert_eq!(row("6 - 0 3 3:3:3 是"), Some([6, 0, 0, 3, 0]));
    for line in [
        "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE",
        "3 0 1 - 3:3:3:0 yes",
        "3 0 1 3 3:3:3:- yes",
        "0 0 0 0 -  yes",
    ] {
        assert_eq!(row(line), None, "{line}");
    }
}

/// The layout is the one that `lscpu` tells, where it is installed.
#[test]
fn the_layout_is_that_of_lscpu() {
    let command = std::process::Command::new("lscpu").arg("-e=CPU,NODE,SOCKET,CORE,CACHE,ONLINE").output();
    let Ok(output) = command else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<[u32; 5]> = text.lines().filter_map(row).collect();
    if rows.is_empty() {
        // A machine without caches that it knows.
        return;
    }
    let facts = CpuFacts::read(&SystemRoots::default()).expect("facts");
    let own: Vec<[u32; 5]> = facts
        .topology
        .cpus()
        .iter()
        .map(|cpu| [cpu.id, cpu.node, cpu.socket, cpu.core, cpu.cache.unwrap_or(0)])
        .collect();
    let sorted = |mut rows: Vec<[u32; 5]>| {
        rows.sort_unstable();
        rows
    };
    assert_eq!(sorted(own), sorted(rows));
}
