//! The program against a proxy that is played: output, exit codes, mistakes.
//!
//! With `KOORD_REWRITE_GOLDEN=1` in the environment the expected outputs are written anew.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use koord_admin::{ErrorBody, Mode, ModeChange, NodeStatus, PodEntry, query, selection};
use koord_runtime::admin::{Call, Routes, json, serve_unix, text};
use koord_runtime::supervisor::Supervisor;
use koord_runtime::unix_socket::{Occupied, SocketFile};

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

fn data(name: &str) -> String {
    std::fs::read_to_string(format!("{FOLDER}/tests/data/{name}")).unwrap()
}

fn status_in(mode: Mode) -> NodeStatus {
    NodeStatus { mode, ..serde_json::from_str(&data("status.json")).unwrap() }
}

/// A proxy in a mode, and what became of it.
struct PlayedProxy {
    folder: tempfile::TempDir,
    requests: Arc<Mutex<Vec<String>>>,
    _socket: SocketFile,
    _runtime: tokio::runtime::Runtime,
}

impl PlayedProxy {
    fn start(mode: Mode) -> PlayedProxy {
        PlayedProxy::with_restore(mode, r#"{"restored":4,"same":1,"failed":[],"mode":"off"}"#)
    }

    fn with_restore(mode: Mode, report: &'static str) -> PlayedProxy {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let answer = move |call: &Call, status: StatusCode, body: &str| {
            let body_of_request = String::from_utf8_lossy(call.body());
            seen.lock().unwrap().push(format!("{} {} {body_of_request}", call.method(), call.uri()));
            text(status, body.to_owned())
        };
        let pods: Vec<PodEntry> = serde_json::from_str(&data(match mode {
            Mode::Enforce => "pods.json",
            Mode::Shadow | Mode::Off => "pods-shadow.json",
        }))
        .unwrap();
        let current = Arc::new(Mutex::new(mode));
        let routes = Routes::new()
            .route(Method::GET, koord_admin::path::STATUS, {
                let (answer, current) = (answer.clone(), Arc::clone(&current));
                move |call| {
                    let status = status_in(*current.lock().unwrap());
                    std::future::ready(answer(
                        &call,
                        StatusCode::OK,
                        &serde_json::to_string(&status).unwrap(),
                    ))
                }
            })
            .route(Method::GET, koord_admin::path::PODS, {
                let answer = answer.clone();
                move |call| {
                    let (status, body) = match query::pod_of_query(call.uri().query()) {
                        Ok(Some(wanted)) => {
                            let kept = selection::filter(pods.clone(), &wanted);
                            (StatusCode::OK, serde_json::to_string(&kept).unwrap())
                        }
                        Ok(None) => (StatusCode::OK, serde_json::to_string(&pods).unwrap()),
                        Err(error) => {
                            let body = ErrorBody { error: error.to_string() };
                            (StatusCode::BAD_REQUEST, serde_json::to_string(&body).unwrap())
                        }
                    };
                    std::future::ready(answer(&call, status, &body))
                }
            })
            .route(Method::GET, koord_admin::path::HOOKS, {
                let answer = answer.clone();
                move |call| std::future::ready(answer(&call, StatusCode::OK, &data("hooks.json")))
            })
            .route(Method::POST, koord_admin::path::MODE, {
                let answer = answer.clone();
                move |call: Call| {
                    let ModeChange { mode } = serde_json::from_slice(call.body()).unwrap();
                    // One mode is played as refused.
                    if mode == Mode::Off {
                        let body = r#"{"error":"mode is held by a hand-over; try again"}"#;
                        return std::future::ready(answer(&call, StatusCode::CONFLICT, body));
                    }
                    *current.lock().unwrap() = mode;
                    let status = serde_json::to_string(&status_in(mode)).unwrap();
                    std::future::ready(answer(&call, StatusCode::OK, &status))
                }
            })
            .route(Method::POST, koord_admin::path::RESTORE, {
                let answer = answer.clone();
                move |call| std::future::ready(answer(&call, StatusCode::OK, report))
            })
            .get("/version", || {
                json(StatusCode::OK, &serde_json::json!({"version": "0.1.0", "commit": "abc", "pid": 7}))
            });
        PlayedProxy::serve(routes, requests)
    }

