use super::*;
use crate::flags::{Command, command};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn run(arguments: &[String]) -> Report {
    let line = std::iter::once("validate".to_owned()).chain(arguments.iter().cloned()).map(Into::into);
    let Ok(Command::Validate(unchecked)) = command(line) else { panic!("no such command") };
    validate(&unchecked)
}

fn check(directory: &Path) -> Report {
    let argument = format!("--hook-config-dir={}", directory.display());
    run(&[argument, "--node-policy=".to_owned(), "--plugin-dir=".to_owned()])
}

#[test]
fn all_mistakes_of_a_policy_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let policy = folder.path().join("policy.yaml");
    let check = || {
        let flags = [
            format!("--hook-config-dir={}", folder.path().join("none").display()),
            format!("--node-policy={}", policy.display()),
            "--plugin-dir=".to_owned(),
        ];
        run(&flags)
    };
    assert_eq!(check().notes[2], format!("{}: missing, the defaults hold", policy.display()));
    fs::write(&policy, "cpuBurstStrategy:\n  cpuBurstPercent: 0\n").expect("written");
    assert_eq!(check().mistakes, Vec::<String>::new());
    fs::write(&policy, "cpuBurstStrategy:\n  cpuBurstPercent: -1\n  colour: red\n").expect("written");
    assert_eq!(check().mistakes.len(), 2, "{:?}", check().mistakes);
}

#[test]
fn every_bad_file_is_named_beside_the_good_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("hookserver.d");
    let shown = directory.display();
    let report = check(&directory);
    assert_eq!(report.mistakes, Vec::<String>::new());
    assert_eq!(report.notes[1], format!("{shown}: missing, will be created at the start"));

    fs::create_dir(&directory).expect("made");
    assert_eq!(check(&directory).notes[1], format!("{shown}: no registration files"));

    let write = |name: &str, content: &str| {
        let path = directory.join(name);
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
    };
    write("a.json", r#"{"remote-endpoint": "/k.sock", "runtime-hooks": ["PreRunPodSandbox"]}"#);
    write("b.json", "not JSON");
    write("c.json", r#"{"remote-endpoint": "tcp://k"}"#);
    let report = check(&directory);
    assert_eq!(report.notes[1], format!("{shown}/a.json: /k.sock for PreRunPodSandbox (Ignore)"));
    assert_eq!(report.mistakes.len(), 2, "{report:?}");
    assert!(report.mistakes[0].starts_with(&format!("{shown}/b.json: ")), "{report:?}");
    assert!(report.mistakes[1].starts_with(&format!("{shown}/c.json: ")), "{report:?}");
    let text = report.text(Reader::Plain);
    assert_eq!(text.lines().filter(|line| line.starts_with("ok: ")).count(), 2);
    assert_eq!(text.lines().filter(|line| line.starts_with("mistake: ")).count(), 2);
}

#[test]
fn a_directory_others_may_write_is_a_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("set");
    let report = check(folder.path());
    assert_eq!(report.mistakes.len(), 1, "{report:?}");
    assert!(report.mistakes[0].contains("0777"), "{report:?}");
}

fn write(path: &Path, content: &[u8], mode: u32) {
    fs::write(path, content).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

#[test]
fn mistakes_of_all_places_are_told_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let shown = |name: &str| at(name).display().to_string();
    for name in ["hooks", "plugins"] {
        fs::create_dir(at(name)).expect("made");
    }
    write(&at("hooks/a.json"), b"{", 0o644);
    write(&at("policy.yaml"), b"cpuBurstStrategy: {colour: red}", 0o644);
    write(&at("plugins/no-elf.so"), b"text", 0o755);
    write(&at("plugins/no-elf.json"), b"{\"mode\": \"fast\"}", 0o644);
    write(&at("plugins/lonely.json"), b"{}", 0o644);
    let variables = format!(
        "# flags\nKOORD_RUNTIME_PROXY_FLAG=--v=3\nnonsense\n\
         KOORD_RUNTIME_PROXY_FLAGS=\"--v=11 --hook-config-dir={} --backend-wait=5s --colour --mode=loud\"\n",
        shown("hooks")
    );
    write(&at("default"), variables.as_bytes(), 0o644);
    let report = run(&[
        shown("default"),
        "--mode=quiet".to_owned(),
        "--hook-timeout=soon".to_owned(),
        format!("--node-policy={}", shown("policy.yaml")),
        format!("--plugin-dir={}", shown("plugins")),
    ]);
    let file = shown("default");
    let begins = [
        format!("{file}: line 3: \"nonsense\": not an assignment; accepted: NAME=VALUE"),
        format!(
            "{file}: line 2: KOORD_RUNTIME_PROXY_FLAG: no variable of this program; accepted: {FLAGS_VARIABLE}"
        ),
        format!("{file}: {FLAGS_VARIABLE}: --colour: unknown flag"),
        "--hook-timeout=soon: ".to_owned(),
        format!("{file}: {FLAGS_VARIABLE}: --v=11: out of range; accepted: a whole number from 0 to 10"),
        "--mode=quiet: no such choice; accepted: enforce, shadow, or off".to_owned(),
        format!("{}/a.json: ", shown("hooks")),
        format!("{}: ", shown("policy.yaml")),
        format!("{}/no-elf.so: ", shown("plugins")),
        format!("{}/no-elf.so: settings file: ", shown("plugins")),
        format!("{}/lonely.json: names no library: there is no file lonely.so", shown("plugins")),
    ];
    assert_eq!(report.mistakes.len(), begins.len(), "{:#?}", report.mistakes);
    for begin in &begins {
        assert!(
            report.mistakes.iter().any(|told| told.starts_with(begin)),
            "{begin} in {:#?}",
            report.mistakes
        );
    }
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    let status = report.status().expect("mistakes");
    assert!(status.starts_with("11 mistakes in the configuration, what is in force stays: "), "{status}");
    assert!(report.text(Reader::Journal).lines().all(|line| line.starts_with("<3>mistake: ")));
}

