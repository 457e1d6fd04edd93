# SPDX-License-Identifier: Apache-2.0
"""`add_completion` where requests fail for another reason than their rows: the key, the model, or the server."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler

import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.memory.process_cache import release_held
from curator_df.models.completion import calls as completion_calls
from curator_df.models.completion.calls import NoAnswerError, key_in, without_key
from tests.contracts.operator_cases import kernels_of
from tests.core.runner.fake_client import inline_cluster
from tests.models import completion_server as servers
from tests.models.completion_asking import answers, ask, table

pytest.importorskip("httpx", reason="needs the completions extra (httpx is not installed)")
KEY = "SECRETKEY123"


@pytest.fixture
def server():
    with servers.completion_server() as running:
        yield running
        release_held()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(completion_calls, "FIRST_WAIT_SECONDS", 0.001)


@pytest.fixture
def refuse_with(monkeypatch):
    """Return a function that says which status the server has for 400."""

    def refuse_with(status):
        def send_response(self, code, message=None):
            BaseHTTPRequestHandler.send_response(self, status if code == 400 else code, message)

        monkeypatch.setattr(servers._Handler, "send_response", send_response, raising=False)

    return refuse_with


def block_of(texts):
    return table(texts).compute(scheduler="synchronous")


@pytest.mark.parametrize(
    ("status", "what"),
    [
        (401, r"\(api_key_env=\)"),
        (402, "the credit"),
        (403, "the permissions of the API key"),
        (404, r"base_url=.*models \(model=\)"),
        (307, "base_url=: the server redirects to another address"),
    ],
)
def test_what_is_never_about_a_row_ends_the_run(server, tmp_path, refuse_with, status, what):
    refuse_with(status)
    server.faults = {"three": ["400"]}
    (kernel,) = kernels_of(ask(server, tmp_path, max_concurrent=1))
    said = f"^add_completion: {server.base_url} refused a request with status {status}: .* Check .*{what}.*on_existing='resume'"
    with pytest.raises(errors.OperatorError, match=said):
        kernel.run(block_of(["one", "two", "three", "four"]))
    count = len(server.asked)
    assert Counter(server.prompts())["Say: three"] == 1
    with pytest.raises(errors.OperatorError, match=said):  # for all tasks of the process: at once
        kernel.run(block_of(["five"]))
    assert len(server.asked) == count
    assert kernel.run(block_of(["one"])).block["completion"].tolist() == ["SAY: ONE"]
    release_held()  # the run is over
    assert kernel.run(block_of(["three", "five"])).block["completion"].tolist() == ["SAY: THREE", "SAY: FIVE"]


def test_a_compute_ends_too_and_leaves_nothing_behind(server, tmp_path, refuse_with):
    refuse_with(401)
    server.faults = {"three": ["400"]}
    docs = ask(server, tmp_path)
    with pytest.raises(errors.OperatorError, match="status 401"):
        answers(docs)
    assert answers(docs)[3] == "SAY: THREE"


def one_after_the_other(kernel, numbers):
    for number in numbers:
        with contextlib.suppress(NoAnswerError):
            kernel.run(block_of([f"text {number}"]))


@pytest.mark.parametrize("faults", [pytest.param(("500",), marks=pytest.mark.proof), ("400",), ("400", "500", "junk")])
def test_where_every_request_fails_the_run_ends(server, tmp_path, faults):
    server.faults = {f" {number}": [faults[number % len(faults)]] * 99 for number in range(30)}
    (kernel,) = kernels_of(ask(server, tmp_path, max_concurrent=1, max_retries=2))
    said = r"^add_completion: 20 consecutive requests failed.*http.*base_url=, model=.*on_existing='resume'"
    with pytest.raises(errors.OperatorError, match=said):
        one_after_the_other(kernel, range(30))
    assert len(set(server.prompts())) == 20


@pytest.mark.parametrize("fault", [pytest.param("500", marks=pytest.mark.proof), "400"])
def test_an_answer_in_between_shows_that_it_is_the_rows(server, tmp_path, fault):
    server.faults = {f" {number}": [fault] * 99 for number in range(1, 60) if number % 15}
    (kernel,) = kernels_of(ask(server, tmp_path, max_concurrent=1, max_retries=0))
    one_after_the_other(kernel, range(60))
    assert len(server.asked) == 60
    # A run that finds the others in the cache sends only those that are refused.
    release_held()
    server.asked.clear()
    if fault == "400":
        one_after_the_other(kernel, range(60))
        assert len(server.asked) == 56
    else:  # but a server that is gone answers nothing, whatever it once answered
        with pytest.raises(errors.OperatorError, match="20 consecutive requests"):
            one_after_the_other(kernel, range(60))


def test_the_run_ends_too_where_all_requests_were_in_flight_at_once(server, tmp_path):
    texts = [f"text {number}" for number in range(24)]
    server.faults = {"": ["400"] * 999}
    (kernel,) = kernels_of(ask(server, tmp_path, max_concurrent=24))
    with pytest.raises((NoAnswerError, errors.OperatorError)):
        kernel.run(block_of(texts))
    with pytest.raises(errors.OperatorError, match="20 consecutive requests"):
        one_after_the_other(kernel, range(24))


def test_white_space_around_a_key_is_not_of_it(server, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", f" {KEY}\n")
    server.faults = {"three": ["400"]}
    with pytest.raises(NoAnswerError, match=r"status 400: no: Bearer \*\*\*$"):
        answers(ask(server, tmp_path, ["one", "three"], api_key_env="SOME_KEY"))
    assert server.keys == {f"Bearer {KEY}"}


def test_a_long_key_is_hidden_before_a_response_is_cut(server, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY * 40)
    server.faults = {"one": ["400"]}
    with pytest.raises(NoAnswerError, match=r"status 400: no: Bearer \*\*\*$"):
        answers(ask(server, tmp_path, ["one"], api_key_env="SOME_KEY"))


@pytest.mark.parametrize(
    ("value", "said"),
    [("", "is empty"), (" \n", "is empty"), (f"{KEY}\nmore", "control"), (f"{KEY}\u00fc", "ASCII")],
)
def test_what_is_no_key_is_refused_and_not_shown(server, tmp_path, monkeypatch, value, said):
    monkeypatch.setenv("SOME_KEY", value)
    with pytest.raises(errors.ParameterError, match=rf"'SOME_KEY' \(api_key_env=\).*{said}") as caught:
        answers(ask(server, tmp_path, ["one"], api_key_env="SOME_KEY"))
    assert KEY not in str(caught.value)
    assert server.asked == []


def test_what_cannot_be_sent_is_not_tried_again_and_shows_no_key(server, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", f"{KEY}\n")
    monkeypatch.setattr(completion_calls, "key_in", lambda _: f"{KEY}\n")  # as if it had not been looked at
    tried = []
    monkeypatch.setattr(completion_calls, "next_wait", lambda attempt: tried.append(attempt) or 0.0)
    with pytest.raises(NoAnswerError, match=r"could not be sent: LocalProtocolError.*Bearer \*\*\*") as caught:
        answers(ask(server, tmp_path, ["one"], api_key_env="SOME_KEY"))
    assert KEY not in str(caught.value)
    assert tried == []
    assert server.asked == []


@pytest.mark.parametrize("key", [KEY, f"{KEY}\n", f" {KEY}", 'it\'s "q" \\ x', "\u00fc\t\udcff"])
def test_a_key_is_hidden_however_it_is_written(monkeypatch, key):
    monkeypatch.setenv("SOME_KEY", key)
    data = key.encode("utf-8", "surrogateescape")
    for written in (key, key.strip(), repr(key), ascii(key), repr(data), json.dumps(key)):
        assert key.strip() not in without_key(f"a {written} b", "SOME_KEY")
        assert "***" in without_key(f"a {written} b", "SOME_KEY")
    assert without_key(f"a {key} b", None) == f"a {key} b"
    monkeypatch.delenv("SOME_KEY")
    assert without_key("a b", "SOME_KEY") == "a b"


def test_a_key_is_read_each_time(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "one")
    assert key_in("SOME_KEY") == "one"
    monkeypatch.setenv("SOME_KEY", "two\r\n")
    assert key_in("SOME_KEY") == "two"


@pytest.fixture(scope="module")
def cluster():
    """A cluster whose key ends with a newline, as that of a file does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_KEY", f"{KEY}\n")
        with inline_cluster("6GB", 2):
            yield


