use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::metrics::NoMetrics;
use crate::testing::Recorder;

const KOORDLET: &[u8] = b"{\n\t\"remote-endpoint\": \"/var/run/koordlet//koordlet.sock\",\n\t\"failure-policy\": \"Ignore\",\n\t\"runtime-hooks\": [\n\t\t\"PreRunPodSandbox\",\n\t\t\"PreCreateContainer\",\n\t\t\"PreUpdateContainerResources\"\n\t]\n}";

fn parse(text: &str) -> Registration {
    Registration::parse(text.as_bytes()).expect("a registration")
}

fn refused(text: &str) -> String {
    Registration::parse(text.as_bytes()).expect_err("refused").to_string()
}

#[test]
fn what_koordlet_writes_is_understood() {
    let registration = Registration::parse(KOORDLET).expect("a registration");
    assert_eq!(registration.endpoint.as_str(), "/var/run/koordlet/koordlet.sock");
    assert_eq!(registration.failure_policy, FailurePolicy::Ignore);
    assert_eq!(
        registration.hooks.iter().collect::<Vec<_>>(),
        [HookType::PreRunPodSandbox, HookType::PreCreateContainer, HookType::PreUpdateContainerResources]
    );
    assert_eq!(registration.timeout, None);
    assert_eq!(registration.priority, 0);
    assert_eq!(registration.resource_merge, ResourceMerge::Koordinator);
    assert!(!registration.apply_pod_resources);
    assert_eq!(registration.update_scope, UpdateScope::Full);
}

#[test]
fn our_keys_are_understood() {
    let registration = parse(
        r#"{"remote-endpoint":"unix:///x","timeout":"1m0.5s","priority":-3,"resource-merge":"overlay",
            "apply-pod-resources":true,"update-scope":"changed"}"#,
    );
    assert_eq!(registration.endpoint.as_str(), "/x");
    assert_eq!(registration.timeout, Some(Duration::from_millis(60_500)));
    assert_eq!(registration.priority, -3);
    assert_eq!(registration.resource_merge, ResourceMerge::Overlay);
    assert!(registration.apply_pod_resources);
    assert_eq!(registration.update_scope, UpdateScope::Changed);
}

