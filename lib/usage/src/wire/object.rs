//! Objects as messages.

use std::sync::Arc;

use koord_usage_api::v1;
use koord_usage_api::v1::gpu::User;
use koord_usage_api::v1::object::Object as Wire;

use crate::object::{GpuUser, Object, TierSeries};

/// The message of an object.
pub(super) fn to_wire(object: &Object) -> v1::Object {
    let text = |text: &Arc<str>| text.to_string();
    let object = match object {
        Object::Node => Wire::Node(v1::Node {}),
        Object::Numa(number) => Wire::NumaNode(*number),
        Object::Tier(series) => Wire::Tier(
            match series {
                TierSeries::RealLimit => v1::Tier::RealLimit,
                TierSeries::Request => v1::Tier::Request,
                TierSeries::Usage => v1::Tier::Usage,
            }
            .into(),
        ),
        Object::Pod(uid) => Wire::PodUid(text(uid)),
        Object::PodNuma { pod_uid, numa } => {
            Wire::PodOnNumaNode(v1::PodOnNumaNode { pod_uid: text(pod_uid), numa_node: *numa })
        }
        Object::Container { pod_uid, id } => {
            Wire::Container(v1::ContainerOfPod { pod_uid: text(pod_uid), id: text(id) })
        }
        Object::HostApplication(name) => Wire::HostApplication(text(name)),
        Object::Gpu { user, minor, uuid } => Wire::Gpu(v1::Gpu {
            user: match user {
                GpuUser::Node => None,
                GpuUser::Pod(uid) => Some(User::PodUid(text(uid))),
                GpuUser::Container(id) => Some(User::ContainerId(text(id))),
            },
            minor: *minor,
            uuid: text(uuid),
        }),
        Object::Resctrl { group, cache } => {
            Wire::Resctrl(v1::ResctrlGroup { group: text(group), cache: *cache })
        }
    };
    v1::Object { object: Some(object) }
}

/// The object of a message; `None` for one that this version does not know.
pub(super) fn from_wire(object: Option<v1::Object>) -> Option<Object> {
    Some(match object?.object? {
        Wire::Node(_) => Object::Node,
        Wire::NumaNode(number) => Object::Numa(number),
        Wire::Tier(tier) => Object::Tier(match v1::Tier::try_from(tier).ok()? {
            v1::Tier::Unspecified => return None,
            v1::Tier::RealLimit => TierSeries::RealLimit,
            v1::Tier::Request => TierSeries::Request,
            v1::Tier::Usage => TierSeries::Usage,
        }),
        Wire::PodUid(uid) => Object::Pod(uid.into()),
        Wire::PodOnNumaNode(v1::PodOnNumaNode { pod_uid, numa_node }) => {
            Object::PodNuma { pod_uid: pod_uid.into(), numa: numa_node }
        }
        Wire::Container(v1::ContainerOfPod { pod_uid, id }) => {
            Object::Container { pod_uid: pod_uid.into(), id: id.into() }
        }
        Wire::HostApplication(name) => Object::HostApplication(name.into()),
        Wire::Gpu(v1::Gpu { user, minor, uuid }) => Object::Gpu {
            user: match user {
                None => GpuUser::Node,
                Some(User::PodUid(uid)) => GpuUser::Pod(uid.into()),
                Some(User::ContainerId(id)) => GpuUser::Container(id.into()),
            },
            minor,
            uuid: uuid.into(),
        },
        Wire::Resctrl(v1::ResctrlGroup { group, cache }) => Object::Resctrl { group: group.into(), cache },
    })
}
