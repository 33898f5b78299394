//! How the wishes of rules travel: in the request to the runtime, or by file into a cgroup.

use koord_cri::v1;
use koord_intercept::ResourcePatch;
use koord_rules::{CgroupVersion, Field, Level, Plan, Value, Wish};

/// The wishes of one plan, by the way they take.
#[derive(Debug, Default)]
pub struct Carried {
    /// What goes into the request.
    pub patch: ResourcePatch,
    /// Which wishes are in `patch`: one flag for each wish of the plan. Files carry the others, and on v2 those
    /// of the `unified` map too, in case the runtime does not know it.
    pub by_request: Vec<bool>,
    /// Directories of the host that must be made before the container starts, with their modes.
    pub directories: Vec<(String, u32)>,
}

/// Distributes the wishes for a container.
///
/// `all_cpus` are the node's CPUs: a wish for all of them asks nothing of a container that was given no list,
/// and says nothing in its request. `has_file` tells whether the kernel has a file of cgroup v2: naming one that
/// is not there keeps a container from starting.
pub fn container(
    plan: &Plan,
    version: CgroupVersion,
    asked_cpus: &str,
    all_cpus: &koord_extension::cpuset::CpuSet,
    has_file: impl Fn(&Field) -> bool,
) -> Carried {
    let mut carried = Carried { by_request: vec![false; plan.wishes.len()], ..Carried::default() };
    for (wish, by_request) in plan.wishes.iter().zip(&mut carried.by_request) {
        if wish.field.carried_by_cri(Level::Container) {
            *by_request = request(&mut carried.patch, &mut carried.directories, wish, asked_cpus, all_cpus);
        } else if let Some(file) = wish.field.unified_key(version).filter(|_| has_file(&wish.field))
            && let Some(text) = unified_text(&wish.field, &wish.value)
        {
            carried.patch.unified.insert(file.to_owned(), text);
            *by_request = true;
        }
    }
    carried
}

/// Puts one wish into the patch; false if the request has no form for its value.
fn request(
    patch: &mut ResourcePatch,
    directories: &mut Vec<(String, u32)>,
    wish: &Wish,
    asked_cpus: &str,
    all_cpus: &koord_extension::cpuset::CpuSet,
) -> bool {
    match (&wish.field, &wish.value) {
        (Field::CpuShares, Value::Integer(shares)) => patch.cpu_shares = Some(*shares),
        (Field::CpuQuota, Value::Integer(quota)) => {
            patch.cpu_quota = Some(*quota);
            // Rules count in periods of the kernel's default length.
            patch.cpu_period = (*quota > 0).then_some(koord_rules::CFS_PERIOD_MICROS);
        }
        (Field::MemoryLimit, Value::Integer(bytes)) => patch.memory_limit = Some(*bytes),
        (Field::OomScoreAdj, Value::Integer(score)) => patch.oom_score_adj = Some(*score),
        (Field::CpusetCpus, Value::Cpus(cpus)) => {
            if asked_cpus.is_empty() && cpus == all_cpus {
                return false;
            }
            patch.cpuset_cpus = Some(cpus.to_string());
        }
        (Field::Env(name), Value::Text(value)) => {
            patch.envs.insert(name.clone(), value.clone());
        }
        (Field::Device(path), Value::Device(device)) => patch.devices.push(v1::Device {
            container_path: path.clone(),
            host_path: device.path.clone(),
            permissions: device.permissions.to_owned(),
        }),
        (Field::Mount(path), Value::Mount(mount)) => {
            if let Some(mode) = mount.create_directory {
                directories.push((mount.host_path.clone(), mode));
            }
            patch.mounts.push(v1::Mount {
                container_path: path.clone(),
                host_path: mount.host_path.clone(),
                ..v1::Mount::default()
            });
        }
        _ => return false,
    }
    true
}

/// What the kernel's file of v2 is to hold.
fn unified_text(field: &Field, value: &Value) -> Option<String> {
    let unlimited = matches!(field, Field::MemoryHigh | Field::MemoryLow | Field::MemoryMin);
    match value {
        Value::Integer(-1) if unlimited => Some("max".to_owned()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Text(text) => Some(text.clone()),
        Value::Cpus(_) | Value::Device(_) | Value::Mount(_) | Value::Unset => None,
    }
}
