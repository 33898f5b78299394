//! Objects whose group, version and kind are values at run time.
//!
//! Custom resources are described by constants of `koord-crd`, which knows no client. [`Object`] and [`Plain`] turn the
//! types there into resources of the client.

use std::borrow::Cow;

use kube::core::{ApiResource, DynamicResourceScope, GroupVersionKind, ObjectMeta, TypeMeta};
use serde::{Deserialize, Serialize};

/// Describes a kind of object. The group of the core API is empty; `plural` is the resource's name in URLs.
pub fn api_resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn types(resource: &ApiResource) -> TypeMeta {
    TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// An object with the two usual parts. Either may be missing: a missing `spec` is its default, since others create
/// objects that carry nothing but a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(
    serialize = "Spec: Serialize, Status: Serialize",
    deserialize = "Spec: Deserialize<'de> + Default, Status: Deserialize<'de>"
))]
pub struct Object<Spec, Status> {
    /// Version and kind. Items of lists lack them.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub types: Option<TypeMeta>,
    /// Name, labels, owners, and what the server keeps of the object.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: Spec,
    /// What has been seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

impl<Spec, Status> Object<Spec, Status> {
    /// An object of that name without status.
    pub fn new(name: &str, resource: &ApiResource, spec: Spec) -> Object<Spec, Status> {
        Object { types: Some(types(resource)), metadata: named(name), spec, status: None }
    }
}

/// An object whose parts stand beside its metadata, as in NodeResourceTopology, or a few fields of a large one, as in
/// a pod of which little is needed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plain<Fields> {
    /// Version and kind. Items of lists lack them.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub types: Option<TypeMeta>,
    /// Name, labels, owners, and what the server keeps of the object.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Everything else.
    #[serde(flatten)]
    pub fields: Fields,
}

impl<Fields> Plain<Fields> {
    /// An object of that name.
    pub fn new(name: &str, resource: &ApiResource, fields: Fields) -> Plain<Fields> {
        Plain { types: Some(types(resource)), metadata: named(name), fields }
    }
}

macro_rules! resource_at_run_time {
    ($type:ident < $($parameter:ident),+ >) => {
        impl<$($parameter),+> kube::Resource for $type<$($parameter),+> {
            type DynamicType = ApiResource;
            type Scope = DynamicResourceScope;

            fn kind(resource: &ApiResource) -> Cow<'_, str> {
                resource.kind.as_str().into()
            }

            fn group(resource: &ApiResource) -> Cow<'_, str> {
                resource.group.as_str().into()
            }

            fn version(resource: &ApiResource) -> Cow<'_, str> {
                resource.version.as_str().into()
            }

            fn api_version(resource: &ApiResource) -> Cow<'_, str> {
                resource.api_version.as_str().into()
            }

            fn plural(resource: &ApiResource) -> Cow<'_, str> {
                resource.plural.as_str().into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource_at_run_time!(Object<Spec, Status>);
resource_at_run_time!(Plain<Fields>);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    struct Size {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        width: Option<u32>,
    }

    #[test]
    fn a_resource_knows_its_version() {
        let resource = api_resource("slo.koordinator.sh", "v1alpha1", "NodeMetric", "nodemetrics");
        assert_eq!(resource.api_version, "slo.koordinator.sh/v1alpha1");
        assert_eq!(api_resource("", "v1", "Pod", "pods").api_version, "v1");
    }

    #[test]
    fn objects_have_types_name_and_parts() {
        let resource = api_resource("example.com", "v1", "Box", "boxes");
        let mut object = Object::new("a", &resource, Size { width: Some(1) });
        object.status = Some(Size { width: Some(2) });
        let text = json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "a"},
            "spec": {"width": 1}, "status": {"width": 2}});
        assert_eq!(serde_json::to_value(&object).unwrap(), text);
        assert_eq!(serde_json::from_value::<Object<Size, Size>>(text).unwrap(), object);

        let plain = Plain::new("a", &resource, Size { width: Some(3) });
        let text =
            json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "a"}, "width": 3});
        assert_eq!(serde_json::to_value(&plain).unwrap(), text);
        assert_eq!(serde_json::from_value::<Plain<Size>>(text).unwrap(), plain);
    }

    #[test]
    fn parts_may_be_missing() {
        let object: Object<Size, Size> = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!((object.types, object.spec, object.status), (None, Size::default(), None));
        let plain: Plain<Size> =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "other": [1]})).unwrap();
        assert_eq!(plain.fields, Size::default());
    }
}