@pytest.mark.usefixtures("cluster")
def test_a_run_that_sets_rows_aside_ends_when_the_key_expires_and_resumes_on_another_server(tmp_path, refuse_with):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": f"text {number}."}) + "\n" for number in range(60)))
    out = tmp_path / "out"

    def write(server, **how):
        docs = cdf.read_jsonl(str(tmp_path / "in.jsonl"))
        docs = cdf.add_completion(
            docs, prompt="{text}", base_url=server.base_url, model="m", cache=tmp_path / "cache", api_key_env="SOME_KEY"
        )
        return cdf.write_parquet(docs, out, on_error="quarantine", **how)

    refuse_with(401)
    with servers.completion_server() as server:
        server.faults = {f"text {number}.": ["400"] * 99 for number in range(30, 60)}
        with pytest.raises(
            errors.OperatorError, match=r"status 401: no: Bearer \*\*\*\. This does not concern the row"
        ):
            write(server)
        assert server.keys == {f"Bearer {KEY}"}
        answered = {prompt for prompt in server.prompts() if int(prompt[5:-1]) < 30}
    refuse_with(400)
    with servers.completion_server() as server:
        server.faults = {"text 40.": ["400"] * 99}
        receipt = write(server, on_existing="resume")
        assert set(server.prompts()) == {f"text {number}." for number in range(60)} - answered
    [counters] = [step.counters for step in receipt.steps if step.name == "add_completion"]
    assert (receipt.rows_written, receipt.rows_quarantined) == (59, 1)
    assert (counters["cached"], counters["requests"]) == (len(answered), 59 - len(answered))
    set_aside = [path.read_text() for path in (out / "_quarantine").iterdir()]
    assert "status 400: no: Bearer ***" in "".join(set_aside)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