#[test]
fn a_wrong_flag_hides_only_what_it_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let policy = folder.path().join("policy.yaml");
    write(&policy, b"x: 1", 0o644);
    let report = run(&[
        "--hook-config-dir=relative".to_owned(),
        "--plugin-dir=".to_owned(),
        format!("--node-policy={}", policy.display()),
    ]);
    assert_eq!(report.mistakes.len(), 2, "{report:?}");
    assert!(report.mistakes[0].starts_with("--hook-config-dir=relative: "), "{report:?}");
    assert!(report.mistakes[1].starts_with(&format!("{}: ", policy.display())), "{report:?}");
}

#[test]
fn what_is_well_is_told_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir(at("plugins")).expect("made");
    write(Path::new(&at("default")), b"KOORD_RUNTIME_PROXY_FLAGS='--v=3 --node-policy='\n", 0o644);
    let dirs = |variables: &str| {
        [
            at(variables),
            format!("--hook-config-dir={}", at("hooks")),
            format!("--plugin-dir={}", at("plugins")),
            "--node-policy=".to_owned(),
        ]
    };
    let report = run(&dirs("default"));
    assert_eq!(report.status(), None, "{report:?}");
    assert_eq!(
        report.notes,
        [
            format!("{}: flags of the service", at("default")),
            "command line".to_owned(),
            format!("{}: missing, will be created at the start", at("hooks")),
            format!("{}: no hook libraries", at("plugins")),
        ]
    );
    assert_eq!(
        run(&dirs("none")).notes[0],
        format!("{}: missing, there are no flags of the service", at("none"))
    );

    let Ok(Command::ServeWith(with)) = command(["serve", at("default").as_str(), "--v=5"].map(Into::into))
    else {
        panic!("no such command")
    };
    let config = configuration(&with).expect("no mistakes");
    assert_eq!((config.verbosity, config.qos.node_policy), (5, None), "flags of the line go first");
    // What is no flag keeps nobody from serving.
    write(Path::new(&at("default")), b"nonsense\nKOORD_X=1\nKOORD_RUNTIME_PROXY_FLAGS=--v=1\n", 0o644);
    assert!(configuration(&with).is_ok());
    assert_eq!(run(&dirs("default")).mistakes.len(), 2);
    write(Path::new(&at("default")), b"KOORD_RUNTIME_PROXY_FLAGS='--v=11 --hook-timeout=0s'\n", 0o644);
    let report = configuration(&with).expect_err("one value is wrong, the other is not in force");
    assert_eq!(report.mistakes.len(), 1, "{report:?}");

    // A command among the flags would end the service at once.
    write(Path::new(&at("default")), b"KOORD_RUNTIME_PROXY_FLAGS=validate\n", 0o644);
    assert_eq!(run(&dirs("default")).mistakes.len(), 1);
    // A library is looked at, not loaded.
    let program = fs::read("/proc/self/exe").expect("this program");
    write(Path::new(&at("plugins/x.so")), &program, 0o755);
    write(
        Path::new(&at("plugins/x.json")),
        b"{\"mode\": \"in-process\", \"failure-policy\": \"Fail\"}",
        0o644,
    );
    let report = run(&dirs("none"));
    assert_eq!(report.mistakes, Vec::<String>::new());
    let last = report.notes.last().map(String::as_str);
    assert_eq!(last, Some(format!("{}/x.so: hook library, in-process (Fail)", at("plugins")).as_str()));
}
