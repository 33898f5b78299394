//! Eviction: cost, order, consent.

use std::collections::BTreeMap;

use super::{AnnotationError, json_annotation, json_newtype};
use crate::json_object;
use crate::keys::annotation;

json_object! {
    /// A wish to be evicted.
    pub struct SoftEviction {
        /// When it was made, seconds since 1970.
        timestamp: Option<i64> = "timestamp",
        /// Options of the deletion.
        delete_options: serde_json::Value = "deleteOptions",
        /// Who made it.
        initiator: String = "initiator",
        /// Why.
        reason: String = "reason",
    }
}

json_newtype! {
    /// Eviction features that may take a pod. Absent: all may. Empty or unreadable: none may.
    pub struct EvictionPolicy(Vec<String>);
}

json_annotation!(SoftEviction, annotation::SOFT_EVICTION);
json_annotation!(EvictionPolicy, annotation::EVICTION_POLICY);

impl EvictionPolicy {
    /// Whether the feature may take a pod with these annotations.
    pub fn allows(annotations: &BTreeMap<String, String>, feature: &str) -> bool {
        match EvictionPolicy::from_annotations(annotations) {
            Ok(None) => true,
            Ok(Some(EvictionPolicy(features))) => features.iter().any(|allowed| allowed == feature),
            Err(_) => false,
        }
    }
}

/// Cost of an eviction that means "never".
pub const EVICTION_COST_NEVER: i32 = i32::MAX;

/// Cost of evicting a pod; 0 if it states none.
///
/// A sign other than `-` and leading zeros are errors, as in Kubernetes' pod-deletion-cost.
pub fn eviction_cost(annotations: &BTreeMap<String, String>) -> Result<i32, AnnotationError> {
    let key = annotation::EVICTION_COST;
    let Some(text) = annotations.get(key) else { return Ok(0) };
    let plain = text == "0" || text.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    match text.parse() {
        Ok(cost) if plain => Ok(cost),
        _ => Err(AnnotationError::new(
            key,
            text,
            "wanted a whole number from -2147483648 to 2147483647 without plus or leading zeros",
        )),
    }
}

/// Order of eviction before `spec.priority` counts, lower first; 0 if the pod states none.
pub fn eviction_priority(annotations: &BTreeMap<String, String>) -> Result<i32, AnnotationError> {
    let key = annotation::EVICTION_PRIORITY;
    let Some(text) = annotations.get(key) else { return Ok(0) };
    text.parse()
        .map_err(|_| AnnotationError::new(key, text, "wanted a whole number from -2147483648 to 2147483647"))
}
