//! The proxy's program against fakes: the protocol's vectors and faults that real parts do not produce on demand.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

#[cfg(feature = "failpoints")]
mod failpoints;
mod faults;
mod handover;
mod hooks;
mod hostile;
mod load;
mod passing;
mod recovery;
mod shutdown;

use std::collections::BTreeMap;

use koord_cri::v1;
use koord_hook::v1alpha1::{ContainerResourceHookResponse, PodSandboxHookResponse};
use koord_testing::cri::FakeCri;
use koord_testing::harness::{Place, Proxy, ProxyOptions};
use koord_testing::hooks::{FakeHookServer, Script, decode, echo_container, echo_pod};
use koord_testing::runtime::{Behaviour, FakeRuntime, Recorded};
use koord_testing::wait::until_true;
use prost::Message;

/// A RunPodSandboxRequest with fields that no schema knows (vector V1).
const V1_REQUEST: &str = "0a2b0a090a01701201751a016e32060a01611201313a060a0178120179420b0a092f6b756265706f6473c00c07\
                          120472756e639a06027a7a";
/// The hook request made of it.
const V1_HOOK_REQUEST: &str =
    "0a090a01701201751a016e120472756e631a060a016112013122060a01781201792a092f6b756265706f6473";
/// The hook's answer of vector V2: annotation k=v, cgroup parent `/offline`.
const V2_HOOK_RESPONSE: &str = "12060a016b1201761a082f6f66666c696e65";
/// What the runtime then gets.
const V2_REQUEST: &str = "0a320a090a01701201751a016e32060a01611201313a060a0178120179420a0a082f6f66666c696e65c00c07\
                          3a060a016b120176120472756e639a06027a7a";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let value = |digit: u8| u8::try_from(char::from(digit).to_digit(16).unwrap()).unwrap();
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

/// The program under test.
fn options() -> ProxyOptions {
    ProxyOptions::new(env!("CARGO_BIN_EXE_koord-runtime-proxy"))
}

/// The proxy before a fake runtime.
struct Bed {
    proxy: Proxy,
    runtime: FakeRuntime,
}

impl Bed {
    /// A runtime with a memory and a proxy without flags.
    fn start() -> (Self, FakeCri) {
        let cri = FakeCri::default();
        (Self::with(cri.behaviour(), options()), cri)
    }

    /// This runtime and this proxy, ready for calls.
    fn with(behaviour: Behaviour, options: ProxyOptions) -> Self {
        let place = Place::new().unwrap();
        let runtime = FakeRuntime::start(place.backend(), behaviour).unwrap();
        let proxy = Proxy::start_in(place, options).unwrap();
        proxy.wait_ready();
        Self { proxy, runtime }
    }

    /// A hook server that is registered under `name` and in use.
    fn hook_server(&self, name: &str, script: Script, policy: &str, hooks: &[&str]) -> FakeHookServer {
        let socket = self.proxy.place.path(&format!("{name}.sock"));
        let server = FakeHookServer::start(&socket, script).unwrap();
        server.register(&self.proxy.place.hooks(), &format!("{name}.json"), policy, hooks).unwrap();
        let socket = socket.to_str().unwrap().to_owned();
        until_true("the registration to be in use", || {
            self.proxy.admin("/config").is_ok_and(|answer| answer.body.contains(&socket))
        });
        server
    }

    /// The last request of a method that the runtime got.
    fn last(&self, method: &str) -> Recorded {
        self.runtime.calls_of(method).pop().unwrap()
    }
}

fn answer(
    pod: impl Fn(&mut PodSandboxHookResponse) + Send + Sync + 'static,
    container: impl Fn(&mut ContainerResourceHookResponse) + Send + Sync + 'static,
) -> Script {
    Script::Answer {
        pod: std::sync::Arc::new(move |request| {
            let mut response = echo_pod(request);
            pod(&mut response);
            response
        }),
        container: std::sync::Arc::new(move |request| {
            let mut response = echo_container(request);
            container(&mut response);
            response
        }),
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn run_pod(config: v1::PodSandboxConfig) -> Vec<u8> {
    v1::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() }.encode_to_vec()
}

fn pod_id(message: &[u8]) -> String {
    decode::<v1::RunPodSandboxResponse>(message).pod_sandbox_id
}

fn container_id(message: &[u8]) -> String {
    decode::<v1::CreateContainerResponse>(message).container_id
}

fn create(pod: &str, config: v1::ContainerConfig, sandbox: v1::PodSandboxConfig) -> Vec<u8> {
    v1::CreateContainerRequest {
        pod_sandbox_id: pod.into(),
        config: Some(config),
        sandbox_config: Some(sandbox),
    }
    .encode_to_vec()
}

fn stop_container(id: &str) -> Vec<u8> {
    v1::StopContainerRequest { container_id: id.into(), timeout: 0 }.encode_to_vec()
}

fn start_container(id: &str) -> Vec<u8> {
    v1::StartContainerRequest { container_id: id.into() }.encode_to_vec()
}

fn update(id: &str, linux: v1::LinuxContainerResources) -> Vec<u8> {
    v1::UpdateContainerResourcesRequest { container_id: id.into(), linux: Some(linux), ..Default::default() }
        .encode_to_vec()
}
