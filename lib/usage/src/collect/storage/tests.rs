use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

/// A machine with a disk of two partitions, one of them LVM's, a second disk of LVM, and a file as a device.
fn machine() -> (tempfile::TempDir, SystemRoots) {
    let folder = tempfile::tempdir().expect("a folder");
    let roots = SystemRoots { proc_root: folder.path().join("proc"), sys_root: folder.path().join("sys") };
    let set = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, text).expect("written");
    };
    let devices = [
        ("pci/block/vda", "252:0"),
        ("pci/block/vda/vda1", "252:1"),
        ("pci/block/vda/vda2", "252:2"),
        ("pci/block/vdb", "252:16"),
        ("virtual/block/dm-0", "253:0"),
        ("virtual/block/dm-1", "253:1"),
        ("virtual/block/loop0", "7:0"),
        ("virtual/block/zram0", "254:0"),
    ];
    fs::create_dir_all(folder.path().join("sys/class/block")).expect("a folder");
    for (device, number) in devices {
        set(&format!("sys/devices/{device}/dev"), &format!("{number}\n"));
        let name = device.rsplit('/').next().expect("a name");
        symlink(format!("../../devices/{device}"), folder.path().join("sys/class/block").join(name))
            .expect("a link");
    }
    set("sys/devices/pci/block/vda/vda1/partition", "1\n");
    set("sys/devices/pci/block/vda/vda2/partition", "2\n");
    set("sys/devices/virtual/block/dm-0/dm/name", "data--pool-logs\n");
    set("sys/devices/virtual/block/dm-0/dm/uuid", "LVM-abc\n");
    set("sys/devices/virtual/block/dm-0/slaves/vda2/x", "");
    set("sys/devices/virtual/block/dm-0/slaves/vdb/x", "");
    set("sys/devices/virtual/block/dm-1/dm/name", "secret\n");
    set("sys/devices/virtual/block/dm-1/dm/uuid", "CRYPT-LUKS2-x\n");
    set("sys/devices/virtual/block/dm-1/slaves/dm-0/x", "");
    set(
        "proc/self/mountinfo",
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
         27 1 252:1 / / rw shared:1 - ext4 /dev/vda1 rw\n\
         30 27 253:1 / /var/my\\040logs rw - xfs /dev/mapper/secret rw\n\
         31 27 0:44 / /srv rw - btrfs /dev/vdb rw\n\
         32 27 7:0 / /snap rw - squashfs /dev/loop0 ro\n\
         nonsense\n",
    );
    (folder, roots)
}

fn set_of(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn storage_of_a_machine() {
    let (_folder, roots) = machine();
    let facts = StorageFacts::read(&roots).expect("facts");
    let number = |text: &str| text.parse::<DeviceNumber>().expect("a number");
    let text = |text: &str| text.to_owned();
    let expected = StorageFacts {
        disks: BTreeMap::from([(text("vda"), number("252:0")), (text("vdb"), number("252:16"))]),
        partitions: BTreeMap::from([(text("vda1"), text("vda")), (text("vda2"), text("vda"))]),
        volume_groups: BTreeMap::from([(text("data-pool"), set_of(&["vda", "vdb"]))]),
        logical_volumes: BTreeMap::from([((text("data-pool"), text("logs")), number("253:0"))]),
        mounts: BTreeMap::from([
            (PathBuf::from("/"), set_of(&["vda"])),
            (PathBuf::from("/srv"), set_of(&["vdb"])),
            (PathBuf::from("/var/my logs"), set_of(&["vda", "vdb"])),
        ]),
    };
    assert_eq!(facts, expected);
}

#[test]
fn names_of_volumes() {
    let table = [
        ("vg-lv", Some(("vg", "lv"))),
        ("v--g-l--v", Some(("v-g", "l-v"))),
        ("a----b-c", Some(("a--b", "c"))),
        ("vg-lv-tmeta", Some(("vg", "lv-tmeta"))),
        ("plain", None),
        ("-lv", None),
        ("vg-", None),
        ("v--g", None),
        ("", None),
    ];
    for (name, parts) in table {
        let parts = parts.map(|(group, volume): (&str, &str)| (group.to_owned(), volume.to_owned()));
        assert_eq!(split_volume(name), parts, "{name}");
    }
}

#[test]
fn escapes_of_mount_points() {
    assert_eq!(unescape("/a\\040b\\011c\\134d"), "/a b\tc\\d");
    assert_eq!(unescape("\\9\\04"), "\\9\\04");
    assert_eq!(unescape(""), "");
}

#[test]
fn devices_in_a_ring_end() {
    let on = |slave: &str| Block { slaves: vec![slave.to_owned()], ..Block::default() };
    let blocks = BTreeMap::from([("dm-0".to_owned(), on("dm-1")), ("dm-1".to_owned(), on("dm-0"))]);
    assert!(disks_below(&blocks, "dm-0").is_empty());
    assert!(disks_below(&blocks, "missing").is_empty());
}

proptest! {
    #[test]
    fn no_table_makes_it_panic(table in proptest::collection::vec(any::<u8>(), 0..300), text in "[0-9: /\\\\a-]{0,120}") {
        let _ = mounts(&table).count();
        let _ = mounts(text.as_bytes()).count();
        let _ = unescape(&text);
        let _ = split_volume(&text);
    }

    /// A name made as LVM makes it is taken apart again.
    #[test]
    fn names_go_around(group in "[a-z]([a-z-]{0,6}[a-z])?", volume in "[a-z]([a-z-]{0,6}[a-z])?") {
        let name = format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--"));
        prop_assert_eq!(split_volume(&name), Some((group, volume)));
    }
}

#[test]
fn this_machine_has_storage() {
    let facts = StorageFacts::read(&SystemRoots::default());
    // A container may have no block devices to see.
    if let Ok(facts) = facts {
        for disk in facts.partitions.values() {
            assert!(facts.disks.contains_key(disk), "{facts:?}");
        }
    }
    let mut table = MountTable::open(&SystemRoots::default()).expect("every process has one");
    table.has_changed().expect("it can be asked");
}
