//! Files of the kernel and of the kubelet about caches and CPUs: any text is read or refused, and what is read survives
//! being written again.

#![no_main]

use koord_cgroup::resctrl::Schemata;
use koord_cgroup::resctrl::monitor::Reading;
use koord_topology::kubelet::CpuManagerState;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Reading::parse(text);
    if let Ok(mut schemata) = Schemata::parse(text) {
        // Lines of other resources are kept, not written.
        schemata.other.clear();
        assert_eq!(Schemata::parse(&schemata.to_text()).as_ref(), Ok(&schemata));
        assert!(schemata.holds(&schemata));
    }
    if let Ok(state) = CpuManagerState::parse(text) {
        for (uid, cpus) in state.pods() {
            assert!(!cpus.is_empty(), "a pod without CPUs is left out: {uid}");
        }
    }
});
