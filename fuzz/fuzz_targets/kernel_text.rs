//! Texts of kernel files: whatever the bytes, an answer; and what is understood survives a write and a read.

#![no_main]

use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::driver::kubelet::KubeletSettings;
use koord_cgroup::io::{io_max_line, parse_io_max_line};
use koord_cgroup::layout::Layout;
use koord_cgroup::path::{CgroupPath, ContainerId, expand_slice, parse_container_name, parse_pod_name};
use koord_cgroup::resource::Resource;
use koord_cgroup::stat::{CpuStat, CpuTime, MemoryStat, Pressure, flat_keyed, numa_pages};
use koord_cgroup::system_file::sched_feature;
use koord_cgroup::systemd::parse_version;
use koord_cgroup::value::Value;
use koord_cgroup::version::CgroupVersion;
use koord_cgroup::weight::Conversion;
use libfuzzer_sys::fuzz_target;

const VERSIONS: [CgroupVersion; 2] = [CgroupVersion::V1, CgroupVersion::V2];

fuzz_target!(|input: (u8, bool, &str)| {
    let (choice, is_curve, text) = input;
    let conversion = if is_curve { Conversion::Quadratic } else { Conversion::Linear };
    for version in VERSIONS {
        resource(choice, text, version, conversion);
        statistics(text, version);
    }
    paths(text);
    // Only that they answer.
    let _settings = (KubeletSettings::of_configuration(text), KubeletSettings::of_configz(text));
    let _settings = KubeletSettings::of_command_line(text.split('\0'));
    let _answers = (parse_version(text), sched_feature(text, "CORE_SCHED"));
    if let Ok((device, limits)) = parse_io_max_line(text) {
        assert_eq!(parse_io_max_line(&io_max_line(device, &limits)), Ok((device, limits)));
    }
});

fn resource(choice: u8, text: &str, version: CgroupVersion, conversion: Conversion) {
    let resource = Resource::ALL[usize::from(choice) % Resource::ALL.len()];
    let Ok(value) = resource.parse_kernel_text(text, version, conversion) else { return };
    let Ok(written) = resource.to_kernel_text(&value, version, conversion) else { return };
    assert!(!written.is_empty());
    // A weight loses something as shares, and a quota of version 2 is read with its period.
    if matches!(value, Value::Text(_)) || matches!(resource, Resource::CpuShares | Resource::CpuQuota) {
        return;
    }
    assert_eq!(resource.parse_kernel_text(&written, version, conversion), Ok(value));
}

fn statistics(text: &str, version: CgroupVersion) {
    if let Ok(pressure) = Pressure::parse(text) {
        assert!(pressure.some.average_10.is_finite() && pressure.full.average_300.is_finite());
    }
    if let Ok(stat) = CpuStat::parse(text, version) {
        assert!(stat.throttled_ratio(&CpuStat::default()).is_finite());
    }
    if let Ok(stat) = MemoryStat::parse(text, version) {
        let _sums = (stat.used_with_cache(), stat.used_without_cache());
    }
    let _figures = (CpuTime::parse(text, version), numa_pages(text, version), flat_keyed(text));
}

fn paths(text: &str) {
    if let Ok(id) = text.parse::<ContainerId>() {
        assert_eq!(id.to_string().parse::<ContainerId>(), Ok(id));
    }
    if let Ok(path) = expand_slice(text) {
        assert!(path.ends_with(text));
    }
    for driver in [CgroupDriver::Systemd, CgroupDriver::Cgroupfs] {
        let layout = Layout::new("/", CgroupVersion::V2, driver, "").expect("the root is a root");
        if let Ok(path) = CgroupPath::from_cri_parent(text, &layout) {
            assert!(layout.kubepods().contains(&path));
            assert!(path.as_str().split('/').all(|level| !matches!(level, "" | "." | "..")));
        }
        if let Some((_, id)) = parse_container_name(driver, text) {
            assert!(!id.is_empty() && text.contains(id));
        }
        let _pod = parse_pod_name(driver, text);
    }
}
