"""Usage of pods as the kernel counts it, pods with known load, and what the proxy and koordctl say of them.

The proxy samples once a second and publishes each sample at once. To compare a figure with the kernel's own, one waits for
the moment it changes and reads the kernel right then: both are of the same instant, up to some hundredths of a second.
"""

import dataclasses
import json
import pathlib
import re
import time

from . import cgroups, podgroups
from .layout import BedError
from .process import wait_for
from .qos import PodSpec, koordctl

MEBI = 1 << 20
PROXY = "koord_runtime_proxy_"
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \S+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_STAT_KEYS = {
    # What counts as used memory: not the page cache.
    "used": ("inactive_anon", "active_anon", "unevictable"),
    "cached": ("inactive_anon", "active_anon", "unevictable", "active_file", "inactive_file"),
}


def samples(text):
    """Prometheus text as a map from (name, sorted labels) to the value."""
    found = {}
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match:
            found[match.group(1), tuple(sorted(_LABEL.findall(match.group(2) or "")))] = float(match.group(3))
    return found


def values_of(text, name, **labels):
    """The values of all samples of a metric that have these labels."""
    wanted = labels.items()
    return [value for (each, has), value in samples(text).items() if each == name and wanted <= dict(has).items()]


def value_of(text, name, **labels):
    """The one value of a metric with these labels; None when there is none."""
    found = values_of(text, name, **labels)
    if len(found) > 1:
        raise BedError(f"{name} {labels}: {len(found)} samples, wanted one")
    return found[0] if found else None


def memory_stat(path):
    """memory.stat of a control group and all below it, in bytes by name."""
    prefix = "" if cgroups.is_v2() else "total_"
    fields = dict(line.split() for line in podgroups.read(path, "memory.stat").splitlines())
    return {name.removeprefix(prefix): int(value) for name, value in fields.items() if name.startswith(prefix)}


def memory(path, figure="used"):
    """Memory of a control group in bytes: "used", or "cached" with the page cache."""
    stat = memory_stat(path)
    return sum(stat[key] for key in _STAT_KEYS[figure])


def throttling(path):
    """Periods, and how many of them were throttled."""
    fields = dict(line.split() for line in podgroups.read(path, "cpu.stat").splitlines())
    return int(fields["nr_periods"]), int(fields["nr_throttled"])


def node_cpu_seconds():
    """CPU time of the node without idling, waiting and stolen time."""
    words = pathlib.Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(word) for word in words[:7])
    return (user + nice + system + irq + softirq) / 100


def node_memory():
    """Memory of the node in bytes that is not available."""
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
    return fields["MemTotal"] - fields["MemAvailable"]


def cores(series, start, last, key):
    """CPU of a group in cores from a time between two instants of a series until its instant `last`."""
    after = next(place for place, each in enumerate(series) if each.time >= start)
    late, early = series[after], series[max(after - 1, 0)]
    share = (start - early.time) / (late.time - early.time) if late is not early else 0.0
    used = early.values[key] + share * (late.values[key] - early.values[key])
    return (last.values[key] - used) / (last.time - (start if late is not early else late.time))


def passed(seconds):
    """Waits for the end of a measurement."""
    end = time.monotonic() + seconds
    wait_for("the end of the measurement", lambda: time.monotonic() > end, seconds + 10)


def spinning(name, label, **quotas):
    """A pod whose containers use all CPU time that their quotas allow, in microseconds of each 100 ms."""
    containers = {container: {"cpu_shares": 1024, "cpu_quota": quota} for container, quota in quotas.items()}
    kind = "besteffort" if label == "BE" else "burstable"
    return PodSpec(name, kind, label, {}, {"shares": 1024 * len(quotas)}, containers, ("spin",))


def holding(name, label, anonymous, cached):
    """A pod with one container "main" that holds MiB of anonymous memory and MiB of page cache."""
    kind = "besteffort" if label == "BE" else "burstable"
    command = ("hold", str(anonymous), "/cached", str(cached))
    return PodSpec(name, kind, label, {}, {"shares": 204}, {"main": {"cpu_shares": 204}}, command)


@dataclasses.dataclass(frozen=True)
class Instant:
    """What one source said at one moment."""

    time: float
    values: dict


def relative(found, wanted):
    """The relative difference; of two zeros it is none."""
    return abs(found - wanted) / abs(wanted) if wanted else (0.0 if not found else float("inf"))


def top(admin, *words):
    """`koordctl top` once, as JSON."""
    status, out, err = koordctl(admin, "top", *words, "--once", "-o", "json", seconds=60.0)
    if status != 0:
        raise BedError(f"koordctl top {' '.join(words)}: exit status {status}: {err.strip()}")
    return json.loads(out)
