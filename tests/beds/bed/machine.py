"""What a test may leave behind on the machine: its state as lines, to be compared before and after."""

import glob
import os
import pathlib
import subprocess

from . import enclosure


def _output(*argv):
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    except FileNotFoundError:
        return []


def _sysctls():
    wanted = [f"/proc/sys/{name}" for name in enclosure.SYSCTLS]
    wanted += glob.glob("/proc/sys/net/ipv4/ip_*forward*") + glob.glob("/proc/sys/net/ipv4/conf/*/forwarding")
    for path in wanted:
        try:
            yield f"sysctl {path} {pathlib.Path(path).read_text(encoding='ascii').strip()}"
        except OSError:
            continue


def _packet_filter():
    for line in _output("iptables-save"):
        # Comments carry the time, and chains their packet counters.
        if not line.startswith("#"):
            yield f"iptables {line.split(' [')[0]}"


def _groups():
    for root in enclosure.hierarchies():
        for name in (*enclosure.GROUP_NAMES, enclosure.GROUP_PREFIX + "*"):
            for path in glob.glob(f"{root}/{name}"):
                yield f"control group {path}"


def state():
    """One line for each link, mount, name space, rule, sysctl, control group, memory segment and bed folder."""
    lines = {f"link {entry}" for entry in os.listdir("/sys/class/net")}
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        lines.update(f"mount {line.split()[1]} {line.split()[2]}" for line in mounts)
    lines.update(f"network name space {path}" for path in glob.glob("/run/netns/*"))
    lines.update(f"shared memory {line.split()[1]}" for line in _output("cat", "/proc/sysvipc/shm")[1:])
    lines.update(f"folder {path}" for folder in ("/var/tmp", "/run") for path in glob.glob(f"{folder}/{enclosure.PREFIX}*"))
    lines.update(f"folder {path}" for path in enclosure.PRIVATE_FOLDERS if os.path.isdir(path))
    lines.update(_sysctls())
    lines.update(_packet_filter())
    lines.update(_groups())
    return lines
