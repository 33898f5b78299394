//! The pods of the node.
//!
//! The kubelet is asked for them ([`kubelet`] has the rules about its answers), at intervals and when something begins or
//! ends on the node: the proxy's stream tells of that, or else [`lifecycle`], which watches directories of control
//! groups. [`inventory`] makes of pods what is to be measured, [`failover`] decides when the API server is asked instead.

pub mod failover;
pub mod inventory;
pub mod kubelet;
pub mod lifecycle;
pub mod resources;
pub mod sync;

use std::sync::Arc;

use koord_prediction::pod::Pod;

/// The pods as last heard of. It does not change: a new one takes its place.
#[derive(Debug, Clone, Default)]
pub struct PodSet {
    /// All of them, those that ended among them as long as they are listed; by namespace, name and UID.
    pub pods: Vec<Arc<Pod>>,
}

impl PodSet {
    /// A set of pods, put in order.
    pub fn new(mut pods: Vec<Arc<Pod>>) -> PodSet {
        pods.sort_by(|one, other| {
            let key = |pod: &Pod| {
                (pod.metadata.namespace.clone(), pod.metadata.name.clone(), pod.metadata.uid.clone())
            };
            key(one).cmp(&key(other))
        });
        PodSet { pods }
    }

    /// Those that have not ended.
    pub fn live(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(|pod| !pod.is_terminated())
    }
}
