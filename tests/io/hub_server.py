# SPDX-License-Identifier: Apache-2.0
"""A server on this machine that speaks the API of the Hugging Face hub, as far as huggingface_hub and datasets use it.

It holds repositories of data sets in memory: commits, branches, files stored by LFS. It counts requests, and can refuse, drop
or hold some of them.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_test"
LFS_SUFFIXES = (".parquet", ".gz", ".zst")
SMALL_BYTES = 10_000_000


@dataclass
class Repository:
    """Commits of a data set."""

    private: bool = False
    trees: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Files of each commit."""
    messages: list[str] = field(default_factory=list)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], message: str = "", branch: str = "main") -> str:
        """Add a commit; return its name."""
        name = hashlib.sha1(repr((len(self.trees), message, sorted(files))).encode()).hexdigest()
        self.trees[name] = dict(files)
        self.messages.append(message)
        self.branches[branch] = name
        return name

    def files(self, revision: str = "main") -> dict[str, bytes]:
        """Return the files of a revision."""
        return self.trees[self.branches.get(revision, revision)]


class Hub(ThreadingHTTPServer):
    """The server, with everything that is stored on it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.stored: dict[str, bytes] = {}
        """Content of LFS files by SHA-256, with and without a commit that has them."""
        self.requests: list[tuple[str, str]] = []
        """Method and path of each request."""
        self.fault: Callable[[str, str], str | None] = lambda _method, _path: None
        """What to do with a request instead: ``"503"``, ``"denied"``, ``"reset"``, ``"lost"`` (done, without
        an answer) or None."""

        self.refused: tuple[int, str] | None = None
        """Status and code of the error for every request with a token, if it is refused."""

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def options(self) -> dict[str, Any]:
        """Options of fsspec for it."""
        return {"endpoint": self.url, "token": TOKEN}

    def add(self, name: str, files: dict[str, bytes], **how: Any) -> Repository:
        """Add a repository with one commit."""
        self.repositories[name] = Repository(**how)
        self.repositories[name].commit({".gitattributes": b"*.parquet filter=lfs\n", **files}, "initial commit")
        return self.repositories[name]

    def count(self, method: str, part: str) -> int:
        """Return the number of requests with this text in their path."""
        return sum(each[0] == method and part in each[1] for each in self.requests)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about clients that were killed."""


