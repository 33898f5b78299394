use std::os::unix::fs::PermissionsExt;

use super::super::test_tree::Tree;
use super::*;

fn open(tree: &Tree) -> Resctrl {
    Resctrl::open(tree.root(), BandwidthUnit::Percent).expect("a file system")
}

fn pod(uid: &str) -> GroupName {
    GroupName::pod(uid).expect("a uid")
}

#[test]
fn classes_of_pods() {
    assert_eq!(RdtClass::of(QosClass::Lse), Some(RdtClass::Lsr));
    assert_eq!(RdtClass::of(QosClass::Lsr), Some(RdtClass::Lsr));
    assert_eq!(RdtClass::of(QosClass::Ls), Some(RdtClass::Ls));
    assert_eq!(RdtClass::of(QosClass::Be), Some(RdtClass::Be));
    assert_eq!(RdtClass::of(QosClass::System), None);
    let names: Vec<&str> = RdtClass::ALL.iter().map(|class| class.as_str()).collect();
    assert_eq!(names, ["LSR", "LS", "BE"]);
}

#[test]
fn names_stay_below_the_root() {
    assert_eq!(pod("0a1b-2").to_string(), "koordlet-0a1b-2");
    assert_eq!(GroupName::Class(RdtClass::Be).to_string(), "BE");
    assert_eq!(GroupName::Root.to_string(), "");
    let long = "a".repeat(201);
    for uid in ["", ".", "..", "../x", "a/b", "a b", "é", &long] {
        assert!(matches!(GroupName::pod(uid), Err(ResctrlError::PodUid { uid: said }) if said == uid));
    }
    assert!(GroupName::pod(&"a".repeat(200)).is_ok());
}

#[test]
fn a_root_that_is_not_mounted() {
    let tree = Tree::new();
    assert!(matches!(
        Resctrl::open(tree.root(), BandwidthUnit::Percent),
        Err(ResctrlError::Read { path, .. }) if path.ends_with("schemata")
    ));
    tree.file("schemata", "L3:0\n");
    assert!(matches!(
        Resctrl::open(tree.root(), BandwidthUnit::Percent),
        Err(ResctrlError::Schemata { path, .. }) if path.ends_with("schemata")
    ));
}

#[test]
fn groups_are_made_and_taken_over_until_none_is_left() {
    let tree = Tree::intel();
    let resctrl = open(&tree);
    // Four classes of service; the root group has one.
    assert_eq!(resctrl.free_groups().expect("a number"), Some(3));
    let be = GroupName::Class(RdtClass::Be);
    assert_eq!(resctrl.make(&be).expect("room"), Made::New);
    let mode = fs::metadata(tree.root().join("BE")).expect("a folder").permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(resctrl.make(&be).expect("there"), Made::Adopted);
    // Somebody else's group counts as well.
    tree.group("guaranteed", "L3:0=f\n");
    assert_eq!(resctrl.free_groups().expect("a number"), Some(1));
    assert_eq!(resctrl.make(&pod("u1")).expect("room"), Made::New);
    assert_eq!(resctrl.free_groups().expect("a number"), Some(0));
    let error = resctrl.make(&pod("u2")).expect_err("no room");
    assert!(
        matches!(&error, ResctrlError::NoClosid { path, limit: Some(4) } if path.ends_with("koordlet-u2"))
    );
    assert!(!tree.root().join("koordlet-u2").exists());
    // One that is there is taken over even then.
    assert_eq!(resctrl.make(&pod("u1")).expect("there"), Made::Adopted);
    assert_eq!(
        resctrl.all_groups().expect("names"),
        BTreeSet::from(["BE".to_owned(), "guaranteed".to_owned(), "koordlet-u1".to_owned()])
    );
    assert_eq!(resctrl.pods().expect("uids"), BTreeSet::from(["u1".to_owned()]));

    assert!(resctrl.remove(&pod("u1")).expect("removed"));
    assert!(!resctrl.remove(&pod("u1")).expect("gone"));
    assert_eq!(resctrl.make(&pod("u2")).expect("room again"), Made::New);
}

#[test]
fn the_kernel_may_have_fewer_than_it_says() {
    let tree = Tree::intel();
    tree.file("info/last_cmd_status", "Out of CLOSIDs\n");
    let resctrl = open(&tree);
    let path = tree.root().join("BE");
    let full = io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
    assert!(matches!(resctrl.not_made(path.clone(), full), ResctrlError::NoClosid { limit: Some(4), .. }));
    let other = io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error());
    assert!(matches!(
        resctrl.not_made(path, other),
        ResctrlError::Group { action: "make", status: Some(status), .. } if status == "Out of CLOSIDs"
    ));
}

#[test]
fn a_group_that_cannot_be_removed() {
    let tree = Tree::intel();
    tree.group("BE", "L3:0=f\n").file("info/last_cmd_status", "busy\n");
    let error = open(&tree).remove(&GroupName::Class(RdtClass::Be)).expect_err("not empty");
    assert!(
        matches!(error, ResctrlError::Group { action: "remove", status: Some(status), .. } if status == "busy")
    );
}

