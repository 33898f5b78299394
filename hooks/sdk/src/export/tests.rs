use std::ptr;

use koord_hook::v1alpha1::{
    ContainerResourceHookRequest, ContainerResourceHookResponse, PodSandboxHookRequest,
};

use super::*;
use crate::Error;

struct Sample;

impl Hook for Sample {
    const NAME: &'static str = "sample";
    const VERSION: &'static str = "1.2.3";
    const STAGES: &'static [HookType] =
        &[HookType::PreCreateContainer, HookType::PreStartContainer, HookType::PostStopContainer];
    const SERIAL: bool = true;

    fn new() -> Result<Self, Error> {
        Ok(Self)
    }

    fn pre_create_container(
        &self,
        request: &ContainerResourceHookRequest,
    ) -> Answer<ContainerResourceHookResponse> {
        if request.pod_cgroup_parent.is_empty() {
            return Err("no parent".into());
        }
        Ok(Some(ContainerResourceHookResponse {
            pod_cgroup_parent: request.pod_cgroup_parent.clone(),
            ..Default::default()
        }))
    }

    fn pre_start_container(
        &self,
        _request: &ContainerResourceHookRequest,
    ) -> Answer<ContainerResourceHookResponse> {
        panic!("out of {}", "order");
    }
}

struct Refusing;

impl Hook for Refusing {
    const NAME: &'static str = "refusing";
    const VERSION: &'static str = "0";
    const STAGES: &'static [HookType] = &[];

    fn new() -> Result<Self, Error> {
        Err(Error::new("no"))
    }
}

crate::export_hook!(Sample);

/// Calls through the C functions, and gives back what was answered.
fn called(descriptor: &Descriptor, stage: u32, request: &[u8]) -> (i32, Vec<u8>) {
    let host = Host { struct_size: 8, abi_major: 1, abi_minor: 1 };
    let mut instance = ptr::null_mut();
    let (mut answer, mut length) = (ptr::null_mut(), 0);
    // SAFETY: the functions are called as the interface says.
    unsafe {
        assert_eq!(descriptor.init.expect("init")(&host, &mut instance), STATUS_OK);
        let call = descriptor.call.expect("call");
        let status = call(instance, stage, request.as_ptr(), request.len(), &mut answer, &mut length);
        let bytes =
            if answer.is_null() { Vec::new() } else { std::slice::from_raw_parts(answer, length).to_vec() };
        descriptor.free.expect("free")(instance, answer, length);
        descriptor.shutdown.expect("shutdown")(instance);
        (status, bytes)
    }
}

#[test]
fn the_descriptor_says_what_the_type_says() {
    let descriptor = koord_hook_plugin_v1.descriptor();
    assert_eq!(descriptor.magic, MAGIC);
    assert_eq!((descriptor.abi_major, descriptor.abi_minor), (1, 1));
    assert_eq!(descriptor.struct_size as usize, size_of::<Descriptor>());
    assert_eq!(descriptor.stages, 0b100_1100);
    assert_eq!(descriptor.flags, FLAG_SERIAL);
    // SAFETY: both are constant texts with a NUL.
    let texts = unsafe { (CStr::from_ptr(descriptor.name), CStr::from_ptr(descriptor.version)) };
    assert_eq!(texts, (c"sample", c"1.2.3"));
    for stage in HookType::ALL {
        assert_eq!(mask(&[stage]), crate::abi::stage_mask([stage].into_iter().collect()));
    }
}

#[test]
fn requests_reach_the_methods_and_answers_come_back() {
    let descriptor = koord_hook_plugin_v1.descriptor();
    let request =
        ContainerResourceHookRequest { pod_cgroup_parent: "/kubepods/x".into(), ..Default::default() };
    let (status, answer) = called(descriptor, 2, &request.encode_to_vec());
    assert_eq!(status, STATUS_OK);
    let answer = ContainerResourceHookResponse::decode(&answer[..]).expect("an answer");
    assert_eq!(answer.pod_cgroup_parent, "/kubepods/x");
    // A default method answers nothing.
    assert_eq!(called(descriptor, 6, &request.encode_to_vec()), (STATUS_OK, Vec::new()));
}

#[test]
fn failures_are_statuses_with_a_text() {
    let descriptor = koord_hook_plugin_v1.descriptor();
    assert_eq!(called(descriptor, 2, &[]), (STATUS_ERROR, b"no parent".to_vec()));
    assert_eq!(called(descriptor, 3, &[]), (STATUS_PANIC, b"panic: out of order".to_vec()));
    assert_eq!(called(descriptor, 2, &[0x0a]).0, STATUS_BAD_REQUEST);
    let pod = PodSandboxHookRequest::default().encode_to_vec();
    let (status, text) = called(descriptor, 0, &pod);
    assert_eq!((status, text), (STATUS_UNKNOWN_STAGE, b"PreRunPodSandbox is not handled".to_vec()));
    assert_eq!(called(descriptor, 9, &pod).0, STATUS_UNKNOWN_STAGE);
}

#[test]
fn a_type_that_cannot_be_made_is_refused() {
    let descriptor = Exported::of::<Refusing>(c"refusing", c"0");
    let mut instance = ptr::null_mut();
    // SAFETY: `init` is called as the interface says.
    let status =
        unsafe { descriptor.descriptor().init.expect("init")(ptr::null(), ptr::from_mut(&mut instance)) };
    assert_eq!(status, STATUS_ERROR);
    assert!(instance.is_null());
}
