"""koordlet as a process beside a control plane, with a stand-in for the kubelet that serves lists of pods."""

import http.server
import json
import pathlib
import threading
import time
import urllib.error
import urllib.request

from . import controlplane, podgroups
from .layout import BedError, program
from .process import Process, wait_for
from .qos import QOS_LABEL

NODE = "koord-usage"
NODE_METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
KUBELET_CONFIG = {
    "cpuManagerPolicy": "none",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
    "kubeReserved": {"cpu": "100m"},
    "logging": {"flushFrequency": "5s"},
}
_KUBE_QOS = {"guaranteed": "Guaranteed", "burstable": "Burstable", "besteffort": "BestEffort"}


def pod_object(pod, runtime="containerd"):
    """What a kubelet would list for a pod of the bed that runs."""
    spec = pod.spec
    statuses = [
        {"name": name, "containerID": f"{runtime}://{identifier}", "ready": True, "started": True, "restartCount": 0, "state": {"running": {}}}
        for name, identifier in pod.containers.items()
    ]
    return {
        "metadata": {
            "name": spec.name,
            "namespace": "qos",
            "uid": f"uid-{spec.name}",
            "labels": {QOS_LABEL: spec.qos} if spec.qos else {},
            "annotations": spec.annotations,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": NODE, "containers": [{"name": name, "image": "bed"} for name in pod.containers]},
        "status": {"phase": "Running", "qosClass": _KUBE_QOS[spec.kind], "startTime": "2026-01-01T00:00:00Z", "containerStatuses": statuses},
    }


class KubeletStandIn:
    """Answers /pods and /configz over plain HTTP, as a kubelet's read-only port; a context manager."""

    def __init__(self):
        self.pods = []
        self.config = dict(KUBELET_CONFIG)
        self.requests = []
        stand_in = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """One request."""

            protocol_version = "HTTP/1.1"

            def do_GET(self):  # pylint: disable=invalid-name
                """Pods or the configuration."""
                stand_in.requests.append(self.path)
                answers = {"/pods": {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": stand_in.pods}}
                answers["/configz"] = {"kubeletconfig": stand_in.config}
                answer = answers.get(self.path.split("?")[0].rstrip("/"))
                body = json.dumps(answer or {}).encode()
                self.send_response(200 if answer is not None else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):  # pylint: disable=arguments-differ
                """Requests are kept in a list."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def show(self, pods):
        """The pods from now on, given as those of the bed."""
        self.pods = [pod_object(pod) for pod in pods]


class Koordlet:
    """koordlet with every path private to `directory`; a context manager inside an enclosure."""

    def __init__(self, directory, kubeconfig, kubelet, groups, proxy=None, flags=()):
        directory = pathlib.Path(directory) / "koordlet"
        for name in ("metric-data", "checkpoints", "audit", "kubelet"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        self.admin = directory / "admin.sock"
        self.port = controlplane.free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        argv = [program("koordlet", "KOORD_KOORDLET"), "--addr", f"127.0.0.1:{self.port}", "--admin-socket", self.admin]
        argv += ["--kubeconfig", kubeconfig, "--kubelet-insecure-tls", "--kubelet-read-only-port", kubelet.port]
        argv += ["--cgroup-root-dir", podgroups.ROOT, "--kubelet-cgroup-root", groups.root or "/", "--cgroup-driver", groups.driver]
        argv += ["--sys-root-dir", "/sys", "--sys-fs-root-dir", "/sys/fs", "--var-run-root-dir", "/var/run", "--run-root-dir", "/run"]
        argv += ["--var-lib-kubelet-dir", directory / "kubelet", "--tsdb-path", directory / "metric-data"]
        argv += ["--prediction-checkpoint-filepath", directory / "checkpoints", "--audit-log-dir", directory / "audit"]
        argv += ["--collect-memory-stat-interval", "1s", *flags]
        self.process = Process("koordlet", [*argv, "--proxy-endpoint", proxy or ""], directory / "log", {"NODE_NAME": NODE})

    def use_proxy(self, proxy):
        """From the next start on the samples come from this admin socket, or are its own with None."""
        self.process.argv[-1] = str(proxy or "")

    def __enter__(self):
        self.process.start()
        self.wait_answers()
        return self

    def __exit__(self, *_):
        self.process.stop()

    def ask(self, path, accept="*/*"):
        """Status and text of a page; None when nobody answers."""
        request = urllib.request.Request(f"{self.url}/{path}", headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return None

    def page(self, path="metrics"):
        """The text of a page; nothing while it cannot be had."""
        answer = self.ask(path)
        return answer[1] if answer and answer[0] == 200 else ""

    def wait_answers(self, seconds=60.0):
        """Waits until the process loop is alive."""
        self.process.wait_ready(lambda: (self.ask("healthz") or (0,))[0] == 200, seconds)

    def wait_ready(self, seconds=60.0):
        """Waits until pods are known and samples are fresh."""
        try:
            self.process.wait_ready(lambda: (self.ask("readyz") or (0,))[0] == 200, seconds)
        except BedError as error:
            raise BedError(f"{error}\n{self.ask('readyz')}") from error


class Recorder:
    """Reads counters of CPU time twice a second, so that any window of the past can be looked at; a context manager."""

    EVERY = 0.5

    def __init__(self, groups):
        self._groups = dict(groups)
        self._lines = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _run(self):
        while not self._end.is_set():
            values = {}
            for name, group in self._groups.items():
                try:
                    values[name] = podgroups.cpu_seconds(group)
                except FileNotFoundError:
                    continue
            self._lines.append((time.time(), values))
            self._end.wait(self.EVERY)

    def cores(self, name, start, end):
        """Mean usage over a window of the wall clock."""
        inside = [(at, values[name]) for at, values in list(self._lines) if start <= at <= end and name in values]
        if len(inside) < 2:
            raise BedError(f"no record of {name} between {start:.0f} and {end:.0f}")
        (first, before), (last, after) = inside[0], inside[-1]
        return (after - before) / (last - first)


def eventually(what, condition, seconds):
    """The first true value of `condition()`, or None."""
    try:
        return wait_for(what, condition, seconds, every=0.2)
    except BedError:
        return None
