"""Runs a test in namespaces of its own and puts back what namespaces cannot hold.

Network, processes, mounts, System V memory and the host name are private to the enclosure, so bridges, packet filter
rules, host ports, sockets and forgotten processes are gone when it ends, however it ends. What is shared with the
machine is put back by the part that stays outside: control groups made inside, sysctls without a namespace, and the
folder of the bed. Control groups that were there before are never touched.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from .layout import BEDS, BedError, need_root, which

INSIDE = "KOORD_BED_INSIDE"
PREFIX = "koord-bed-"
OVERLAY = "overlay"

# Control group parents that runtimes and tests make; `koord-` is the prefix of ours.
GROUP_NAMES = ("k8s.io", "test.slice", "kubepods", "kubepods.slice", "system.slice/containerd.service")
GROUP_PREFIX = "koord-"

# Sysctls without a namespace that a kubelet sets.
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)

# Places that runtimes, network plugins and kubelets write to whatever their settings; each gets a private tmpfs.
PRIVATE_FOLDERS = (
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/lib/containerd",
    "/var/log/containers",
    "/var/log/pods",
    "/run/netns",
    "/run/containerd",
    "/run/nri",
)

# The node address: a bridge without ports, as kubelets refuse loopback addresses and not every kernel has dummy links.
NODE_ADDRESS = "10.93.0.1"
NODE_NAME = "koord-node"
_INIT = f"""
set -e
mount --make-rshared /
for folder in {' '.join(PRIVATE_FOLDERS)}; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
ip link set lo up
ip link add node0 type bridge
ip addr add {NODE_ADDRESS}/24 dev node0
ip link set node0 up
ip route add default dev node0
hostname {NODE_NAME}
# Kubelets resolve the name of their node; there is no name server in here to ask.
printf '127.0.0.1 localhost\n{NODE_ADDRESS} {NODE_NAME}\n' >"${INSIDE}/etc-hosts"
mount --bind "${INSIDE}/etc-hosts" /etc/hosts
set +e
"$@"
exit $?
"""


def folder():
    """The folder of this enclosure (inside only)."""
    return pathlib.Path(os.environ[INSIDE])


def is_inside():
    """Whether this process runs in an enclosure."""
    return INSIDE in os.environ


def enclosed(main, own_processes=True):
    """Runs `main()` in an enclosure and exits with its result: outside, by starting this program again inside.

    Without processes of its own the enclosure can work with the systemd of the machine, which takes process ids as they
    are outside; a test that is killed then leaves its programs behind, so that is for virtual machines.
    """
    if is_inside():
        # As a service manager would: a stop request raises, so that `with` blocks and `finally` run.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            sys.exit(main())
        except BedError as error:
            sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {error}")
    need_root()
    sys.exit(run([sys.executable, "-u", *sys.argv], own_processes))


def run(argv, own_processes=True):
    """Runs a command in a new enclosure; returns its exit status after everything is put back."""
    sweep()
    with _Outside() as outside:
        return outside.run(argv, own_processes)


def _base_folder():
    """Where beds lie: not on an overlay file system, which cannot hold the layers of containers."""
    for base in (os.environ.get("KOORD_BED_DIR"), "/var/tmp", "/run"):
        if base and _file_system(base) != OVERLAY:
            return base
    return "/run"


def _file_system(path):
    best, kind = "", ""
    path = os.path.realpath(path)
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            _, place, this_kind, *_ = line.split()
            below = place == "/" or path == place or path.startswith(place + "/")
            if below and len(place) >= len(best):
                best, kind = place, this_kind
    return kind


def hierarchies():
    """The roots of the mounted control group hierarchies."""
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        lines = [line.split() for line in mounts]
    return sorted({words[1] for words in lines if words[2] in ("cgroup", "cgroup2")})


def _group_roots():
    found = []
    for root in hierarchies():
        found += [f"{root}/{name}" for name in GROUP_NAMES if os.path.isdir(f"{root}/{name}")]
        found += [entry.path for entry in os.scandir(root) if entry.is_dir() and entry.name.startswith(GROUP_PREFIX)]
    return found


def _groups():
    return {path for root in _group_roots() for path, _, _ in os.walk(root)}


def _read(path):
    try:
        return pathlib.Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return None


class _Outside:
    """What was there before, and how to get back to it."""

    def __init__(self):
        self._child = None
        self._stopped = False
        self._name_space = None
        with _one_at_a_time():
            self._prepare()

    def _prepare(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir=_base_folder()))
        self.folder.chmod(0o755)  # user namespaces reach the layers below as another user
        self._lock = open(self.folder / "lock", "w", encoding="ascii")  # pylint: disable=consider-using-with
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        made = [path for path in PRIVATE_FOLDERS if not os.path.isdir(path)]
        before = {
            "time": time.time(),
            "groups": sorted(_groups()),
            "sysctls": {name: _read(f"/proc/sys/{name}") for name in SYSCTLS},
            "made": made,
        }
        (self.folder / "before.json").write_text(json.dumps(before), encoding="utf-8")
        for path in PRIVATE_FOLDERS:
            os.makedirs(path, exist_ok=True)

    def __enter__(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop)
        return self

    def __exit__(self, *_):
        self._wait_until_empty()
        keep = os.environ.get("KOORD_BED_KEEP")
        with _one_at_a_time():
            put_back(self.folder, keep=bool(keep))
        self._lock.close()
        if keep:
            print(f"kept: {self.folder}", flush=True)

    def _stop(self, *_):
        # Killing unshare kills the first process inside, and with it the kernel ends all others there.
        self._stopped = True
        if self._child is not None:
            self._child.kill()

    def run(self, argv, own_processes):
        """Starts the command inside and waits for it."""
        processes = ["--pid", "--mount-proc"] if own_processes else []
        environment = dict(os.environ)
        environment[INSIDE] = str(self.folder)
        environment["PYTHONPATH"] = f"{BEDS}:{environment.get('PYTHONPATH', '')}".rstrip(":")
        environment["TMPDIR"] = str(self.folder / "tmp")
        (self.folder / "tmp").mkdir(mode=0o1777)
        self._child = subprocess.Popen(  # pylint: disable=consider-using-with
            [which("setpriv"), "--pdeathsig", "KILL", "--", which("unshare"), "--net", "--ipc", "--mount", "--uts"]
            + ["--propagation", "slave", "--fork", "--kill-child=KILL", *processes]
            + ["bash", "-c", _INIT, "bed", *map(str, argv)],
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches this process only
        )
        while own_processes and self._child.poll() is None and self._name_space is None:
            self._name_space = _read_link(f"/proc/{self._child.pid}/ns/pid_for_children")
            if self._name_space == _read_link("/proc/self/ns/pid"):
                self._name_space = None  # not there yet
                time.sleep(0.01)
        status = self._child.wait()
        if self._stopped:
            print("stopped", file=sys.stderr)
            return 130
        return status if status >= 0 else 128 - status

    def _wait_until_empty(self):
        deadline = time.monotonic() + 30
        while self._name_space and time.monotonic() < deadline:
            processes = [entry for entry in os.listdir("/proc") if entry.isdigit()]
            if not any(_read_link(f"/proc/{entry}/ns/pid") == self._name_space for entry in processes):
                return
            time.sleep(0.02)


def _read_link(path):
    try:
        return os.readlink(path)
    except OSError:
        return None


@contextlib.contextmanager
def _one_at_a_time():
    with open(os.path.join(_base_folder(), ".koord-bed.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_live(place):
    try:
        with open(place / "lock", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _hand_over(before, place):
    """Leaves what is shared to another enclosure that still runs, and so still needs it; False when there is none."""
    for other in pathlib.Path(_base_folder()).glob(PREFIX + "*"):
        record = other / "before.json"
        if other == place or not _is_live(other) or not record.exists():
            continue
        theirs = json.loads(record.read_text(encoding="utf-8"))
        theirs["made"] = sorted({*theirs["made"], *before["made"]})
        if before["time"] < theirs["time"]:  # what was there before both is what counts
            for name in ("time", "sysctls", "groups"):
                theirs[name] = before[name]
        record.write_text(json.dumps(theirs), encoding="utf-8")
        return True
    return False


def put_back(place, keep=False):
    """Removes the control groups made since `place` was made, sets sysctls back, removes the folder."""
    try:
        before = json.loads((place / "before.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {"groups": None}
    if before["groups"] is not None and not _hand_over(before, place):
        _remove_groups(set(before["groups"]))
        for name, value in before["sysctls"].items():
            if value is not None and _read(f"/proc/sys/{name}") != value:
                pathlib.Path(f"/proc/sys/{name}").write_text(value, encoding="ascii")
        for path in before["made"]:
            _remove_folder(path)
    if not keep:
        shutil.rmtree(place, ignore_errors=True)


def _remove_groups(before):
    deadline = time.monotonic() + 10
    while True:
        # Deepest first. A group with processes or children of another test refuses, and stays.
        left = sorted(_groups() - before, key=len, reverse=True)
        refused = [path for path in left if not _remove_folder(path)]
        if not refused or time.monotonic() > deadline or all(_has_processes(path) for path in refused):
            return
        time.sleep(0.1)


def _has_processes(path):
    return any(_read(f"{folder}/cgroup.procs") for folder, _, _ in os.walk(path))


def _remove_folder(path):
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def sweep():
    """Puts back what an enclosure left whose outside part was killed (its lock is free then)."""
    with _one_at_a_time():
        for place in pathlib.Path(_base_folder()).glob(PREFIX + "*"):
            if (place / "before.json").exists() and not _is_live(place):
                put_back(place)
