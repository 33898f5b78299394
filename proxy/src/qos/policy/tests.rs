use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::*;

const BE_IDENTITY: &str =
    "resourceQOSStrategy:\n  beClass:\n    cpuQOS:\n      enable: true\n      groupIdentity: -1\n";

struct Bed {
    directory: tempfile::TempDir,
    policy: NodePolicy,
}

impl Bed {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let policy = NodePolicy::new(Some(directory.path().join("node-slo.yaml")), Trust::of_this_process());
        Self { directory, policy }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("node-slo.yaml")
    }

    /// Puts a file in place as configuration management does, and with a mode.
    fn write(&self, text: &str, mode: u32) {
        let new = self.directory.path().join("new");
        fs::write(&new, text).expect("written");
        fs::set_permissions(&new, Permissions::from_mode(mode)).expect("set");
        fs::rename(&new, self.file()).expect("renamed");
    }

    fn refresh(&mut self) -> bool {
        self.policy.refresh(SystemTime::UNIX_EPOCH)
    }
}

#[test]
fn a_good_file_is_in_force_and_a_bad_one_leaves_it() {
    let mut bed = Bed::new();
    assert!(!bed.refresh());
    assert_eq!(bed.policy.status().state, PolicyState::Default);
    bed.write(BE_IDENTITY, 0o644);
    assert!(bed.refresh());
    assert!(!bed.refresh());
    let good = bed.policy.spec().clone();
    assert_eq!((bed.policy.status().state, bed.policy.status().generation), (PolicyState::InForce, 1));

    bed.write(
        "resourceQOSStrategy:\n  beClass:\n    cpuQOS:\n      groupIdentity: 3\n  colour: red\n",
        0o644,
    );
    assert!(!bed.refresh());
    let status = bed.policy.status();
    assert_eq!((status.state, status.generation), (PolicyState::LastGood, 1));
    assert_eq!(*bed.policy.spec(), good);
    // All mistakes at once, each with the file, the field and what is accepted.
    assert_eq!(status.errors.len(), 2, "{:?}", status.errors);
    let file = bed.file().display().to_string();
    for (error, field) in status.errors.iter().zip(["groupIdentity", "colour"]) {
        assert!(error.starts_with(&file) && error.contains(field), "{error}");
    }

    bed.write("", 0o600);
    assert!(bed.refresh());
    let status = bed.policy.status();
    assert_eq!((status.state, status.generation, status.errors.len()), (PolicyState::InForce, 2, 0));
}

#[test]
fn others_must_not_be_able_to_write_it() {
    let mut bed = Bed::new();
    for mode in [0o664, 0o646] {
        bed.write(BE_IDENTITY, mode);
        assert!(!bed.refresh());
        assert!(bed.policy.status().errors[0].contains("lets others write"), "{:o}", mode);
    }
    bed.write(BE_IDENTITY, 0o644);
    assert!(bed.refresh());
}

#[test]
fn a_file_that_is_away_for_a_moment_stays_in_force() {
    let mut bed = Bed::new();
    bed.write(BE_IDENTITY, 0o644);
    assert!(bed.refresh());
    fs::remove_file(bed.file()).expect("removed");
    assert!(!bed.refresh());
    assert_eq!(bed.policy.status().state, PolicyState::InForce);
    bed.write(BE_IDENTITY, 0o644);
    assert!(!bed.refresh());
    fs::remove_file(bed.file()).expect("removed");
    assert!(!bed.refresh());
    assert!(bed.refresh());
    assert_eq!(bed.policy.status().state, PolicyState::Default);
    assert_eq!(*bed.policy.spec(), NodeSloSpec::default());
}

#[test]
fn what_is_no_policy_is_refused_with_its_place() {
    let error = |text| parse(text, "/f").expect_err("refused").to_string();
    assert!(error("a: [").starts_with("/f: line 1"), "{}", error("a: ["));
    assert!(error("a: 1\na: 2\n").contains("more than once"));
    assert!(error("- 1\n").starts_with("/f: "));
    assert_eq!(parse("# nothing\n", "/f").expect("a policy"), NodeSloSpec::default());
}
