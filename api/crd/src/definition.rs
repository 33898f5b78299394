//! The definitions of the custom resources, as an API server takes them
//! (`CustomResourceDefinition` of apiextensions.k8s.io/v1).
//!
//! Names, types and descriptions of fields come from the Rust types, so that `kubectl explain` shows their
//! documentation; what a value may be beyond its type is in one table. An object that Koordinator writes
//! is valid here: no value is refused that its own definitions (development branch of 2024 to 2026) accept.
//!
//! `cargo xtask gen` writes them below `packaging/crds`.

mod rules;
#[cfg(test)]
mod tests;

use koord_extension::json::shape::{Described, FieldShape, ObjectShape, Shape};
use serde_json::{Map, Value, json};

use crate::device::{self, DeviceSpec, DeviceStatus};
use crate::node_metric::{self, NodeMetricSpec, NodeMetricStatus};
use crate::node_resource_topology::{self, NodeResourceTopology};
use crate::node_slo::{self, NodeSloSpec};
use rules::Rule;

/// What the text of a quantity is checked against; the pattern is that of Kubernetes' own generator.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// A custom resource. All are cluster-scoped and have one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Name of the resource in paths.
    pub plural: &'static str,
    /// Further names for people.
    pub short_names: &'static [&'static str],
    /// Annotations of the definition.
    pub annotations: &'static [(&'static str, &'static str)],
    /// Whether `status` is a resource of its own.
    pub has_status: bool,
    /// Columns of tables.
    pub columns: &'static [Column],
    /// The kind, its description, and its fields but `apiVersion`, `kind` and `metadata`.
    pub object: ObjectShape,
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its title.
    pub name: &'static str,
    /// What it shows.
    pub description: &'static str,
    /// Type of the value.
    pub value_type: &'static str,
    /// Path of the value.
    pub path: &'static str,
}

const NODE_METRIC_COLUMNS: &[Column] = &[
    Column {
        name: "CPU",
        description: "CPU in use on the node, cores",
        value_type: "string",
        path: ".status.nodeMetric.nodeUsage.resources.cpu",
    },
    Column {
        name: "Memory",
        description: "Memory in use on the node, bytes",
        value_type: "string",
        path: ".status.nodeMetric.nodeUsage.resources.memory",
    },
    Column {
        name: "Updated",
        description: "Time since the last report",
        value_type: "date",
        path: ".status.updateTime",
    },
    // A table with columns of its own loses the one that every other has.
    Column {
        name: "Age",
        description: "Time since the object was made",
        value_type: "date",
        path: ".metadata.creationTimestamp",
    },
];

/// All definitions, in the order of their file names.
pub fn all() -> [Definition; 4] {
    [device(), node_metric(), node_slo(), node_resource_topology()]
}

/// NodeMetric.
pub fn node_metric() -> Definition {
    Definition {
        group: node_metric::GROUP,
        version: node_metric::VERSION,
        plural: node_metric::PLURAL,
        short_names: &[],
        annotations: &[],
        has_status: true,
        columns: NODE_METRIC_COLUMNS,
        object: ObjectShape::new(
            node_metric::KIND,
            "What a node and its pods use. The object is named like its node.",
            vec![
                FieldShape::of::<NodeMetricSpec>("spec", "What is measured and how often it is reported."),
                FieldShape::of::<NodeMetricStatus>("status", "What the node agent reported last."),
            ],
        ),
    }
}

/// NodeSLO.
pub fn node_slo() -> Definition {
    let no_status = ObjectShape::new("NodeSloStatus", "Nothing at present.", Vec::new());
    Definition {
        group: node_slo::GROUP,
        version: node_slo::VERSION,
        plural: node_slo::PLURAL,
        short_names: &[],
        annotations: &[],
        has_status: true,
        columns: &[],
        object: ObjectShape::new(
            node_slo::KIND,
            "What a node is told to do for quality of service. The object is named like its node.",
            vec![
                FieldShape::of::<NodeSloSpec>("spec", "What the node is told. What is unset has a default."),
                FieldShape {
                    key: "status",
                    description: no_status.description.clone(),
                    shape: Shape::Object(no_status),
                },
            ],
        ),
    }
}

/// NodeResourceTopology.
pub fn node_resource_topology() -> Definition {
    let fields = match NodeResourceTopology::shape() {
        Shape::Object(object) => object.fields,
        _ => Vec::new(),
    };
    Definition {
        group: node_resource_topology::GROUP,
        version: node_resource_topology::VERSION,
        plural: node_resource_topology::PLURAL,
        short_names: &["node-res-topo"],
        // A group below k8s.io is accepted only with the address of its approval.
        annotations: &[(
            "api-approved.kubernetes.io",
            "https://github.com/kubernetes/enhancements/pull/1870",
        )],
        has_status: false,
        columns: &[],
        object: ObjectShape::new(
            node_resource_topology::KIND,
            "Resources of a node by NUMA node. The object is named like its node.",
            fields,
        ),
    }
}

