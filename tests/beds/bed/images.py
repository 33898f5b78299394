"""Stand-ins for every image that critest and the node tests use under Linux, made from busybox and one small C program.

They are served under their upstream names by `registry`, so no network is needed and nothing in the tests changes. The
store is STORE/blobs/sha256/HEX and STORE/tags/REPOSITORY/TAG (a manifest).
"""

import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile

from .layout import BedError

OCI = "application/vnd.oci.image."
SANDBOX_IMAGE = "registry.k8s.io/pause:bed"
BUSYBOX_IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.29-2"
WEB_IMAGE = "registry.k8s.io/e2e-test-images/nginx:1.14-2"
HOSTS = ("registry.k8s.io", "k8s.gcr.io", "gcr.io")

PASSWD = """root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
"""
GROUP = "root:x:0:\ndaemon:x:1:\nwww-data:x:33:\nnobody:x:65534:\n"
FOLDERS = "bin dev etc home proc root sys usr usr/bin usr/local usr/local/bin usr/sbin var var/lib var/run var/www"
SEARCH_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

KINDS = {"folder": tarfile.DIRTYPE, "file": tarfile.REGTYPE, "link": tarfile.LNKTYPE}


def _digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _layer(entries):
    """A tar of (path, kind, mode, content or link target); the same entries always give the same bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, kind, mode, content in entries:
            info = tarfile.TarInfo(path)
            info.mode, info.type = mode, KINDS[kind]
            if kind == "file":
                info.size = len(content)
            elif kind == "link":
                info.linkname = content
            tar.addfile(info, io.BytesIO(content) if kind == "file" else None)
    return out.getvalue()


def _file(path, data=b"", mode=0o644):
    return _layer([(path, "file", mode, data)])


def _manifest(layers, config, keep):
    body = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI + "manifest.v1+json",
        "config": keep(OCI + "config.v1+json", json.dumps(body, sort_keys=True).encode()),
        "layers": [keep(OCI + "layer.v1.tar", layer) for layer in layers],
    }
    return json.dumps(manifest, sort_keys=True).encode()


def _describe(media, data):
    return {"mediaType": media, "digest": _digest(data), "size": len(data)}


# One spec of critest pulls an image by a digest that nobody can make again. This image takes its place; it holds no
# program, so its digest is the same on every machine, and critest is given that digest (it has the same length).
DIGEST_IMAGE_LAYERS = [_file("test-image-digest")]
DIGEST_IMAGE_CONFIG = {"Cmd": ["/none"], "Env": ["PATH=/"]}


def digest_of_digest_image():
    """The digest that takes the place of the one in critest."""
    return _digest(_manifest(DIGEST_IMAGE_LAYERS, DIGEST_IMAGE_CONFIG, _describe))


def patch_critest(path):
    """Replaces the one digest in a built critest; nothing else in it changes."""
    path = pathlib.Path(path)
    new = digest_of_digest_image().encode()
    program, places = re.subn(rb"(/test-image-digest@)sha256:[0-9a-f]{64}", rb"\1" + new, path.read_bytes())
    if places != 1:
        raise BedError(f"{path}: the digest of the digest image occurs {places} times, expected once")
    path.write_bytes(program)


class _Store:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        (self.path / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)

    def keep(self, media, data):
        (self.path / "blobs" / "sha256" / _digest(data)[7:]).write_bytes(data)
        return _describe(media, data)

    def image(self, names, layers, **config):
        config.setdefault("Env", [SEARCH_PATH])
        manifest = _manifest(layers, config, self.keep)
        self.keep(OCI + "manifest.v1+json", manifest)
        for name in names:
            repository, tag = name.rsplit(":", 1)
            place = self.path / "tags" / repository
            place.mkdir(parents=True, exist_ok=True)
            (place / tag).write_bytes(manifest)


def _base_layer(busybox, tool):
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    own = ("busybox", "sh", "linuxrc", "ipcs", "pgrep", "spin", "hold")
    return _layer(
        [(path, "folder", 0o755, None) for path in FOLDERS.split()]
        + [
            ("tmp", "folder", 0o1777, None),
            ("etc/passwd", "file", 0o644, PASSWD.encode()),
            ("etc/group", "file", 0o644, GROUP.encode()),
            ("bin/busybox", "file", 0o755, pathlib.Path(busybox).read_bytes()),
            ("bin/sh", "file", 0o755, tool),
            ("usr/bin/ipcs", "link", 0o755, "bin/sh"),
            ("usr/bin/pgrep", "link", 0o755, "bin/sh"),
            ("usr/bin/spin", "link", 0o755, "bin/sh"),
            ("usr/bin/hold", "link", 0o755, "bin/sh"),
        ]
        # Hard links, as in the real image: a masked /bin/ls must hide that path only.
        + [("bin/" + name, "link", 0o755, "bin/busybox") for name in sorted(applets) if name not in own]
    )


def make_store(path, stand_in, busybox="/bin/busybox"):
    """Writes all images to the folder `path`; takes well under a second."""
    tool = pathlib.Path(stand_in).read_bytes()
    base = _base_layer(busybox, tool)

    def program(place, mode=0o755):
        return _file(place, tool, mode)

    def port(number):
        return {f"{number}/tcp": {}}

    users = _layer(
        [
            ("etc/passwd", "file", 0o644, (PASSWD + "default-user:x:1000:1000::/home:/bin/sh\n").encode()),
            ("etc/group", "file", 0o644, (GROUP + "default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n").encode()),
        ]
    )
    end_to_end, staging, shell = "e2e-test-images/", "k8s-staging-cri-tools/", ["sh"]
    store = _Store(path)
    store.image(["pause:3.9"], [program("pause")], Entrypoint=["/pause"])
    # The sandbox image has another id than pause:3.9, which some specs remove and expect to be gone.
    store.image(["pause:bed"], [program("pause"), _file("bed")], Entrypoint=["/pause"])
    store.image([end_to_end + "busybox:1.29-2"], [base], Cmd=shell)
    store.image(
        [end_to_end + "nginx:1.14-2"], [base, program("usr/sbin/nginx")], Cmd=["nginx", "-g", "daemon off;"], ExposedPorts=port(80)
    )
    store.image([end_to_end + "httpd:2.4.39-4"], [base, program("usr/local/bin/httpd")], Cmd=["httpd"], ExposedPorts=port(80))
    store.image([end_to_end + "nonewprivs:1.3"], [program("nonewprivs", 0o4755)], Entrypoint=["/nonewprivs"])
    store.image(
        [staging + "hostnet-nginx-amd64:latest"],
        [base, program("usr/sbin/nginx")],
        Cmd=["nginx", "-g", "daemon off;"],
        Env=["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "PORT=12003"],
        ExposedPorts=port(12003),
    )
    for name, user in (("uid", "1002"), ("username", "www-data"), ("uid-group", "1003:1004"), ("username-group", "www-data:1004")):
        store.image([f"{staging}test-image-user-{name}:latest"], [base], User=user, Cmd=shell)
    store.image([staging + "test-image-predefined-group:latest"], [base, users], User="1000", Cmd=shell)
    for name in ("1", "2", "3", "latest"):
        store.image([f"{staging}test-image-{name}:latest"], [base, _file("test-image-" + name)], Cmd=shell)
    store.image([f"{staging}test-image-tags:{number}" for number in (1, 2, 3)], [base, _file("same-image")], Cmd=shell)
    for tag in ("test", "all"):
        store.image([f"{staging}test-image-tag:{tag}"], [base, _file(tag)], Cmd=shell)
    store.image([staging + "test-image-digest:latest"], DIGEST_IMAGE_LAYERS, **DIGEST_IMAGE_CONFIG)


def write_host_files(folder, port):
    """Sends every host of `HOSTS` to the local registry (containerd's hosts.toml)."""
    for host in HOSTS:
        os.makedirs(f"{folder}/{host}", exist_ok=True)
        address = f"http://127.0.0.1:{port}"
        with open(f"{folder}/{host}/hosts.toml", "w", encoding="utf-8") as file:
            file.write(f'server = "{address}"\n[host."{address}"]\n  capabilities = ["pull", "resolve"]\n')