fn parsed(text: &str) -> Schemata {
    Schemata::parse(text).expect("a schemata")
}

/// What became of each line, in a word.
fn words(results: &[(Line, LineResult)]) -> Vec<(Line, &'static str)> {
    results
        .iter()
        .map(|(line, result)| {
            let word = match result {
                LineResult::Same => "same",
                LineResult::Written => "written",
                LineResult::Failed(_) => "failed",
            };
            (*line, word)
        })
        .collect()
}

#[test]
fn only_lines_that_differ_are_written() {
    let tree = Tree::intel();
    tree.group("BE", "    L3:0=fff;1=fff\n    MB:0= 100;1= 100\n");
    let (resctrl, be) = (open(&tree), GroupName::Class(RdtClass::Be));
    let wanted = parsed("L3:0=f;1=f\nMB:0=20;1=20\n");
    let results = resctrl.apply(&be, &wanted);
    assert_eq!(words(&results), [(Line::Cache, "written"), (Line::Bandwidth, "written")]);
    assert_eq!(tree.text("BE/schemata"), "L3:0=f;1=f;\nMB:0=20;1=20;\n");
    assert_eq!(resctrl.schemata(&be).expect("values"), wanted);

    let results = resctrl.apply(&be, &wanted);
    assert_eq!(words(&results), [(Line::Cache, "same"), (Line::Bandwidth, "same")]);

    let results = resctrl.apply(&be, &parsed("L3:0=f;1=f\nMB:0=30;1=20\n"));
    assert_eq!(words(&results), [(Line::Cache, "same"), (Line::Bandwidth, "written")]);
    assert_eq!(tree.text("BE/schemata"), "MB:0=30;1=20;\n");

    assert_eq!(words(&resctrl.apply(&be, &Schemata::default())), []);
}

#[test]
fn a_group_that_is_gone_is_not_made_by_writing() {
    let tree = Tree::intel();
    tree.file("info/last_cmd_status", "no group\n");
    let results = open(&tree).apply(&GroupName::Class(RdtClass::Ls), &parsed("L3:0=f\nMB:0=20\n"));
    assert_eq!(words(&results), [(Line::Cache, "failed"), (Line::Bandwidth, "failed")]);
    assert!(
        matches!(&results[0].1, LineResult::Failed(ResctrlError::Write { value, status: Some(status), .. })
        if value == "L3:0=f;\n" && status == "no group")
    );
    assert!(!tree.root().join("LS").exists());
}

#[test]
fn what_is_unlimited_does_not_change_while_it_is_open() {
    let tree = Tree::intel();
    let resctrl = open(&tree);
    tree.file("schemata", "L3:0=1;1=1\nMB:0=10;1=10\n");
    assert_eq!(resctrl.unlimited().to_text(), "L3:0=fff;1=fff;\nMB:0=100;1=100;\n");
    assert_eq!(resctrl.schemata(&GroupName::Root).expect("values").cache, BTreeMap::from([(0, 1), (1, 1)]));
}

#[test]
fn tasks_are_moved_once_each_and_ascending() {
    let tree = Tree::intel();
    tree.group("BE", "").file("BE/tasks", "7\n");
    let (resctrl, be) = (open(&tree), GroupName::Class(RdtClass::Be));
    let moved = resctrl.move_tasks(&be, &BTreeSet::from([30, 7, 4, 12])).expect("a group");
    assert_eq!(moved, Moved { moved: vec![4, 12, 30], already: 1, failed: vec![] });
    assert_eq!(tree.text("BE/tasks"), "7\n4\n12\n30\n");
    assert_eq!(resctrl.tasks(&be).expect("tasks"), BTreeSet::from([4, 7, 12, 30]));
    let gone = resctrl.move_tasks(&pod("u"), &BTreeSet::from([1]));
    assert!(matches!(gone, Err(ResctrlError::Read { path, .. }) if path.ends_with("koordlet-u/tasks")));
}

/// A `tasks` file of a kernel that has no task 12.
#[derive(Default)]
struct Tasks(Vec<String>);

impl Write for Tasks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes == b"12\n" {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()));
        }
        self.0.push(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_task_that_is_not_moved_does_not_keep_the_others() {
    let mut file = Tasks::default();
    let moved = move_into(&mut file, &BTreeSet::from([4]), &BTreeSet::from([30, 12, 4, 5]));
    assert_eq!(moved, Moved { moved: vec![5, 30], already: 1, failed: vec![12] });
    // One id per write.
    assert_eq!(file.0, ["5\n", "30\n"]);
}

#[test]
fn groups_of_classes_that_are_off() {
    let tree = Tree::intel();
    tree.group("BE", "").group("LS", "").file("LS/tasks", "5\n9\n").group("other", "");
    let found = superfluous(&open(&tree), &BTreeSet::from([RdtClass::Be, RdtClass::Lsr])).expect("groups");
    assert_eq!(found, BTreeMap::from([(RdtClass::Ls, BTreeSet::from([5, 9]))]));
}