@contextlib.contextmanager
def hub_server() -> Iterator[Hub]:
    """Run a hub in a thread of this process."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


def once(part: str, fault: str, method: str = "") -> Callable[[str, str], str | None]:
    """Return a fault of the first request whose path has this text."""
    left = [fault]
    return lambda m, path: left.pop() if left and part in path and method in m else None


def _oid(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


class _RefusedError(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Hub

    def log_message(self, *_: Any) -> None:
        """Write no log."""

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 - names of the standard library

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self._chunks()
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append((self.command, path))
        fault = self.server.fault(self.command, path)
        if fault == "503":
            self._answer(b"busy", status=503)
            return
        if fault == "denied":
            self._answer(b"denied", status=410)
            return
        if fault == "reset":
            self._reset()
            return
        try:
            address = urlsplit(self.path)
            content, headers, status = self._content(address.path, parse_qs(address.query), body)
        except _RefusedError as exc:
            errors = {"X-Error-Code": exc.code, "X-Error-Message": exc.message}
            said = json.dumps({"error": exc.message, "url": f"{self.server.url}/datasets/org/name"}).encode()
            self._answer(said, {name: value for name, value in errors.items() if value}, status=exc.status)
            return
        if fault == "lost":
            self._reset()
            return
        self._answer(content, headers, status)

    def _chunks(self) -> bytes:
        found = b""
        while self.headers.get("Transfer-Encoding") == "chunked":
            size = int(self.rfile.readline(), 16)
            found += self.rfile.read(size)
            self.rfile.readline()
            if not size:
                break
        return found

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _answer(self, content: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        headers = {"Content-Type": "application/json", **(headers or {})}
        asked = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and status == 200:
            first, last = int(asked[1]), min(int(asked[2] or len(content) - 1), len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content, status = content[first : last + 1], 206
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _content(self, path: str, query: dict[str, list[str]], body: bytes) -> tuple[bytes, dict[str, str], int]:
        if found := re.fullmatch(r"/lfs/([0-9a-f]{64})", path):
            return self._lfs_file(found[1], body)
        self._require_token()
        if path == "/api/whoami-v2":
            return _json({"name": "org", "type": "user"})
        if path == "/api/validate-yaml":
            return _json({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if found := re.fullmatch(r"/datasets/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            self._repository(found[1])
            return self._batch(json.loads(body))
        if found := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._resolve(found[1], unquote(found[2]), unquote(found[3]))
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)(?:/(\w[\w-]*)(?:/([^/]+))?(?:/(.+))?)?", path):
            revision, below = unquote(found[3] or "main"), unquote(found[4] or "")
            return self._api(found[1], found[2] or "revision", revision, below, query, body)
        if re.fullmatch(
            r"/api/datasets/[^/]+", path
        ):  # early versions of the client ask for names without organization
            self._repository(path)
        raise _RefusedError(404, message=f"no such address: {path}")

    def _require_token(self) -> None:
        given = self.headers.get("Authorization")
        if given is not None and self.server.refused is not None:
            status, code = self.server.refused
            raise _RefusedError(status, code, "Invalid credentials in Authorization header" if status == 401 else "no")
        if given is not None and given != f"Bearer {TOKEN}":
            raise _RefusedError(401, message="Invalid credentials in Authorization header")

    def _repository(self, name: str) -> Repository:
        repository = self.server.repositories.get(name)
        if repository is None or (repository.private and not self.headers.get("Authorization")):
            raise _RefusedError(
                401 if not self.headers.get("Authorization") else 404, "RepoNotFound", "Repository not found"
            )
        return repository

    def _create(self, asked: dict[str, Any]) -> tuple[bytes, dict[str, str], int]:
        name = f"{asked.get('organization') or 'org'}/{asked['name']}"
        if name in self.server.repositories:
            raise _RefusedError(409, message="You already created this dataset repo")
        self.server.add(name, {}, private=asked.get("private") or asked.get("visibility") == "private")
        return _json({"url": f"{self.server.url}/datasets/{name}", "name": name, "id": name})

    def _batch(self, asked: dict[str, Any]) -> tuple[bytes, dict[str, str], int]:
        def entry(wanted: dict[str, Any]) -> dict[str, Any]:
            if wanted["oid"] in self.server.stored:
                return wanted
            return {
                **wanted,
                "actions": {"upload": {"href": f"{self.server.url}/lfs/{wanted['oid']}?X-Amz-Signature=4f2a"}},
            }

        return _json({"transfer": "basic", "objects": [entry(each) for each in asked["objects"]]})

    def _lfs_file(self, name: str, body: bytes) -> tuple[bytes, dict[str, str], int]:
        if self.command == "PUT":
            if hashlib.sha256(body).hexdigest() != name:
                raise _RefusedError(400, message="the content is not that of the SHA-256")
            self.server.stored[name] = body
            return b"", {"ETag": name}, 200
        return self.server.stored[name], {"ETag": f'"{name}"', "Accept-Ranges": "bytes"}, 200

    def _tree_at(self, name: str, revision: str) -> tuple[str, dict[str, bytes]]:
        repository = self._repository(name)
        commit = repository.branches.get(revision, revision)
        if commit not in repository.trees:
            raise _RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit, repository.trees[commit]

    def _resolve(self, name: str, revision: str, path: str) -> tuple[bytes, dict[str, str], int]:
        commit, files = self._tree_at(name, revision)
        if path not in files:
            raise _RefusedError(404, "EntryNotFound", "Entry not found")
        content = files[path]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{_oid(content)}"', "Accept-Ranges": "bytes"}
        if not path.endswith(LFS_SUFFIXES):
            return content, headers, 200
        stored = hashlib.sha256(content).hexdigest()
        self.server.stored[stored] = content
        linked = {"X-Linked-ETag": f'"{stored}"', "X-Linked-Size": str(len(content))}
        elsewhere = f"http://localhost:{self.server.server_port}"  # another host than the hub, as its CDN
        return b"", {**headers, **linked, "Location": f"{elsewhere}/lfs/{stored}"}, 302

    def _api(
        self, name: str, what: str, revision: str, path: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[bytes, dict[str, str], int]:
        if what == "branch":
            repository = self._repository(name)
            if revision in repository.branches:
                raise _RefusedError(409, message="Reference already exists")
            repository.branches[revision] = repository.branches["main"]
            return _json({})
        commit, files = self._tree_at(name, revision)
        if what == "revision":
            siblings = [{"rfilename": each} for each in files]
            about = {"id": name, "sha": commit, "private": self._repository(name).private, "siblings": siblings}
            return _json({**about, "lastModified": "2026-01-02T03:04:05.000Z", "tags": [], "downloads": 0, "likes": 0})
        if what == "tree":
            return _tree(files, path, recursive=query.get("recursive", [""])[0].lower() in ("true", "1"))
        if what == "paths-info":
            wanted = parse_qs(body.decode())["paths"] if b"=" in body else json.loads(body)["paths"]
            return _json([_entry(each, files[each]) for each in wanted if each in files])
        if what == "preupload":
            return _json({"files": [self._mode(each, files) for each in json.loads(body)["files"]]})
        if what == "commit":
            return self._commit(name, revision, [json.loads(line) for line in body.splitlines()])
        raise _RefusedError(404, message=f"no such address: {what}")

    def _mode(self, asked: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
        is_lfs = asked["path"].endswith(LFS_SUFFIXES) or asked["size"] > SMALL_BYTES
        known = files.get(asked["path"])
        oid = None if known is None else hashlib.sha256(known).hexdigest() if is_lfs else _oid(known)
        mode = "lfs" if is_lfs else "regular"
        return {"path": asked["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}

    def _commit(self, name: str, branch: str, lines: list[dict[str, Any]]) -> tuple[bytes, dict[str, str], int]:
        repository = self._repository(name)
        files, summary = dict(repository.files(branch)), ""
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                summary = value["summary"]
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.server.stored:
                    raise _RefusedError(400, message=f"the LFS file {value['oid']} was not uploaded")
                files[value["path"]] = self.server.stored[value["oid"]]
            elif value["path"] not in files:
                raise _RefusedError(404, "EntryNotFound", "A file with this name doesn't exist")
            else:
                del files[value["path"]]
        commit = repository.commit(files, summary, branch)
        return _json(
            {"success": True, "commitOid": commit, "commitUrl": f"{self.server.url}/datasets/{name}/commit/{commit}"}
        )


def _json(value: Any) -> tuple[bytes, dict[str, str], int]:
    return json.dumps(value).encode(), {}, 200


def _entry(path: str, content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": _oid(content)}
    if path.endswith(LFS_SUFFIXES):
        found["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return found


def _tree(files: dict[str, bytes], folder: str, *, recursive: bool) -> tuple[bytes, dict[str, str], int]:
    prefix = f"{folder}/" if folder else ""
    below = {path: content for path, content in files.items() if path.startswith(prefix)}
    if not below and folder:
        raise _RefusedError(404, "EntryNotFound", "Entry not found")
    folders = set()
    for path in below:
        parts = path[len(prefix) :].split("/")
        folders |= {prefix + "/".join(parts[:count]) for count in range(1, len(parts))}
    entries = [{"type": "directory", "path": each, "size": 0, "oid": _oid(each.encode())} for each in sorted(folders)]
    entries += [_entry(path, content) for path, content in below.items()]
    return _json([each for each in entries if recursive or "/" not in each["path"][len(prefix) :]])


def wait_until(is_so: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError("it did not become so")
        time.sleep(0.02)
