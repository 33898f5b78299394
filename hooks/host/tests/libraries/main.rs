//! Hook libraries, compiled from C, in the process and in children.

mod support;

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use koord_hook::v1alpha1::{ContainerResourceHookRequest, ContainerResourceHookResponse};
use koord_hook::{HookType, ResourceMerge};
use koord_hooks::chain::{BuiltIn, Carrier, Chain};
use koord_hooks::dispatcher::{Dispatcher, HookError};
use koord_hooks::library::{LoadError, Mode};
use koord_hooks::metrics::NoMetrics;
use koord_hooks::probe::{Probe, ProbeAnswer, ProbeError};
use koord_hooks::registration::Registrations;
use koord_hooks::trust::Trust;
use prost::Message;
use tonic::Code;

use support::{Bed, MODES, PLENTY, child_program, compile, example_library, parent_of};

fn annotated(key: &str, value: &str) -> Bytes {
    let request = ContainerResourceHookRequest {
        pod_annotations: [(key.to_owned(), value.to_owned())].into(),
        pod_labels: (0..40).map(|at| (format!("label-{at}"), "x".repeat(at))).collect(),
        pod_cgroup_parent: "/kubepods/x".into(),
        ..Default::default()
    };
    request.encode_to_vec().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rust_example_works_in_both_modes() {
    for mode in MODES {
        let bed = Bed::new();
        bed.install(&example_library(), "example.so");
        bed.settings("example", &format!(r#"{{"mode":"{mode}","priority":3}}"#));
        assert!(bed.plugins.reload().await);
        let entry = bed.entry("example.so");
        assert_eq!((entry.priority, entry.options.resource_merge), (3, ResourceMerge::Overlay));
        let Carrier::Library(plugin) = &entry.carrier else { panic!("a library") };
        assert_eq!(plugin.description().name, "rust-example");
        assert_eq!((plugin.description().abi_major, plugin.description().abi_minor), (1, 1));
        assert_eq!(plugin.mode().as_str(), mode);
        let stages: Vec<_> = entry.stages.iter().collect();
        assert_eq!(stages, [HookType::PreCreateContainer, HookType::PreUpdateContainerResources]);

        let request = annotated("example.koordinator.sh/cpu-shares", "512");
        let answer = plugin.call(HookType::PreCreateContainer, request, PLENTY).await.expect("an answer");
        let answer = ContainerResourceHookResponse::decode(answer).expect("a message");
        assert_eq!(answer.container_resources.expect("resources").cpu_shares, 512);
        assert_eq!(answer.container_envs.get("EXAMPLE_CPU_SHARES").map(String::as_str), Some("512"));

        let nothing = plugin.call(HookType::PreCreateContainer, annotated("other", "512"), PLENTY).await;
        assert_eq!(nothing.expect("an answer"), Bytes::new());

        let request = annotated("example.koordinator.sh/cpu-shares", "many");
        let error = plugin.call(HookType::PreCreateContainer, request, PLENTY).await.expect_err("refused");
        assert_eq!(error.code(), Code::Unknown);
        assert!(error.message().contains("\"many\"; accepted is an integer from 2 to 262144"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_c_example_works_in_both_modes() {
    for mode in MODES {
        let bed = Bed::new();
        bed.compiled("../../../plugins/c-example/plugin.c", &["-fvisibility=hidden"], "c.so");
        bed.settings("c", &format!(r#"{{"mode":"{mode}"}}"#));
        bed.plugins.reload().await;
        let plugin = bed.plugin("c.so");
        let key = "example.koordinator.sh/oom-score-adj";
        for (text, score) in [("-1000", -1000), ("0", 0), ("999", 999), ("1000", 1000)] {
            let answer = plugin.call(HookType::PreCreateContainer, annotated(key, text), PLENTY).await;
            let answer =
                ContainerResourceHookResponse::decode(answer.expect("an answer")).expect("a message");
            assert_eq!(answer.container_resources.expect("resources").oom_score_adj, score);
            assert_eq!(answer.container_envs.get("EXAMPLE_OOM_SCORE_ADJ").map(String::as_str), Some(text));
        }
        for text in ["1001", "-1001", "x", "5x", "99999999999999999999999999"] {
            let answer = plugin.call(HookType::PreCreateContainer, annotated(key, text), PLENTY).await;
            assert!(answer.expect_err("refused").message().contains("no integer from -1000 to 1000"));
        }
        assert_eq!(
            plugin.call(HookType::PreCreateContainer, annotated("other", "1"), PLENTY).await.expect("fine"),
            Bytes::new()
        );
        let broken = plugin.call(HookType::PreCreateContainer, Bytes::from_static(&[0x32, 9]), PLENTY).await;
        assert_eq!(broken.expect_err("refused").code(), Code::InvalidArgument);
        let unknown = plugin.call(HookType::PreStartContainer, Bytes::new(), PLENTY).await;
        assert_eq!(unknown.expect_err("refused").code(), Code::Unimplemented);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_answers_are_failures_of_that_call_only() {
    for mode in MODES {
        let bed = Bed::new();
        bed.compiled("wrong.c", &[], "wrong.so");
        bed.settings("wrong", &format!(r#"{{"mode":"{mode}"}}"#));
        bed.plugins.reload().await;
        let plugin = bed.plugin("wrong.so");
        let call = async |stage| plugin.call(stage, Bytes::from_static(b"x"), PLENTY).await;

        // Whether octets are a message is for the dispatcher's caller to see.
        let octets = call(HookType::PreRunPodSandbox).await.expect("octets");
        assert_eq!(octets, Bytes::from_static(b"\xff\xff\xff\xff\xff"));
        let failed = call(HookType::PostStopPodSandbox).await.expect_err("failed");
        assert_eq!(failed.message(), "hook library failed with status 1: no way");
        let no_buffer = call(HookType::PreCreateContainer).await.expect_err("failed");
        assert_eq!(no_buffer.message(), "hook library answered 12 bytes without a buffer");
        let too_large = call(HookType::PreStartContainer).await.expect_err("failed");
        assert_eq!(too_large.code(), Code::ResourceExhausted);
        assert_eq!(too_large.message(), "hook library answered 4194305 bytes; at most 4194304 are accepted");
        assert_eq!(call(HookType::PostStartContainer).await.expect("fits").len(), 4_194_304);
        let status = call(HookType::PreUpdateContainerResources).await.expect_err("failed");
        assert_eq!(status.message(), "hook library failed with status -77");
        assert_eq!(call(HookType::PostStopContainer).await.expect("nothing"), Bytes::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_versions_are_taken_or_refused_with_a_reason() {
    let bed = Bed::new();
    bed.compiled("versions.c", &["-DOLD_MINOR"], "old.so");
    bed.compiled("versions.c", &["-DNEW_MINOR"], "new.so");
    bed.compiled("versions.c", &["-DOTHER_MAJOR"], "major.so");
    bed.compiled("versions.c", &["-DOTHER_SYMBOL"], "symbol.so");
    bed.compiled("versions.c", &["-DBAD_MAGIC"], "magic.so");
    bed.compiled("versions.c", &["-DSMALL"], "small.so");
    bed.compiled("versions.c", &["-DNO_CALL"], "call.so");
    bed.compiled("versions.c", &["-DNO_STAGE"], "stage.so");
    bed.compiled("versions.c", &["-DNO_NAME"], "name.so");
    bed.compiled("crash_at_load.c", &[], "crash.so");
    std::fs::copy("/bin/true", bed.path("program.so")).expect("copied");
    bed.write("text.so", "#!/bin/sh\n");
    for mode in MODES {
        for name in ["old", "new", "crash"] {
            bed.settings(name, &format!(r#"{{"mode":"{mode}"}}"#));
        }
        bed.plugins.reload().await;
        for (name, minor, serial) in [("old.so", 0, false), ("new.so", 7, true)] {
            let plugin = bed.plugin(name);
            assert_eq!(plugin.mode().as_str(), mode);
            let description = plugin.description();
            assert_eq!((description.abi_major, description.abi_minor), (1, minor));
            assert_eq!(description.serial, serial);
            assert_eq!(description.stages(), [HookType::PreCreateContainer].into_iter().collect());
            let answer = plugin.call(HookType::PreCreateContainer, Bytes::new(), PLENTY).await;
            assert_eq!(parent_of(&answer.expect("an answer")), "/");
        }
        // A library that crashes when it is loaded never comes into the process.
        assert_eq!(bed.error("crash.so"), "its process ended while it got ready");
    }
    let wrong_major = "is for major version 2 of the hook interface; this program has 1.1";
    for (name, error) in [
        ("major.so", wrong_major),
        ("symbol.so", wrong_major),
        ("magic.so", "does not begin with the magic number"),
        ("small.so", "has a descriptor of 64 bytes; at least 72 are accepted"),
        ("call.so", "has no function call"),
        ("stage.so", "wants none of the stages this program knows (mask 0x10000000000)"),
        ("name.so", "has no name of 1 to 255 bytes"),
        ("program.so", "exports no symbol koord_hook_plugin_v1"),
        ("text.so", "is not an ELF file"),
    ] {
        let found = bed.error(name);
        // A position-independent program is refused by the loader already.
        let loader = name == "program.so" && found.contains("cannot be loaded");
        assert!(found.contains(error) || loader, "{name}: {found}");
    }
    assert_eq!(bed.plugins.table().entries().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_costs_one_call() {
    let bed = Bed::new();
    bed.compiled("crash.c", &[], "crash.so");
    bed.plugins.reload().await;
    let plugin = bed.plugin("crash.so");
    let first = plugin.health().child.expect("a process");
    let error = plugin.call(HookType::PreCreateContainer, Bytes::new(), PLENTY).await.expect_err("a crash");
    assert_eq!(error.code(), Code::Unavailable);
    assert_eq!(error.message(), "process of the hook library ended during the call");
    // The next one is served, by another process.
    let answer = plugin.call(HookType::PreStartContainer, Bytes::new(), PLENTY).await;
    assert_eq!(answer.expect("an answer"), Bytes::new());
    let health = plugin.health();
    assert_eq!(health.restarts, 1);
    assert_ne!(health.child, Some(first));
    assert!(health.child.is_some());
    // Two in a row: the second is followed by a pause, in which calls fail at once.
    for _ in 0..2 {
        let crash = plugin.call(HookType::PreCreateContainer, Bytes::new(), PLENTY).await;
        assert!(crash.expect_err("a crash").message().contains("ended during the call"));
    }
    let started = Instant::now();
    let pause = plugin.call(HookType::PreStartContainer, Bytes::new(), PLENTY).await.expect_err("a pause");
    assert!(pause.message().contains("is started again in"), "{pause}");
    assert!(started.elapsed() < PLENTY, "nobody is waited for");
    support::until(|| plugin.health().restarts == 3).await;
    assert!(plugin.call(HookType::PreStartContainer, Bytes::new(), PLENTY).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_child_is_killed_and_started_again() {
    let bed = Bed::new();
    bed.compiled("hang.c", &[], "hang.so");
    bed.plugins.reload().await;
    let plugin = bed.plugin("hang.so");
    let first = plugin.health().child.expect("a process");
    let started = Instant::now();
    let within = Duration::from_millis(120);
    let error = plugin.call(HookType::PreCreateContainer, Bytes::new(), within).await.expect_err("hung");
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(started.elapsed() >= within && started.elapsed() < Duration::from_secs(5));
    assert!(plugin.call(HookType::PreStartContainer, Bytes::new(), PLENTY).await.is_ok());
    assert_ne!(plugin.health().child, Some(first));
    support::until(|| !std::path::Path::new(&format!("/proc/{first}")).exists()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_caller_has_gone_is_not_mistaken_for_the_next() {
    let bed = Bed::new();
    bed.compiled("echo.c", &["-DVERSION=\"one\"", "-DSLOW=150000"], "slow.so");
    bed.plugins.reload().await;
    let plugin = bed.plugin("slow.so");
    for _ in 0..2 {
        let abandoned = tokio::time::timeout(
            Duration::from_millis(30),
            plugin.call(HookType::PreCreateContainer, Bytes::new(), PLENTY),
        );
        assert!(abandoned.await.is_err());
        let answer = plugin.call(HookType::PreStartContainer, Bytes::new(), PLENTY).await;
        assert_eq!(parent_of(&answer.expect("an answer")), "one/3");
    }
    assert_eq!(plugin.health().restarts, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_hang_in_the_process_cost_their_time_until_the_library_is_left_alone() {
    let bed = Bed::new();
    bed.compiled("hang.c", &[], "hang.so");
    bed.settings("hang", r#"{"mode":"in-process"}"#);
    bed.plugins.reload().await;
    let plugin = bed.plugin("hang.so");
    let within = Duration::from_millis(50);
    for hung in 1..=4 {
        let started = Instant::now();
        let error = plugin.call(HookType::PreCreateContainer, Bytes::new(), within).await.expect_err("hung");
        assert_eq!(error.code(), Code::DeadlineExceeded);
        assert!(started.elapsed() >= within && started.elapsed() < Duration::from_secs(5));
        assert_eq!((plugin.health().hung_calls, plugin.health().quarantined), (hung, hung == 4));
        // Other calls are served meanwhile, by other threads.
        let other = plugin.call(HookType::PreStartContainer, Bytes::new(), PLENTY).await;
        assert_eq!(other.is_ok(), hung < 4);
    }
    let left_alone = plugin.call(HookType::PreStartContainer, Bytes::new(), PLENTY).await.expect_err("left");
    assert_eq!(left_alone.code(), Code::Unavailable);
    assert!(left_alone.message().contains("4 of its calls hang"), "{left_alone}");
    // Another library in its place is called.
    bed.compiled("echo.c", &["-DVERSION=\"two\""], "hang.so");
    assert!(bed.plugins.reload().await);
    let answer = bed.plugin("hang.so").call(HookType::PreStartContainer, Bytes::new(), PLENTY).await;
    assert_eq!(parent_of(&answer.expect("an answer")), "two/3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serial_library_gets_one_call_at_a_time() {
    for (flags, most) in [("0", 4), ("KOORD_HOOK_SERIAL", 1)] {
        let bed = Bed::new();
        bed.compiled("overlap.c", &[&format!("-DFLAGS={flags}")], "overlap.so");
        bed.settings("overlap", r#"{"mode":"in-process"}"#);
        bed.plugins.reload().await;
        let plugin = bed.plugin("overlap.so");
        let calls = (0..6).map(|_| plugin.call(HookType::PreCreateContainer, Bytes::new(), PLENTY));
        let answers = futures_util::future::join_all(calls).await;
        let highest = answers.into_iter().map(|answer| parent_of(&answer.expect("an answer"))).max();
        assert_eq!(highest, Some(most.to_string()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_library_finishes_its_calls_and_is_ended() {
    for mode in MODES {
        let bed = Bed::new();
        let mark = bed.directory.path().join("ended");
        let define = format!("-DMARK=\"{}\"", mark.display());
        bed.compiled("echo.c", &["-DVERSION=\"one\"", "-DSLOW=200000", &define], "x.so");
        bed.settings("x", &format!(r#"{{"mode":"{mode}"}}"#));
        bed.plugins.reload().await;
        let old = bed.plugin("x.so");
        let under_way = {
            let old = old.clone();
            tokio::spawn(async move { old.call(HookType::PreCreateContainer, Bytes::new(), PLENTY).await })
        };
        let generation = old.generation();
        drop(old);
        // The file is written anew in its place, as careless tools do.
        let new = compile(bed.directory.path(), "echo.c", &["-DVERSION=\"two\""], "new.so");
        std::fs::write(bed.path("x.so"), std::fs::read(new).expect("read")).expect("written");
        assert!(bed.plugins.reload().await);
        let new = bed.plugin("x.so");
        assert!(new.generation() > generation);
        let answer = new.call(HookType::PreCreateContainer, Bytes::new(), PLENTY).await;
        assert_eq!(parent_of(&answer.expect("an answer")), "two/2");
        let answer = under_way.await.expect("ended").expect("an answer");
        assert_eq!(parent_of(&answer), "one/2");
        support::until(|| mark.exists()).await;
        // Taken out of the directory, it is taken out of the table.
        std::fs::remove_file(bed.path("x.so")).expect("removed");
        assert!(bed.plugins.reload().await);
        assert!(bed.plugins.table().entries().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_used_leaves_the_last_good_one() {
    let bed = Bed::new();
    bed.compiled("echo.c", &["-DVERSION=\"one\""], "x.so");
    bed.plugins.reload().await;
    let plugin = bed.plugin("x.so");
    let good = std::fs::read(bed.path("x.so")).expect("read");

    // A copy that has not come to its end.
    std::fs::write(bed.path("x.so"), &good[..good.len() - 1]).expect("written");
    assert!(bed.plugins.reload().await);
    assert!(bed.error("x.so").contains("it is cut off"), "{}", bed.error("x.so"));
    assert!(Arc::ptr_eq(&plugin, &bed.plugin("x.so")));
    assert!(!bed.plugins.reload().await);

    // Settings that say something wrong; then settings that only concern the use.
    std::fs::write(bed.path("x.so"), &good).expect("written");
    bed.settings("x", r#"{"mode":"thread"}"#);
    bed.plugins.reload().await;
    assert!(bed.error("x.so").contains("\"thread\""));
    bed.settings("x", r#"{"stages":["PreCreateContainer","PostStopContainer"]}"#);
    bed.plugins.reload().await;
    assert_eq!(
        bed.error("x.so"),
        "settings file: key \"stages\" names PostStopContainer; the library wants PreCreateContainer, \
         PreStartContainer"
    );
    bed.settings("x", r#"{"priority":7,"stages":["PreCreateContainer"],"failure-policy":"Fail"}"#);
    bed.plugins.reload().await;
    let entry = bed.entry("x.so");
    assert_eq!((entry.priority, entry.failure_policy.as_str()), (7, "Fail"));
    assert_eq!(entry.stages.iter().collect::<Vec<_>>(), [HookType::PreCreateContainer]);
    let loaded = bed.plugin("x.so");
    bed.settings("x", r#"{"priority":8}"#);
    bed.plugins.reload().await;
    assert!(Arc::ptr_eq(&loaded, &bed.plugin("x.so")), "a priority is no reason to load it again");
    bed.settings("x", r#"{"mode":"in-process"}"#);
    bed.plugins.reload().await;
    assert_eq!(bed.plugin("x.so").mode(), Mode::InProcess);

    // Files that others may write to.
    bed.mode("x.so", 0o775);
    bed.plugins.reload().await;
    assert!(bed.error("x.so").contains("0775"));
    bed.mode("x.so", 0o755);
    bed.mode("x.json", 0o666);
    bed.plugins.reload().await;
    assert!(bed.error("x.so").contains("settings file") && bed.error("x.so").contains("0666"));
    bed.mode("x.json", 0o644);
    bed.mode(".", 0o777);
    bed.plugins.reload().await;
    assert!(bed.plugins.table().directory_error().expect("an error").contains("0777"));
    assert_eq!(bed.plugins.table().entries().len(), 1);
    bed.mode(".", 0o755);
    bed.plugins.reload().await;
    assert_eq!(bed.plugins.table().directory_error(), None);
    assert!(bed.plugins.table().files().iter().all(|file| file.error.is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_pipes_and_lonely_settings_are_refused() {
    let bed = Bed::new();
    assert!(!bed.plugins.reload().await, "an empty directory is no change");
    compile(bed.directory.path(), "echo.c", &[], "real.so");
    std::os::unix::fs::symlink(bed.directory.path().join("real.so"), bed.path("link.so")).expect("linked");
    nix::unistd::mkfifo(&bed.path("pipe.so"), nix::sys::stat::Mode::from_bits_truncate(0o600)).expect("made");
    bed.settings("alone", "{}");
    bed.write(".hidden.so", "");
    bed.plugins.reload().await;
    assert!(bed.error("link.so").contains("is a symbolic link"));
    assert!(bed.error("pipe.so").contains("is not a regular file"));
    assert_eq!(bed.error("alone.json"), "names no library: there is no file alone.so");
    assert_eq!(bed.plugins.table().files().len(), 3);
    if nix::unistd::geteuid().is_root() {
        bed.compiled("echo.c", &[], "other.so");
        std::os::unix::fs::chown(bed.path("other.so"), Some(12345), None).expect("given away");
        bed.plugins.reload().await;
        assert!(bed.error("other.so").contains("owned by user 12345"));
    }
    std::fs::remove_dir_all(bed.plugins.directory()).expect("removed");
    bed.plugins.reload().await;
    assert!(bed.plugins.table().files().is_empty());
    assert_eq!(bed.plugins.table().directory_error(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_directory_is_followed() {
    let bed = Bed::new();
    let plugins = bed.plugins.clone();
    let watching = tokio::spawn(async move { plugins.watch().await });
    let mut changes = bed.plugins.changes();
    let mut version = async |expected: Option<&str>| {
        let reached = async {
            loop {
                let table = bed.plugins.table();
                let found = table.entries().first().map(|entry| match &entry.carrier {
                    Carrier::Library(plugin) => plugin.description().version.clone(),
                    _ => panic!("a library"),
                });
                if found.as_deref() == expected {
                    break;
                }
                changes.changed().await.expect("the sender lives");
            }
        };
        tokio::time::timeout(PLENTY, reached).await.expect("in force soon");
    };
    let one = compile(bed.directory.path(), "echo.c", &["-DVERSION=\"one\""], "one.so");
    let two = compile(bed.directory.path(), "echo.c", &["-DVERSION=\"two\""], "two.so");
    std::fs::copy(&one, bed.path("x.so")).expect("copied");
    version(Some("one")).await;
    std::fs::rename(&two, bed.path("x.so")).expect("renamed");
    version(Some("two")).await;
    std::fs::remove_file(bed.path("x.so")).expect("removed");
    version(None).await;
    watching.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_has_nothing_it_does_not_need() {
    let bed = Bed::new();
    bed.compiled("tells.c", &[], "tells.so");
    bed.settings("tells", r#"{"max-address-space-mib":512}"#);
    bed.plugins.reload().await;
    let plugin = bed.plugin("tells.so");
    let answer = plugin.call(HookType::PreCreateContainer, Bytes::new(), PLENTY).await.expect("an answer");
    let child = plugin.health().child.expect("a process");
    // Its own session, this process as parent, no core file, its share of address space. Of descriptors it has
    // the first three, its socket and the library's copy. No environment.
    let expected = format!("{child} {child} {} 0 {} 5 0", std::process::id(), 512 << 20);
    assert_eq!(parent_of(&answer), expected);
    let command = std::fs::read(format!("/proc/{child}/cmdline")).expect("read");
    assert!(command.starts_with(b"koord-hook\0"), "{command:?}");
    // It ends with the library.
    std::fs::remove_file(bed.path("tells.so")).expect("removed");
    bed.plugins.reload().await;
    drop(plugin);
    support::until(|| !std::path::Path::new(&format!("/proc/{child}")).exists()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_does_not_outlive_the_program_whatever_it_does() {
    let bed = Bed::new();
    bed.compiled("hang.c", &[], "hang.so");
    bed.plugins.reload().await;
    let plugin = bed.plugin("hang.so");
    let child = plugin.health().child.expect("a process");
    let hung = {
        let plugin = plugin.clone();
        tokio::spawn(async move { plugin.call(HookType::PreCreateContainer, Bytes::new(), PLENTY).await })
    };
    // Whether it is in the library already does not matter.
    tokio::task::yield_now().await;
    // The thread that started it ends, as all threads of the program would.
    bed.plugins.close();
    let error = hung.await.expect("ended").expect_err("the child is gone");
    assert_eq!(error.code(), Code::Unavailable);
    support::until(|| !std::path::Path::new(&format!("/proc/{child}")).exists()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dispatcher_treats_libraries_as_it_treats_servers() {
    let bed = Bed::new();
    bed.compiled("hang.c", &[], "hang.so");
    bed.compiled("wrong.c", &[], "wrong.so");
    bed.settings("hang", r#"{"mode":"in-process","priority":-1}"#);
    bed.plugins.reload().await;
    let registrations =
        Registrations::new(bed.directory.path().join("r"), Trust::of_this_process(), NoMetrics);
    let chain = Chain::new(Arc::new(registrations), Some(bed.plugins.clone()), Some(BuiltIn::default()));
    let names: Vec<_> = chain.snapshot().entries().iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(names, ["hang.so", "built-in", "wrong.so"]);

    let dispatcher = Dispatcher::new(Trust::of_this_process(), NoMetrics);
    let hang = bed.entry("hang.so");
    let decode = |bytes: &[u8]| Ok(Bytes::copy_from_slice(bytes));
    let call = async |entry: &Arc<koord_hooks::chain::Entry>, stage| {
        dispatcher.call(entry, stage, Bytes::new(), Duration::from_millis(100), decode).await
    };
    for _ in 0..3 {
        let error = call(&hang, HookType::PreCreateContainer).await.expect_err("hung");
        assert_eq!(error.reason(), "timeout");
    }
    // The breaker is open for all its stages.
    let skipped = call(&hang, HookType::PreStartContainer).await.expect_err("skipped");
    assert!(matches!(skipped, HookError::Skipped));
    // A new library is not held responsible.
    bed.compiled("echo.c", &[], "hang.so");
    bed.plugins.reload().await;
    assert!(call(&bed.entry("hang.so"), HookType::PreStartContainer).await.is_ok());

    let wrong = bed.entry("wrong.so");
    assert_eq!(call(&wrong, HookType::PreStartContainer).await.expect_err("large").reason(), "size");
    assert_eq!(call(&wrong, HookType::PostStopPodSandbox).await.expect_err("failed").reason(), "error");
    dispatcher.retain_chain(&chain.snapshot());
    // The rules are not reached by a call.
    let built_in = chain.snapshot().entries()[1].clone();
    assert!(call(&built_in, HookType::PreCreateContainer).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_directory_ends_threads_and_children() {
    let bed = Bed::new();
    bed.compiled("echo.c", &[], "one.so");
    bed.compiled("echo.c", &[], "two.so");
    bed.settings("two", r#"{"mode":"in-process"}"#);
    bed.plugins.reload().await;
    let child = bed.plugin("one.so").health().child.expect("a process");
    assert_eq!(bed.supervisor.running(), 2, "{:?}", bed.supervisor.status());
    bed.plugins.close();
    let late = bed.supervisor.shut_down(PLENTY).await;
    assert_eq!(late, Vec::<String>::new());
    support::until(|| !std::path::Path::new(&format!("/proc/{child}")).exists()).await;
    let closed = bed.plugin("two.so").call(HookType::PreCreateContainer, Bytes::new(), PLENTY).await;
    assert_eq!(closed.expect_err("closed").code(), Code::Unavailable);
}

fn probe() -> Probe {
    Probe { program: child_program(), call_limit: Duration::from_millis(300), ..Probe::of_this_program() }
}

#[test]
fn a_probe_tells_what_a_library_says_and_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let report = probe().run(&example_library_in(&directory)).expect("a report");
    assert_eq!(report.description.name, "rust-example");
    assert!(report.folder.is_none());
    assert_eq!(report.calls.len(), 2);
    assert!(report.calls.iter().all(|call| call.outcome == Ok(ProbeAnswer::Nothing)));

    let wrong = compile(directory.path(), "wrong.c", &[], "wrong.so");
    let report = probe().run(&wrong).expect("a report");
    let outcomes: Vec<_> = report.calls.iter().map(|call| call.outcome.clone()).collect();
    assert_eq!(outcomes.len(), 7);
    assert!(outcomes[0].as_ref().expect_err("garbage").contains("cannot be decoded"));
    assert_eq!(outcomes[1], Err("hook library failed with status 1: no way".to_owned()));

    let echo = compile(directory.path(), "echo.c", &["-DVERSION=\"9\""], "echo.so");
    let report = probe().run(&echo).expect("a report");
    let Ok(ProbeAnswer::Container(answer)) = &report.calls[0].outcome else { panic!("an answer") };
    assert_eq!(answer.pod_cgroup_parent, "9/2");

    let crash = compile(directory.path(), "crash.c", &[], "crash.so");
    let report = probe().run(&crash).expect("a report");
    assert_eq!(report.calls.len(), 1);
    let error = report.calls[0].outcome.as_ref().expect_err("a crash");
    assert!(error.contains("signal: 11"), "{error}");

    let hang = compile(directory.path(), "hang.c", &[], "hang.so");
    let report = probe().run(&hang).expect("a report");
    assert_eq!(report.calls[0].outcome, Err("no answer after 300 ms".to_owned()));
    assert!(report.calls[0].elapsed >= Duration::from_millis(300));

    let major = compile(directory.path(), "versions.c", &["-DOTHER_MAJOR"], "major.so");
    let error = probe().run(&major).expect_err("refused");
    assert!(
        matches!(
            &error,
            ProbeError::Start(koord_hooks::library::StartError::Load(LoadError::Major { found: 2 }))
        ),
        "{error:?}"
    );
    let missing = probe().run(&directory.path().join("missing.so")).expect_err("refused");
    assert!(matches!(missing, ProbeError::Image(_)));
}

fn example_library_in(directory: &tempfile::TempDir) -> std::path::PathBuf {
    let path = directory.path().join("example.so");
    std::fs::copy(example_library(), &path).expect("copied");
    path
}

/// Prints what a call costs; not a test of anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn latency() {
    // What a hand-over over a socket to another thread and back takes here and now, with nothing else.
    let (mut one, mut other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    std::thread::spawn(move || {
        let mut buffer = vec![0; 8000];
        while let Ok(()) = other.read_exact(&mut buffer[..7000]) {
            other.write_all(&buffer[..50]).expect("written");
        }
    });
    let buffer = vec![0; 7000];
    let mut times: Vec<_> = (0..2000)
        .map(|at| {
            if at % 2 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            let started = Instant::now();
            one.write_all(&buffer).expect("written");
            one.read_exact(&mut [0; 50]).expect("read");
            started.elapsed()
        })
        .collect();
    times.sort();
    println!("pause: a bare socket: p50 {:?} p90 {:?} p99 {:?}", times[1000], times[1800], times[1980]);
    for mode in MODES {
        let bed = Bed::new();
        bed.compiled("../../../plugins/c-example/plugin.c", &[], "c.so");
        bed.settings("c", &format!(r#"{{"mode":"{mode}"}}"#));
        bed.plugins.reload().await;
        let plugin = bed.plugin("c.so");
        let mut request = ContainerResourceHookRequest {
            pod_annotations: [("example.koordinator.sh/oom-score-adj".into(), "5".into())].into(),
            ..Default::default()
        };
        request.container_envs.insert("E".into(), "x".repeat(7000));
        let request: Bytes = request.encode_to_vec().into();
        for pause in [0, 2000] {
            let mut times = Vec::new();
            for _ in 0..2000 {
                let (plugin, request) = (plugin.clone(), request.clone());
                let task = tokio::spawn(async move {
                    let started = Instant::now();
                    plugin.call(HookType::PreCreateContainer, request, PLENTY).await.expect("an answer");
                    started.elapsed()
                });
                times.push(task.await.expect("ended"));
                if pause > 0 {
                    tokio::time::sleep(Duration::from_micros(pause)).await;
                }
            }
            times.sort();
            println!(
                "{mode} pause {pause} us: p50 {:?} p90 {:?} p99 {:?}",
                times[1000], times[1800], times[1980]
            );
        }
    }
}
