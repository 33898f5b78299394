//! Pods and host applications.

use std::sync::Arc;

use koord_crd::node_metric::{HostApplicationMetricInfo, PodMetricInfo};
use koord_prediction::pod::Pod;
use koord_usage::kind::Kind;
use koord_usage::object::Object;

use super::Reader;
use crate::memory::MemoryMeasure;

impl<'a> Reader<'a> {
    /// Pods of which CPU and memory are known, sorted by namespace and name; and the same in the order of
    /// the pod list. A pod that has ended is left out at once, not only when its last sample is too old.
    pub(super) fn pods(&mut self) -> (Vec<PodMetricInfo>, Vec<&'a Pod>) {
        let view = self.view;
        let mut metrics = Vec::with_capacity(view.pods.len());
        let mut measured = Vec::with_capacity(view.pods.len());
        for pod in view.pods.iter().filter(|pod| !pod.is_terminated()) {
            let uid: Arc<str> = pod.metadata.uid.as_str().into();
            let object = Object::Pod(uid.clone());
            let found = self.measured(&object, Kind::PodCpuUsage, MemoryMeasure::of_pod, |resource| {
                format!("podsMetric[{}].podUsage.resources.{resource}", pod.key())
            });
            let Some(found) = found else { continue };
            let mut pod_usage = found.resource_map();
            pod_usage.devices = self.pod_gpus(&uid, pod);
            metrics.push(PodMetricInfo {
                name: pod.metadata.name.clone(),
                namespace: pod.metadata.namespace.clone(),
                pod_usage,
                priority: pod.priority_class(view.bands).as_str().to_owned(),
                qos: pod.qos().as_str().to_owned(),
                extensions: Default::default(),
            });
            measured.push(pod.as_ref());
        }
        metrics.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        (metrics, measured)
    }

    /// Host applications of which CPU and memory are known, sorted by name.
    pub(super) fn host_applications(&mut self) -> Vec<HostApplicationMetricInfo> {
        let mut metrics = Vec::new();
        for application in self.view.host_applications {
            let object = Object::HostApplication(application.name.as_str().into());
            let found = self.measured(
                &object,
                Kind::HostApplicationCpuUsage,
                MemoryMeasure::of_host_application,
                |resource| format!("hostApplicationMetric[{}].usage.resources.{resource}", application.name),
            );
            let Some(found) = found else { continue };
            metrics.push(HostApplicationMetricInfo {
                name: application.name.clone(),
                usage: found.resource_map(),
                priority: application.priority.clone(),
                qos: application.qos.clone(),
            });
        }
        metrics.sort_by(|one, other| one.name.cmp(&other.name));
        metrics
    }
}