    fn serve(routes: Routes, requests: Arc<Mutex<Vec<String>>>) -> PlayedProxy {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let supervisor = Supervisor::new(runtime.handle().clone());
        let (_task, socket) =
            serve_unix(&supervisor, &folder.path().join("admin.sock"), Occupied::Refuse, routes).unwrap();
        PlayedProxy { folder, requests, _socket: socket, _runtime: runtime }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    fn run(&self, arguments: &str) -> Answer {
        run(&self.socket(), arguments)
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

#[derive(Debug, PartialEq)]
struct Answer {
    code: i32,
    output: String,
    complaints: String,
}

fn koordctl() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_koordctl"));
    command.env_clear().stdin(Stdio::null());
    command
}

fn run(socket: &Path, arguments: &str) -> Answer {
    answer(koordctl().args(arguments.split_whitespace()).arg("--admin-socket").arg(socket).output().unwrap())
}

fn answer(output: Output) -> Answer {
    Answer {
        code: output.status.code().unwrap(),
        output: String::from_utf8(output.stdout).unwrap(),
        complaints: String::from_utf8(output.stderr).unwrap(),
    }
}

#[track_caller]
fn assert_golden(name: &str, text: &str) {
    let path = format!("{FOLDER}/tests/golden/{name}");
    // Help pages end some lines in spaces, which no file of the repository has.
    let text: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    if std::env::var_os("KOORD_REWRITE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{path} has\n{expected}\nand the program wrote\n{text}");
}

#[test]
fn reading_commands_in_all_forms() {
    let enforcing = PlayedProxy::start(Mode::Enforce);
    for (name, arguments) in [
        ("node-status.txt", "node status --root /nonexistent"),
        ("node-status.json", "node status -o json --root /nonexistent"),
        ("node-status.yaml", "node status -o yaml --root /nonexistent"),
        ("node-pods.txt", "node pods"),
        ("node-pods-wide.txt", "node pods -o wide"),
        ("node-pods-namespace.txt", "node pods -n shop"),
        ("explain-pod.txt", "explain crunch-0"),
        ("explain-pod-wide.txt", "explain pod shop/web -o wide"),
        ("explain-pod.json", "explain batch/crunch-0 -o json"),
        ("explain-pod.yaml", "explain 0a1b-be -o yaml"),
        ("explain-container.txt", "explain container shop/web/app"),
        ("explain-container.json", "explain dddd1 -o json"),
        ("hooks-list.txt", "hooks list"),
        ("hooks-list-wide.txt", "hooks list -o wide"),
    ] {
        let Answer { code, output, complaints } = enforcing.run(arguments);
        assert_eq!((code, complaints.as_str()), (0, ""), "{arguments}");
        assert_golden(name, &output);
    }
    let shadowing = PlayedProxy::start(Mode::Shadow);
    for (name, arguments) in [
        ("shadow-status.txt", "node status --root /nonexistent"),
        ("shadow-diff.txt", "node diff"),
        ("shadow-diff-wide.txt", "node diff crunch-0 -o wide"),
        ("shadow-diff.json", "node diff batch/crunch-0/main -o json"),
        ("shadow-explain.txt", "explain crunch-0"),
    ] {
        let Answer { code, output, complaints } = shadowing.run(arguments);
        assert_eq!((code, complaints.as_str()), (0, ""), "{arguments}");
        assert_golden(name, &output);
    }
}

#[test]
fn lines_are_wrapped_to_the_exported_width() {
    let proxy = PlayedProxy::start(Mode::Enforce);
    for columns in ["100", "72"] {
        let output = koordctl()
            .args(["explain", "crunch-0", "--admin-socket"])
            .arg(proxy.socket())
            .env("COLUMNS", columns)
            .output()
            .unwrap();
        let text = answer(output).output;
        let limit: usize = columns.parse().unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= limit), "{text}");
        assert_golden(&format!("explain-pod-{columns}-columns.txt"), &text);
    }
}

