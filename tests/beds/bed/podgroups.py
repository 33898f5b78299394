"""Control groups of pods as a kubelet makes them, for tests that drive a runtime with crictl; reads any file in them.

Both layouts: "cgroupfs" makes folders, "systemd" asks the systemd of the machine for slices. The kinds are the names of the
kubelet's QoS folders; guaranteed pods lie in the root of all pods.
"""

import os
import pathlib

from . import cgroups, enclosure
from .layout import BedError, run
from .process import wait_for

KINDS = ("guaranteed", "burstable", "besteffort")
ROOT = "/sys/fs/cgroup"
# Files by value, on cgroup v1 and v2.
_FILES = {
    "shares": ("cpu.shares", "cpu.weight"),
    "quota": ("cpu.cfs_quota_us", "cpu.max"),
    "memory": ("memory.limit_in_bytes", "memory.max"),
}


def read(path, file):
    """The text of a file in a control group: `path` is below the root of the hierarchy that has the file."""
    hierarchy = ROOT if cgroups.is_v2() else f"{ROOT}/{file.split('.')[0]}"
    return pathlib.Path(f"{hierarchy}/{path.strip('/')}/{file}").read_text(encoding="ascii").strip()


def write(path, file, value):
    """Writes a file in a control group."""
    hierarchy = ROOT if cgroups.is_v2() else f"{ROOT}/{file.split('.')[0]}"
    pathlib.Path(f"{hierarchy}/{path.strip('/')}/{file}").write_text(str(value), encoding="ascii")


def cpu_seconds(path):
    """CPU time used by a control group and all below it."""
    if cgroups.is_v2():
        line = next(line for line in read(path, "cpu.stat").splitlines() if line.startswith("usage_usec "))
        return int(line.split()[1]) / 1e6
    return int(read(path, "cpuacct.usage")) / 1e9


class PodGroups:
    """The pods' part of the hierarchy: `driver` is "cgroupfs" or "systemd", `root` what a kubelet calls cgroupRoot."""

    def __init__(self, driver="cgroupfs", root=""):
        if driver == "systemd" and root:
            raise BedError("control groups of pods by systemd lie at the root here")
        self.driver = driver
        self.root = root.rstrip("/")
        self._made = []

    def _parts(self, kind, uid=None):
        """Names of the folders from the root of the hierarchy down."""
        below = [] if kind == "guaranteed" else [kind]
        if self.driver == "cgroupfs":
            return [*filter(None, self.root.split("/")), "kubepods", *below, *([f"pod{uid}"] if uid else [])]
        words = ["kubepods", *below, *([f"pod{uid.replace('-', '_')}"] if uid else [])]
        return ["-".join(words[: count + 1]) + ".slice" for count in range(len(words))]

    def path(self, kind, uid=None):
        """Path below the root of the hierarchy, which is what a kubelet tells the runtime as the pod's parent."""
        return "/" + "/".join(self._parts(kind, uid))

    def container(self, kind, uid, identifier):
        """Path of a container of containerd."""
        name = identifier if self.driver == "cgroupfs" else f"cri-containerd-{identifier}.scope"
        return f"{self.path(kind, uid)}/{name}"

    def make_kinds(self):
        """Makes the folders above the pods, as a kubelet does when it starts."""
        for kind in KINDS:
            self._make_one(self._parts(kind), {"shares": 2} if kind == "besteffort" else {})

    def make(self, kind, uid, shares=2, quota=-1, memory=-1):
        """Makes the group of a pod with the values of its spec: CPU shares, microseconds of quota, bytes."""
        path = self.path(kind, uid)
        self._made.append(path)
        self._make_one(self._parts(kind, uid), {"shares": shares, "quota": quota, "memory": memory})
        return path

    def _make_one(self, parts, values):
        """Makes one group and those above it, and gives it the values that are positive."""
        values = {name: value for name, value in values.items() if value > 0}
        self._make_folders(parts, values)
        for name, value in values.items():
            file = _FILES[name][cgroups.is_v2()]
            write("/".join(parts), file, cgroups.shares_to_weight(value) if file == "cpu.weight" else value)

    def _make_folders(self, parts, values):
        if not cgroups.is_v2():
            for hierarchy in enclosure.hierarchies():
                if os.path.exists(f"{hierarchy}/cgroup.controllers"):
                    continue
                for count in range(len(parts)):
                    place = f"{hierarchy}/{'/'.join(parts[: count + 1])}"
                    os.makedirs(place, exist_ok=True)
                    if os.path.basename(hierarchy) == "cpuset":
                        _fill_cpuset(place)
            return
        path = "/".join(parts)
        if self.driver == "systemd":
            _make_slice(parts[-1], values, f"{ROOT}/{path}")
            wait_for(f"slice {parts[-1]}", lambda: os.path.isdir(f"{ROOT}/{path}"), 120)
        # systemd takes controllers away that none of its units asks for, also between two lines here.
        wait_for(f"controllers of {path}", lambda: _pass_controllers_on(parts), 30)

    def remove(self, kind, uid):
        """Removes the group of a pod, which must be empty."""
        path = self.path(kind, uid)
        self._made.remove(path)
        if self.driver == "systemd":
            run(["systemctl", "stop", path.rsplit("/", 1)[1]])
        for place in self._everywhere(path):
            os.rmdir(place)

    def left(self):
        """The groups of pods, and groups in them, that exist now."""
        found = []
        for place in self._everywhere(self.path("guaranteed")):
            qos = [f"{place}/{self._parts(kind)[-1]}" for kind in KINDS[1:]]
            for folder, names, _ in os.walk(place):
                found += [f"{folder}/{name}" for name in names if f"{folder}/{name}" not in qos]
        return found

    @staticmethod
    def _everywhere(path):
        """The folders of a group in all hierarchies, as far as they exist."""
        roots = [ROOT] if cgroups.is_v2() else enclosure.hierarchies()
        return [f"{root}{path}" for root in roots if os.path.isdir(f"{root}{path}")]


