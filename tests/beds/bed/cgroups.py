"""What the kernel holds for a process: the resource values in its control group, on cgroup v1 and v2."""

import math
import os
import pathlib

from .layout import BedError

FIELDS = ("cpu_shares", "cpu_quota", "cpu_period", "memory_limit_in_bytes", "cpuset_cpus")
_V1_FILES = {
    "cpu_shares": ("cpu", "cpu.shares"),
    "cpu_quota": ("cpu", "cpu.cfs_quota_us"),
    "cpu_period": ("cpu", "cpu.cfs_period_us"),
    "memory_limit_in_bytes": ("memory", "memory.limit_in_bytes"),
    "cpuset_cpus": ("cpuset", "cpuset.cpus"),
}


def is_v2():
    """Whether the machine has cgroup v2 only."""
    return os.path.exists("/sys/fs/cgroup/cgroup.controllers")


def version_text():
    """For headings."""
    return "cgroup v2" if is_v2() else "cgroup v1"


def cpus(text):
    """The numbers in a Linux CPU list such as 0-3,8."""
    found = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def shares_to_weight(shares):
    """cpu.weight that runc 1.4 and later writes for CPU shares: 2 gives 1, 1024 gives 100, 262144 gives 10000."""
    if shares <= 2:
        return 1
    if shares >= 262144:
        return 10000
    power = math.log2(shares)
    return math.ceil(10 ** ((power * power + 125 * power) / 612 - 7 / 34))


def _paths(pid):
    found = {}
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def group_path(pid):
    """The path of the process's control group below its hierarchy."""
    return _paths(pid)["" if is_v2() else "cpu"]


def read(pid):
    """File name and content by field, as the kernel shows them."""
    paths = _paths(pid)
    found = {}
    if is_v2():
        folder = pathlib.Path("/sys/fs/cgroup" + paths[""])
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        found["cpu_shares"] = ("cpu.weight", (folder / "cpu.weight").read_text(encoding="ascii").strip())
        found["cpu_quota"] = ("cpu.max", quota)
        found["cpu_period"] = ("cpu.max", period)
        found["memory_limit_in_bytes"] = ("memory.max", (folder / "memory.max").read_text(encoding="ascii").strip())
        found["cpuset_cpus"] = ("cpuset.cpus", (folder / "cpuset.cpus").read_text(encoding="ascii").strip())
        return found
    for field, (controller, file) in _V1_FILES.items():
        place = pathlib.Path(f"/sys/fs/cgroup/{controller}{paths[controller]}") / file
        found[field] = (file, place.read_text(encoding="ascii").strip())
    return found


def expected(field, value):
    """The content the kernel shows when the runtime was asked for `value` (a resource field of CRI)."""
    if field not in FIELDS:
        raise BedError(f"no control group file is known for {field}")
    if is_v2() and field == "cpu_shares":
        return str(shares_to_weight(int(value)))
    if is_v2() and field in ("cpu_quota", "memory_limit_in_bytes") and int(value) < 0:
        return "max"
    return str(value)
