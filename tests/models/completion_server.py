# SPDX-License-Identifier: Apache-2.0
"""A small server of chat completions on loopback, which does wrong what it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Completions:
    """What the server was asked, and what it does to the next requests with some text in them."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        """Bodies, in the order in which they came."""
        self.keys: set[str | None] = set()
        """Authorization headers."""
        self.faults: dict[str, list[str]] = {}
        """By a text that a prompt ends with: ``429``, ``500``, ``400``, ``cut``, ``drop``, ``junk``, ``zip``, one for each
        request; or JSON that the answer is changed by."""
        self.at_a_time = self.most_at_a_time = 0
        self.lock = threading.Lock()
        self.pending: threading.Barrier | None = None
        """Requests wait here for each other."""
        self.seconds = 0.0
        """How long each answer takes."""
        self.base_url = ""

    def prompts(self) -> list[str]:
        return [body["messages"][-1]["content"] for body in self.asked]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: Completions

    def do_POST(self) -> None:
        seen, body = self.seen, json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = body["messages"][-1]["content"]
        with seen.lock:
            seen.asked.append({**body, "path": self.path})
            seen.keys.add(self.headers.get("authorization"))
            seen.at_a_time += 1
            seen.most_at_a_time = max(seen.most_at_a_time, seen.at_a_time)
            fault = next((faults.pop(0) for end, faults in seen.faults.items() if prompt.endswith(end) and faults), "")
        if seen.pending is not None:
            seen.pending.wait(30)
        time.sleep(seen.seconds)
        with seen.lock:
            seen.at_a_time -= 1
        answer = {
            "choices": [{"message": {"content": prompt.upper()}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        }
        if fault.startswith("{"):
            answer |= json.loads(fault)
        content = json.dumps(answer).encode()
        if fault == "drop":
            self.close_connection = True
            return
        if fault in ("400", "429", "500"):
            content = f"no: {self.headers.get('authorization')}".encode()
            self.send_response(int(fault))
            if fault == "429":
                self.send_header("retry-after", "0")
        else:
            self.send_response(200)
        if fault == "zip":  # which it is not
            self.send_header("content-encoding", "gzip")
        content = b"{}" if fault == "junk" else content
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
        self.close_connection = fault == "cut"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def completion_server() -> Iterator[Completions]:
    """Run the server in threads of this process."""
    seen = Completions()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"seen": seen}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    seen.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
