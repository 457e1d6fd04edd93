# SPDX-License-Identifier: Apache-2.0
"""A small server with the part of the Hugging Face hub's interface that a download uses, on loopback: one model, one commit."""

from __future__ import annotations

import collections
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "ab" * 20
NAME = "maker/tiny"


class Hub:
    """What the server was asked for."""

    def __init__(self) -> None:
        self.url = ""
        self.downloads: collections.Counter[str] = collections.Counter()
        """Names of files whose bytes were sent."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: Hub
    folder: Path

    def do_HEAD(self) -> None:
        self._answer(sends=False)

    def do_GET(self) -> None:
        self._answer(sends=True)

    def _answer(self, *, sends: bool) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/"):
            data, kind = self._about(path), "application/json"
        else:
            file = self.folder / path.rpartition("/")[2]
            data, kind = (file.read_bytes() if file.exists() else None), "application/octet-stream"
            if sends and data is not None:
                self.seen.downloads[file.name] += 1
                time.sleep(0.2)  # so that others ask meanwhile
        self.send_response(404 if data is None else 200)
        self.send_header("content-length", str(len(data or b"")))
        self.send_header("content-type", kind)
        self.send_header("etag", f'"{hashlib.sha1(data or b"").hexdigest()}"')
        self.send_header("x-repo-commit", COMMIT)
        self.end_headers()
        if sends and data:
            self.wfile.write(data)

    def _about(self, path: str) -> bytes:
        files = sorted(self.folder.iterdir())
        if "/tree/" in path:
            said: object = [
                {
                    "type": "file",
                    "path": f.name,
                    "size": f.stat().st_size,
                    "oid": hashlib.sha1(f.read_bytes()).hexdigest(),
                }
                for f in files
            ]
        else:
            said = {"id": NAME, "sha": COMMIT, "siblings": [{"rfilename": file.name} for file in files]}
        return json.dumps(said).encode()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def hub_server(folder: Path) -> Iterator[Hub]:
    """Serve the files of a folder as a model."""
    seen = Hub()
    handler = type("Handler", (_Handler,), {"seen": seen, "folder": folder})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    seen.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