#[test]
fn json_is_what_the_proxy_said() {
    let proxy = PlayedProxy::start(Mode::Enforce);
    for (arguments, file) in [("node pods", "pods.json"), ("hooks list", "hooks.json")] {
        let expected: serde_json::Value = serde_json::from_str(&data(file)).unwrap();
        let printed = proxy.run(&format!("{arguments} -o json")).output;
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).unwrap(), expected);
        let printed = proxy.run(&format!("{arguments} -o yaml")).output;
        assert_eq!(koord_runtime::yaml::document(&printed).unwrap(), expected);
    }
}

#[test]
fn the_proxy_is_asked_for_what_is_named_only() {
    let proxy = PlayedProxy::start(Mode::Enforce);
    assert_eq!(proxy.run("explain shop/web").code, 0);
    assert_eq!(proxy.requests(), ["GET /qos/pods?pod=shop%2Fweb "]);
    assert_eq!(proxy.run("node pods").code, 0);
    assert_eq!(proxy.requests(), ["GET /qos/pods "]);
}

#[test]
fn pods_that_are_not_there_or_not_clear() {
    let proxy = PlayedProxy::start(Mode::Enforce);
    for arguments in [
        "explain nothing",
        "explain aaa",
        "node pods shop/nothing",
        "node diff nothing",
        "explain web -n other",
    ] {
        let Answer { code, output, complaints } = proxy.run(arguments);
        assert_eq!((code, output.as_str()), (3, ""), "{arguments}");
        assert!(complaints.starts_with("koordctl: no pod or container \""), "{complaints}");
    }
    let Answer { code, output, complaints } = proxy.run("explain web");
    assert_eq!((code, output.as_str()), (2, ""));
    assert_eq!(
        complaints,
        "koordctl: \"web\" may be any of these; say which:
  pod shop/web (aaaa22223333444455556666)
  pod test/web (bbbb11112222333344445555)
"
    );
    assert_eq!(proxy.run("explain web -n test").code, 0);
    // A list may have several.
    let Answer { code, output, .. } = proxy.run("node pods web");
    assert_eq!((code, output.lines().count()), (0, 3));
    assert_eq!(proxy.run("explain node web").code, 2);
    assert_eq!(proxy.run("node pods -n nowhere").output, "no pods\n");
}

#[test]
fn differences_can_be_the_exit_code() {
    let shadowing = PlayedProxy::start(Mode::Shadow);
    assert_eq!(shadowing.run("node diff").code, 0);
    assert_eq!(shadowing.run("node diff --exit-code").code, 1);
    let enforcing = PlayedProxy::start(Mode::Enforce);
    let expected = Answer {
        code: 0,
        output: "no differences\n".to_owned(),
        complaints: "mode is enforce: a difference is a value that is still to be sent\n".to_owned(),
    };
    assert_eq!(enforcing.run("node diff --exit-code"), expected);
    assert_eq!(enforcing.run("node diff -o json").output, "[]\n");
}