#[test]
fn keys_and_values_follow_go() {
    for (text, endpoint) in [
        (r#"{"Remote-Endpoint":"/x"}"#, "/x"),
        (r#"{"REMOTE-ENDPOINT":"/x"}"#, "/x"),
        ("{\"remote-endpoint\":\"/x\",\"runtime-hoo\u{212a}\u{17f}\":[\"Foo\"]}", "/x"),
        // The last one counts, in whatever case; a null changes nothing.
        (r#"{"remote-endpoint":"/x","Remote-Endpoint":"/y"}"#, "/y"),
        (r#"{"remote-endpoint":"/x","remote-endpoint":null}"#, "/x"),
        (r#" {"unknown":{"deep":[1e999,null]},"remote-endpoint":"/x"} "#, "/x"),
    ] {
        assert_eq!(parse(text).endpoint.as_str(), endpoint, "{text}");
    }
    let hooks = |text: &str| parse(text).hooks.iter().map(HookType::as_str).collect::<Vec<_>>();
    assert_eq!(hooks(r#"{"remote-endpoint":"/x"}"#), [""; 0]);
    assert_eq!(hooks(r#"{"remote-endpoint":"/x","runtime-hooks":null}"#), [""; 0]);
    assert_eq!(
        hooks(r#"{"remote-endpoint":"/x","runtime-hooks":["PostStopContainer"],"Runtime-Hooks":null}"#),
        [""; 0]
    );
    assert_eq!(
        hooks(
            r#"{"remote-endpoint":"/x","runtime-hooks":["PreRemoveRunPodSandbox","Foo",null,"PreStartContainer","PreStartContainer"]}"#
        ),
        ["PreStartContainer"]
    );
    // Values of keys are compared exactly.
    assert_eq!(hooks(r#"{"remote-endpoint":"/x","runtime-hooks":["prestartcontainer"]}"#), [""; 0]);
}

#[test]
fn only_the_exact_word_fail_fails() {
    for (text, policy) in [
        (r#""Fail""#, FailurePolicy::Fail),
        (r#""Ignore""#, FailurePolicy::Ignore),
        (r#""""#, FailurePolicy::Ignore),
        (r#""fail""#, FailurePolicy::Ignore),
        (r#""FAIL""#, FailurePolicy::Ignore),
        ("null", FailurePolicy::Ignore),
    ] {
        let registration = parse(&format!(r#"{{"remote-endpoint":"/x","failure-policy":{text}}}"#));
        assert_eq!(registration.failure_policy, policy, "{text}");
        let stored = if text == "null" { "" } else { text.trim_matches('"') };
        assert_eq!(registration.failure_policy_text, stored);
    }
    assert_eq!(parse(r#"{"remote-endpoint":"/x"}"#).failure_policy, FailurePolicy::Ignore);
}

#[test]
fn refusals_name_key_value_and_range() {
    for (text, parts) in [
        ("", vec!["not one JSON object"]),
        ("{", vec!["not one JSON object"]),
        ("[]", vec!["not one JSON object"]),
        (r#"{"remote-endpoint":"/x"}x"#, vec!["not one JSON object", "trailing"]),
        (r#"{"remote-endpoint":"/x"}{}"#, vec!["not one JSON object", "trailing"]),
        (r#"{"remote-endpoint":"/x",}"#, vec!["not one JSON object"]),
        ("null", vec!["remote-endpoint", "is empty"]),
        ("{}", vec!["remote-endpoint", "is empty"]),
        (r#"{"remote-endpoint":"tcp://1"}"#, vec!["remote-endpoint", "tcp://1", "unix:/path"]),
        (r#"{"remote-endpoint":1}"#, vec!["remote-endpoint", "the number 1", "string"]),
        (r#"{"remote-endpoint":"/x","runtime-hooks":"a"}"#, vec!["runtime-hooks", "list of strings"]),
        (r#"{"remote-endpoint":"/x","runtime-hooks":[1]}"#, vec!["runtime-hooks", "the number 1"]),
        (r#"{"remote-endpoint":"/x","failure-policy":true}"#, vec!["failure-policy", "Fail", "Ignore"]),
        (r#"{"remote-endpoint":"/x","timeout":"2"}"#, vec!["timeout", "\"2\"", "500ms"]),
        (r#"{"remote-endpoint":"/x","timeout":"0s"}"#, vec!["timeout", "\"0s\"", "above 0"]),
        (r#"{"remote-endpoint":"/x","timeout":"-1s"}"#, vec!["timeout", "\"-1s\"", "above 0"]),
        (r#"{"remote-endpoint":"/x","timeout":2}"#, vec!["timeout", "the number 2"]),
        (r#"{"remote-endpoint":"/x","priority":1.5}"#, vec!["priority", "1.5", "9223372036854775807"]),
        (
            r#"{"remote-endpoint":"/x","priority":9223372036854775808}"#,
            vec!["priority", "9223372036854775808"],
        ),
        (r#"{"remote-endpoint":"/x","priority":"1"}"#, vec!["priority", "a string"]),
        (
            r#"{"remote-endpoint":"/x","resource-merge":"Overlay"}"#,
            vec!["resource-merge", "Overlay", "\"overlay\""],
        ),
        (r#"{"remote-endpoint":"/x","apply-pod-resources":1}"#, vec!["apply-pod-resources", "true or false"]),
        (r#"{"remote-endpoint":"/x","update-scope":""}"#, vec!["update-scope", "\"full\" or \"changed\""]),
    ] {
        let error = refused(text);
        for part in parts {
            assert!(error.contains(part), "{text}: {error:?} lacks {part:?}");
        }
    }
    for priority in [i64::MIN, i64::MAX] {
        assert_eq!(parse(&format!(r#"{{"remote-endpoint":"/x","priority":{priority}}}"#)).priority, priority);
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Registration::parse(&bytes);
    }

    #[test]
    fn any_case_and_any_order_say_the_same(
        upper in proptest::collection::vec(any::<bool>(), 200),
        order in Just([0usize, 1, 2, 3, 4]).prop_shuffle(),
        priority in any::<i64>(),
    ) {
        let entries = [
            ("remote-endpoint", "\"/x\"".to_owned()),
            ("failure-policy", "\"Fail\"".to_owned()),
            ("runtime-hooks", "[\"PostStopContainer\"]".to_owned()),
            ("timeout", "\"7ms\"".to_owned()),
            ("priority", priority.to_string()),
        ];
        let mut flips = upper.into_iter();
        let body: Vec<String> = order
            .iter()
            .map(|index| {
                let (key, value) = &entries[*index];
                let key: String = key
                    .chars()
                    .map(|c| if flips.next().unwrap_or(false) { c.to_ascii_uppercase() } else { c })
                    .collect();
                format!("\"{key}\":{value}")
            })
            .collect();
        let registration = parse(&format!("{{{}}}", body.join(",")));
        prop_assert_eq!(registration.endpoint.as_str(), "/x");
        prop_assert_eq!(registration.failure_policy, FailurePolicy::Fail);
        prop_assert!(registration.hooks.contains(HookType::PostStopContainer));
        prop_assert_eq!(registration.timeout, Some(Duration::from_millis(7)));
        prop_assert_eq!(registration.priority, priority);
    }
}

struct Bed {
    directory: TempDir,
    registrations: Arc<Registrations>,
}

impl Bed {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let registrations = Arc::new(Registrations::new(
            directory.path().join("hookserver.d"),
            Trust::of_this_process(),
            NoMetrics,
        ));
        registrations.reload();
        Self { directory, registrations }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.registrations.directory().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o644)).expect("mode set");
    }

    fn in_force(&self) -> Vec<(String, String)> {
        let table = self.registrations.table();
        table
            .servers()
            .iter()
            .map(|server| (server.name.clone(), server.registration.endpoint.to_string()))
            .collect()
    }

    fn reload(&self) -> Vec<(String, String)> {
        self.registrations.reload();
        self.in_force()
    }

    fn error(&self, name: &str) -> String {
        let table = self.registrations.table();
        let report = table.files().iter().find(|report| report.name == name).expect("a report");
        report.error.clone().expect("an error")
    }
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.into_iter().map(|(name, endpoint)| (name.to_owned(), endpoint.to_owned())).collect()
}

#[test]
fn a_missing_directory_is_created_with_0755() {
    let bed = Bed::new();
    let metadata = fs::metadata(bed.registrations.directory()).expect("created");
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o755);
    assert!(bed.in_force().is_empty());
}

#[test]
fn servers_are_ordered_by_priority_then_name() {
    let bed = Bed::new();
    bed.write("b.json", r#"{"remote-endpoint":"/b"}"#);
    bed.write("a.json", r#"{"remote-endpoint":"/a"}"#);
    bed.write("C.json", r#"{"remote-endpoint":"/c"}"#);
    bed.write("z.json", r#"{"remote-endpoint":"/z","priority":-1}"#);
    bed.write("0.json", r#"{"remote-endpoint":"/0","priority":1}"#);
    assert_eq!(
        bed.reload(),
        pairs([("z.json", "/z"), ("C.json", "/c"), ("a.json", "/a"), ("b.json", "/b"), ("0.json", "/0")])
    );
}

#[test]
fn only_visible_names_ending_in_json_count() {
    let bed = Bed::new();
    for name in ["notes.txt", ".a.json", ".json", "a.json~", "a.JSON"] {
        bed.write(name, r#"{"remote-endpoint":"/x"}"#);
    }
    fs::create_dir(bed.path("d.json")).expect("created");
    bed.write("xjson", r#"{"remote-endpoint":"/kept"}"#);
    assert_eq!(bed.reload(), pairs([("xjson", "/kept")]));
    assert_eq!(bed.registrations.table().files().len(), 1);
}

#[test]
fn a_bad_rewrite_keeps_the_last_good_content() {
    let bed = Bed::new();
    bed.write("a.json", "{");
    assert!(bed.reload().is_empty());
    assert!(bed.error("a.json").contains("not one JSON object"));
    bed.write("a.json", r#"{"remote-endpoint":"/1"}"#);
    assert_eq!(bed.reload(), pairs([("a.json", "/1")]));
    bed.write("a.json", r#"{"remote-endpoint":"/2""#);
    assert_eq!(bed.reload(), pairs([("a.json", "/1")]));
    assert!(bed.error("a.json").contains("not one JSON object"));
    // The same size and, on a coarse clock, the same time: the content tells.
    bed.write("a.json", r#"{"remote-endpoint":"/3"}"#);
    assert_eq!(bed.reload(), pairs([("a.json", "/3")]));
    bed.write("a.json", r#"{"remote-endpoint":"/4"}"#);
    assert_eq!(bed.reload(), pairs([("a.json", "/4")]));
    fs::remove_file(bed.path("a.json")).expect("removed");
    assert!(bed.reload().is_empty());
    assert!(bed.registrations.table().files().is_empty());
}

#[test]
fn an_unchanged_directory_gives_no_new_table() {
    let bed = Bed::new();
    bed.write("a.json", r#"{"remote-endpoint":"/1"}"#);
    assert!(bed.registrations.reload());
    let table = bed.registrations.table();
    assert!(!bed.registrations.reload());
    assert!(Arc::ptr_eq(&table, &bed.registrations.table()));
}

#[test]
fn unsafe_files_are_refused() {
    let bed = Bed::new();
    bed.write("a.json", r#"{"remote-endpoint":"/a"}"#);
    bed.write("group.json", r#"{"remote-endpoint":"/a"}"#);
    fs::set_permissions(bed.path("group.json"), fs::Permissions::from_mode(0o664)).expect("mode set");
    bed.write("other.json", r#"{"remote-endpoint":"/a"}"#);
    fs::set_permissions(bed.path("other.json"), fs::Permissions::from_mode(0o646)).expect("mode set");
    bed.write("big.json", &format!("{}{{\"remote-endpoint\":\"/a\"}}", " ".repeat(64 * 1024)));
    let fits = format!("{}{{\"remote-endpoint\":\"/fits\"}}", " ".repeat(64 * 1024 - 27));
    assert_eq!(fits.len(), 64 * 1024);
    bed.write("fits.json", &fits);
    nix::unistd::mkfifo(&bed.path("pipe.json"), nix::sys::stat::Mode::from_bits_truncate(0o600))
        .expect("made");
    symlink(bed.path("a.json"), bed.path("link.json")).expect("linked");
    symlink("/nowhere", bed.path("dangling.json")).expect("linked");
    assert_eq!(bed.reload(), pairs([("a.json", "/a"), ("fits.json", "/fits"), ("link.json", "/a")]));
    assert!(bed.error("group.json").contains("0664"));
    assert!(bed.error("other.json").contains("0646"));
    assert!(bed.error("big.json").contains("65536"), "{}", bed.error("big.json"));
    assert!(bed.error("pipe.json").contains("not a regular file"));
    // A file that becomes unsafe keeps what was read while it was safe.
    fs::set_permissions(bed.path("a.json"), fs::Permissions::from_mode(0o666)).expect("mode set");
    assert_eq!(bed.reload().len(), 3);
    assert!(bed.error("a.json").contains("0666"));
    fs::set_permissions(bed.path("a.json"), fs::Permissions::from_mode(0o600)).expect("mode set");
    bed.reload();
    assert!(
        bed.registrations.table().files().iter().any(|file| file.name == "a.json" && file.error.is_none())
    );
}

#[test]
fn files_of_other_users_are_refused() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let bed = Bed::new();
    bed.write("a.json", r#"{"remote-endpoint":"/a"}"#);
    std::os::unix::fs::chown(bed.path("a.json"), Some(12345), None).expect("given away");
    assert!(bed.reload().is_empty());
    assert!(bed.error("a.json").contains("12345"));
    let trusting =
        Registrations::new(bed.registrations.directory().to_owned(), Trust::new(0, Some(12345)), NoMetrics);
    trusting.reload();
    assert_eq!(trusting.table().servers().len(), 1);
}

#[test]
fn an_unsafe_directory_changes_nothing() {
    let bed = Bed::new();
    bed.write("a.json", r#"{"remote-endpoint":"/a"}"#);
    bed.reload();
    fs::set_permissions(bed.registrations.directory(), fs::Permissions::from_mode(0o777)).expect("mode set");
    bed.write("b.json", r#"{"remote-endpoint":"/b"}"#);
    assert_eq!(bed.reload(), pairs([("a.json", "/a")]));
    let table = bed.registrations.table();
    assert!(table.directory_error().expect("an error").contains("0777"));
    fs::set_permissions(bed.registrations.directory(), fs::Permissions::from_mode(0o755)).expect("mode set");
    assert_eq!(bed.reload(), pairs([("a.json", "/a"), ("b.json", "/b")]));
    assert_eq!(bed.registrations.table().directory_error(), None);
}

#[test]
fn a_file_of_repeated_errors_is_counted_once_per_content() {
    let bed = Bed::new();
    bed.write("a.json", "{");
    bed.reload();
    bed.reload();
    bed.write("a.json", "[");
    bed.reload();
    let metrics = Recorder::default();
    let registrations = Registrations::new(
        bed.registrations.directory().to_owned(),
        Trust::of_this_process(),
        metrics.clone(),
    );
    for _ in 0..3 {
        registrations.reload();
    }
    assert_eq!(metrics.count("rejected a.json"), 1);
    assert_eq!(metrics.count("loaded a.json"), 0);
}

/// How long a change may take to be in force.
const WITHIN: Duration = Duration::from_secs(1);

async fn in_force_soon(bed: &Bed, expected: &[(String, String)]) {
    let mut changes = bed.registrations.changes();
    let reached = async {
        while bed.in_force() != expected {
            changes.changed().await.expect("the sender lives as long as the bed");
        }
    };
    tokio::time::timeout(WITHIN, reached)
        .await
        .unwrap_or_else(|_| panic!("{:?} instead of {expected:?}", bed.in_force()));
}

#[tokio::test]
async fn changes_are_in_force_within_a_second() {
    let bed = Bed::new();
    let registrations = bed.registrations.clone();
    let watching = tokio::spawn(async move { registrations.watch().await });

    bed.write("a.json", "{\"remote-");
    bed.write("a.json", r#"{"remote-endpoint":"/1"}"#);
    in_force_soon(&bed, &pairs([("a.json", "/1")])).await;

    bed.write("tmp", r#"{"remote-endpoint":"/2"}"#);
    fs::rename(bed.path("tmp"), bed.path("a.json")).expect("renamed");
    in_force_soon(&bed, &pairs([("a.json", "/2")])).await;

    bed.write("b.json", r#"{"remote-endpoint":"/b"}"#);
    in_force_soon(&bed, &pairs([("a.json", "/2"), ("b.json", "/b")])).await;

    fs::remove_file(bed.path("a.json")).expect("removed");
    in_force_soon(&bed, &pairs([("b.json", "/b")])).await;

    // The directory itself goes, and comes back with other content.
    fs::remove_dir_all(bed.registrations.directory()).expect("removed");
    in_force_soon(&bed, &[]).await;
    bed.write("c.json", r#"{"remote-endpoint":"/c"}"#);
    in_force_soon(&bed, &pairs([("c.json", "/c")])).await;

    // It is replaced by a rename.
    let other = bed.directory.path().join("other");
    fs::create_dir(&other).expect("created");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("mode set");
    fs::write(other.join("d.json"), r#"{"remote-endpoint":"/d"}"#).expect("written");
    fs::set_permissions(other.join("d.json"), fs::Permissions::from_mode(0o644)).expect("mode set");
    fs::rename(bed.registrations.directory(), bed.directory.path().join("old")).expect("moved");
    fs::rename(&other, bed.registrations.directory())
        .or_else(|_| {
            // The watcher was quicker and has made an empty one.
            fs::remove_dir(bed.registrations.directory())?;
            fs::rename(&other, bed.registrations.directory())
        })
        .expect("moved");
    in_force_soon(&bed, &pairs([("d.json", "/d")])).await;
    bed.write("e.json", r#"{"remote-endpoint":"/e"}"#);
    in_force_soon(&bed, &pairs([("d.json", "/d"), ("e.json", "/e")])).await;

    watching.abort();
}
