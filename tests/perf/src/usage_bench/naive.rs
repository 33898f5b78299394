//! The usual way: every file is looked up, opened, read and closed for each figure.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use koord_cgroup::layout::{Controller, Layout};
use koord_cgroup::stat::{CpuStat, MemoryStat, numa_pages};
use koord_cgroup::version::CgroupVersion;
use koord_usage::inventory::Inventory;

/// What a careful file reader does: two looks whether it is there, opening, a look at its size, reading to the end.
fn read(path: &Path) -> anyhow::Result<String> {
    let wrong = || path.display().to_string();
    fs::metadata(path).with_context(wrong)?;
    fs::metadata(path).with_context(wrong)?;
    let mut file = File::open(path).with_context(wrong)?;
    file.metadata().with_context(wrong)?;
    let mut text = String::with_capacity(512);
    file.read_to_string(&mut text).with_context(wrong)?;
    Ok(text)
}

/// Reads usage, throttling, memory and, of pods, memory by NUMA node. Gives a sum, so that nothing is left out.
pub(super) fn pass(layout: &Layout, inventory: &Inventory) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for _ in 0..2 {
        sum += f64::from(u32::try_from(read(Path::new("/proc/stat"))?.len())?);
    }
    sum += f64::from(u32::try_from(read(Path::new("/proc/meminfo"))?.len())?);
    for pod in &inventory.pods {
        sum += group(layout, pod.cgroup.as_str())?;
        let numa =
            read(&layout.directory(Controller::Memory).join(pod.cgroup.as_str()).join("memory.numa_stat"))?;
        sum += float(numa_pages(&numa, layout.version())?.iter().sum());
        for container in &pod.containers {
            sum += group(layout, container.cgroup.as_str())?;
        }
    }
    Ok(sum)
}

fn group(layout: &Layout, group: &str) -> anyhow::Result<f64> {
    let version = layout.version();
    let file = |controller, name: &str| layout.directory(controller).join(group).join(name);
    let usage = match version {
        CgroupVersion::V1 => read(&file(Controller::Cpuacct, "cpuacct.usage"))?.trim().parse()?,
        CgroupVersion::V2 => {
            let text = read(&file(Controller::Cpu, "cpu.stat"))?;
            CpuStat::parse(&text, version)?.usage_nanoseconds.unwrap_or(0)
        }
    };
    let throttling = CpuStat::parse(&read(&file(Controller::Cpu, "cpu.stat"))?, version)?;
    let memory = MemoryStat::parse(&read(&file(Controller::Memory, "memory.stat"))?, version)?;
    Ok(float(usage) + float(throttling.periods) + float(memory.used_without_cache()))
}

#[expect(clippy::cast_precision_loss, reason = "only kept from being left out")]
fn float(value: i64) -> f64 {
    value as f64
}
