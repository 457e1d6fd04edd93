# SPDX-License-Identifier: Apache-2.0
"""`add_completion` against a real server on loopback that refuses, fails, and cuts connections."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections import Counter

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.memory.process_cache import release_held
from curator_df.models.completion import calls as completion_calls
from curator_df.models.completion.calls import MOST_WAIT_SECONDS, NoAnswerError, next_wait
from tests.contracts.operator_cases import fingerprints_of, kernels_of
from tests.models.completion_asking import answers, ask, table
from tests.models.completion_server import completion_server

pytest.importorskip("httpx", reason="needs the completions extra (httpx is not installed)")


@pytest.fixture
def server():
    with completion_server() as running:
        yield running
        release_held()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(completion_calls, "FIRST_WAIT_SECONDS", 0.001)


def test_each_row_is_asked_and_each_question_once(server, tmp_path):
    docs = ask(server, tmp_path, system_prompt="Be brief.", options={"top_p": 0.5}, max_tokens=7)
    wanted = ["SAY: ONE", None, "SAY: TWO {X}", "SAY: THREE", "SAY: ONE", "SAY: FOUR"]
    assert answers(docs) == wanted
    body = server.asked[0]
    assert body["path"] == "/v1/chat/completions"
    assert {name: body[name] for name in ("model", "temperature", "top_p", "max_tokens")} == {
        "model": "m", "temperature": 0, "top_p": 0.5, "max_tokens": 7,
    }  # fmt: skip
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    count = len(server.asked)
    assert answers(docs) == wanted
    assert len(server.asked) == count
    assert server.keys == {None}
    answers(ask(server, tmp_path, system_prompt="Be long."))
    assert len(server.asked) > count


def test_several_columns_numbers_and_cuts(server, tmp_path):
    docs = ask(server, tmp_path, prompt="{n}: {text} {{not a column}} {n}", max_chars=2, into="completion")
    assert answers(docs)[3] == "3: TH {NOT A COLUMN} 3"


@pytest.mark.parametrize("fault", ["429", "500", "cut", "drop", "junk", "zip"])
def test_what_may_pass_is_tried_again(server, tmp_path, fault):
    server.faults = {"three": [fault] * 2}
    docs = ask(server, tmp_path)
    outcome = kernels_of(docs)[0].run(table().compute(scheduler="synchronous"))
    assert outcome.block["completion"].tolist()[3] == "SAY: THREE"
    assert Counter(server.prompts())["Say: three"] == 3
    assert outcome.counters["retries"] == 2
    assert outcome.counters["requests"] + outcome.counters["cached"] == 5 + 2
    assert outcome.counters["completion_tokens"] == 2 * (outcome.counters["requests"] - 2)


def test_a_refusal_is_an_error_at_once_and_says_no_key(server, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    server.faults = {"three": ["400"]}
    docs = ask(server, tmp_path, api_key_env="SOME_KEY")
    with pytest.raises(NoAnswerError, match=r"refused a request with status 400: no: Bearer \*\*\*"):
        answers(docs)
    assert Counter(server.prompts())["Say: three"] == 1
    assert server.keys == {"Bearer sk-secret"}
    assert "sk-secret" not in repr(kernels_of(docs)[0])
    assert answers(docs)[3] == "SAY: THREE"
    assert not [path for path in tmp_path.rglob("*.json") if "sk-secret" in path.read_text()]
    monkeypatch.delenv("SOME_KEY")
    release_held()
    with pytest.raises(errors.ParameterError, match="'SOME_KEY'"):
        answers(ask(server, tmp_path, ["another"], api_key_env="SOME_KEY"))


def changed(**fields):
    """Return what the server is to answer, as a change of what it would."""
    choice = {"message": {"content": fields.pop("content", "SAY: THREE")}, "finish_reason": fields.pop("ended", "stop")}
    return json.dumps({"choices": [choice], **fields})


@pytest.mark.parametrize(
    ("answer", "wanted", "counted"),
    [
        (changed(content=None, ended="length"), None, {"empty_answers": 1, "cut_answers": 1}),
        (changed(content=None, ended="content_filter"), None, {"empty_answers": 1, "cut_answers": 0}),
        (changed(content="half \ud83d of"), "half \ufffd of", {"empty_answers": 0}),
        (changed(usage=[1, 2]), "SAY: THREE", {"prompt_tokens": 0}),
        (changed(usage={"prompt_tokens": "3", "completion_tokens": None}), "SAY: THREE", {"prompt_tokens": 0}),
    ],
    ids=["cut while it thought", "refused", "half a character", "strange usage", "usage in words"],
)
def test_an_answer_that_was_paid_for_is_kept_whatever_is_in_it(server, tmp_path, answer, wanted, counted):
    server.faults = {"three": [answer]}
    docs = ask(server, tmp_path, ["three"])
    outcome = kernels_of(docs)[0].run(table(["three"]).compute(scheduler="synchronous"))
    assert answers(docs) == [wanted]
    assert [None if pd.isna(one) else one for one in outcome.block["completion"]] == [wanted]
    assert {name: outcome.counters[name] for name in counted} == counted
    assert outcome.counters["requests"] == len(server.asked) == 1


def test_a_server_that_wants_it_is_told_of_completion_tokens(server, tmp_path):
    docs = ask(server, tmp_path, options={"max_completion_tokens": 9})
    assert answers(docs)[0] == "SAY: ONE"
    assert server.asked[0]["max_completion_tokens"] == 9
    assert "max_tokens" not in server.asked[0]
    assert kernels_of(docs)[0].price.peak_factor == kernels_of(ask(server, tmp_path, max_tokens=9))[0].price.peak_factor


def test_after_all_tries_it_is_an_error(server, tmp_path):
    server.faults = {"three": ["500"] * 9}
    with pytest.raises(NoAnswerError, match=r"in 3 attempts\..* The last attempt ended with status 500"):
        answers(ask(server, tmp_path, max_retries=2))
    assert Counter(server.prompts())["Say: three"] == 3


def test_a_request_that_failed_in_a_run_is_not_sent_again_in_it(server, tmp_path):
    server.faults = {"three": ["500"] * 99}
    (kernel,) = kernels_of(ask(server, tmp_path, max_retries=2))
    block = table().compute(scheduler="synchronous")
    for _ in range(4):  # as a run does that looks for the row
        with pytest.raises(NoAnswerError, match="in 3 attempts"):
            kernel.run(block)
    assert Counter(server.prompts())["Say: three"] == 3
    release_held()  # the run is over
    with pytest.raises(NoAnswerError, match="in 3 attempts"):
        kernel.run(block)
    assert Counter(server.prompts())["Say: three"] == 6


def test_lists_in_a_prompt_are_refused_before_anything_is_asked(server, tmp_path):
    lists = pd.Series([["a", "b"]], dtype=pd.ArrowDtype(pa.list_(pa.string())))
    docs = dd.from_pandas(pd.DataFrame({"text": ["x"], "tags": lists}), npartitions=1)
    with pytest.raises(errors.SchemaError, match=r"the prompt uses the column 'tags', which has the type list"):
        docs.pipe(cdf.add_completion, "{text} {tags}", base_url=server.base_url, model="m", cache=tmp_path)
    assert server.asked == []


def test_no_more_requests_are_in_flight_than_allowed(server, tmp_path):
    server.pending = threading.Barrier(3)  # three at a time get through, and no fewer
    assert len(answers(ask(server, tmp_path, [f"text {n}" for n in range(12)], max_concurrent=3))) == 12
    assert server.most_at_a_time == 3


def test_a_large_answer_is_refused(server, tmp_path, monkeypatch):
    monkeypatch.setattr(completion_calls, "MOST_ANSWER_BYTES", 1_000)
    with pytest.raises(NoAnswerError, match="larger than the limit of 1 kB"):
        answers(ask(server, tmp_path, ["x" * 2_000]))


def test_a_proxy_of_the_environment_is_not_asked_for_a_server_of_this_machine(server, tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody listens
    assert answers(ask(server, tmp_path))[3] == "SAY: THREE"


def test_waits_double_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(completion_calls, "FIRST_WAIT_SECONDS", 0.5)
    for attempt in range(30):
        assert (
            0.25 * 2 ** min(attempt, 6) <= next_wait(attempt) <= min(0.5 * 2**attempt, MOST_WAIT_SECONDS) or attempt > 6
        )
        assert next_wait(attempt) <= MOST_WAIT_SECONDS


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"prompt": "nothing"}, "must have at least one column"),
        ({"prompt": "{text"}, "cannot be parsed"),
        ({"prompt": "{text:>10}"}, "Remove format specifications"),
        ({"prompt": "{other}"}, "other"),
        ({"base_url": "ftp://x"}, "base_url="),
        ({"max_concurrent": 0}, "max_concurrent=0"),
        ({"timeout_seconds": 0}, "timeout_seconds=0"),
        ({"options": {"stop": object()}}, "JSON"),
        ({"options": {"max_completion_tokens": 0}}, "max_completion_tokens=0"),
        (
            {"options": {"max_completion_tokens": 9}, "max_tokens": 7},
            "max_tokens=7 and 'max_completion_tokens': 9 in options= conflict",
        ),
        ({"options": {"model": "n"}}, "'model', which is not an option: set model="),
        ({"options": {"messages": []}}, "'messages', which is not an option: set prompt= and system_prompt="),
        ({"options": {"max_tokens": 7}}, "'max_tokens', which is not an option: set max_tokens="),
        ({"options": {"n": 2}}, "'n', which is not an option: one answer"),
        ({"options": {"stream": True}}, "'stream', which is not an option: answers are read whole"),
        ({"options": {"temperature": float("nan")}}, "cannot be sent as JSON: Out of range"),
        ({"model": None}, "model=None must be a str"),
        ({"system_prompt": 5}, "system_prompt=5 must be a str"),
        ({"api_key_env": 5}, "api_key_env=5 must be a str"),
        ({"into": "text"}, "text"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, said):
    with pytest.raises((errors.ParameterError, errors.ColumnError), match=said):
        cdf.add_completion(table(), **{"prompt": "{text}", "base_url": "http://x", "model": "m", **wrong})


def test_how_a_server_is_reached_is_no_other_program(tmp_path):
    how = {"prompt": "{text}", "base_url": "http://x", "model": "m"}
    one = fingerprints_of(cdf.add_completion(table(), **how))
    same = {"max_concurrent": 2, "max_retries": 1, "timeout_seconds": 3, "api_key_env": "KEY", "cache": tmp_path}
    assert fingerprints_of(cdf.add_completion(table(), **{**how, **same, "base_url": "http://y"})) == one
    for other in (
        {"model": "n"},
        {"max_tokens": 9},
        {"system_prompt": "s"},
        {"options": {"top_p": 1}},
    ):
        assert fingerprints_of(cdf.add_completion(table(), **{**how, **other})) != one


def test_another_server_of_the_model_is_not_asked_again(server, tmp_path):
    wanted = answers(ask(server, tmp_path))
    with completion_server() as elsewhere:
        assert elsewhere.base_url != server.base_url
        assert answers(ask(elsewhere, tmp_path)) == wanted
        assert elsewhere.asked == []
        answers(ask(elsewhere, tmp_path / "another cache"))
        assert elsewhere.asked


def test_answers_are_counted_once_though_a_row_of_their_block_fails(server, tmp_path):
    server.faults = {"three": ["400"] * 9}
    (kernel,) = kernels_of(ask(server, tmp_path, max_concurrent=1))
    block = table().compute(scheduler="synchronous")

    def counted(outcome):
        return {name: outcome.counters[name] for name in ("requests", "cached", "documents", "tokens")}

    with pytest.raises(NoAnswerError):
        kernel.run(block)
    for start in (0, 2, 4):  # as a run does that looks for the row: nobody counts these
        with contextlib.suppress(NoAnswerError):
            kernel.run(block.iloc[start : start + 2])
    kernel.run(block.iloc[2:3])
    rest = kernel.run(block.drop(index=3))
    assert counted(rest) == {"requests": 3, "cached": 1, "documents": 3, "tokens": 3 * 5}  # "one" comes twice
    assert counted(kernel.run(block.drop(index=3))) == {"requests": 0, "cached": 4, "documents": 0, "tokens": 0}
    release_held()  # another run
    assert counted(kernel.run(block.drop(index=3))) == {"requests": 0, "cached": 4, "documents": 0, "tokens": 0}
    assert len(server.asked) == 3 + 1


def test_a_run_that_failed_is_resumed_and_no_request_is_sent_twice(server, tmp_path):
    rows = [{"id": number, "text": f"text {number}."} for number in range(40)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    docs = cdf.read_jsonl(str(tmp_path / "in.jsonl"))
    how = {
        "prompt": "{text}",
        "base_url": server.base_url,
        "model": "m",
        "cache": tmp_path / "cache",
        "max_concurrent": 2,
    }
    docs = docs.pipe(cdf.add_completion, **how)
    server.faults = {"text 30.": ["400"], "text 7.": ["500"]}
    with cdf.start_cluster(memory="6GB", cpus=2):
        with pytest.raises(errors.OperatorError, match=r"step 'add_completion' raised NoAnswerError: .*status 400"):
            cdf.write_parquet(docs, tmp_path / "out")
        answered = set(server.prompts()) - {"text 30."}
        assert 25 < len(answered) < 40
        receipt = cdf.write_parquet(docs, tmp_path / "out", on_existing="resume")
        found = cdf.read_parquet(str(tmp_path / "out")).compute()
        more = cdf.read_jsonl(str(tmp_path / "in.jsonl")).pipe(cdf.add_completion, **{**how, "prompt": "{text}?"})
        server.faults = {"text 3.?": ["400"] * 99}
        set_aside = cdf.write_parquet(more, tmp_path / "aside", on_error="quarantine")
    assert found["completion"].tolist() == [f"TEXT {number}." for number in range(40)]
    asked = Counter(prompt for prompt in server.prompts() if not prompt.endswith("?"))
    assert asked == {**{f"text {number}.": 1 for number in range(40)}, "text 30.": 2, "text 7.": 2}
    [counters] = [step.counters for step in receipt.steps if step.name == "add_completion"]
    assert (counters["cached"], counters["requests"]) == (len(answered), 40 - len(answered))
    assert set_aside.rows_quarantined == 1
    assert set_aside.rows_written == 39
    [counters] = [step.counters for step in set_aside.steps if step.name == "add_completion"]
    assert (counters["cached"], counters["requests"], counters["tokens"]) == (0, 39, 39 * 5)


LIMITED = """
import subprocess
import sys
import threading
from curator_df.memory.limits import limit_data
from curator_df.models.completion.calls import _Threads

limit_data(200_000_000)
threads, all_there = _Threads(64), threading.Barrier(64)
for call in [threads.submit(all_there.wait, 60) for _ in range(64)]:
    call.result()
threads.shutdown()
print("done", threading.stack_size())
"""


def test_many_requests_in_flight_leave_the_room_of_a_worker_to_its_blocks():
    # 64 stacks of 8 MB would be more than the limit.
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "done 0\n", done.stderr
