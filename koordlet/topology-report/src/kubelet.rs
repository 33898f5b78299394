//! The configuration that the kubelet publishes at `/configz`.

use std::collections::BTreeMap;

use koord_crd::node_resource_topology::TopologyPolicy;
use koord_extension::annotation::KubeletCpuManagerPolicy;
use koord_extension::json_object;
use koord_extension::keys::resource;
use koord_extension::quantity::{Quantity, QuantityError};
use koord_extension::units::MilliCpu;

json_object! {
    /// What of `KubeletConfiguration` (kubelet.config.k8s.io/v1beta1) bears on CPUs and NUMA nodes.
    pub struct KubeletConfig {
        /// static or none.
        cpu_manager_policy: String = "cpuManagerPolicy",
        /// Options of the policy.
        cpu_manager_policy_options: BTreeMap<String, String> = "cpuManagerPolicyOptions",
        /// CPUs of the system, a Linux CPU list; wins over the amounts.
        reserved_system_cpus: String = "reservedSystemCPUs",
        /// Resources of Kubernetes' daemons, by name, quantities.
        kube_reserved: BTreeMap<String, String> = "kubeReserved",
        /// Resources of other daemons, by name, quantities.
        system_reserved: BTreeMap<String, String> = "systemReserved",
        /// none, best-effort, restricted or single-numa-node.
        topology_manager_policy: String = "topologyManagerPolicy",
        /// container or pod.
        topology_manager_scope: String = "topologyManagerScope",
    }

    /// The answer of `/configz`.
    pub struct Configz {
        /// The configuration.
        kubelet_config: Option<KubeletConfig> = "kubeletconfig",
    }
}

/// Why an answer of `/configz` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigzError {
    /// It is no JSON of the right shape.
    #[error("the kubelet's /configz is malformed")]
    Malformed(#[source] serde_json::Error),
    /// It says nothing about the kubelet.
    #[error("the kubelet's /configz has no kubeletconfig")]
    Absent,
}

impl KubeletConfig {
    /// Reads an answer of `/configz`. Fields that are not used here are passed over whatever they hold: some of them, such
    /// as `logging`, have changed their type between kubelet versions.
    pub fn from_configz(body: &[u8]) -> Result<KubeletConfig, ConfigzError> {
        let configz: Configz = serde_json::from_slice(body).map_err(ConfigzError::Malformed)?;
        configz.kubelet_config.ok_or(ConfigzError::Absent)
    }

    /// True if the CPU manager gives CPUs to pods.
    pub fn is_static(&self) -> bool {
        self.cpu_manager_policy == KubeletCpuManagerPolicy::STATIC
    }

    /// `kubeReserved.cpu`; zero if there is none.
    pub fn kube_reserved_cpu(&self) -> Result<MilliCpu, QuantityError> {
        cpu(&self.kube_reserved)
    }

    /// `systemReserved.cpu`; zero if there is none.
    pub fn system_reserved_cpu(&self) -> Result<MilliCpu, QuantityError> {
        cpu(&self.system_reserved)
    }

    /// Policy and scope of the topology manager in one word; none if either is empty or unknown.
    pub fn topology_policy(&self) -> TopologyPolicy {
        match (self.topology_manager_policy.as_str(), self.topology_manager_scope.as_str()) {
            ("single-numa-node", "container") => TopologyPolicy::SingleNumaNodeContainerLevel,
            ("single-numa-node", "pod") => TopologyPolicy::SingleNumaNodePodLevel,
            ("restricted", "container") => TopologyPolicy::RestrictedContainerLevel,
            ("restricted", "pod") => TopologyPolicy::RestrictedPodLevel,
            ("best-effort", "container") => TopologyPolicy::BestEffortContainerLevel,
            ("best-effort", "pod") => TopologyPolicy::BestEffortPodLevel,
            _ => TopologyPolicy::None,
        }
    }
}

