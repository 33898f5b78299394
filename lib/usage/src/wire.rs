//! Passes and inventories as other programs of the node are told them: `koord.usage.v1`.
//!
//! [`Teller`] is the side that samples: it knows what one client was told and makes the messages that bring it up to date.
//! [`Reader`] is the client's side: it applies messages and gives passes. [`Backfill`] makes passes of what a store has kept.
//! None of them does I/O.

mod backfill;
mod object;
mod read;
mod tell;
#[cfg(test)]
mod tests;

use koord_extension::qos::QosClass;
use koord_usage_api::v1;

use crate::inventory::PodEntry;
use crate::kind::Kind;
use crate::sampler::{CollectorState, CollectorStatus};

pub use backfill::Backfill;
pub use read::{Event, Origin, Reader, RefusedPod, WireError};
pub use tell::{Parts, Teller};

/// A pod as a message. What an inventory does not have is empty: the priority class.
pub fn pod(entry: &PodEntry) -> v1::Pod {
    let cgroup = |path: &koord_cgroup::path::CgroupPath| format!("/{}", path.as_str());
    v1::Pod {
        uid: entry.uid.to_string(),
        namespace: entry.namespace.to_string(),
        name: entry.name.to_string(),
        qos_class: entry.qos.map_or("", QosClass::as_str).to_owned(),
        priority_class: String::new(),
        kube_qos_class: entry.kube_qos.as_str().to_owned(),
        cgroup: cgroup(&entry.cgroup),
        containers: entry
            .containers
            .iter()
            .map(|container| v1::Container {
                id: container.id.to_string(),
                name: container.name.to_string(),
                cgroup: cgroup(&container.cgroup),
                is_init: container.is_init,
            })
            .collect(),
        batch_milli_cpu_request: Some(entry.batch_cpu_request.0),
    }
}

/// The state of a collector as a message.
pub fn collector(status: &CollectorStatus) -> v1::CollectorState {
    use v1::collector_state::Phase;
    let phase = match status.state {
        CollectorState::Ready => Phase::Ready,
        CollectorState::Waiting => Phase::Waiting,
        CollectorState::Failed(_) => Phase::Failed,
        CollectorState::Disabled(_) => Phase::Disabled,
    };
    v1::CollectorState {
        name: status.collector.as_str().to_owned(),
        phase: phase.into(),
        reason: status.state.reason().unwrap_or_default().to_owned(),
        last_success_tick: status.last_success.map(|tick| tick.0),
        duration_microseconds: u64::try_from(status.duration.as_micros()).unwrap_or(u64::MAX),
        errors: status.errors,
        last_error: status.last_error.clone().unwrap_or_default(),
        open_descriptors: status.open_descriptors as u64,
    }
}

/// The group of series that a kind belongs to.
fn part(kind: Kind) -> v1::Part {
    use crate::object::ObjectClass;
    match kind {
        Kind::SystemCpuUsage
        | Kind::SystemMemoryUsage
        | Kind::SystemNumaCpuUsage
        | Kind::SystemNumaMemoryUsage
        | Kind::SystemMemoryUsageWithPageCache
        | Kind::SystemMemoryWithHotPageUsage => v1::Part::System,
        kind => match kind.object_class() {
            ObjectClass::Pod | ObjectClass::PodNuma | ObjectClass::PodGpu => v1::Part::Pod,
            ObjectClass::Container | ObjectClass::ContainerGpu => v1::Part::Container,
            ObjectClass::HostApplication => v1::Part::HostApplication,
            ObjectClass::Node
            | ObjectClass::Numa
            | ObjectClass::Tier
            | ObjectClass::NodeGpu
            | ObjectClass::Resctrl => v1::Part::Node,
        },
    }
}
