"""Hook servers and their registrations."""

import json
import pathlib
import random
import threading

from .layout import program
from .process import Process, wait_for

ALL_HOOKS = (
    "PreRunPodSandbox",
    "PostStopPodSandbox",
    "PreCreateContainer",
    "PreStartContainer",
    "PostStartContainer",
    "PreUpdateContainerResources",
    "PostStopContainer",
)


def registration_folder(directory):
    """A registration folder as the proxy accepts it: owned by root, writable by nobody else."""
    path = pathlib.Path(directory) / "hookserver.d"
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.chmod(0o755)
    return path


def register(folder, name, endpoint, policy="Ignore", hooks=ALL_HOOKS):
    """Writes a registration of a server that need not exist."""
    place = pathlib.Path(folder) / f"{name}.json"
    half = place.with_suffix(".half")
    half.write_text(
        json.dumps({"remote-endpoint": str(endpoint), "failure-policy": policy, "runtime-hooks": list(hooks)}),
        encoding="utf-8",
    )
    half.chmod(0o644)
    half.rename(place)


class HookServer:
    """The example hook server of this workspace; without values it answers what it was asked."""

    def __init__(self, directory, registrations, policy="Ignore", hooks=ALL_HOOKS, values=()):
        directory = pathlib.Path(directory)
        self.socket = directory / "hook.sock"
        self.calls = directory / "log" / "hook-calls"
        self._registration = pathlib.Path(registrations) / "example.json"
        argv = [program("example-hook-server", "KOORD_HOOK_SERVER"), "--socket", self.socket]
        argv += ["--register", self._registration, "--policy", policy, "--hooks", ",".join(hooks)]
        argv += ["--log", self.calls, *values]
        if not values:
            argv.append("--echo")
        self.process = Process("hook server", argv, directory / "log" / "hook-server")

    def __enter__(self):
        self.process.start()
        self.process.wait_ready(lambda: self.socket.exists() and self._registration.exists())
        return self

    def __exit__(self, *_):
        self.process.stop()

    def called(self):
        """The calls so far, one JSON object each."""
        try:
            lines = self.calls.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.endswith("}")]


class Killer:
    """Kills a program with SIGKILL at random moments and starts it again; the seed makes the moments repeatable."""

    def __init__(self, process, seed, shortest=0.2, longest=2.0):
        self._process = process
        self._random = random.Random(seed)
        self._span = (shortest, longest)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.kills = 0

    def _work(self):
        while not self._end.wait(self._random.uniform(*self._span)):
            self._process.kill()
            self.kills += 1
            # Down for a while too: calls must meet a server that is not there.
            self._end.wait(self._random.uniform(0.0, 0.5))
            self._process.start()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        wait_for("the killed program started again", self._process.alive)
