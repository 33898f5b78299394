use koord_extension::qos::KubeQos;

use super::*;
use crate::collect::fake::{FakeNode, inventory};
use crate::time::Tick;

/// A text of 31 lines with the row `cfei` as given and `dfei` of 1 in the last bucket.
fn account(cfei: &str) -> String {
    let mut text = String::from("# version: 1.0\n");
    for line in 0..22 {
        text += &format!("# comment {line}\n");
    }
    for name in ["csei", "dsei"] {
        text += &format!("{name} 9 9 9 9 9 9 9 9\n");
    }
    text += &format!("cfei {cfei}\ndfei 0 0 0 0 0 0 0 1\n");
    for name in ["csui", "dsui", "cfui", "dfui"] {
        text += &format!("{name} 0 0 0 0 0 0 0 {}\n", if name == "cfui" { 4 } else { 0 });
    }
    text
}

#[test]
fn only_old_buckets_of_page_cache_are_cold() {
    assert_eq!(account("0").lines().count(), LINES);
    assert_eq!(cold_bytes(account("1 2 3 4 0 0 0 0").as_bytes()), Ok(5));
    assert_eq!(cold_bytes(account("1 2 3 4 5 10 20 30").as_bytes()), Ok(65));
    let young = account("1 2 3 4 0 0 0 0").replace("0 1\n", "0 0\n").replace("0 4\n", "0 0\n");
    assert_eq!(cold_bytes(young.as_bytes()), Ok(0));
    let short: String = account("0").lines().skip(1).map(|line| format!("{line}\n")).collect();
    assert!(cold_bytes(short.as_bytes()).is_err());
    assert!(cold_bytes((account("0") + "one more\n").as_bytes()).is_err());
    assert!(cold_bytes(account("0 0 0 0 0 x").as_bytes()).is_err());
}

fn collect(node: &FakeNode, inventory: &Inventory, pass: &mut Pass) -> Result<Faults, ColdMemoryError> {
    let (room, mut buffer) = (Descriptors::new(10), Buffer::new());
    ColdMemoryCollector::new(node.layout(), &node.roots()).collect(inventory, &room, &mut buffer, pass)
}

#[test]
fn cold_and_hot_memory() {
    let node = FakeNode::new(CgroupVersion::V1);
    node.set("sys/kernel/mm/kidled/scan_period_in_seconds", "0\n");
    node.set("sys/kernel/mm/kidled/use_hierarchy", "0\n");
    node.meminfo(100, 20, 50);
    let pod = node.pod(KubeQos::Burstable, "a", &["c"]);
    for (group, usage) in
        [("", None), (pod.cgroup.as_str(), Some(100)), (pod.containers[0].cgroup.as_str(), Some(60))]
    {
        node.group(Controller::Memory, group, "memory.idle_page_stats", &account("0 0 0 0 0 0 0 60"));
        if let Some(usage) = usage {
            node.group(Controller::Memory, group, "memory.usage_in_bytes", &format!("{usage}\n"));
        }
    }
    let mut pass = Pass::new(Tick(1));
    let gone = node.pod(KubeQos::Burstable, "b", &[]);
    let faults = collect(&node, &inventory([pod, gone]), &mut pass).expect("an account");
    assert_eq!(faults, Faults::default());
    assert_eq!(pass.value(&Object::Node, Kind::NodeMemoryColdPageSize), Some(65.0));
    assert_eq!(pass.value(&Object::Node, Kind::NodeMemoryWithHotPageUsage), Some(80.0 * 1024.0 - 65.0));
    assert_eq!(pass.value(&Object::Pod("a".into()), Kind::PodMemoryColdPageSize), Some(65.0));
    assert_eq!(pass.value(&Object::Pod("a".into()), Kind::PodMemoryWithHotPageUsage), Some(35.0));
    let container = Object::Container { pod_uid: "a".into(), id: "c".into() };
    assert_eq!(pass.value(&container, Kind::ContainerMemoryWithHotPageUsage), Some(0.0));
    assert_eq!(pass.samples.len(), 6);
    let switch =
        |file| fs::read_to_string(node.roots().sys_root.join("kernel/mm/kidled").join(file)).expect("a file");
    assert_eq!((switch("scan_period_in_seconds"), switch("use_hierarchy")), ("5".to_owned(), "1".to_owned()));
}

#[test]
fn other_kernels_have_no_account() {
    for version in crate::collect::fake::VERSIONS {
        let node = FakeNode::new(version);
        if version == CgroupVersion::V2 {
            node.set("sys/kernel/mm/kidled/use_hierarchy", "0\n");
        }
        let mut pass = Pass::new(Tick(1));
        let result = collect(&node, &Inventory::default(), &mut pass);
        assert!(matches!(result, Err(ColdMemoryError::Unsupported)));
        assert_eq!(pass.samples, []);
    }
}
