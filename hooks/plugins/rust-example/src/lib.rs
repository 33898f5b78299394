//! A hook library in Rust: the annotation `example.koordinator.sh/cpu-shares` of a pod sets the CPU shares of its
//! containers, and they are told by the environment variable `EXAMPLE_CPU_SHARES`.

use koord_hook_sdk::{
    Answer, ContainerResourceHookRequest, ContainerResourceHookResponse, Error, Hook, HookType,
    LinuxContainerResources,
};

/// The pod's annotation: an integer from 2 to 262144, the range of the kernel's `cpu.shares`.
pub const ANNOTATION: &str = "example.koordinator.sh/cpu-shares";

/// The environment variable containers get.
pub const ENVIRONMENT: &str = "EXAMPLE_CPU_SHARES";

const RANGE: std::ops::RangeInclusive<i64> = 2..=262_144;

/// The hook.
#[derive(Debug)]
pub struct Example;

impl Hook for Example {
    const NAME: &'static str = "rust-example";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const STAGES: &'static [HookType] =
        &[HookType::PreCreateContainer, HookType::PreUpdateContainerResources];

    fn new() -> Result<Self, Error> {
        Ok(Self)
    }

    fn pre_create_container(
        &self,
        request: &ContainerResourceHookRequest,
    ) -> Answer<ContainerResourceHookResponse> {
        let Some(shares) = shares(request)? else { return Ok(None) };
        let mut answer = with_shares(shares);
        answer.container_envs.insert(ENVIRONMENT.to_owned(), shares.to_string());
        Ok(Some(answer))
    }

    fn pre_update_container_resources(
        &self,
        request: &ContainerResourceHookRequest,
    ) -> Answer<ContainerResourceHookResponse> {
        Ok(shares(request)?.map(with_shares))
    }
}

fn shares(request: &ContainerResourceHookRequest) -> Result<Option<i64>, Error> {
    let Some(text) = request.pod_annotations.get(ANNOTATION) else { return Ok(None) };
    match text.parse() {
        Ok(shares) if RANGE.contains(&shares) => Ok(Some(shares)),
        _ => Err(Error::new(format!(
            "annotation {ANNOTATION} has the value {text:?}; accepted is an integer from {} to {}",
            RANGE.start(),
            RANGE.end()
        ))),
    }
}

fn with_shares(shares: i64) -> ContainerResourceHookResponse {
    ContainerResourceHookResponse {
        container_resources: Some(LinuxContainerResources { cpu_shares: shares, ..Default::default() }),
        ..Default::default()
    }
}

koord_hook_sdk::export_hook!(Example);

#[cfg(test)]
mod tests {
    use super::*;

    fn request(value: Option<&str>) -> ContainerResourceHookRequest {
        ContainerResourceHookRequest {
            pod_annotations: value
                .map(|value| (ANNOTATION.to_owned(), value.to_owned()))
                .into_iter()
                .collect(),
            ..Default::default()
        }
    }

    #[test]
    fn the_annotation_sets_shares_and_environment() {
        let answer = Example.pre_create_container(&request(Some("512"))).expect("fine").expect("an answer");
        assert_eq!(answer.container_resources.map(|resources| resources.cpu_shares), Some(512));
        assert_eq!(answer.container_envs.get(ENVIRONMENT).map(String::as_str), Some("512"));
        let answer = Example.pre_update_container_resources(&request(Some("2"))).expect("fine");
        assert_eq!(answer, Some(with_shares(2)));
    }

    #[test]
    fn without_the_annotation_nothing_changes() {
        assert_eq!(Example.pre_create_container(&request(None)), Ok(None));
    }

    #[test]
    fn values_outside_the_range_are_errors() {
        for text in ["1", "262145", "", "x", "-2"] {
            let error = Example.pre_create_container(&request(Some(text))).expect_err("refused").to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("from 2 to 262144"), "{error}");
        }
        assert!(Example.pre_create_container(&request(Some("262144"))).is_ok());
    }
}
