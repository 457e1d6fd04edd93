# SPDX-License-Identifier: Apache-2.0
"""A bucket whose server answers 503 to a share of the requests, or to all of them."""

import errno
import gzip
import hashlib
import json
import logging
import threading
import traceback

import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.runner import run
from curator_df.errors import CorruptFileError, RemoteFileError
from curator_df.files import retry as transient
from curator_df.files.retry import is_transient, retry_transient
from curator_df.files.storage import Folder
from curator_df.io.streams.file_stream import open_bytes, open_file
from tests.core.runner.fake_client import inline_cluster

BUSY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
ROWS = 600


class Throttle:
    """Hands requests on to an application, but for those that it answers with 503."""

    def __init__(self, application):
        self.application, self.refused, self.first, self.seen = application, 0, 0, {}
        self.lock = threading.Lock()

    def __call__(self, environ, start_response):
        if self.refuses(environ):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [BUSY]
        return self.application(environ, start_response)

    def refuses(self, environ):
        """Tell whether this request is one of the first few to its object: the same ones whatever the order of tasks."""
        asked = " ".join(environ.get(key, "") for key in ("REQUEST_METHOD", "PATH_INFO", "HTTP_RANGE"))
        first = min(self.first, 3) if environ["REQUEST_METHOD"] == "HEAD" else self.first  # s3fs tries these once
        share = hashlib.blake2b(asked.encode(), digest_size=1).digest()[0] % 3 == 0
        with self.lock:
            self.seen[asked] = self.seen.get(asked, 0) + 1
            refuses = share and self.seen[asked] <= first
            self.refused += refuses
        return refuses


@pytest.fixture(scope="module")
def throttle():
    pytest.importorskip("s3fs", reason="needs s3fs, and moto[server] to serve it")
    server = pytest.importorskip("moto.server", reason="needs moto[server], a server of the S3 protocol")
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = Throttle(server.DomainDispatcherApplication(server.create_backend_app))
    serving = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    application.url = f"http://127.0.0.1:{serving.server_port}"
    yield application
    serving.shutdown()


@pytest.fixture(scope="module")
def options(throttle):
    import s3fs

    # One try of the client itself, so that it is ours that are tested, and quickly.
    config = {"retries": {"max_attempts": 0}}
    options = {"key": "a", "secret": "b", "client_kwargs": {"endpoint_url": throttle.url}, "config_kwargs": config}
    system = s3fs.S3FileSystem(**options)
    system.call_s3("create_bucket", Bucket="bucket")
    for part in range(3):
        with system.open(f"bucket/in/{part}.jsonl", "w") as file:
            rows = ({"id": n, "text": f"text {n}"} for n in range(200 * part, 200 * part + 200))
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return options


@pytest.fixture
def refusing(throttle):
    def refuse(first):
        throttle.first, throttle.refused, throttle.seen = first, 0, {}
        return throttle

    yield refuse
    throttle.first = 0


@pytest.fixture
def few_tries(monkeypatch):
    """One try of s3fs itself and short waits, so that it is ours that are tested, and quickly."""
    monkeypatch.setattr(pytest.importorskip("s3fs", reason="needs s3fs").S3FileSystem, "retries", 1)
    monkeypatch.setattr(transient, "FIRST_WAIT_SECONDS", 0.01)


def ids_in(url, options):
    return cdf.read_parquet(url, storage_options=options).id.compute().tolist()


@pytest.fixture
def soon(monkeypatch):
    s3fs = pytest.importorskip("s3fs", reason="needs s3fs, and moto[server] to serve it")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setattr(transient, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(retry_transient, "__kwdefaults__", {**retry_transient.__kwdefaults__, "tries": 2})


@pytest.fixture(scope="module")
def cluster():
    """Tasks of this process, whose waits can be shortened; workers of their own write to a store in tests/faults."""
    with inline_cluster("2GB", 2) as running:
        yield running


@pytest.mark.proof  # it waits for the tries of s3fs itself, a minute
def test_a_run_gets_through_and_loses_no_row(cluster, options, refusing, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)
    throttle = refusing(7)  # s3fs alone tries five times
    docs = cdf.read_jsonl("s3://bucket/in/*.jsonl", storage_options=options)
    receipt = cdf.write_parquet(docs, "s3://bucket/out", storage_options=options)
    assert throttle.refused > 20
    assert receipt.rows_written == ROWS
    assert ids_in("s3://bucket/out", options) == list(range(ROWS))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_stages_and_folders_of_values_get_through_if_need_be_in_several_runs(
    cluster, options, refusing, few_tries, monkeypatch
):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 10_000)
    docs = cdf.read_jsonl("s3://bucket/in/*.jsonl", storage_options=options)
    docs = docs.assign(key=docs.id % 2).assign(text=docs.text.str[:7])  # "text 10" is also that of 100 to 109
    tables = {"s3://bucket/all": docs, "s3://bucket/unique": docs.curate.drop_exact_duplicates()}
    throttle = refusing(1)
    how = {"partition_on": "key", "rejects": {"s3://bucket/unique": "s3://bucket/again"}, "storage_options": options}
    # A task that writes several files gives up when each of its tries meets another one that is refused.
    for _ in range(6):
        try:
            receipts = cdf.write_many(tables, on_existing="resume", **how)
            break
        except RemoteFileError as exc:
            assert "on_existing='resume'" in str(exc)  # noqa: PT017
    refused = throttle.refused
    throttle.first = 0
    assert refused > 20
    assert [receipt.rows_written for receipt in receipts.values()] == [ROWS, 100]
    found = {name: sorted(ids_in(f"s3://bucket/{name}", options)) for name in ("all", "unique", "again")}
    assert found == {"all": list(range(ROWS)), "unique": list(range(100)), "again": list(range(100, ROWS))}
    for name in found:
        left = Folder(f"s3://bucket/{name}/_curator", options).names()
        assert not any(path.startswith(("owners/", "stages/", "unfinished/")) for path in left)