#[test]
fn switching() {
    let proxy = PlayedProxy::start(Mode::Shadow);
    let said = |output: &str| Answer { code: 0, output: output.to_owned(), complaints: String::new() };
    assert_eq!(proxy.run("node mode enforce"), said("mode is enforce now\n"));
    assert_eq!(proxy.run("node mode shadow"), said("mode is shadow now\n"));
    assert_eq!(proxy.run("node mode enforce"), said("mode is enforce now\n"));
    assert_eq!(
        proxy.requests(),
        [
            r#"POST /qos/mode {"mode":"enforce"}"#,
            r#"POST /qos/mode {"mode":"shadow"}"#,
            r#"POST /qos/mode {"mode":"enforce"}"#,
        ]
    );
    let refused = Answer {
        code: 1,
        output: String::new(),
        complaints:
            "koordctl: POST /qos/mode was refused (409 Conflict): mode is held by a hand-over; try again\n"
                .to_owned(),
    };
    assert_eq!(proxy.run("node mode off"), refused);
    assert_eq!(proxy.run("node mode on").code, 2);
}

#[test]
fn stepping_aside() {
    let proxy = PlayedProxy::start(Mode::Enforce);
    // Without a terminal nobody can be asked.
    for arguments in ["node mode off --restore", "node mode off --restore --yes"] {
        let expected = Answer {
            code: 0,
            output:
                "4 fields put back to what the kubelet asked for, 1 were so already, 0 failed; mode is off now\n"
                    .to_owned(),
            complaints: String::new(),
        };
        assert_eq!(proxy.run(arguments), expected);
        assert_eq!(proxy.requests(), ["POST /restore "]);
    }
    let failing = PlayedProxy::with_restore(
        Mode::Enforce,
        r#"{"restored":1,"same":0,"failed":[{"pod":"shop/web","container":"app","field":"cpu.shares","error":"no such file"},{"pod":"","container":"","field":"cpu.idle","error":"busy"}],"mode":"off"}"#,
    );
    let answer = failing.run("node mode off --restore");
    assert_eq!(answer.code, 1);
    assert_golden("disable-failed.txt", &answer.output);
    assert_eq!(failing.run("node mode off --restore -o json").code, 1);
}

const UNIT: &str = "etc/systemd/system/kubelet.service";

/// A node with these files, whose proxy does not run.
fn node_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn switching_the_kubelet_is_shown_before_it_is_done() {
    let unit = "[Service]\nExecStart=/nonexistent/kubelet --container-runtime-endpoint=unix:///run/containerd/containerd.sock\n";
    let node = node_with(&[(UNIT, unit)]);
    let root = node.path().display();
    let socket = node.path().join("admin.sock");
    let answer = run(&socket, &format!("node enable --dry-run -o json --root {root}"));
    let preview: serde_json::Value = serde_json::from_str(&answer.output).unwrap();
    let differences = preview["differences"].as_array().unwrap();
    let wanted = "--- /etc/systemd/system/kubelet.service\n+++ /etc/systemd/system/kubelet.service\n@@ -1,2 +1,2 @@\n [Service]\n\
         -ExecStart=/nonexistent/kubelet --container-runtime-endpoint=unix:///run/containerd/containerd.sock\n\
         +ExecStart=/nonexistent/kubelet --container-runtime-endpoint=unix:///run/koord-runtimeproxy/runtimeproxy.sock\n";
    assert!(differences.iter().any(|difference| difference == wanted), "{differences:?}");
    // Neither the program nor the units of the proxy are there.
    assert_eq!(answer.code, 1);
    let checks = preview["checks"].as_array().unwrap();
    assert!(
        checks.iter().any(|check| check["subject"] == "proxy" && check["verdict"] == "failed"),
        "{checks:?}"
    );
    let text = run(&socket, &format!("node enable --dry-run --root {root}")).output;
    assert!(text.contains("\n$ systemctl restart kubelet.service\n"), "{text}");
    // Nothing is there to take back, and nothing was written.
    let back = run(&socket, &format!("node disable --dry-run --root {root}"));
    assert_eq!((back.code, back.output.as_str()), (0, "nothing to change\n"));
    assert_eq!(std::fs::read_dir(node.path()).unwrap().count(), 1);
    assert_eq!(run(&socket, &format!("node enable --root {root}")).code, 2);
    assert_eq!(run(&socket, "node mode shadow --restore").code, 2);
}