fn cpu(reserved: &BTreeMap<String, String>) -> Result<MilliCpu, QuantityError> {
    reserved
        .get(resource::CPU)
        .map_or(Ok(MilliCpu::ZERO), |text| Quantity::parse(text).map(Quantity::milli_cpu))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_of_configz() {
        let body = br#"{"kubeletconfig":{"enableServer":true,"cpuManagerPolicy":"static",
            "cpuManagerPolicyOptions":{"full-pcpus-only":"true"},"reservedSystemCPUs":"0-1",
            "kubeReserved":{"cpu":"1800m","memory":"1Gi"},"systemReserved":{"cpu":"200m"},
            "topologyManagerPolicy":"restricted","topologyManagerScope":"pod",
            "logging":{"flushFrequency":5000000000,"options":{"json":{"infoBufferSize":"0"}}}}}"#;
        let config = KubeletConfig::from_configz(body).expect("a configuration");
        assert!(config.is_static());
        assert_eq!(config.cpu_manager_policy_options["full-pcpus-only"], "true");
        assert_eq!(config.reserved_system_cpus, "0-1");
        assert_eq!(config.kube_reserved_cpu(), Ok(MilliCpu(1800)));
        assert_eq!(config.system_reserved_cpu(), Ok(MilliCpu(200)));
        assert_eq!(config.topology_policy(), TopologyPolicy::RestrictedPodLevel);
    }

    #[test]
    fn whatever_the_other_fields_hold() {
        for logging in ["null", "\"text\"", "{\"flushFrequency\":\"5s\"}", "[1]"] {
            let body =
                format!("{{\"kubeletconfig\":{{\"logging\":{logging},\"cpuManagerPolicy\":\"none\"}}}}");
            let config = KubeletConfig::from_configz(body.as_bytes()).expect("a configuration");
            assert_eq!((config.cpu_manager_policy.as_str(), config.is_static()), ("none", false));
        }
    }

    #[test]
    fn answers_that_are_none() {
        for body in
            ["", "Forbidden", "[]", r#"{"kubeletconfig":[]}"#, r#"{"kubeletconfig":{"cpuManagerPolicy":1}}"#]
        {
            assert!(
                matches!(KubeletConfig::from_configz(body.as_bytes()), Err(ConfigzError::Malformed(_))),
                "{body} was accepted"
            );
        }
        for body in ["{}", r#"{"kubeletconfig":null}"#] {
            assert!(matches!(KubeletConfig::from_configz(body.as_bytes()), Err(ConfigzError::Absent)));
        }
    }

    #[test]
    fn policies_of_the_topology_manager() {
        let policy = |policy: &str, scope: &str| {
            KubeletConfig {
                topology_manager_policy: policy.to_owned(),
                topology_manager_scope: scope.to_owned(),
                ..KubeletConfig::default()
            }
            .topology_policy()
            .to_string()
        };
        for (kubelet, word) in [
            ("single-numa-node", "SingleNUMANode"),
            ("restricted", "Restricted"),
            ("best-effort", "BestEffort"),
        ] {
            assert_eq!(policy(kubelet, "pod"), format!("{word}PodLevel"));
            assert_eq!(policy(kubelet, "container"), format!("{word}ContainerLevel"));
            assert_eq!(policy(kubelet, ""), "None");
            assert_eq!(policy(kubelet, "node"), "None");
        }
        assert_eq!(policy("none", "pod"), "None");
        assert_eq!(policy("", "pod"), "None");
        assert_eq!(policy("later", "container"), "None");
    }

    #[test]
    fn reservations_without_cpu_and_broken_ones() {
        assert_eq!(KubeletConfig::default().kube_reserved_cpu(), Ok(MilliCpu::ZERO));
        let broken = KubeletConfig {
            system_reserved: [("cpu".to_owned(), "x".to_owned())].into(),
            ..KubeletConfig::default()
        };
        assert!(broken.system_reserved_cpu().is_err());
    }

    proptest! {
        #[test]
        fn any_octets_are_a_configuration_or_an_error(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = KubeletConfig::from_configz(&body);
        }
    }
}
