"""The proxy under test, in front of a private runtime."""

import http.client
import json
import pathlib
import re
import socket

from .layout import BedError, program
from .process import Process

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Admin:
    """What a proxy answers on its admin socket."""

    def __init__(self, admin):
        self.admin = pathlib.Path(admin)

    def ask(self, path, method="GET", body=None):
        """Status and body of a request to the admin socket; None when it does not answer."""
        # What changes things may ask the runtime about every container.
        connection = _UnixConnection(self.admin, 5 if method == "GET" else 120)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return None
        finally:
            connection.close()

    def is_ready(self):
        """Whether /readyz answers 200: calls are served."""
        answer = self.ask("/readyz")
        return answer is not None and answer[0] == 200

    def json(self, path):
        """A JSON answer of the admin socket."""
        return json.loads(self._text(path))

    def metric(self, name, **labels):
        """The sum of all samples of a metric of the proxy that have these labels."""
        return sum_of_samples(self._text("/metrics"), f"koord_runtime_proxy_{name}", labels)

    def _text(self, path):
        answer = self.ask(path)
        if answer is None:
            raise BedError(f"no answer from {self.admin} to GET {path}")
        return answer[1]


class Proxy(Admin):
    """koord-runtime-proxy with every path private to `directory`."""

    def __init__(self, directory, backend, registrations, flags=()):
        directory = pathlib.Path(directory)
        (directory / "proxy").mkdir(mode=0o755, parents=True, exist_ok=True)
        self.socket = directory / "proxy" / "runtimeproxy.sock"
        super().__init__(directory / "proxy" / "admin.sock")
        argv = [program("koord-runtime-proxy", "KOORD_PROXY")]
        argv += ["--koord-runtimeproxy-endpoint", self.socket, "--remote-runtime-service-endpoint", backend]
        argv += ["--hook-config-dir", registrations, "--state-dir", directory / "proxy" / "state"]
        argv += ["--admin-socket", self.admin, *flags]
        self.process = Process("koord-runtime-proxy", argv, directory / "log" / "proxy")

    def __enter__(self):
        self.process.start()
        self.wait_ready()
        return self

    def __exit__(self, *_):
        self.process.stop()

    def wait_ready(self, seconds=60.0):
        """Waits until the proxy serves calls."""
        self.process.wait_ready(self.is_ready, seconds)


def sum_of_samples(text, name, labels):
    """The sum of the samples of one metric in Prometheus text."""
    total = 0.0
    for line in text.splitlines():
        found = _SAMPLE.fullmatch(line)
        if found and found.group(1) == name and labels.items() <= dict(_LABEL.findall(found.group(2) or "")).items():
            total += float(found.group(3))
    return total
