use super::repository::Dependency;
use super::*;

fn file(path: &str, text: &str) -> TextFile {
    TextFile { path: path.into(), text: text.into() }
}

fn package(name: &str, folder: &str, dependencies: &[(&str, Option<&str>, bool)]) -> Package {
    Package {
        name: name.into(),
        folder: folder.into(),
        license: Some("Apache-2.0".into()),
        published: false,
        dependencies: dependencies
            .iter()
            .map(|(name, folder, for_tests)| Dependency {
                name: (*name).into(),
                folder: folder.map(str::to_owned),
                for_tests: *for_tests,
            })
            .collect(),
    }
}

fn shown(found: Vec<Finding>) -> Vec<String> {
    found.iter().map(ToString::to_string).collect()
}

fn with_packages(packages: Vec<Package>) -> Repository {
    Repository { files: vec![], packages }
}

fn with_files(files: Vec<TextFile>) -> Repository {
    Repository { files, packages: vec![package("koord-x", "lib/x", &[])] }
}

#[test]
fn dependencies_point_one_way() {
    let good = with_packages(vec![
        package("a", "api/a", &[("b", Some("api/b"), false), ("t", Some("tests/support"), true)]),
        package("l", "lib/l", &[("a", Some("api/a"), false), ("m", Some("lib/m"), false)]),
        package("p", "proxy", &[("l", Some("lib/l"), false), ("tap", Some("proxy/tap"), false)]),
        package("t", "tests/support", &[("p", Some("proxy"), false), ("k", Some("koordlet"), false)]),
    ]);
    assert_eq!(crates::dependency_direction(&good), []);
    for (from, to, problem) in [
        ("api/a", "lib/l", "api/* depends on no other folder"),
        ("lib/l", "proxy", "lib/* depends on api/* and lib/* only"),
        ("proxy", "koordlet", "programs do not depend on each other"),
        ("proxy/tap", "cli", "programs do not depend on each other"),
        ("proxy", "lib/kube", "the proxy must work with no API server"),
        ("proxy", "tests/support", "only tests depend on tests"),
    ] {
        let bad = with_packages(vec![package("p", from, &[("d", Some(to), false)])]);
        assert_eq!(
            shown(crates::dependency_direction(&bad)),
            [format!("{from}/Cargo.toml: depends on d: {problem}")]
        );
    }
}

#[test]
fn pure_crates_take_no_io_crates() {
    let good = with_packages(vec![
        package(
            "i",
            "proxy/intercept",
            &[("prost", None, false), ("h", Some("api/hook"), false), ("tokio", None, true)],
        ),
        package("p", "proxy", &[("tokio", None, false)]),
    ]);
    assert_eq!(crates::pure_dependencies(&good), []);
    let bad = with_packages(vec![package(
        "tap",
        "proxy/tap",
        &[("nix", None, false), ("koord-runtime", Some("lib/runtime"), false)],
    )]);
    assert_eq!(crates::pure_dependencies(&bad).len(), 2);
}

#[test]
fn manifests_take_what_is_shared() {
    let root = file("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n");
    let good = file(
        "lib/x/Cargo.toml",
        "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = { workspace = true, features = [\n  \"c=d\",\n] }\n\n[lints]\nworkspace = true\n",
    );
    assert_eq!(crates::manifests(&with_files(vec![root.clone(), good])), []);
    // A border to C has a table of its own, a crate like any other has not.
    let own = "[package]\n[lints.rust]\nunsafe_code = \"deny\"\n";
    let mut border = with_files(vec![root.clone(), file("hooks/sdk/Cargo.toml", own)]);
    border.packages = vec![package("sdk", "hooks/sdk", &[])];
    assert_eq!(crates::manifests(&border), []);
    border.files[1].path = "lib/x/Cargo.toml".into();
    border.packages = vec![package("x", "lib/x", &[])];
    assert_eq!(crates::manifests(&border).len(), 1);
    let bad = file("lib/x/Cargo.toml", "[dev-dependencies]\n# a = 1\na = \"1\"\n");
    let mut repository = with_files(vec![bad]);
    repository.packages[0].license = None;
    repository.packages[0].published = true;
    assert_eq!(
        shown(crates::manifests(&repository)),
        [
            "Cargo.toml: workspace lints must say unsafe_code = \"forbid\"",
            "lib/x/Cargo.toml: licence is not Apache-2.0; use license.workspace = true",
            "lib/x/Cargo.toml: can be published; use publish.workspace = true",
            "lib/x/Cargo.toml: does not take the workspace's lints",
            "lib/x/Cargo.toml:3: version is not the workspace's; put it in the root Cargo.toml",
        ]
    );
}

#[test]
fn crates_are_documented_and_tested() {
    let code = "fn x() {}\n".repeat(101);
    let repository = with_files(vec![file("lib/x/src/lib.rs", &code)]);
    assert_eq!(shown(crates::documented(&repository)), ["ARCHITECTURE.md: is missing"]);
    assert_eq!(shown(crates::tested(&repository)), ["tests: is missing", "lib/x: 101 lines and no test"]);

    let mut better = with_files(vec![
        file("ARCHITECTURE.md", "Crates: none.\n"),
        file("tests/support/x", ""),
        file("lib/x/src/lib.rs", &code),
        file("lib/x/tests/all.rs", "#[test]\nfn holds() {}\n"),
    ]);
    assert_eq!(shown(crates::documented(&better)), ["ARCHITECTURE.md: does not name `lib/x` (koord-x)"]);
    assert_eq!(crates::tested(&better), []);
    better.files[0].text = "| `lib/x` | x |\n".into();
    assert_eq!(crates::documented(&better), []);
}

