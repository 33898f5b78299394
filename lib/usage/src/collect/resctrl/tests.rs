use koord_cgroup::version::CgroupVersion;

use super::*;
use crate::collect::fake::FakeNode;
use crate::time::Tick;

const FLAGS: &str = "processor : 0\nflags\t\t: fpu cqm_llc cqm_occup_llc cqm_mbm_total\n";

fn machine(cpuinfo: &str) -> FakeNode {
    let node = FakeNode::new(CgroupVersion::V2);
    node.set("proc/cpuinfo", cpuinfo);
    let files = [
        ("info/L3/cbm_mask", "fff\n"),
        ("info/L3/min_cbm_bits", "2\n"),
        ("info/L3/num_closids", "4\n"),
        ("info/L3/shareable_bits", "0\n"),
        ("info/L3_MON/num_rmids", "128\n"),
        ("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"),
        ("info/last_cmd_status", "ok\n"),
        ("schemata", "    L3:0=fff;1=fff\n"),
        ("tasks", ""),
        ("BE/schemata", "    L3:0=fff;1=fff\n"),
        ("BE/tasks", ""),
        ("BE/mon_data/mon_L3_00/llc_occupancy", "65536\n"),
        ("BE/mon_data/mon_L3_00/mbm_local_bytes", "100\n"),
        ("BE/mon_data/mon_L3_00/mbm_total_bytes", "250\n"),
        ("BE/mon_data/mon_L3_01/llc_occupancy", "Unavailable\n"),
        ("BE/mon_data/mon_L3_01/mbm_local_bytes", "Unassigned\n"),
        ("BE/mon_data/mon_L3_01/mbm_total_bytes", "7\n"),
    ];
    for (file, text) in files {
        node.set(&format!("sys/fs/resctrl/{file}"), text);
    }
    node
}

#[test]
fn monitors_of_the_classes() {
    let node = machine(FLAGS);
    let mut pass = Pass::new(Tick(1));
    ResctrlCollector::new(&node.roots()).collect(&mut pass).expect("monitors");
    let domain = |cache| Object::Resctrl { group: Arc::from("BE"), cache };
    assert_eq!(pass.value(&domain(0), Kind::ResctrlLlc), Some(65536.0));
    assert_eq!(pass.value(&domain(0), Kind::ResctrlLocalBandwidth), Some(100.0));
    assert_eq!(pass.value(&domain(0), Kind::ResctrlTotalBandwidth), Some(250.0));
    assert_eq!(pass.value(&domain(1), Kind::ResctrlLlc), None);
    assert_eq!(pass.value(&domain(1), Kind::ResctrlLocalBandwidth), None);
    assert_eq!(pass.value(&domain(1), Kind::ResctrlTotalBandwidth), Some(7.0));
    assert_eq!(pass.samples.len(), 4);
}

#[test]
fn processors_without_monitors() {
    let mut pass = Pass::new(Tick(1));
    let node = machine("flags : fpu cqm_llc\n");
    let mut collector = ResctrlCollector::new(&node.roots());
    assert!(matches!(collector.collect(&mut pass), Err(MonitorError::Processor)));
    let node = FakeNode::new(CgroupVersion::V2);
    node.set("proc/cpuinfo", FLAGS);
    let mut collector = ResctrlCollector::new(&node.roots());
    assert!(matches!(collector.collect(&mut pass), Err(MonitorError::Resctrl(_))), "it is not mounted");
    assert_eq!(pass.samples, []);
}

#[test]
fn flags_of_processors() {
    let table = [
        ("flags : cqm_llc cqm_occup_llc\n", true),
        ("flags : cqm_llc cqm_mbm_local\n", true),
        ("flags : cqm_llc cqm_mbm_total\n", true),
        ("flags : cqm_occup_llc cqm_mbm_total\n", false),
        ("flags : cqm_llc\n", false),
        // ARM.
        ("Features : fp asimd\n", true),
    ];
    for (text, expected) in table {
        assert_eq!(can_monitor(text), expected, "{text}");
    }
}
