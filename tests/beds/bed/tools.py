"""Builds the programs the beds need, each once, into the cache folder.

A set lives in CACHE/tools/NAME-KEY; KEY covers the module files, the recipe and the Go version, so an old set is never
taken for a new one. Sets are built beside their place and renamed into it: an interrupted build leaves nothing behind
that looks finished.
"""

import contextlib
import dataclasses
import fcntl
import glob
import hashlib
import os
import pathlib
import shutil
import tempfile
import time

from . import images
from .layout import BEDS, BedError, cache_folder, run

CARGO_PACKAGES = {"cargo-deb": "3.8.0", "cargo-deny": "0.20.2", "cargo-fuzz": "0.13.2", "cargo-generate-rpm": "0.21.1"}
KUBELETS = {"1.37": "v1.37.2", "1.34": "v1.34.4"}
KUBE_APISERVER = "v1.37.2"
UNUSED_SETS_ARE_KEPT_SECONDS = 30 * 24 * 3600


@dataclasses.dataclass(frozen=True)
class ToolSet:
    """One group of programs. `build` fills a folder; `sources` are the files its result depends on."""

    name: str
    build: callable
    sources: tuple = ()
    recipe: str = ""  # changes when the build changes in a way its sources do not show

    def key(self):
        """Eight bytes over all that decides the result."""
        digest = hashlib.sha256(f"{self.name}\n{self.recipe}\n".encode())
        if self.sources:
            digest.update(go_version().encode())
        for path in self.sources:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()[:16]

    def folder(self):
        """Where the built set is, or will be."""
        return cache_folder() / "tools" / f"{self.name}-{self.key()}"


_go_version = None


def go_version():
    """The text of `go version`, asked once."""
    global _go_version
    if _go_version is None:
        _go_version = run(["go", "version"]).strip()
    return _go_version


def _module(name):
    folder = BEDS / "tools" / name
    return tuple(sorted(folder.iterdir()))


def _go(module, *arguments, cgo=False):
    environment = dict(os.environ, GOFLAGS="-mod=readonly", CGO_ENABLED="1" if cgo else "0")
    return run(["go", *arguments], cwd=BEDS / "tools" / module, env=environment)


def _version(module, path):
    return _go(module, "list", "-m", "-f", "{{.Version}}", path).strip()


def _build_cri(out):
    stamp = f"-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version={_version('cri', 'sigs.k8s.io/cri-tools')}"
    flags = ["-trimpath", "-ldflags", stamp, "-o"]
    _go("cri", "build", *flags, str(out / "crictl"), "sigs.k8s.io/cri-tools/cmd/crictl", cgo=True)
    _go("cri", "test", "-c", *flags, str(out / "critest"), "sigs.k8s.io/cri-tools/cmd/critest", cgo=True)
    images.patch_critest(out / "critest")


def _build_containerd(out):
    package = "github.com/containerd/containerd/v2"
    stamp = f"-s -w -X {package}/version.Version={_version('containerd', package)}"
    programs = [f"{package}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")]
    _go("containerd", "build", "-trimpath", "-tags", "no_btrfs no_devmapper no_zfs", "-ldflags", stamp, "-o", f"{out}/", *programs)


def _build_runc(out):
    package = "github.com/opencontainers/runc"
    stamp = f"-s -w -X main.version={_version('runc', package).removeprefix('v')}"
    _go("runc", "build", "-trimpath", "-tags", "seccomp", "-ldflags", stamp, "-o", str(out / "runc"), package, cgo=True)


def _build_cni(out):
    package = "github.com/containernetworking/plugins/plugins"
    names = ("main/bridge", "main/loopback", "ipam/host-local", "meta/portmap", "meta/firewall", "meta/tuning")
    _go("cni", "build", "-trimpath", "-ldflags", "-s -w", "-o", f"{out}/", *[f"{package}/{name}" for name in names])


def _kubelet_builder(minor):
    def build(out):
        version = KUBELETS[minor]
        stamp = _kubernetes_stamp(version)
        _go(f"kubelet-{minor}", "build", "-trimpath", "-ldflags", stamp, "-o", str(out / "kubelet"), "k8s.io/kubernetes/cmd/kubelet")

    return build


def _kubernetes_stamp(version):
    return f"-s -w -X k8s.io/component-base/version.gitVersion={version} -X k8s.io/client-go/pkg/version.gitVersion={version}"


