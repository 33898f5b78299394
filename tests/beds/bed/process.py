"""Long-running programs of a bed, and waiting for a state instead of sleeping."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

from .layout import BedError


def wait_for(what, condition, seconds=60.0, every=0.05):
    """Returns the first true value of `condition()`; BedError names `what` when it does not come in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise BedError(f"not seen within {seconds:g} s: {what}")
        time.sleep(every)


class Process:
    """A program with its log file; can be killed and started again."""

    def __init__(self, name, argv, log, environment=None, group=None):
        self.name = name
        self.argv = [str(word) for word in argv]
        self.log = pathlib.Path(log)
        self._environment = {**os.environ, **(environment or {})}
        self._group = group
        self._child = None

    @property
    def pid(self):
        """The process id of the running program."""
        return self._child.pid

    def start(self):
        """Starts the program in a session of its own; its output is appended to the log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)

        def join_group():
            if self._group:
                with open(f"{self._group}/cgroup.procs", "w", encoding="ascii") as file:
                    file.write(str(os.getpid()))

        with open(self.log, "ab") as log:
            self._child = subprocess.Popen(  # pylint: disable=consider-using-with,subprocess-popen-preexec-fn
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                preexec_fn=join_group,
            )
        return self

    def alive(self):
        """Whether the program runs."""
        return self._child is not None and self._child.poll() is None

    def check(self):
        """BedError with the end of the log when the program has ended."""
        if not self.alive():
            status = None if self._child is None else self._child.returncode
            raise BedError(f"{self.name} ended (status {status}):\n{self.tail()}")

    def tail(self, lines=15):
        """The last lines of the log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
        return ""

    def wait_ready(self, condition, seconds=60.0):
        """Waits until `condition()` is true, and fails at once when the program ends before."""

        def ready():
            self.check()
            return condition()

        try:
            wait_for(f"{self.name} ready", ready, seconds)
        except BedError as error:
            raise BedError(f"{error}\n{self.tail()}") from error

    def signal(self, number):
        """Sends a signal."""
        if self.alive():
            self._child.send_signal(number)

    def kill(self):
        """Ends the program with SIGKILL."""
        self.signal(signal.SIGKILL)
        if self._child is not None:
            self._child.wait()

    def stop(self, seconds=15.0):
        """Ends the program with SIGTERM, after `seconds` with SIGKILL; returns its exit status."""
        if self._child is None:
            return None
        self.signal(signal.SIGTERM)
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._child.returncode
