//! Selectors and references of the Kubernetes API, as far as annotations carry them.

use std::collections::BTreeMap;

use crate::json_object;

json_object! {
    /// Selects objects by label.
    pub struct LabelSelector {
        /// Labels that must be equal.
        match_labels: BTreeMap<String, String> = "matchLabels",
        /// Conditions that must all hold.
        match_expressions: Vec<SelectorRequirement> = "matchExpressions",
    }

    /// A condition on one key.
    pub struct SelectorRequirement {
        /// The key.
        key: String = "key" keep,
        /// In, NotIn, Exists, DoesNotExist; of node selectors also Gt and Lt.
        operator: String = "operator" keep,
        /// Values of the operator.
        values: Vec<String> = "values",
    }

    /// A term of a node selector.
    pub struct NodeSelectorTerm {
        /// Conditions on labels.
        match_expressions: Vec<SelectorRequirement> = "matchExpressions",
        /// Conditions on fields.
        match_fields: Vec<SelectorRequirement> = "matchFields",
    }

    /// Tolerates a taint.
    pub struct Toleration {
        /// Key of the taint.
        key: String = "key",
        /// Exists or Equal.
        operator: String = "operator",
        /// Value of the taint.
        value: String = "value",
        /// Effect of the taint.
        effect: String = "effect",
        /// How long a NoExecute taint is tolerated.
        toleration_seconds: Option<i64> = "tolerationSeconds",
    }

    /// Refers to an object.
    pub struct ObjectReference {
        /// Kind.
        kind: String = "kind",
        /// Namespace.
        namespace: String = "namespace",
        /// Name.
        name: String = "name",
        /// Unique id.
        uid: String = "uid",
        /// Version of the API.
        api_version: String = "apiVersion",
        /// Version of the object.
        resource_version: String = "resourceVersion",
        /// Part of the object.
        field_path: String = "fieldPath",
    }

    /// Refers to the controller of a pod.
    pub struct ControllerReference {
        /// Version of the API.
        api_version: String = "apiVersion" keep,
        /// Kind.
        kind: String = "kind" keep,
        /// Name.
        name: String = "name" keep,
        /// Unique id.
        uid: String = "uid" keep,
        /// Whether it manages the pod.
        controller: Option<bool> = "controller",
        /// Whether it stays until the pod is gone.
        block_owner_deletion: Option<bool> = "blockOwnerDeletion",
        /// Namespace of the pod.
        namespace: String = "namespace",
    }
}