def _build_control_plane(out):
    # One call: both share most of their packages.
    programs = [f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-apiserver", "kubectl")]
    _go("controlplane", "build", "-trimpath", "-ldflags", _kubernetes_stamp(KUBE_APISERVER), "-o", f"{out}/", *programs)


def _build_etcd(out):
    # Unpacked and not installed: an installed one would be started by systemd. 3.4 is what Debian 12 has.
    _unpack_debian(out, ["etcd-server"])


def _build_promtool(out):
    # Unpacked and not installed: an installed one would start a server.
    _unpack_debian(out, ["prometheus"])


def _build_stand_in(out):
    run(["gcc", "-O2", "-s", "-static", "-Wall", "-Werror", "-o", out / "stand-in", BEDS / "images" / "stand-in.c"])


def _unpack_debian(out, packages):
    with tempfile.TemporaryDirectory(dir=cache_folder()) as work:
        run(["apt-get", "-q", "download", *packages], cwd=work)
        for archive in glob.glob(f"{work}/*.deb"):
            run(["dpkg-deb", "--extract", archive, out])


def _build_containerd_16(out):
    # Unpacked and not installed: an installed one would be started by systemd, and could push out another containerd.
    _unpack_debian(out, ["containerd", "runc"])


def _build_kernel(out):
    # Unpacked and not installed: the machine's own boot is not touched.
    depends = run(["apt-cache", "depends", "--important", "linux-image-6.12-amd64"])
    packages = [line.split()[-1] for line in depends.splitlines() if "Depends: linux-image-6.12" in line]
    if len(packages) != 1:
        raise BedError(f"which kernel does linux-image-6.12-amd64 stand for? apt-cache says: {depends!r}")
    _unpack_debian(out, packages)
    release = packages[0].removeprefix("linux-image-")
    run(["depmod", "-b", out, release])


# These programs run for seconds and their release profiles compile for many minutes.
QUICK_RELEASE = {"CARGO_PROFILE_RELEASE_OPT_LEVEL": "1", "CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}


def _cargo_builder(package, version):
    def build(out):
        # A target folder of its own: the one of the workspace would be locked, and grow.
        with tempfile.TemporaryDirectory(dir=cache_folder()) as target:
            environment = {**os.environ, **QUICK_RELEASE, "CARGO_TARGET_DIR": target}
            run(["cargo", "install", "--quiet", "--locked", "--root", out, "--version", version, package], cwd="/", env=environment)

    return build


def _stand_in_sources():
    return (BEDS / "images" / "stand-in.c",)


def all_sets():
    """Every set by name."""
    sets = [
        ToolSet("cri", _build_cri, _module("cri"), f"1 {images.digest_of_digest_image()}"),
        ToolSet("containerd-2.4", _build_containerd, _module("containerd"), "1"),
        ToolSet("containerd-1.6", _build_containerd_16, (), "1"),
        ToolSet("runc", _build_runc, _module("runc"), "1"),
        ToolSet("cni", _build_cni, _module("cni"), "1"),
        ToolSet("promtool", _build_promtool, (), "1"),
        ToolSet("stand-in", _build_stand_in, _stand_in_sources(), "1"),
        ToolSet("kubelet-1.37", _kubelet_builder("1.37"), _module("kubelet-1.37"), "1"),
        ToolSet("kubelet-1.34", _kubelet_builder("1.34"), _module("kubelet-1.34"), "1"),
        ToolSet("kernel", _build_kernel, (), "1"),
        ToolSet("etcd", _build_etcd, (), "1"),
        ToolSet("controlplane", _build_control_plane, _module("controlplane"), "1"),
    ]
    sets += [ToolSet(name, _cargo_builder(name, version), (), version) for name, version in CARGO_PACKAGES.items()]
    return {each.name: each for each in sets}


@contextlib.contextmanager
def locked(name):
    """Holds an exclusive lock file of the cache folder: two runs never build the same thing at once."""
    path = cache_folder() / f"{name}.lock"
    with open(path, "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another run holds {path}: waiting for its end", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def folder(name):
    """The folder of a built set; an error when it is not built."""
    path = all_sets()[name].folder()
    if not path.is_dir():
        raise BedError(f"{name} is not built: run tests/setup")
    os.utime(path)
    return path


def build(names, say=print):
    """Builds the sets that are not there yet and reports the seconds of each."""
    sets = all_sets()
    with locked("tools"):
        for name in names:
            place = sets[name].folder()
            if place.is_dir():
                os.utime(place)
                say(f"  {name:15} there")
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            start = time.monotonic()
            work = pathlib.Path(tempfile.mkdtemp(prefix=f".{name}-", dir=place.parent))
            try:
                sets[name].build(work)
                work.chmod(0o755)
                work.rename(place)
            except BaseException:
                shutil.rmtree(work, ignore_errors=True)
                raise
            say(f"  {name:15} built in {time.monotonic() - start:.0f} s")
        _forget_unused(sets)


def _forget_unused(sets):
    wanted = {each.folder().name for each in sets.values()}
    for path in (cache_folder() / "tools").iterdir():
        if path.name not in wanted and time.time() - path.stat().st_mtime > UNUSED_SETS_ARE_KEPT_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
