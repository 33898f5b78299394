//! Applications of the host that take part in the node's quality of service without being pods.

use koord_crd::node_slo::HostApplication;
use koord_extension::gates::Gate;
use koord_extension::qos::QosClass;

use crate::plan::Plan;
use crate::view::NodeView;
use crate::{cpuset, group_identity};

/// What the rules wish for the directory of a host application: its identity, and for LS applications the
/// shared CPUs. Applications of other classes keep the CPUs they have.
pub fn host_application(node: &NodeView, application: &HostApplication) -> Plan {
    let mut plan = Plan::default();
    let class = application.qos_class();
    if class == Some(QosClass::Ls) && node.gates.enabled(Gate::CpuSetAllocator) {
        cpuset::host_application(node, &mut plan);
    }
    if node.gates.enabled(Gate::GroupIdentity) {
        group_identity::host_application(node, class, &mut plan);
    }
    plan
}
