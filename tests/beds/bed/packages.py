"""The packages of this tree in two versions, for tests that install them on a machine that is thrown away."""

import os
import pathlib
import shutil
import subprocess

from . import tools
from .layout import REPOSITORY, TARGET, need_root, run

# Where the packages are on such a machine.
INSIDE = pathlib.Path("/vm-out/packages")


def make_two_versions(place):
    """Makes the .deb packages below `place`: in `old`, and of a higher version in `new`.

    Of the programs in the folder KOORD_BINARIES, else of those of the release build.
    """
    options = ["--compression", "fast", "--formats", "deb", "--binaries", os.environ.get("KOORD_BINARIES", TARGET / "release")]
    for version, suffix in (("old", ""), ("new", "+1")):
        run([REPOSITORY / "packaging" / "build", *options, "--out", place / version, "--version-suffix", suffix], cwd=REPOSITORY)


def is_inside():
    """Whether this is a machine with packages that may be changed."""
    return "VM_OUT" in os.environ and os.path.isdir("/run/systemd/system")


def outside(program, arguments):
    """Makes the packages and runs a program on a machine of its own (node/systemd); gives its exit status."""
    need_root()
    with tools.locked("installed"):
        out = TARGET / "node" / pathlib.Path(program).name
        shutil.rmtree(out, ignore_errors=True)
        make_two_versions(out / "packages")
        machine = REPOSITORY / "tests" / "node" / "systemd"
        argv = [machine, "--timeout", "3600", "--out", out, "--", program, *arguments]
        return subprocess.run([str(word) for word in argv], check=False).returncode
