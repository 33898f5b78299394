"""Static pods of the QoS classes, and what the kernel has to show for each when the proxy is in front of the runtime.

The kubelet has the static CPU manager and the configuration of `kubelet.configuration`; the node policy is `qos.POLICY`.
"""

import json

from . import cgroups, images, podgroups, qos

MEBI = 1 << 20
V2 = cgroups.is_v2()
LAST = qos.cpus_online() - 1
OWN = str(LAST)  # the CPU of the LSR pod
POOL = "0" if LAST == 1 else f"0-{LAST - 1}"
WHOLE = f"0-{LAST}"


def static_pod(name, label, annotations, resources):
    """A static pod with a fixed uid."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"koord-{name}",
            "labels": {qos.QOS_LABEL: label} if label else {},
            "annotations": annotations,
        },
        "spec": {
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": images.BUSYBOX_IMAGE, "command": ["sleep", "3600"], "resources": resources}],
        },
    }


def quota(place, micros):
    """Microseconds of each 100 ms on this version; -1 without limit."""
    if V2:
        return (place, "cpu.max", f"{'max' if micros < 0 else micros} 100000")
    return (place, "cpu.cfs_quota_us", str(micros))


def shares(place, v1, v2):
    """CPU shares, or the weight for them."""
    return (place, "cpu.weight", str(v2)) if V2 else (place, "cpu.shares", str(v1))


def memory(place, limit):
    """Bytes."""
    return (place, "memory.max" if V2 else "memory.limit_in_bytes", str(limit))


def cpuset(text):
    """CPUs of the container."""
    return ("main", "cpuset.cpus", text)


def of_classes(driver):
    """Manifests of pods of the QoS classes, and the values each pod and its container have behind the proxy."""
    own = {qos.RESOURCE_STATUS: json.dumps({"cpuset": OWN})}
    batch = qos.batch(main=((500, "64Mi"), (500, "64Mi")))
    guaranteed = {"limits": {"cpu": "500m", "memory": "64Mi"}}
    burstable = {"requests": {"cpu": "500m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}
    # Where the slice of all BE pods is idle, the pods in it need not be.
    be_pod_is_idle = not (driver == "systemd" and V2)
    idle = [("pod", "cpu.idle", "1")] if be_pod_is_idle else [("pod", "cpu.idle", "0")]
    return {
        "lsr": (
            static_pod("lsr", "LSR", own, guaranteed),
            [quota("pod", -1), quota("main", -1), shares("main", 512, 59), memory("main", 64 * MEBI), cpuset(OWN), ("pod", "cpu.idle", "0")],
        ),
        "ls": (
            static_pod("ls", "LS", {}, burstable),
            [quota("pod", 100000), quota("main", 100000), shares("main", 512, 59), memory("main", 64 * MEBI), cpuset(POOL), ("pod", "cpu.idle", "0")],
        ),
        "be": (
            static_pod("be", "BE", batch, {}),
            [*idle, quota("pod", 50000), memory("pod", 64 * MEBI), quota("main", 50000), shares("main", 512, 59), memory("main", 64 * MEBI)],
        ),
        # The kubelet's static CPU manager has the say over containers without a class.
        "none": (static_pod("none", "", {}, burstable), [shares("main", 512, 59), quota("main", 100000), cpuset(WHOLE), ("pod", "cpu.idle", "0")]),
    }


def found(pid, rows):
    """What the kernel shows for rows of (place, file, value): `pid` is of the container."""
    own = cgroups.group_path(pid)
    paths = {"main": own, "pod": own.rsplit("/", 1)[0]}
    return [(place, file, podgroups.read(paths[place], file)) for place, file, _ in rows]
