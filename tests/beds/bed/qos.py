"""A node without a kubelet: containerd, the proxy with a node policy, pods made with crictl, and what the proxy says of them."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import time

from . import cgroups, hooks, images, podgroups
from .containerd import Containerd
from .cri import Crictl
from .kubelet import GROUP_ROOT
from .layout import BedError, program
from .process import wait_for
from .proxy import Proxy

QOS_LABEL = "koordinator.sh/qosClass"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
EXTENDED_RESOURCES = "node.koordinator.sh/extended-resource-spec"
HOST_NETWORK = {"security_context": {"namespace_options": {"network": 2}}}

# Enabled for all classes, with what a NodeSLO has when nothing is said.
POLICY = {
    "resourceQOSStrategy": {
        "lsrClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}},
        "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}},
        "beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}},
    }
}


@dataclasses.dataclass(frozen=True)
class PodSpec:
    """A pod: `kind` is the QoS folder of the kubelet, `asked` the pod's own shares, quota and memory there.

    Containers are resources as CRI names them, by container name.
    """

    name: str
    kind: str
    qos: str = ""
    annotations: dict = dataclasses.field(default_factory=dict)
    asked: dict = dataclasses.field(default_factory=dict)
    containers: dict = dataclasses.field(default_factory=dict)
    command: tuple = ("sleep", "3600")


@dataclasses.dataclass(frozen=True)
class Pod:
    """A pod that runs: its sandbox, its containers' ids by name, and their control groups by name ("pod" is its own)."""

    spec: PodSpec
    sandbox: str
    containers: dict
    groups: dict


def batch(**containers):
    """The annotation for containers given as name=(requests, limits), each of them CPU in milli and memory as text."""

    def resources(pair):
        names = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
        return {name: value for name, value in zip(names, pair) if value is not None}

    spec = {name: {"requests": resources(requests), "limits": resources(limits)} for name, (requests, limits) in containers.items()}
    return {EXTENDED_RESOURCES: json.dumps({"containers": spec})}


def koordctl(admin, *arguments, seconds=30.0):
    """Runs koordctl against an admin socket; returns exit status, output and errors."""
    argv = [program("koordctl", "KOORD_CTL"), "--admin-socket", admin, *arguments]
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, timeout=seconds, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


class Node:
    """One runtime with the proxy in front of it, private to `directory`; a context manager inside an enclosure.

    With `kubelet_dir`, the folder of a kubelet that is to come, the control groups of pods are left to that kubelet.
    """

    def __init__(self, directory, version="2.4", driver="cgroupfs", policy=None, flags=(), kubelet_dir=None):
        self.directory = pathlib.Path(directory)
        self._has_kubelet = kubelet_dir is not None
        # The name of the bed, so that several beds can run at once; systemd's slices of pods lie at the root.
        root = GROUP_ROOT if self._has_kubelet else f"/{self.directory.name}"
        root = "" if driver == "systemd" else root
        self.groups = podgroups.PodGroups(driver, root)
        self.runtime = Containerd(directory, version, driver)
        self.policy_file = self.directory / "node-slo.yaml"
        self.plugins = self.directory / "plugins"
        self.plugins.mkdir(mode=0o755)
        self.set_policy(POLICY if policy is None else policy)
        argv = ["--node-policy", self.policy_file, "--plugin-dir", self.plugins, "--cgroup-driver", driver]
        argv += ["--kubelet-dir", kubelet_dir or self.directory / "kubelet", *(["--kubelet-cgroup-root", root] if root else [])]
        self.proxy = Proxy(directory, self.runtime.socket, hooks.registration_folder(directory), [*argv, *flags])
        self.crictl = Crictl(self.proxy.socket)
        self.bare = self.runtime.crictl()
        self._parts = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as parts:
            parts.enter_context(self.runtime)
            # As after the start of a kubelet: the folder of all pods is there before the first pod.
            if not self._has_kubelet:
                self.groups.make_kinds()
            parts.enter_context(self.proxy)
            self.bare.run("pull", images.BUSYBOX_IMAGE)
            self._parts = parts.pop_all()
        return self

    def __exit__(self, *_):
        self._parts.close()

    def set_policy(self, policy):
        """Writes the policy file in one step; JSON is YAML."""
        half = self.policy_file.with_suffix(".half")
        half.write_text(json.dumps(policy), encoding="utf-8")
        half.chmod(0o644)
        half.rename(self.policy_file)

    def restart_proxy(self, flags=None):
        """SIGKILL and a new process, with other last flags when given."""
        self.proxy.process.kill()
        if flags is not None:
            self.proxy.process.argv += [str(word) for word in flags]
        self.proxy.process.start()
        self.proxy.wait_ready()

    def _write(self, name, content):
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    def start(self, spec):
        """Makes the pod's control group, the sandbox and the containers, and starts them."""
        uid = f"uid-{spec.name}"
        parent = self.groups.make(spec.kind, uid, **spec.asked)
        resources = {"cpu_shares": spec.asked.get("shares", 2), "cpu_period": 100000}
        for key, name in (("quota", "cpu_quota"), ("memory", "memory_limit_in_bytes")):
            if key in spec.asked:
                resources[name] = spec.asked[key]
        config = {
            "metadata": {"name": spec.name, "namespace": "qos", "uid": uid, "attempt": 0},
            "labels": {QOS_LABEL: spec.qos} if spec.qos else {},
            "annotations": spec.annotations,
            "log_directory": str(self.directory / "pod-logs"),
            "linux": {"cgroup_parent": parent, "resources": resources, **HOST_NETWORK},
        }
        pod_file = self._write(f"{spec.name}-pod", config)
        sandbox = self.crictl.run("runp", pod_file)
        identifiers, groups = {}, {"pod": parent}
        for name, resources in spec.containers.items():
            config = {
                "metadata": {"name": name},
                "image": {"image": images.BUSYBOX_IMAGE},
                "command": list(spec.command),
                "log_path": f"{spec.name}-{name}.log",
                "linux": {"resources": {"cpu_period": 100000, **resources}},
            }
            identifiers[name] = self.crictl.run("create", sandbox, self._write(f"{spec.name}-{name}", config), pod_file)
            self.crictl.run("start", identifiers[name])
            groups[name] = self.groups.container(spec.kind, uid, identifiers[name])
        return Pod(spec, sandbox, identifiers, groups)

    def remove(self, pod):
        """Ends and removes the pod, then its control group as a kubelet does."""
        self.crictl.run("stopp", pod.sandbox)
        self.crictl.run("rmp", "--force", pod.sandbox)
        self.groups.remove(pod.spec.kind, f"uid-{pod.spec.name}")

    def pid(self, identifier):
        """Process id of a container, asked from the runtime itself."""
        return self.bare.json("inspect", identifier)["info"]["pid"]

    def status(self):
        """What /qos/status says."""
        return self.proxy.json("/qos/status")

    def pods(self):
        """What /qos/pods says, by pod name."""
        return {entry["name"]: entry for entry in self.proxy.json("/qos/pods")}

    def set_mode(self, mode):
        """Switches the mode at run time."""
        self.post("/qos/mode", {"mode": mode})

    def restore(self):
        """The kubelet's values are put back; returns the report."""
        return self.post("/restore", {})

    def post(self, path, body):
        """A request that must succeed; returns its JSON."""
        answer = self.proxy.ask(path, "POST", json.dumps(body))
        if answer is None or answer[0] != 200:
            raise BedError(f"POST {path}: {answer}")
        return json.loads(answer[1])

    def read(self, pod, place, file):
        """A value of the pod ("pod") or of one of its containers, as the kernel shows it; None where there is no such file."""
        if file == "oom_score_adj":
            return pathlib.Path(f"/proc/{self.pid(pod.containers[place])}/oom_score_adj").read_text(encoding="ascii").strip()
        try:
            return podgroups.read(pod.groups[place], file)
        except FileNotFoundError:
            return None


