//! What is recorded of values that rules put into requests.

use koord_admin::Mode;

use super::*;
use crate::qos::tests as rules;

/// A request for the container that the batch pod's annotation names.
fn create_main() -> v1::CreateContainerRequest {
    let mut request = create_request("p1", rules::PARENT);
    if let Some(metadata) = request.config.as_mut().and_then(|config| config.metadata.as_mut()) {
        "main".clone_into(&mut metadata.name);
    }
    request
}

/// Somebody changes the mode between the request and the runtime's answer.
#[test]
fn what_a_request_carried_counts_by_the_mode_it_was_decided_in() {
    for (decided, later, sent) in
        [(Mode::Enforce, Mode::Off, Some("100000")), (Mode::Shadow, Mode::Enforce, None)]
    {
        let node = rules::Bed::new(decided);
        node.run_pod(rules::batch_pod());
        let bed = Bed::with_rules(&node);
        let request = create_main();
        let response = v1::CreateContainerResponse { container_id: rules::ID.to_owned() }.encode_to_vec();
        node.async_runtime.block_on(async {
            let Before { verdict, call } =
                bed.start(Bed::head("CreateContainer"), request.encode_to_vec()).await;
            assert_eq!(matches!(verdict, Verdict::Replace(_)), decided == Mode::Enforce, "{verdict:?}");
            node.qos.set_mode(later);
            bed.finish(call, 0, &response).await;
        });
        let (asked, found, owner) = node.field(true, "cpu.cfs_quota_us");
        assert_eq!((asked, found.as_deref(), &*owner), (None, sent, "BatchResource"), "{decided} {later}");
    }
}

/// No rule is asked about a start, and so it is not held; the container has its values when the caller hears of it.
#[test]
fn after_the_start_files_are_written_before_the_caller_hears_of_it() {
    for (mode, sent) in [(Mode::Enforce, "100000"), (Mode::Shadow, "max 100000")] {
        let node = rules::Bed::on_v2(mode);
        node.run_pod(rules::batch_pod());
        let bed = Bed::with_rules(&node);
        let request = create_main();
        let container = format!("{}/{}", rules::PARENT, rules::ID);
        node.async_runtime.block_on(async {
            bed.create(&request, rules::ID).await;
            // What the runtime makes of 512 shares; it does not follow the request's quota here.
            node.set(&container, "cpu.weight", "59\n");
            let path = Bed::head("StartContainer").path;
            let head = RequestHead { mode: bed.pipeline.mode(&path), ..Bed::head("StartContainer") };
            assert_eq!(head.mode, TapMode::Observe);
            let Before { call, .. } = bed.start(head, id_request(rules::ID)).await;
            bed.finish(call, 0, &[]).await;
        });
        assert_eq!(node.found(&container, "cpu.max"), sent, "{mode}");
        assert_eq!(node.found(&container, "cpu.weight"), "59", "{mode}");
    }
}

#[test]
fn a_call_that_carries_values_holds_those_up_who_put_values_back() {
    let node = rules::Bed::new(Mode::Enforce);
    node.run_pod(rules::batch_pod());
    let bed = Bed::with_rules(&node);
    let request = create_request("p1", rules::PARENT).encode_to_vec();
    node.async_runtime.block_on(async {
        for (status, message) in [
            (0, v1::CreateContainerResponse { container_id: "c2".to_owned() }.encode_to_vec()),
            (4, Vec::new()),
        ] {
            let Before { call, .. } = bed.start(Bed::head("CreateContainer"), request.clone()).await;
            assert!(node.is_sending());
            bed.finish(call, status, &message).await;
            assert!(!node.is_sending(), "status {status}");
        }
        // One that its caller has given up.
        let Before { call, .. } = bed.start(Bed::head("CreateContainer"), request.clone()).await;
        drop(call);
        assert!(!node.is_sending());
    });
}
