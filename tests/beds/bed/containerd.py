"""A private containerd: own sockets, own folders, images from a local registry, bridge networking.

Versions: "2.4" (built from its Go module, with runc 1.5 for user namespaces and recursive read-only mounts) and "1.6"
(Debian's, with Debian's runc).
"""

import json
import os
import pathlib

from . import images, tools
from .cri import Crictl
from .layout import BedError
from .process import Process
from .registry import Registry

BRIDGE = "pods0"
SUBNET = "10.91.0.0/24"

_CONFIG_1_6 = """version = 2
root = "{dir}/root"
state = "{dir}/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox}"
  disable_apparmor = {no_apparmor}
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      SystemdCgroup = {systemd}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{dir}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{dir}/hosts"
"""

_CONFIG_2_4 = """version = 3
root = "{dir}/root"
state = "{dir}/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
[plugins."io.containerd.nri.v1.nri"]
  socket_path = "{dir}/nri.sock"
  plugin_path = "{dir}/nri/plugins"
  plugin_config_path = "{dir}/nri/conf.d"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = {no_apparmor}
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      SystemdCgroup = {systemd}
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni}"]
    conf_dir = "{dir}/cni"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{sandbox}"
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "{dir}/hosts"
"""


def _network(directory):
    return {
        "cniVersion": "1.0.0",
        "name": "koord-bed",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": True,
                "ipMasq": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": f"{directory}/ipam",
                    "ranges": [[{"subnet": SUBNET}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
            {"type": "firewall"},
            {"type": "tuning"},
        ],
    }


def _apparmor():
    enabled = pathlib.Path("/sys/module/apparmor/parameters/enabled")
    return enabled.exists() and enabled.read_text().strip() == "Y" and os.path.isdir("/sys/kernel/security/apparmor")


def _own_group():
    """In the root group of cgroup v2 containerd finds no memory.swap.max and drops swap limits: it gets a group there."""
    if not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return None
    group = "/sys/fs/cgroup/koord-bed-runtime"
    os.makedirs(group, exist_ok=True)
    return group


def programs_of(version):
    """The folder of containerd's programs."""
    if version not in ("2.4", "1.6"):
        raise BedError(f"containerd {version}: there are 2.4 and 1.6")
    return tools.folder(f"containerd-{version}") / ("" if version == "2.4" else "usr/bin")


def configuration(directory, version="2.4", driver="cgroupfs", socket=None):
    """The text of a config.toml for a containerd with all its folders in `directory`."""
    if version == "2.4":
        runc, template = tools.folder("runc") / "runc", _CONFIG_2_4
    else:
        runc, template = tools.folder("containerd-1.6") / "usr/sbin/runc", _CONFIG_1_6
    values = {
        "dir": directory,
        "socket": socket or f"{directory}/containerd.sock",
        "sandbox": images.SANDBOX_IMAGE,
        "runc": runc,
        "cni": tools.folder("cni"),
        "systemd": "true" if driver == "systemd" else "false",
        "no_apparmor": "false" if _apparmor() else "true",
    }
    return template.format(**values)


def furnish(directory):
    """Makes the folders that such a configuration names, the network and the store of images."""
    directory = pathlib.Path(directory)
    for name in ("cni", "opt", "nri/plugins", "nri/conf.d", "log"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "cni" / "10-bed.conflist").write_text(json.dumps(_network(directory)), encoding="utf-8")
    images.make_store(directory / "store", tools.folder("stand-in") / "stand-in")


class Containerd:
    """One containerd in `directory`; use as a context manager inside an enclosure.

    `driver` says who makes the control groups of containers: "cgroupfs" (runc itself) or "systemd".
    """

    def __init__(self, directory, version="2.4", driver="cgroupfs"):
        self.directory = pathlib.Path(directory)
        self.version = version
        programs = programs_of(version)
        self.socket = self.directory / "containerd.sock"
        furnish(self.directory)
        (self.directory / "config.toml").write_text(configuration(self.directory, version, driver), encoding="utf-8")
        self.nri_socket = self.directory / "nri.sock" if version == "2.4" else None
        self._registry = None
        self.process = Process(
            f"containerd {version}",
            [programs / "containerd", "-c", self.directory / "config.toml"],
            self.directory / "log" / "containerd",
            environment={"PATH": f"{programs}:{os.environ['PATH']}"},
            group=_own_group(),
        )

    def crictl(self):
        """A client of the bare socket."""
        return Crictl(self.socket)

    def __enter__(self):
        self._registry = Registry(self.directory / "store")
        images.write_host_files(self.directory / "hosts", self._registry.port)
        self.start()
        self.process.wait_ready(lambda: self.crictl().works("pull", images.SANDBOX_IMAGE), seconds=180)
        return self

    def __exit__(self, *_):
        # Pods are ended one after the other for a tidy log; what is left dies with the enclosure.
        if self.process.alive():
            self.crictl().works("rmp", "--all", "--force", seconds=60)
        self.process.stop()
        self._registry.stop()

    def start(self):
        """Starts the daemon without waiting for it."""
        self.process.start()

    def wait_ready(self, seconds=60.0):
        """Waits until it answers."""
        self.process.wait_ready(lambda: self.crictl().works("version"), seconds)