def field_entry(entry, place, field):
    """The ledger's entry of one field of a pod ("pod") or container in an item of /qos/pods; None when there is none."""
    levels = [entry] if place == "pod" else [each for each in entry["containers"] if each["name"] == place]
    return next((each for level in levels for each in level["fields"] if each["field"] == field), None)


class Spinners:
    """One LS pod and some BE pods that spin on the same CPU, side by side with the same shares."""

    SHARES = 1024

    def __init__(self, node, best_efforts):
        self._node = node
        names = [("spin-ls", "LS"), *((f"spin-be-{number}", "BE") for number in range(1, best_efforts + 1))]
        # The CPU is asked for and given by the scheduler as well, so that no rule about CPU sets moves a pod away from it.
        container, annotations = {"spin": {"cpu_shares": self.SHARES, "cpuset_cpus": "0"}}, {RESOURCE_STATUS: '{"cpuset":"0"}'}
        specs = [PodSpec(name, "besteffort", label, annotations, {"shares": self.SHARES}, container, ("spin",)) for name, label in names]
        self.pods = [node.start(spec) for spec in specs]


    def share(self, seconds):
        """Percent of the CPU time of all of them that the LS pod gets."""
        before = [podgroups.cpu_seconds(pod.groups["pod"]) for pod in self.pods]
        end = time.monotonic() + seconds
        wait_for("the end of the measurement", lambda: time.monotonic() > end, seconds + 10)
        used = [podgroups.cpu_seconds(pod.groups["pod"]) - start for pod, start in zip(self.pods, before)]
        return 100 * used[0] / sum(used)

    def idle(self):
        """cpu.idle of each pod, the LS pod first."""
        return [podgroups.read(pod.groups["pod"], "cpu.idle") for pod in self.pods]

    def shares(self):
        """The pods' shares (weights on v2) in the kernel."""
        return [podgroups.read(pod.groups["pod"], "cpu.weight" if cgroups.is_v2() else "cpu.shares") for pod in self.pods]

    def asked_shares(self):
        """What `shares` shows when nobody changed anything."""
        return cgroups.expected("cpu_shares", self.SHARES)

    def remove(self):
        """Ends the pods."""
        for pod in self.pods:
            self._node.remove(pod)


class Checks:
    """Named results of a test, each printed as it comes."""

    def __init__(self):
        self.passed = 0
        self.failures = []

    def check(self, name, right, detail=""):
        """Keeps and prints one result; what is right needs no detail."""
        print(f"  {'ok    ' if right else 'FAILED'} {name}{f': {detail}' if detail and not right else ''}", flush=True)
        if right:
            self.passed += 1
        else:
            self.failures.append(name)
        return right

    def equal(self, name, found, wanted):
        """One value."""
        return self.check(name, found == wanted, f"found {found!r}, wanted {wanted!r}")

    def eventually(self, name, read, wanted, seconds=10.0):
        """One value that may take a moment."""
        with contextlib.suppress(BedError):
            wait_for(name, lambda: read() == wanted, seconds)
        return self.equal(name, read(), wanted)

    def finish(self):
        """Prints the counts; returns the exit status."""
        print(f"{self.passed} passed, {len(self.failures)} failed")
        return 1 if self.failures else 0


def cpus_online():
    """How many CPUs the machine has."""
    return os.cpu_count() or 1
