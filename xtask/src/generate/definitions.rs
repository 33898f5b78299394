//! Writes the definitions of the custom resources, for `kubectl apply` and for packages.

use super::{Output, yaml};

/// Where they are, relative to the root of the workspace.
const FOLDER: &str = "packaging/crds";

const HEADER: &str = "# Made by \"cargo xtask gen\" from the types in api/crd.\n";

/// All files.
pub(super) fn outputs() -> Vec<Output> {
    koord_crd::definition::all()
        .iter()
        .map(|definition| Output {
            path: format!("{FOLDER}/{}", definition.file_name()),
            text: format!("{HEADER}{}", yaml::text(&definition.manifest())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_hold_the_definitions() {
        let definitions = koord_crd::definition::all();
        for (output, definition) in outputs().iter().zip(&definitions) {
            let read: serde_json::Value = serde_saphyr::from_str(&output.text).unwrap();
            assert_eq!(read, definition.manifest(), "{}", output.path);
        }
        assert_eq!(outputs()[1].path, "packaging/crds/slo.koordinator.sh_nodemetrics.yaml");
    }
}
