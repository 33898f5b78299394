use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::*;
use crate::definition;

/// What a value passes here, it passes at the API server.
fn agree(kind: Kind, schema: &Json, path: &str) {
    let is_either = schema["x-kubernetes-int-or-string"] == true;
    let keeps_all = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match kind {
        Boolean => assert_eq!(schema["type"], "boolean", "{path}"),
        Integer(least, most) => {
            assert_eq!(schema["type"], "integer", "{path}");
            assert!(schema["minimum"].as_i64().is_none_or(|minimum| minimum <= least), "{path}");
            assert!(schema["maximum"].as_i64().is_none_or(|maximum| most <= maximum), "{path}");
        }
        Words(words) => {
            assert_eq!(schema["type"], "string", "{path}");
            assert_eq!(schema.get("enum"), None, "{path}");
            let description = schema["description"].as_str().unwrap();
            for word in words {
                let is_told =
                    description.contains(word) || path.ends_with(".priority") || path.ends_with(".qos");
                assert!(is_told, "{path}: {word} is not told");
            }
        }
        Text | Name | Path => assert_eq!(schema["type"], "string", "{path}"),
        Quantity | Bandwidth => assert!(is_either, "{path}"),
        Object(members) => {
            let known: BTreeSet<&str> = members.iter().map(|(key, _)| *key).collect();
            let defined = schema["properties"].as_object().unwrap();
            assert_eq!(known, defined.keys().map(String::as_str).collect(), "{path}");
            for (key, kind) in members {
                agree(*kind, &defined[*key], &format!("{path}.{key}"));
            }
        }
        List(kind) => agree(*kind, &schema["items"], &format!("{path}[]")),
        Switches => assert_eq!(schema["additionalProperties"]["type"], "boolean", "{path}"),
        Map | Anything => assert!(keeps_all, "{path}"),
    }
}

#[test]
fn the_definition_has_the_same_fields_and_is_not_stricter() {
    let schema = definition::node_slo().schema();
    agree(NODE_SLO_SPEC, &schema["properties"]["spec"], "spec");
}
