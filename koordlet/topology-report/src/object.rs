//! The object as it is created.

use std::collections::BTreeMap;

use koord_extension::keys::label;

/// Metadata of a new object, whose name is the node's. With them go the report's labels, annotations and body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`, without the report's.
    pub labels: BTreeMap<String, String>,
    /// `metadata.ownerReferences`, one: the object goes with its node.
    pub owner: OwnerReference,
}

/// An owner reference with `controller` and `blockOwnerDeletion` true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerReference {
    /// `v1`.
    pub api_version: &'static str,
    /// `Node`.
    pub kind: &'static str,
    /// The node's name.
    pub name: String,
    /// The node's UID.
    pub uid: String,
}

/// Metadata of the object of a node.
pub fn creation(node_name: &str, node_uid: &str) -> Creation {
    Creation {
        name: node_name.to_owned(),
        labels: BTreeMap::from([(label::MANAGED_BY.to_owned(), "Koordinator".to_owned())]),
        owner: OwnerReference {
            api_version: "v1",
            kind: "Node",
            name: node_name.to_owned(),
            uid: node_uid.to_owned(),
        },
    }
}