#[test]
fn status_says_how_the_kubelet_is_configured() {
    let unit = "[Service]\nExecStart=/nonexistent/kubelet --config=/etc/k.yaml\n";
    let files = [(UNIT, unit), ("etc/k.yaml", "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n")];
    let node = node_with(&files);
    let arguments = format!("node status -o json --root {}", node.path().display());
    // Without the proxy there is that much, and the command says that something is missing.
    let alone = run(&node.path().join("admin.sock"), &arguments);
    assert_eq!(alone.code, 4);
    let status: serde_json::Value = serde_json::from_str(&alone.output).unwrap();
    assert_eq!(status["switch"]["state"], "disabled");
    assert_eq!(status["switch"]["endpoint"], "unix:///var/run/crio/crio.sock");
    assert_eq!(status["switch"]["setBy"], "/etc/k.yaml");
    assert!(status.get("mode").is_none());
    let both = PlayedProxy::start(Mode::Enforce).run(&arguments);
    let status: serde_json::Value = serde_json::from_str(&both.output).unwrap();
    assert_eq!(
        (both.code, &status["mode"], &status["switch"]["state"]),
        (0, &"enforce".into(), &"disabled".into())
    );
}

#[test]
fn a_proxy_that_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let missing = run(&path, "node status --root /nonexistent");
    assert_eq!((missing.code, missing.output.as_str()), (4, ""));
    assert_eq!(
        missing.complaints,
        format!(
            "koordctl: no admin socket at {}: is koord-runtime-proxy running on this node? If its --admin-socket \
             is another one, name it with --admin-socket\n",
            path.display()
        )
    );

    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let hung = run(&path, "node status --timeout 20ms --root /nonexistent");
    assert_eq!(hung.code, 4);
    assert!(
        hung.complaints.contains("no answer to GET /qos/status from")
            && hung.complaints.contains("within 20ms"),
        "{}",
        hung.complaints
    );
    drop(listener);
    let dead = run(&path, "node status --root /nonexistent");
    assert_eq!(dead.code, 4);
    assert!(dead.complaints.contains("nobody listens at the admin socket"), "{}", dead.complaints);

    let proxy = PlayedProxy::start(Mode::Enforce);
    let both = proxy.run("version").output;
    assert!(both.ends_with(")\nkoord-runtime-proxy 0.1.0 (commit abc)\n"), "{both}");
    // The version of this program is shown in any case.
    let version = run(&path, "version");
    assert_eq!(version.code, 0);
    assert!(version.output.starts_with("koordctl 0."), "{}", version.output);
    assert!(version.complaints.starts_with("version of the proxy: nobody listens"), "{}", version.complaints);
    assert_eq!(run(&path, "version --client").complaints, "");
}

#[test]
fn a_connection_that_breaks() {
    use std::io::{Read as _, Write as _};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{").unwrap();
    });
    let broken = run(&path, "node status --root /nonexistent");
    peer.join().unwrap();
    assert_eq!(broken.code, 4);
    assert!(broken.complaints.contains(" broke during GET /qos/status: "), "{}", broken.complaints);
}

#[test]
fn another_program_at_the_socket() {
    let other = PlayedProxy::serve(
        Routes::new().get(koord_admin::path::PODS, || json(StatusCode::OK, &serde_json::json!({"pods": []}))),
        Arc::default(),
    );
    let unknown = other.run("node status --root /nonexistent");
    assert_eq!(unknown.code, 1);
    assert!(unknown.complaints.contains("does not know GET /qos/status"), "{}", unknown.complaints);
    let strange = other.run("node pods");
    assert_eq!(strange.code, 1);
    assert!(
        strange.complaints.starts_with("koordctl: the answer to GET /qos/pods is not understood"),
        "{}",
        strange.complaints
    );
}

