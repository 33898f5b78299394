"""A read-only image registry on 127.0.0.1 for a store made by `images`; runs as a thread of the test."""

import hashlib
import http.server
import json
import os
import re
import threading

PATH = re.compile(r"/v2/([a-z0-9._/-]+)/(manifests|blobs)/([A-Za-z0-9._:-]+)")


class Registry:
    """Serves a store until `stop`; `port` is the port that was free."""

    def __init__(self, store):
        store = os.fspath(store)

        class Handler(http.server.BaseHTTPRequestHandler):
            """One connection of a client."""

            protocol_version = "HTTP/1.1"

            def do_GET(self):  # noqa: N802, the name is given by the base class
                path = self.path.split("?")[0]
                if path == "/v2/":
                    return self.answer(200, b"{}")
                match = PATH.fullmatch(path)
                if not match or ".." in path:
                    return self.answer(404, b"{}")
                repository, kind, reference = match.groups()
                file = f"{store}/tags/{repository}/{reference}"
                if reference.startswith("sha256:"):
                    file = f"{store}/blobs/sha256/{reference[7:]}"
                if not os.path.isfile(file):
                    code = "MANIFEST_UNKNOWN" if kind == "manifests" else "BLOB_UNKNOWN"
                    return self.answer(404, json.dumps({"errors": [{"code": code, "message": reference}]}).encode())
                with open(file, "rb") as content:
                    data = content.read()
                if kind == "blobs":
                    return self.answer(200, data, "application/octet-stream")
                return self.answer(200, data, json.loads(data)["mediaType"], "sha256:" + hashlib.sha256(data).hexdigest())

            do_HEAD = do_GET

            def answer(self, code, data, kind="application/json", digest=None):
                """Sends a whole response."""
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                if digest:
                    self.send_header("Docker-Content-Digest", digest)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def log_message(self, format, *args):  # pylint: disable=redefined-builtin
                """Requests are not worth a line each."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        """Closes the socket."""
        self._server.shutdown()
        self._server.server_close()