/// Device.
pub fn device() -> Definition {
    Definition {
        group: device::GROUP,
        version: device::VERSION,
        plural: device::PLURAL,
        short_names: &[],
        annotations: &[],
        has_status: false,
        columns: &[],
        object: ObjectShape::new(
            device::KIND,
            "Devices of a node and their state. The object is named like its node.",
            vec![
                FieldShape::of::<DeviceSpec>("spec", "The devices."),
                FieldShape::of::<DeviceStatus>("status", "What of them is allocated."),
            ],
        ),
    }
}

impl Definition {
    /// Name of the definition: resource and group.
    pub fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// Name of the file that holds it.
    pub fn file_name(&self) -> String {
        format!("{}_{}.yaml", self.group, self.plural)
    }

    /// The definition as the API server takes it.
    pub fn manifest(&self) -> Value {
        let kind = self.object.name;
        let mut metadata = json!({"name": self.name()});
        if !self.annotations.is_empty() {
            metadata["annotations"] = self.annotations.iter().copied().collect();
        }
        let mut names = json!({
            "kind": kind,
            "listKind": format!("{kind}List"),
            "plural": self.plural,
            "singular": kind.to_lowercase(),
        });
        if !self.short_names.is_empty() {
            names["shortNames"] = json!(self.short_names);
        }
        let mut version = json!({
            "name": self.version,
            "served": true,
            "storage": true,
            "schema": {"openAPIV3Schema": self.schema()},
        });
        if self.has_status {
            version["subresources"] = json!({"status": {}});
        }
        if !self.columns.is_empty() {
            version["additionalPrinterColumns"] = self.columns.iter().map(Column::manifest).collect();
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {
                "group": self.group,
                "names": names,
                "scope": "Cluster",
                "versions": [version],
            },
        })
    }

    /// The structural schema of its objects.
    pub fn schema(&self) -> Value {
        let mut schema = object_schema(&self.object);
        schema.insert("description".to_owned(), self.object.description.as_str().into());
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            let text = |description: &str| json!({"type": "string", "description": description});
            properties.insert("apiVersion".to_owned(), text("API group and version of the object."));
            properties.insert("kind".to_owned(), text("Kind of the object."));
            properties.insert("metadata".to_owned(), json!({"type": "object"}));
        }
        Value::Object(schema)
    }
}

impl Column {
    fn manifest(&self) -> Value {
        json!({
            "name": self.name,
            "description": self.description,
            "type": self.value_type,
            "jsonPath": self.path,
        })
    }
}

fn object_schema(object: &ObjectShape) -> Map<String, Value> {
    let mut properties = Map::new();
    let mut required: Vec<&str> = Vec::new();
    for field in &object.fields {
        let rules = rules::of(object.name, field.key);
        if rules.contains(&Rule::Required) {
            required.push(field.key);
        }
        properties.insert(field.key.to_owned(), Value::Object(field_schema(field, rules)));
    }
    let mut schema = Map::from_iter([("type".to_owned(), "object".into())]);
    if !properties.is_empty() {
        schema.insert("properties".to_owned(), Value::Object(properties));
    }
    if !required.is_empty() {
        required.sort_unstable();
        schema.insert("required".to_owned(), required.into());
    }
    schema
}

fn field_schema(field: &FieldShape, rules: &[Rule]) -> Map<String, Value> {
    let mut schema = shape_schema(&field.shape);
    for rule in rules {
        rule.add_to(&mut schema);
    }
    let known = schema.get("description").and_then(Value::as_str).filter(|_| is_words(&field.shape));
    let description = match known {
        // Words that are enumerated need not be told again.
        Some(known) if !schema.contains_key("enum") => format!("{} {known}", field.description),
        _ => field.description.clone(),
    };
    schema.insert("description".to_owned(), description.into());
    schema
}

fn is_words(shape: &Shape) -> bool {
    matches!(shape, Shape::Words(_))
}

/// The schema of a value, with a description where the value's type has one.
fn shape_schema(shape: &Shape) -> Map<String, Value> {
    let schema = match shape {
        Shape::Boolean => json!({"type": "boolean"}),
        Shape::Int32 => json!({"type": "integer", "format": "int32"}),
        Shape::Int64 => json!({"type": "integer", "format": "int64"}),
        Shape::Number => json!({"type": "number"}),
        Shape::Text => json!({"type": "string"}),
        Shape::Words(words) => {
            let words: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
            json!({"type": "string", "description": format!("Known values: {}.", words.join(", "))})
        }
        Shape::Quantity => json!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        }),
        Shape::IntegerOrText => json!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
        }),
        Shape::Time => json!({"type": "string", "format": "date-time"}),
        // What is not known is kept, as an object: a field needs a type.
        Shape::Anything => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        Shape::List(item) => json!({"type": "array", "items": shape_schema(item)}),
        Shape::Map(value) if **value == Shape::Anything => {
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
        }
        Shape::Map(value) => json!({"type": "object", "additionalProperties": shape_schema(value)}),
        Shape::Object(object) => {
            let mut schema = object_schema(object);
            schema.insert("description".to_owned(), object.description.as_str().into());
            return schema;
        }
    };
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}