#[test]
fn long_files_and_mod_files() {
    let line = "x\n";
    let repository = with_files(vec![
        file("lib/x/src/fits.rs", &line.repeat(1000)),
        file("lib/x/src/long.rs", &line.repeat(1001)),
        file("tests/beds/bed", &line.repeat(1001)),
        file("api/cri/src/gen/v1.rs", &line.repeat(9000)),
        file("api/cri/proto/a.proto", &line.repeat(9000)),
        file("Cargo.lock", &line.repeat(9000)),
        file("tests/vectors/all.json", &line.repeat(9000)),
        file("lib/x/src/y/mod.rs", line),
    ]);
    let long: Vec<String> = files::length(&repository).into_iter().map(|finding| finding.file).collect();
    assert_eq!(long, ["lib/x/src/long.rs", "tests/beds/bed"]);
    assert_eq!(files::no_mod_rs(&repository).len(), 1);
}

#[test]
fn text_is_clean() {
    let note = ["TO", "DO"].concat();
    let good = file("a.rs", &format!("a\n\nlist{note}s\n{note}_COUNT\n"));
    assert_eq!(files::clean_text(&with_files(vec![good, file("empty", "")])), []);
    let bad = file("a.rs", &format!("// {note}: later\ntrailing \n<<<<<<< ours\nno end"));
    let lines: Vec<usize> =
        files::clean_text(&with_files(vec![bad])).iter().map(|finding| finding.line).collect();
    assert_eq!(lines, [4, 1, 2, 3]);
}

#[test]
fn places_outside_the_repository_are_not_named() {
    let (host, home) = (["pypi", "org"].join("."), ["", "home", "me"].join("/"));
    let bad = file("a.md", &format!("see https://{host}/x\ncd {home}/src\n"));
    assert_eq!(files::no_foreign_places(&with_files(vec![bad.clone()])).len(), 2);
    let vendored = file("api/x/proto/a.proto", &bad.text);
    let inner = file("b.md", &format!("$ROOT{home} and rel{home}\n"));
    assert_eq!(files::no_foreign_places(&with_files(vec![vendored, inner])), []);
}

#[test]
fn protocols_are_pinned() {
    let proto = file("api/x/proto/runtime/a.proto", "x\n");
    let unpinned = with_files(vec![proto.clone()]);
    assert_eq!(files::pinned_protocols(&unpinned).len(), 1);
    let partly = with_files(vec![proto.clone(), file("api/x/proto/PIN", "project: p\nversion:\npath: x\n")]);
    assert_eq!(
        shown(files::pinned_protocols(&partly)),
        ["api/x/proto/PIN: has no line version:", "api/x/proto/PIN: has no line licence:"]
    );
    let pin = "project: p\nlicence: l\n\nfile: a\nversion: v1\npath: x\n";
    assert_eq!(files::pinned_protocols(&with_files(vec![proto, file("api/x/proto/PIN", pin)])), []);
}

#[test]
fn sources_keep_to_their_places() {
    let keyword = ["un", "safe"].concat();
    let body =
        "use std::time::Instant;\nlet a = std::env::var(\"A\");\ntokio::spawn(x);\nlet t = Instant::now();\n";
    let tests = "#[cfg(test)]\nmod tests {\n    fn t() { tokio::spawn(x); std::env::var(\"B\"); }\n}\n";
    let repository = with_files(vec![
        file("proxy/tap/src/a.rs", &format!("{body}{tests}")),
        file("proxy/src/main.rs", "let a = std::env::args();\n"),
        file("proxy/src/b.rs", &format!("// {body}#[cfg(test)]\nmod tests;\n")),
        file("proxy/src/b/tests.rs", body),
        file("proxy/src/lib.rs", "mod b;\n\n#[cfg(test)]\nmod helpers;\n"),
        file("proxy/src/helpers.rs", body),
        file("lib/runtime/src/supervisor.rs", "std::thread::Builder::new()\n"),
        file("lib/runtime/src/environment.rs", "std::env::var(\"A\")\n"),
        file("hooks/host/src/library/native.rs", &format!("{keyword} {{ }}\n")),
        file("hooks/host/src/library.rs", &format!("\n{keyword} {{ }}\n")),
        file("lib/x/src/c.rs", &format!("{keyword} {{ }}\n// {keyword} {{\nlet {keyword}ly = 1;\n")),
    ]);
    let lines = |found: Vec<Finding>| {
        found.into_iter().map(|finding| format!("{}:{}", finding.file, finding.line)).collect::<Vec<_>>()
    };
    assert_eq!(lines(source::environment(&repository)), ["proxy/tap/src/a.rs:2", "proxy/src/b.rs:2"]);
    assert_eq!(lines(source::supervised(&repository)), ["proxy/tap/src/a.rs:3", "proxy/src/b.rs:3"]);
    assert_eq!(lines(source::pure_source(&repository)), ["proxy/tap/src/a.rs:2", "proxy/tap/src/a.rs:4"]);
    assert_eq!(lines(source::no_unsafe(&repository)), ["hooks/host/src/library.rs:2", "lib/x/src/c.rs:1"]);
}

#[test]
fn this_repository_is_tidy() {
    let root = crate::workspace_root().expect("a root");
    let broken = findings(&root).expect("the repository can be read");
    assert!(broken.is_empty(), "\n{}", report(&broken));
}
