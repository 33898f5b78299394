//! The annotations of the object.

use std::collections::BTreeMap;

use koord_extension::annotation::{
    BeCpuSharedPools, CpuBasicInfo, CpuSharedPools, CpuTopology, KubeletCpuManagerPolicy, NodeReservation,
    PodCpuAllocs, ResourceStatus, SystemQosResource,
};
use koord_extension::cpuset::CpuSet;
use koord_topology::kubelet::{node_reservation, reserved_cpus};
use koord_topology::pools::{PodCpus, PoolInput, SharePools, kubelet_allocations, kubelet_conflicts};
use koord_topology::report;

use crate::input::{Input, NodeFacts, PodFacts};
use crate::kubelet::KubeletConfig;
use crate::{ReportError, Warning};

/// All of them by key, and the pools that are in them.
pub(crate) fn annotations(
    input: &Input<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<(BTreeMap<String, String>, SharePools), ReportError> {
    let system = SystemQosResource::published(input.node.annotations)?;
    // By UID, so that the order of the pods shows nowhere.
    let pods: BTreeMap<&str, PodFacts<'_>> = input.pods.iter().map(|pod| (pod.uid, *pod)).collect();
    let pods: BTreeMap<&str, (PodFacts<'_>, PodCpus)> =
        pods.into_iter().map(|(uid, pod)| (uid, (pod, pod_cpus(pod, warnings)))).collect();
    let allocations = kubelet_gave(input, &pods, warnings);
    let (reservation, reserved) = reservation(input, warnings);
    let owners: Vec<PodCpus> =
        pods.values().map(|(_, cpus)| cpus.clone()).filter(|pod| !pod.cpus.is_empty()).collect();
    let pools = SharePools::of(&PoolInput {
        topology: input.topology,
        kubelet: &allocations.iter().fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus)),
        pods: &owners,
        reserved: &reserved,
        system_exclusive: &system_exclusive(system.as_ref(), warnings),
    });
    let allocs = report::pod_cpu_allocs(&allocations, |uid| {
        pods.get(uid).map(|(pod, _)| (pod.namespace.to_owned(), pod.name.to_owned()))
    });
    let (latency_sensitive, best_effort) = report::shared_pools(&pools);
    let policy = input.kubelet.map_or_else(KubeletCpuManagerPolicy::default, |kubelet| {
        cpu_manager_policy(input, kubelet, warnings)
    });
    let texts = [
        (CpuTopology::KEY, report::cpu_topology(input.topology).to_text()),
        (CpuBasicInfo::KEY, input.processor.to_text()),
        (CpuSharedPools::KEY, latency_sensitive.to_text()),
        (BeCpuSharedPools::KEY, best_effort.to_text()),
        (PodCpuAllocs::KEY, allocs.to_text()),
        (KubeletCpuManagerPolicy::KEY, policy.to_text()),
        (NodeReservation::KEY, reservation.to_text()),
        (SystemQosResource::KEY, system.map_or_else(|| "null".to_owned(), |system| system.to_text())),
    ];
    Ok((texts.into_iter().map(|(key, text)| (key.to_owned(), text)).collect(), pools))
}

/// The CPUs that a scheduler gave a pod; none if its annotation cannot be read.
fn pod_cpus(pod: PodFacts<'_>, warnings: &mut Vec<Warning>) -> PodCpus {
    let status = pod.resource_status.map(ResourceStatus::parse).transpose();
    let cpus = status.and_then(|status| status.map_or(Ok(None), |status| status.cpus()));
    let cpus = cpus.unwrap_or_else(|problem| {
        let (namespace, name) = (pod.namespace.to_owned(), pod.name.to_owned());
        warnings.push(Warning::PodAnnotation { namespace, name, problem });
        None
    });
    PodCpus { qos: pod.qos, cpus: cpus.unwrap_or_default() }
}

/// What the kubelet gave to pods that it manages, ascending by UID.
fn kubelet_gave<'a>(
    input: &Input<'a>,
    pods: &BTreeMap<&str, (PodFacts<'_>, PodCpus)>,
    warnings: &mut Vec<Warning>,
) -> Vec<(&'a str, CpuSet)> {
    let Some(kubelet) = input.kubelet else {
        if input.cpu_manager_state.is_some_and(|state| state.is_static()) {
            warnings.push(Warning::HiddenStaticPolicy);
        }
        return Vec::new();
    };
    if !kubelet.is_static() {
        return Vec::new();
    }
    let Some(state) = input.cpu_manager_state else {
        warnings.push(Warning::NoKubeletState);
        return Vec::new();
    };
    warnings.extend(
        state.unreadable.iter().map(|entry| Warning::KubeletState(format!("{entry}: {}", entry.source))),
    );
    let known = |uid: &str| pods.get(uid).map(|(_, cpus)| cpus.clone());
    warnings.extend(
        kubelet_conflicts(state, known)
            .into_iter()
            .map(|(uid, cpus)| Warning::KubeletConflict { uid: uid.to_owned(), cpus: cpus.to_string() }),
    );
    kubelet_allocations(state, known)
}

fn cpu_manager_policy(
    input: &Input<'_>,
    kubelet: &KubeletConfig,
    warnings: &mut Vec<Warning>,
) -> KubeletCpuManagerPolicy {
    let reserved = if kubelet.is_static() {
        kubelet_reserved(input, kubelet).unwrap_or_else(|problem| {
            warnings.push(Warning::KubeletReservation(problem));
            CpuSet::new()
        })
    } else {
        CpuSet::new()
    };
    let options = kubelet.cpu_manager_policy_options.clone();
    report::cpu_manager_policy(&kubelet.cpu_manager_policy, options, &reserved)
}

fn kubelet_reserved(input: &Input<'_>, kubelet: &KubeletConfig) -> Result<CpuSet, String> {
    let kube = kubelet.kube_reserved_cpu().map_err(|error| format!("kubeReserved.cpu: {error}"))?;
    let system = kubelet.system_reserved_cpu().map_err(|error| format!("systemReserved.cpu: {error}"))?;
    reserved_cpus(input.topology, &kubelet.reserved_system_cpus, kube, system)
        .map_err(|error| error.to_string())
}

/// The node's reservation with its CPUs as a list, and these CPUs.
fn reservation(input: &Input<'_>, warnings: &mut Vec<Warning>) -> (NodeReservation, CpuSet) {
    let NodeFacts { annotations, .. } = input.node;
    let mut reservation = match NodeReservation::from_annotations(annotations) {
        Ok(reservation) => reservation.unwrap_or_default(),
        Err(error) => {
            warnings.push(Warning::NodeAnnotation(error));
            NodeReservation::default()
        }
    };
    let cpus = node_reservation(input.topology, &reservation).unwrap_or_else(|error| {
        warnings.push(Warning::NodeReservation(error.to_string()));
        CpuSet::new()
    });
    reservation.reserved_cpus = cpus.to_string();
    (reservation, cpus)
}

/// The CPUs of system daemons that nobody else may use.
fn system_exclusive(system: Option<&SystemQosResource>, warnings: &mut Vec<Warning>) -> CpuSet {
    let Some(system) = system.filter(|system| system.is_exclusive()) else { return CpuSet::new() };
    CpuSet::parse(&system.cpuset).unwrap_or_else(|error| {
        warnings.push(Warning::SystemCpus(error.to_string()));
        CpuSet::new()
    })
}
