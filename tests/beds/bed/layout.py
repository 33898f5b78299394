"""Where things are: the repository, the cache of built tools, the programs of this workspace."""

import os
import pathlib
import shutil
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
BEDS = REPOSITORY / "tests" / "beds"
TARGET = REPOSITORY / "target"

# Places where the usual installers put the tool chains; a root shell without a login often lacks them in PATH.
TOOL_CHAIN_FOLDERS = (os.path.expanduser("~/.cargo/bin"), "/usr/local/go/bin", "/usr/sbin", "/sbin")


class BedError(Exception):
    """A bed could not be built, started or checked; the text says what and where to look."""


def cache_folder():
    """The folder of everything that is built once: KOORD_CACHE, or koord below the user's cache folder."""
    chosen = os.environ.get("KOORD_CACHE")
    if not chosen:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        chosen = os.path.join(base, "koord")
    path = pathlib.Path(chosen).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


def complete_path():
    """Add the tool chain folders that exist to PATH, after what is there already."""
    present = os.environ.get("PATH", "").split(":")
    more = [folder for folder in TOOL_CHAIN_FOLDERS if folder not in present and os.path.isdir(folder)]
    os.environ["PATH"] = ":".join([*filter(None, present), *more])


def program(name, variable=None, profiles=("release", "debug")):
    """The path of a program of this workspace: the environment variable, else the newest build."""
    if variable and os.environ.get(variable):
        return pathlib.Path(os.environ[variable]).absolute()
    found = [TARGET / profile / name for profile in profiles if (TARGET / profile / name).is_file()]
    if not found:
        raise BedError(f"{name} is not built: cargo build --workspace --bins")
    return max(found, key=lambda path: path.stat().st_mtime)


def run(argv, **options):
    """subprocess.run with text output and an error that names the command and shows its last lines."""
    options.setdefault("text", True)
    options.setdefault("stdin", subprocess.DEVNULL)
    result = subprocess.run([str(word) for word in argv], capture_output=True, check=False, **options)
    if result.returncode != 0:
        tail = "\n".join((result.stdout + result.stderr).strip().splitlines()[-15:])
        raise BedError(f"{' '.join(map(str, argv))}: exit status {result.returncode}\n{tail}")
    return result.stdout


def need_root():
    """The beds make namespaces, mounts and cgroups."""
    if os.geteuid() != 0:
        sys.exit("this test needs root: it runs real containers")


def which(name):
    """The path of an installed program."""
    path = shutil.which(name)
    if path is None:
        raise BedError(f"{name} is not installed: run tests/setup")
    return path


complete_path()