/// The program without a proxy.
fn offline(arguments: &str) -> Answer {
    answer(
        koordctl()
            .current_dir(format!("{FOLDER}/tests/data"))
            .args(arguments.split_whitespace())
            .output()
            .unwrap(),
    )
}

#[test]
fn pods_of_a_manifest() {
    for (name, arguments) in [
        ("manifest.txt", "explain -f pods.yaml"),
        ("manifest-wide.txt", "explain -f pods.yaml -o wide"),
        ("manifest.json", "explain -f pods.yaml -o json"),
    ] {
        let Answer { code, output, complaints } = offline(arguments);
        let expected = (0, "skipped: document 3, item 1 is a Service, which has no pods\n");
        assert_eq!((code, complaints.as_str()), expected, "{arguments}");
        assert_golden(name, &output);
    }
    let json: serde_json::Value =
        serde_json::from_str(&offline("explain -f pods.yaml -o json").output).unwrap();
    let yaml = koord_runtime::yaml::document(&offline("explain -f pods.yaml -o yaml").output).unwrap();
    assert_eq!(json, yaml);
}

#[test]
fn a_manifest_from_standard_input() {
    use std::io::Write as _;
    let mut child = koordctl()
        .args(["explain", "-f", "-", "-o", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pod = r#"{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}"#;
    child.stdin.take().unwrap().write_all(pod.as_bytes()).unwrap();
    let Answer { code, output, complaints } = answer(child.wait_with_output().unwrap());
    assert_eq!((code, complaints.as_str()), (0, ""));
    let reports: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(reports[0]["name"], "a");
    assert_eq!(reports[0]["qos"]["effective"], "BE");
    assert_eq!(reports[0]["cgroup"]["cgroupfs"], "/kubepods/besteffort/podUID");
    assert_eq!(
        reports[0]["cgroup"]["systemd"],
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID.slice"
    );
}

#[test]
fn manifests_that_cannot_be_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.yaml");
    let explain = |text: &str| {
        std::fs::write(&path, text).unwrap();
        offline(&format!("explain -f {}", path.display()))
    };
    let name = path.display();
    for (text, complaint) in [
        ("a: 1\na: 2\n", format!("koordctl: {name}: line 2, column 1: key \"a\" appears more than once\n")),
        ("", format!("koordctl: {name} has no pod; looked for: Pod, ")),
        ("kind: Pod\n", "skipped: document 1 is a Pod without spec\nkoordctl: ".to_owned()),
    ] {
        let Answer { code, output, complaints } = explain(text);
        assert_eq!((code, output.as_str()), (2, ""), "{text}");
        assert!(complaints.starts_with(&complaint), "{complaints}");
    }
    let missing = offline("explain -f /nonexistent.yaml");
    assert_eq!(missing.code, 2);
    assert!(missing.complaints.starts_with("koordctl: cannot read /nonexistent.yaml: No such file"));
}

#[test]
fn hook_libraries() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let hooks = Path::new(FOLDER).join("../hooks");
    let library = folder.path().join("example.so");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-I"])
        .arg(hooks.join("sdk/include"))
        .arg("-o")
        .arg(&library)
        .arg(hooks.join("plugins/c-example/plugin.c"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o755)).unwrap();
    let test = |more: &str| offline(&format!("hooks test {} {more}", library.display()));

    let plain = test("");
    assert_eq!((plain.code, plain.complaints.as_str()), (0, ""), "{}", plain.output);
    assert!(plain.output.contains("PreCreateContainer"), "{}", plain.output);
    assert!(plain.output.contains("changes nothing"), "{}", plain.output);

    let sample = folder.path().join("sample.yaml");
    std::fs::write(&sample, "annotations: {example.koordinator.sh/oom-score-adj: \"-5\"}\n").unwrap();
    let changed = test(&format!("--stage PreCreateContainer --sample {} -o json", sample.display()));
    assert_eq!((changed.code, changed.complaints.as_str()), (0, ""), "{}", changed.output);
    let report: serde_json::Value = serde_json::from_str(&changed.output).unwrap();
    assert_eq!(report["calls"].as_array().unwrap().len(), 1);
    assert_eq!(report["calls"][0]["stage"], "PreCreateContainer");
    assert_eq!(report["calls"][0]["error"], serde_json::Value::Null);
    assert_eq!(report["calls"][0]["changes"]["oom_score_adj"], "-5");
    assert_eq!(report["calls"][0]["changes"]["env EXAMPLE_OOM_SCORE_ADJ"], "-5");

    let stage = test("--stage Create");
    assert_eq!(stage.code, 2);
    assert!(stage.complaints.contains("stage \"Create\" is not known; accepted: PreRunPodSandbox, "));
    std::fs::write(&sample, "annotation: {}\n").unwrap();
    let misspelt = test(&format!("--stage PreCreateContainer --sample {}", sample.display()));
    assert_eq!(misspelt.code, 2);
    assert!(misspelt.complaints.contains("unknown field `annotation`"), "{}", misspelt.complaints);

    // A file that anybody may write is not loaded.
    std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = test("");
    assert_eq!((refused.code, refused.output.as_str()), (1, ""));
    let begin = format!("koordctl: {}: ", library.display());
    assert!(refused.complaints.starts_with(&begin), "{}", refused.complaints);
    assert_eq!(offline("hooks test /nonexistent.so").code, 1);
}

