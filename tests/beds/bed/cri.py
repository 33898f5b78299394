"""crictl as a library: one object for one socket."""

import json
import subprocess

from . import tools
from .layout import BedError


class Result:
    """What one call printed."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err


class Crictl:
    """Runs crictl against one CRI socket for both services."""

    def __init__(self, socket, timeout="60s"):
        self.socket = str(socket)
        self.argv = [
            str(tools.folder("cri") / "crictl"),
            "--config",
            "/dev/null",
            "--runtime-endpoint",
            f"unix://{socket}",
            "--image-endpoint",
            f"unix://{socket}",
            "--timeout",
            timeout,
        ]

    def call(self, *arguments, seconds=120.0, stdin=None):
        """Runs crictl and returns its exit status and texts."""
        words = self.argv + [str(word) for word in arguments]
        try:
            result = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False, input=stdin or "")
        except subprocess.TimeoutExpired as error:
            raise BedError(f"crictl {' '.join(map(str, arguments))}: no answer in {seconds:g} s") from error
        return Result(result.returncode, result.stdout, result.stderr)

    def run(self, *arguments, seconds=120.0):
        """The standard output of a call that must succeed."""
        result = self.call(*arguments, seconds=seconds)
        if result.status != 0:
            raise BedError(f"crictl {' '.join(map(str, arguments))}: exit status {result.status}\n{result.err.strip()}")
        return result.out.strip()

    def works(self, *arguments, seconds=30.0):
        """Whether a call succeeds."""
        try:
            return self.call(*arguments, seconds=seconds).status == 0
        except BedError:
            return False

    def json(self, *arguments):
        """The parsed answer of a call that prints JSON."""
        return json.loads(self.run(*arguments))