@pytest.mark.usefixtures("cluster")
def test_a_run_that_sets_rows_aside_ends_where_every_row_is_refused(server, tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": f"text {number}"}) + "\n" for number in range(60)))
    server.faults = {"": ["400"] * 999}
    docs = cdf.read_jsonl(str(tmp_path / "in.jsonl"))
    docs = cdf.add_completion(docs, "{text}", base_url=server.base_url, model="m", cache=tmp_path / "cache")
    with pytest.raises(errors.OperatorError, match=r"^add_completion: 20 consecutive requests failed"):
        cdf.write_parquet(docs, tmp_path / "out", on_error="quarantine")
    assert len(server.asked) <= 20 + 8


@pytest.mark.usefixtures("cluster")
def test_the_seconds_of_a_step_are_those_of_all_tries_where_a_row_is_set_aside(server, tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": f"text {number}."}) + "\n" for number in range(20)))
    server.seconds = 0.1
    server.faults = {"text 7.": ["400"] * 99}
    docs = cdf.read_jsonl(str(tmp_path / "in.jsonl"))
    docs = cdf.add_completion(
        docs, prompt="{text}", base_url=server.base_url, model="m", cache=tmp_path / "cache", max_concurrent=1
    )
    receipt = cdf.write_parquet(docs, tmp_path / "out", on_error="quarantine")
    assert (receipt.rows_written, receipt.rows_quarantined) == (19, 1)
    [step] = [step for step in receipt.steps if step.name == "add_completion"]
    assert step.counters["documents"] == 19
    assert step.seconds >= 0.8 * 19 * server.seconds  # the last try alone reads the answers in milliseconds


@pytest.mark.usefixtures("cluster")
def test_an_error_about_a_server_says_nothing_of_a_function(server, tmp_path):
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": "text 1."}) + "\n")
    server.faults = {"": ["400"] * 99}
    docs = cdf.read_jsonl(str(tmp_path / "in.jsonl"))
    docs = cdf.add_completion(docs, "{text}", base_url=server.base_url, model="m", cache=tmp_path / "cache")
    with pytest.raises(errors.OperatorError) as caught:
        cdf.write_parquet(docs, tmp_path / "out")
    assert "Fix the function" not in str(caught.value)
    assert "Check that the server runs, and check the prompt" in str(caught.value)
    assert "on_error='quarantine'" in str(caught.value)


@pytest.mark.parametrize(
    "value", ["nan", "NaN", "inf", "-inf", "Infinity", "-1", "-0.5", "soon", "", "1e", "0x10", "1_0", "１０", "60, 120"]
)
def test_a_retry_after_that_says_nothing_is_not_followed(value):
    assert completion_calls.asked_wait(value) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0", 0), ("3", 3), (" 3 ", 3), ("1.5", 1.5), ("601", 600), ("1e9", 600), ("9" * 400, 600), ("1e999", 600)],
)
def test_a_retry_after_in_seconds_is_followed_up_to_a_limit(value, seconds):
    assert completion_calls.asked_wait(value) == seconds


@pytest.mark.parametrize("layout", ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"])
@pytest.mark.parametrize(("ahead", "least", "most"), [(90, 80, 91), (-90, 0, 0), (1e7, 600, 600)])
def test_a_retry_after_in_each_form_of_a_date_is_followed(layout, ahead, least, most):
    value = time.strftime(layout, time.gmtime(time.time() + ahead))
    assert least <= completion_calls.asked_wait(value) <= most


@pytest.mark.parametrize("value", ["Thu, 99 Jan 2024 00:00:00 GMT", "Thu, 01 Jan 99999 00:00:00 GMT", "1 2 3"])
def test_a_retry_after_with_a_date_that_is_none_is_not_followed(value):
    assert completion_calls.asked_wait(value) is None
