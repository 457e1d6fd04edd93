# SPDX-License-Identifier: Apache-2.0
"""A dispatcher on a fake client, whose tasks end as a script says."""

import dataclasses
import json

import pytest

import curator_df as cdf
from curator_df.core.planning.branches import Branch, fork
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_fork
from curator_df.core.runner.dispatch import Dispatcher
from curator_df.core.tasks.task import Job
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import ParquetFormat
from tests.core.runner.dispatching import BLOCK_BYTES, RANGES, Ran
from tests.core.runner.fake_client import (
    FakeClient,
    fake_session,
)


@pytest.fixture
def dispatch(tmp_path):
    """Return a function that makes a dispatcher of eight ranges whose tasks end as a script says."""
    lines = [json.dumps({"id": number}) + "\n" for number in range(RANGES)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    docs = cdf.read_jsonl(tmp_path / "in.jsonl")

    def make(
        script=None, *, with_step=False, on_oom="retry", block_bytes=BLOCK_BYTES, start_bytes=0, memory="2GB", **options
    ):
        program = lower(docs.curate.keep_where("id >= 0") if with_step else docs)
        sink = FileSink(Folder(str(tmp_path / "out")), ParquetFormat("zstd"), 10**6)
        job = Job(fork([Branch(program, sink)]), "raise", on_oom)
        client = FakeClient(script or {})
        session, finished, told = fake_session(client, memory, **options), [], []
        session.watchers.append(told.append)
        stage = dataclasses.replace(plan_fork(job.fork, session.layout).stages[-1], block_bytes=block_bytes)
        pieces = list(program.source.cut(len(lines[0])))
        assert len(pieces) == RANGES
        dispatcher = Dispatcher(session, job, stage, finished.append, start_bytes=start_bytes)
        return Ran(dispatcher, client, pieces, finished, told)

    return make
