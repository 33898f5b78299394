//! The messages of the cases: of the shape and size a kubelet and a runtime exchange.

use std::collections::BTreeMap;

use koord_cri::v1;
use prost::Message;

pub(crate) mod hooks;

/// What is called, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Case {
    /// A small message, one call at a time.
    Small1,
    /// A small message, sixteen calls at a time.
    Small16,
    /// A request of 7 KB which the proxy holds and edits.
    Hold7k1,
    /// An answer of 220 KB: a list of 500 containers.
    Answer220k1,
    /// An answer of 12 MiB.
    Answer12m1,
    /// CreateContainer of 7 KB, for which hooks are asked.
    Create7k1,
    /// UpdateContainerResources of 7 KB, for which hooks are asked.
    Update7k1,
}

impl Case {
    /// The cases of the relay's benchmark.
    pub(crate) const RELAY: [Self; 5] =
        [Self::Small1, Self::Small16, Self::Hold7k1, Self::Answer220k1, Self::Answer12m1];
    /// The cases of the hooks' benchmark.
    pub(crate) const HOOKS: [Self; 2] = [Self::Create7k1, Self::Update7k1];

    /// Its name in tables and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small1 => "small_1",
            Self::Small16 => "small_16",
            Self::Hold7k1 => "hold7k_1",
            Self::Answer220k1 => "answer220k_1",
            Self::Answer12m1 => "answer12m_1",
            Self::Create7k1 => "create7k_1",
            Self::Update7k1 => "update7k_1",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Small1 | Self::Small16 => "/runtime.v1.RuntimeService/Version",
            Self::Hold7k1 => "/runtime.v1.RuntimeService/RunPodSandbox",
            Self::Answer220k1 => "/runtime.v1.RuntimeService/ListContainers",
            Self::Answer12m1 => "/runtime.v1.ImageService/ListImages",
            Self::Create7k1 => "/runtime.v1.RuntimeService/CreateContainer",
            Self::Update7k1 => "/runtime.v1.RuntimeService/UpdateContainerResources",
        }
    }

    /// Calls under way at a time.
    pub(crate) fn outstanding(self) -> usize {
        if self == Self::Small16 { 16 } else { 1 }
    }

    /// Calls in one round of a full run.
    pub(crate) fn calls(self) -> usize {
        match self {
            Self::Small1 | Self::Hold7k1 => 2_000,
            Self::Create7k1 | Self::Update7k1 => 1_000,
            Self::Small16 => 6_000,
            Self::Answer220k1 => 500,
            Self::Answer12m1 => 20,
        }
    }

    /// The request's payload.
    pub(crate) fn request(self) -> Vec<u8> {
        match self {
            Self::Small1 | Self::Small16 => v1::VersionRequest { version: "0.1.0".into() }.encode_to_vec(),
            Self::Hold7k1 => pod_request().encode_to_vec(),
            Self::Answer220k1 => v1::ListContainersRequest::default().encode_to_vec(),
            Self::Answer12m1 => v1::ListImagesRequest::default().encode_to_vec(),
            Self::Create7k1 => hooks::create().encode_to_vec(),
            Self::Update7k1 => hooks::update().encode_to_vec(),
        }
    }
}

/// What the benchmark's hook server is asked.
pub(crate) const SERVER_PATHS: [&str; 2] = [
    "/runtime.v1alpha1.RuntimeHookService/PreCreateContainerHook",
    "/runtime.v1alpha1.RuntimeHookService/PreUpdateContainerResourcesHook",
];

/// The answer's payload for a path; empty for any other.
pub(crate) fn answer(path: &str) -> Vec<u8> {
    match path.rsplit('/').next().unwrap_or_default() {
        "Version" => koord_testing::cri::version(),
        "RunPodSandbox" => v1::RunPodSandboxResponse { pod_sandbox_id: identity(1) }.encode_to_vec(),
        "ListContainers" => {
            v1::ListContainersResponse { containers: (0..500).map(container).collect() }.encode_to_vec()
        }
        "ListImages" => {
            let one = image(50_000);
            let count = (12 << 20) / v1::ListImagesResponse { images: vec![one] }.encoded_len() as u64;
            v1::ListImagesResponse { images: (0..count).map(image).collect() }.encode_to_vec()
        }
        "CreateContainer" => {
            v1::CreateContainerResponse { container_id: hooks::container_id() }.encode_to_vec()
        }
        "PreCreateContainerHook" | "PreUpdateContainerResourcesHook" => hooks::server_answer(),
        _ => Vec::new(),
    }
}

/// Whether the size of a request on this path tells if it was edited.
pub(crate) fn is_held(path: &str) -> bool {
    [Case::Hold7k1, Case::Create7k1, Case::Update7k1].iter().any(|case| case.path() == path)
}

fn identity(number: u64) -> String {
    format!("{number:064x}")
}

fn map(pairs: &[(&str, String)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn container(number: u64) -> v1::Container {
    v1::Container {
        id: identity(number),
        pod_sandbox_id: identity(number / 2),
        metadata: Some(v1::ContainerMetadata { name: format!("container-{number}"), attempt: 0 }),
        image_ref: format!("sha256:{}", identity(7)),
        state: 1,
        created_at: 1_760_000_000_000_000_000,
        labels: map(&[
            ("io.kubernetes.container.name", format!("container-{number}")),
            ("io.kubernetes.pod.name", format!("pod-{number}")),
            ("io.kubernetes.pod.namespace", "default".into()),
        ]),
        annotations: map(&[
            ("io.kubernetes.container.restartCount", "0".into()),
            ("io.kubernetes.container.hash", "1f2e3d4c".into()),
        ]),
        ..Default::default()
    }
}

fn image(number: u64) -> v1::Image {
    v1::Image {
        id: format!("sha256:{}", identity(number)),
        repo_tags: vec![format!("registry.example/team/image-{number}:v1.2.{number}")],
        repo_digests: vec![format!("registry.example/team/image-{number}@sha256:{}", identity(number))],
        size: 123_456_789,
        ..Default::default()
    }
}

fn pod_request() -> v1::RunPodSandboxRequest {
    let mut config = koord_testing::cri::pod_config(
        "web-5c689d88bb-x2x7z",
        "0f4e2c0e-6f9c-4a53-9f0e-1d1e6b1a7a11",
        "default",
        "/kubepods/burstable/pod0f4e2c0e-6f9c-4a53-9f0e-1d1e6b1a7a11",
    );
    config.labels = map(&[("app", "web".into()), ("koordinator.sh/qosClass", "LS".into())]);
    config.annotations =
        (0..20).map(|number| (format!("example.com/note-{number}"), "n".repeat(310))).collect();
    v1::RunPodSandboxRequest { config: Some(config), runtime_handler: "runc".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_sizes_their_cases_name() {
        let within = |size: usize, wanted: usize| (wanted * 95 / 100..=wanted * 105 / 100).contains(&size);
        assert!(within(Case::Hold7k1.request().len(), 7_000), "{}", Case::Hold7k1.request().len());
        for case in Case::HOOKS {
            assert!(within(case.request().len(), 7_000), "{} {}", case.name(), case.request().len());
        }
        let list = answer(Case::Answer220k1.path()).len();
        assert!(within(list, 220_000), "{list}");
        let images = answer(Case::Answer12m1.path()).len();
        assert!(within(images, 12 << 20), "{images}");
    }
}
