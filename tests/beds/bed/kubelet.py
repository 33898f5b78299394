"""A real kubelet without a control plane: static pods, its own API on 127.0.0.1, a control group root of its own."""

import json
import os
import pathlib
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

from . import cgroups, enclosure, tools
from .enclosure import NODE_NAME
from .layout import BedError
from .process import Process

PORT, READ_ONLY_PORT, HEALTH_PORT = 10250, 10255, 10248
GROUP_ROOT = "/koord-node"
_LOG_TIME = re.compile(r"^[IWEF](\d{4} \d\d:\d\d:\d\d\.\d{6})")


def make_group_root():
    """A kubelet demands that its control group root exists, with every controller it uses."""
    if cgroups.is_v2():
        root = pathlib.Path("/sys/fs/cgroup")
        place = root / GROUP_ROOT[1:]
        place.mkdir(exist_ok=True)
        for controller in (root / "cgroup.controllers").read_text(encoding="ascii").split():
            for folder in (root, place):
                (folder / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
        return
    for hierarchy in enclosure.hierarchies():
        if not os.path.exists(f"{hierarchy}/cgroup.controllers"):
            os.makedirs(hierarchy + GROUP_ROOT, exist_ok=True)
    for name in ("cpuset.cpus", "cpuset.mems"):
        own = pathlib.Path(f"/sys/fs/cgroup/cpuset{GROUP_ROOT}/{name}")
        own.write_text(pathlib.Path(f"/sys/fs/cgroup/cpuset/{name}").read_text(encoding="ascii"), encoding="ascii")


def configuration(directory, driver="cgroupfs"):
    """A KubeletConfiguration without the endpoint of the runtime, for a node whose folders lie in `directory`.

    With the control groups of systemd their root is that of the machine, as systemd does not hand down every controller.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": PORT,
        "readOnlyPort": READ_ONLY_PORT,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": HEALTH_PORT,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "staticPodPath": f"{directory}/manifests",
        "podLogsDir": f"{directory}/pod-logs",
        "volumePluginDir": f"{directory}/volume-plugins",
        "cgroupDriver": driver,
        "cgroupRoot": "/" if driver == "systemd" else GROUP_ROOT,
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "fileCheckFrequency": "1s",
        "syncFrequency": "5s",
        # Exclusive CPUs for Guaranteed pods: the kubelet then updates the CPU sets of running containers.
        "cpuManagerPolicy": "static",
        "cpuManagerReconcilePeriod": "1s",
        "kubeReserved": {"cpu": "500m"},
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
            "imagefs.inodesFree": "1%",
        },
    }


class KubeletApi:
    """What a kubelet answers on 127.0.0.1, and its folder of static pods."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.manifests = self.directory / "manifests"
        self._insecure = ssl.create_default_context()
        self._insecure.check_hostname = False
        self._insecure.verify_mode = ssl.CERT_NONE

    def healthy(self):
        """Whether /healthz answers 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{HEALTH_PORT}/healthz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def pods(self):
        """Status by pod name without the node's name; empty when the kubelet does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{READ_ONLY_PORT}/pods", timeout=5) as answer:
                items = json.load(answer)["items"] or []
        except (OSError, ValueError):
            return {}
        return {item["metadata"]["name"].removesuffix(f"-{NODE_NAME}"): item for item in items}

    def run_in(self, pod, *command):
        """Runs a command in the pod's container through the kubelet; returns its output."""
        query = urllib.parse.urlencode({"cmd": " ".join(command)})
        return self._secure(f"/run/default/{pod}-{NODE_NAME}/main?{query}", "POST")

    def logs(self, pod):
        """The log of the pod's container through the kubelet."""
        return self._secure(f"/containerLogs/default/{pod}-{NODE_NAME}/main", "GET")

    def configuration(self):
        """The configuration that is in force, as the kubelet tells it."""
        return json.loads(self._secure("/configz", "GET"))["kubeletconfig"]

    def _secure(self, path, method):
        request = urllib.request.Request(f"https://127.0.0.1:{PORT}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._insecure) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            raise BedError(f"kubelet {method} {path}: {error.code} {error.read().decode(errors='replace')}") from error
        except OSError as error:
            raise BedError(f"kubelet {method} {path}: {error}") from error

    def put_pod(self, pod):
        """Writes a static pod, or changes it."""
        half = self.directory / f"{pod['metadata']['name']}.half"
        half.write_text(json.dumps(pod), encoding="utf-8")
        half.rename(self.manifests / f"{pod['metadata']['name']}.json")

    def remove_pods(self):
        """Removes all static pods."""
        for path in self.manifests.iterdir():
            path.unlink()


class Kubelet(KubeletApi):
    """One kubelet; `endpoint` is the socket it uses for the runtime and for images.

    It is told the endpoint in its configuration, or with `arguments`, more of its command line, there.
    """

    def __init__(self, directory, version, endpoint, driver="cgroupfs", arguments=()):
        super().__init__(directory)
        for name in ("manifests", "kubelet", "pod-logs"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o755)
        config = configuration(self.directory, driver)
        if not arguments:
            config["containerRuntimeEndpoint"] = f"unix://{endpoint}"
        file = self.directory / "config.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        argv = [tools.folder(f"kubelet-{version}") / "kubelet", "--config", file, "--root-dir", self.directory / "kubelet"]
        argv += ["--cert-dir", self.directory / "pki", "--hostname-override", NODE_NAME, "-v", "2", *arguments]
        self.process = Process(f"kubelet {version}", argv, self.directory / "log")

    def start(self):
        """Starts it and waits until it says it is healthy."""
        self.process.start()
        self.process.wait_ready(self.healthy, 120)

    def not_ready_seconds(self, since):
        """How long after `since` (seconds of the epoch) the kubelet last counted its runtime as down; 0 when never.

        These are the same errors from which a kubelet with a control plane sets the Ready condition of its node.
        """
        last = 0.0
        for line in self.process.log.read_text(encoding="utf-8", errors="replace").splitlines():
            found = _LOG_TIME.match(line)
            if found and "Skipping pod synchronization" in line and ("runtime is down" in line or "PLEG is not healthy" in line):
                moment = time.strptime(f"{time.localtime(since).tm_year}{found.group(1)[:13]}", "%Y%m%d %H:%M:%S")
                last = max(last, time.mktime(moment) + float("0" + found.group(1)[13:]) - since)
        return last