def test_a_run_that_a_store_refuses_to_take_ends_in_a_clear_error_and_resumes(
    cluster, options, refusing, few_tries, monkeypatch
):
    throttle = refusing(0)

    def refuses(environ):
        throttle.refused += (refused := environ["REQUEST_METHOD"] == "PUT" and "/full/part-" in environ["PATH_INFO"])
        return refused

    docs = cdf.read_jsonl("s3://bucket/in/*.jsonl", storage_options=options)
    with monkeypatch.context() as patch:
        patch.setattr(throttle, "refuses", refuses)
        with pytest.raises(
            RemoteFileError, match=r"cannot finish task 0: OSError: .*tried 6 times.*on_existing='resume'"
        ):
            cdf.write_parquet(docs, "s3://bucket/full", storage_options=options)
    assert throttle.refused >= 6
    receipt = cdf.write_parquet(docs, "s3://bucket/full", on_existing="resume", storage_options=options)
    assert receipt.rows_written == ROWS
    assert ids_in("s3://bucket/full", options) == list(range(ROWS))


def test_a_store_that_refuses_all_ends_in_an_error_that_says_so(options, refusing, soon):
    folder = Folder("s3://bucket/refused", options)
    Folder("s3://bucket/in", options).write("a.jsonl.gz", gzip.compress(b'{"id": 1}'))
    with (
        open_bytes("s3://bucket/in/0.jsonl", options) as plain,
        open_bytes("s3://bucket/in/a.jsonl.gz", options) as packed,
        open_file("s3://bucket/in/0.jsonl", options) as columns,
    ):
        refusing(0).refuses = lambda environ: True
        try:
            for verb, call in {
                "read": lambda: plain.readinto(memoryview(bytearray(10))),
                "read ": lambda: packed.readinto(memoryview(bytearray(10))),
                "read  ": lambda: pq.ParquetFile(columns),
                "write": lambda: folder.write("a", b"a"),
                "list": folder.names,
                "look up": lambda: folder.exists("a"),
            }.items():
                with pytest.raises(
                    RemoteFileError, match=f"cannot {verb.strip()} .*bucket.*(request rate|Unavailable)"
                ) as told:
                    call()
                assert "this is not a sign of a damaged file" in str(told.value)
                assert "on_existing='resume'" in str(told.value)
                assert not isinstance(told.value, CorruptFileError)
            with pytest.raises(RemoteFileError, match="cannot list 's3://bucket/in'"):
                cdf.read_jsonl("s3://bucket/in", storage_options=options)
        finally:
            del refusing(0).refuses
        assert plain.readinto(memoryview(bytearray(10))) == 10


@pytest.mark.parametrize("error", [OSError(errno.EREMOTEIO, "internal"), ConnectionResetError(), TimeoutError()])
def test_what_passes_by_itself_is_tried_again(monkeypatch, error):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    answers = iter([error, error, error, "it"])

    def call():
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    assert retry_transient("read 'it'", call) == "it"
    assert len(waits) == 3
    assert all(0.25 * 2**place <= wait <= 0.5 * 2**place for place, wait in enumerate(waits))


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "gone"), OSError(errno.ENOSPC, "full"), ValueError("x")]
)
def test_what_does_not_pass_is_raised_at_once(monkeypatch, error):
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"slept {seconds}"))

    def call():
        raise error

    with pytest.raises(type(error)):
        retry_transient("read 'it'", call)


def test_an_error_of_a_store_shows_no_frames_of_its_client():
    def connect() -> None:
        try:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        except OSError as exc:
            raise ConnectionError("the store is gone") from exc

    with pytest.raises(RemoteFileError) as caught:
        retry_transient("read 's3://a/b'", connect, tries=1)
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.startswith("ConnectionRefusedError: [Errno 111] Connection refused\n")
    assert "\nConnectionError: the store is gone\n" in shown
    assert "in connect" not in shown
    assert shown.count("Traceback (most recent call last)") == 1


def test_the_status_that_a_client_of_a_store_knows_tells():
    class OfStoreError(Exception):
        pass

    for name, value, expected in [("code", 429, True), ("status", "503", True), ("status_code", 404, False)]:
        error = OfStoreError("no")
        setattr(error, name, value)
        assert is_transient(error) is expected
        wrapped = OSError(errno.EIO, "something")
        wrapped.__cause__ = error
        assert is_transient(wrapped) is expected