#[test]
fn pages() {
    let version = env!("CARGO_PKG_VERSION");
    for (shell, begin) in
        [("bash", "_koordctl() {"), ("zsh", "#compdef koordctl"), ("fish", "# Print an optspec")]
    {
        let output = answer(koordctl().args(["completion", shell]).output().unwrap());
        assert_eq!((output.code, output.complaints.as_str()), (0, ""), "{shell}");
        assert!(output.output.starts_with(begin), "{shell}: {}", &output.output[..200]);
        assert!(output.output.contains("explain"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let output = answer(koordctl().arg("man").arg(folder.path()).output().unwrap());
    assert_eq!(output.code, 0, "{}", output.complaints);
    let page = std::fs::read_to_string(folder.path().join("koordctl.1")).unwrap();
    assert!(page.contains(version) && page.contains("Exit codes"), "{page}");
    let page = std::fs::read_to_string(folder.path().join("koordctl-node-diff.1")).unwrap();
    assert!(page.contains("exit\\-code"), "{page}");
    assert!(!folder.path().join("koordctl-man.1").exists(), "hidden commands have no page");
    assert_eq!(answer(koordctl().args(["man", "/dev/null/x"]).output().unwrap()).code, 1);
}

#[test]
fn help_and_mistakes() {
    let help = answer(koordctl().arg("--help").output().unwrap());
    assert_eq!((help.code, help.complaints.as_str()), (0, ""));
    assert_golden("help.txt", &help.output);
    let help = answer(koordctl().args(["explain", "-h"]).output().unwrap());
    assert_golden("help-explain.txt", &help.output);
    let none = answer(koordctl().output().unwrap());
    assert_eq!((none.code, none.output.as_str()), (2, ""));
    let wrong = answer(koordctl().args(["node", "stat"]).output().unwrap());
    assert_eq!(wrong.code, 2);
    assert!(wrong.complaints.contains("'status'"), "{}", wrong.complaints);
    let wrong = answer(koordctl().args(["node", "status", "--admin-socket", "x"]).output().unwrap());
    assert!(wrong.complaints.contains("accepted: an absolute path, unix:/path"), "{}", wrong.complaints);
}

#[test]
fn as_a_plugin_of_kubectl() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-koord");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_koordctl"), &plugin).unwrap();
    let help = answer(Command::new(&plugin).args(["node", "mode", "--help"]).output().unwrap());
    assert_eq!(help.code, 0);
    assert!(help.output.contains("Usage: kubectl koord node mode"), "{}", help.output);
}