def _pass_controllers_on(parts):
    """Makes the folders of cgroup v2 and gives each the controllers of the root; false if somebody was in the way."""
    try:
        for count in range(len(parts) + 1):
            place = pathlib.Path(ROOT, *parts[:count])
            place.mkdir(exist_ok=True)
            wanted = set((place / "cgroup.controllers").read_text(encoding="ascii").split())
            for controller in sorted(wanted - set((place / "cgroup.subtree_control").read_text(encoding="ascii").split())):
                (place / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
    except FileNotFoundError:
        return False
    return True


def _fill_cpuset(place):
    """An empty set of CPUs or memory nodes takes no process on cgroup v1: it is given what its parent has."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = pathlib.Path(place, name)
        if not file.read_text(encoding="ascii").strip():
            file.write_text((file.parent.parent / name).read_text(encoding="ascii"), encoding="ascii")


def _make_slice(unit, values, folder):
    """Asks systemd for a slice as a kubelet does: a transient unit without dependencies of its own, which knows its values."""
    if run(["systemctl", "show", "--property", "ActiveState", "--value", unit]).strip() == "active":
        if os.path.isdir(folder):
            return
        # Its folder was removed behind systemd, by the test before.
        run(["systemctl", "stop", unit])
    manager = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"]
    properties = [("DefaultDependencies", "b", "false")]
    properties += [(name, "b", "true") for name in ("CPUAccounting", "MemoryAccounting", "IOAccounting", "TasksAccounting")]
    if "shares" in values:
        properties.append(("CPUWeight", "t", str(cgroups.shares_to_weight(values["shares"]))))
    if "quota" in values:
        properties.append(("CPUQuotaPerSecUSec", "t", str(values["quota"] * 10)))
    if "memory" in values:
        properties.append(("MemoryMax", "t", str(values["memory"])))
    words = [str(len(properties)), *(word for each in properties for word in each), "0"]
    run(["busctl", "call", *manager, "StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "replace", *words])
