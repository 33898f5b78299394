"""A node as its administrator has it: containerd and a kubelet as units of systemd, with their usual paths.

For virtual machines that are thrown away: units, files, links and the host's name are changed, and nothing is put back.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess

from . import cgroups, containerd, enclosure, images, kubelet, staticpods, tools
from .cri import Crictl
from .enclosure import NODE_ADDRESS, NODE_NAME
from .layout import BedError, run
from .process import wait_for
from .registry import Registry

RUNTIME_SOCKET = "/run/containerd/containerd.sock"
STATE = pathlib.Path("/var/lib/kubelet")
UNITS = pathlib.Path("/usr/lib/systemd/system")
CONFIGURATION = STATE / "config.yaml"
# How a kubelet may be told the endpoint; see kubelet_files.
FORMS = ("default", "file", "files", "flag", "variable", "kubeadm")

_CONTAINERD_UNIT = """[Unit]
Description=containerd container runtime
After=network.target local-fs.target

[Service]
ExecStart={programs}/containerd --config /etc/containerd/config.toml
Environment=PATH={programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"""

_KUBELET_UNIT = """[Unit]
Description=kubelet: The Kubernetes Node Agent
After=network-online.target

[Service]
ExecStart={program}{arguments}
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""

_KUBEADM_DROP_IN = """# As kubeadm's package has it, without the API server.
[Service]
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart={program} $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""

_KIND = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


def yaml(value, indent=""):
    """Mappings of mappings and scalars as YAML that a person might have written."""
    lines = []
    for key, item in value.items():
        if isinstance(item, dict):
            lines += [f"{indent}{key}:", yaml(item, indent + "  ").rstrip("\n")]
        else:
            lines.append(f"{indent}{key}: {json.dumps(item)}")
    return "\n".join(lines) + "\n"


def kubelet_files(form, driver, program="/usr/bin/kubelet", more=()):
    """Files of a kubelet by path; `more` are settings of its configuration. Where the endpoint is said twice, one is wrong and loses.

    default   nowhere: kubelets have a default
    file      in the configuration file
    files     there, and in a drop-in directory, which goes over it
    flag      in the configuration file, and as a flag in the unit, which goes over it
    variable  the same with a flag in a file of variables
    kubeadm   as a flag in kubeadm-flags.env, and for a later upgrade in instance-config.yaml
    """
    settings = {**kubelet.configuration(STATE, driver), **dict(more)}
    right, wrong = f"unix://{RUNTIME_SOCKET}", "unix:///run/other.sock"
    words = [f"--config={CONFIGURATION}", f"--hostname-override={NODE_NAME}", "--v=2"]
    drop_ins = pathlib.Path("/etc/kubernetes/kubelet.conf.d")
    variables = pathlib.Path("/etc/default/kubelet")
    files = {}
    if form == "file":
        settings["containerRuntimeEndpoint"] = right
    elif form in ("files", "flag", "variable"):
        settings["containerRuntimeEndpoint"] = wrong
    if form == "files":
        words.append(f"--config-dir={drop_ins}")
        files[drop_ins / "20-runtime.conf"] = yaml(_KIND) + f"# goes over the file\ncontainerRuntimeEndpoint: {right}\n"
    elif form == "flag":
        words.append(f"--container-runtime-endpoint={right}")
    if form in ("variable", "kubeadm"):
        files[UNITS / "kubelet.service.d/10-kubeadm.conf"] = _KUBEADM_DROP_IN.format(program=program)
        words = []
    if form == "variable":
        files[variables] = f'KUBELET_EXTRA_ARGS="--hostname-override={NODE_NAME} --container-runtime-endpoint {right} --v=2"\n'
    elif form == "kubeadm":
        files[variables] = f"KUBELET_EXTRA_ARGS=--hostname-override={NODE_NAME}\n"
        files[STATE / "kubeadm-flags.env"] = f'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint={right} --v=2"\n'
        files[STATE / "instance-config.yaml"] = yaml({**_KIND, "containerRuntimeEndpoint": right})
    files[CONFIGURATION] = "# The node's own settings.\n" + yaml(settings)
    arguments = "".join(f" \\\n  {word}" for word in words)
    files[UNITS / "kubelet.service"] = _KUBELET_UNIT.format(program=program, arguments=arguments)
    return files


def write_files(files):
    """Writes texts by path."""
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)


def systemctl(*words, fails=False):
    """The output of systemctl; with `fails` it must not succeed, and both its texts are given."""
    done = subprocess.run(["systemctl", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if (done.returncode != 0) != fails:
        raise BedError(f"systemctl {' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr if fails else done.stdout


def unit(name, *properties):
    """Properties of a unit as systemd shows them; one property is given as a text, several as a mapping."""
    text = systemctl("show", f"--property={','.join(properties)}", name)
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return found.get(properties[0], "") if len(properties) == 1 else {each: found.get(each, "") for each in properties}


def main_pid(name):
    """The main process of a unit; 0 for none."""
    return int(unit(name, "MainPID"))


def process_start(pid):
    """Clock ticks from boot to the start of a process: with the pid it names the process for good."""
    text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rsplit(")", 1)[1].split()[19])


def container_processes():
    """The first process of each container by its id."""
    found = {}
    for entry in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        with contextlib.suppress(OSError):
            text = pathlib.Path(f"/proc/{entry}/cgroup").read_text(encoding="ascii")
            for identifier in re.findall(r"kubepods.*?([0-9a-f]{64})", text):
                found.setdefault(identifier, int(entry))
    return found


class InstalledNode:
    """containerd 2.4 and kubelet 1.37 as units. `driver` is that of control groups, `form` one of FORMS."""

    def __init__(self, driver, form):
        self.driver, self.form = driver, form
        # A file system in memory: layers of containers cannot lie on the machine's root, which is an overlay.
        self.directory = pathlib.Path("/run/installed-node")
        self.kubelet = kubelet.KubeletApi(STATE)
        self.bare = Crictl(RUNTIME_SOCKET)
        self._registry = None

    def __enter__(self):
        self._network()
        containerd.furnish(self.directory)
        self._registry = Registry(self.directory / "store")
        images.write_host_files(self.directory / "hosts", self._registry.port)
        STATE.mkdir(parents=True, exist_ok=True)
        run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", STATE])
        for name in ("manifests", "pod-logs"):
            (STATE / name).mkdir()
        configuration = containerd.configuration(self.directory, driver=self.driver, socket=RUNTIME_SOCKET)
        files = {pathlib.Path("/etc/containerd/config.toml"): configuration}
        files[UNITS / "containerd.service"] = _CONTAINERD_UNIT.format(programs=containerd.programs_of("2.4"))
        # The pods' root is that of the machine, as on nodes outside tests.
        files.update(kubelet_files(self.form, self.driver, more={"cgroupRoot": "/"}.items()))
        write_files(files)
        program = pathlib.Path("/usr/bin/kubelet")
        program.unlink(missing_ok=True)
        program.symlink_to(tools.folder("kubelet-1.37") / "kubelet")
        systemctl("daemon-reload")
        systemctl("enable", "--now", "containerd.service")
        wait_for("containerd", lambda: self.bare.works("pull", images.SANDBOX_IMAGE), 120, every=0.5)
        self.bare.run("pull", images.BUSYBOX_IMAGE)
        systemctl("enable", "--now", "kubelet.service")
        self.wait_healthy()
        return self

    def __exit__(self, *_):
        self._registry.stop()

    @staticmethod
    def _network():
        # As in an enclosure: kubelets refuse loopback addresses.
        for words in ("link add node0 type bridge", f"addr add {NODE_ADDRESS}/24 dev node0", "link set node0 up", "route add default dev node0"):
            run(["ip", *words.split()])
        run(["hostname", NODE_NAME])
        pathlib.Path("/etc/hosts").write_text(f"127.0.0.1 localhost\n{NODE_ADDRESS} {NODE_NAME}\n", encoding="ascii")

    def wait_healthy(self, seconds=240.0):
        """Waits until the kubelet says it is well."""
        wait_for("a healthy kubelet", self.kubelet.healthy, seconds, every=0.2)

    def put(self, manifests):
        """Writes static pods and waits until they run."""
        for manifest in manifests:
            self.kubelet.put_pod(manifest)
        names = [manifest["metadata"]["name"] for manifest in manifests]
        wait_for(f"pods {', '.join(names)} running", lambda: self.running(names), 300, every=0.5)

    def running(self, names):
        """Whether these pods run."""
        seen = {name: item.get("status", {}) for name, item in self.kubelet.pods().items()}
        for name in names:
            if seen.get(name, {}).get("phase") == "Failed":
                raise BedError(f"pod {name} is not let in: {seen[name].get('message')}")
        return all(seen.get(name, {}).get("phase") == "Running" for name in names)

    def take_away(self, names):
        """Removes static pods and waits until the runtime has nothing of them."""
        for name in names:
            (self.kubelet.manifests / f"{name}.json").unlink()

        def gone():
            return not [item for item in self.sandboxes() if item in names]

        wait_for(f"pods {', '.join(names)} gone", gone, 300, every=0.5)

    def sandboxes(self):
        """Names of the pods that the runtime has."""
        items = self.bare.json("pods", "-o", "json")["items"]
        return [item["metadata"]["name"].removesuffix(f"-{NODE_NAME}") for item in items]

    def containers(self):
        """What must not change of the containers that run: id, attempt and first process with its start, by pod."""
        processes, found = container_processes(), {}
        for item in self.bare.json("ps", "-o", "json")["containers"]:
            name = item["labels"]["io.kubernetes.pod.name"].removesuffix(f"-{NODE_NAME}")
            pid = processes.get(item["id"], 0)
            found[name] = (item["id"], item["metadata"].get("attempt", 0), pid, process_start(pid) if pid else 0)
        return found

    def values(self, name, rows):
        """What the kernel shows for rows of `staticpods`."""
        return staticpods.found(self.containers()[name][2], rows)


# Files of control groups that a kubelet, a runtime, systemd or the proxy write values to, of both versions.
_VALUES = """cpu.weight cpu.max cpu.max.burst cpu.idle cpu.shares cpu.cfs_quota_us cpu.cfs_period_us cpu.cfs_burst_us cpu.bvt_warp_ns
cpuset.cpus cpuset.mems memory.min memory.low memory.high memory.max memory.swap.max memory.oom.group memory.limit_in_bytes
memory.soft_limit_in_bytes memory.memsw.limit_in_bytes io.weight io.max blkio.weight pids.max""".split()


def all_cpus():
    """The CPUs of the machine, as the kernel writes them."""
    return pathlib.Path("/sys/devices/system/cpu/online").read_text(encoding="ascii").strip()


def group_values():
    """Every value of every control group of pods by path, and the OOM scores of their processes."""
    found = {}
    roots = ["/sys/fs/cgroup"] if cgroups.is_v2() else enclosure.hierarchies()
    for root in roots:
        for top in ("kubepods", "kubepods.slice"):
            for folder, _, files in os.walk(f"{root}/{top}"):
                for name in files:
                    if name in _VALUES:
                        with contextlib.suppress(OSError):
                            found[f"{folder}/{name}"] = pathlib.Path(folder, name).read_text(encoding="ascii").strip()
    for identifier, pid in container_processes().items():
        with contextlib.suppress(OSError):
            found[f"OOM score of {identifier}"] = pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="ascii").strip()
    return found
