//! Lists of pods.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Pod;

/// What a list of pods in JSON holds.
#[derive(Debug, Clone, Default)]
pub struct PodList {
    /// The pods, in the list's order.
    pub pods: Vec<Arc<Pod>>,
    /// Pods that could not be read.
    pub refused: Vec<RefusedPod>,
}

/// A pod that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pod {index} of the list ({name}) cannot be read: {problem}")]
pub struct RefusedPod {
    /// Its place in the list, from 0.
    pub index: usize,
    /// `namespace/name`, as far as it can be told.
    pub name: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A text that is not a list of pods.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is no list of pods in JSON: {0}")]
pub struct PodListError(pub String);

impl PodList {
    /// Reads a `PodList` of the core API, version v1.
    ///
    /// A pod without UID is refused: nothing can be reckoned to it.
    pub fn decode(json: &[u8]) -> Result<PodList, PodListError> {
        #[derive(Deserialize)]
        struct List<'a> {
            #[serde(borrow)]
            items: Option<Vec<&'a RawValue>>,
        }
        let list: List<'_> = serde_json::from_slice(json).map_err(|error| PodListError(error.to_string()))?;
        let mut read = PodList::default();
        for (index, item) in list.items.unwrap_or_default().into_iter().enumerate() {
            match serde_json::from_str::<Pod>(item.get()) {
                Ok(pod) if pod.metadata.uid.is_empty() => {
                    let name = pod.key().to_string();
                    let problem = "metadata.uid is missing".to_owned();
                    read.refused.push(RefusedPod { index, name, problem });
                }
                Ok(pod) => read.pods.push(Arc::new(pod)),
                Err(error) => {
                    let problem = error.to_string();
                    read.refused.push(RefusedPod { index, name: name_of(item.get()), problem });
                }
            }
        }
        Ok(read)
    }
}

/// The name in an object that cannot be read as a whole.
fn name_of(json: &str) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Named {
        metadata: Name,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Name {
        namespace: String,
        name: String,
    }
    match serde_json::from_str::<Named>(json) {
        Ok(Named { metadata }) => format!("{}/{}", metadata.namespace, metadata.name),
        Err(_) => "of unknown name".to_owned(),
    }
}
