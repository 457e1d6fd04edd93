# SPDX-License-Identifier: Apache-2.0
"""What looking up ids holds beside a block, in a process prepared as workers are."""

import subprocess
import sys

import pytest

from curator_df.dedup.table.id_sink import IdSink

PEAK = """
import sys
import numpy as np
import pandas as pd
from curator_df.cluster.preload import prepare_process
from curator_df.core.ranges.blocks import block_bytes
from curator_df.dedup.table.id_sink import QUESTION_WORDS, IdSink, questions
from curator_df.memory.limits import peak_of_call
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.row_sort import RowSorter
from curator_df.files.storage import Folder

BUFFER_BYTES = 4_000_000
prepare_process()
where, kind, every = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows = 1_000_000 if kind == "Int64" else 400_000


def look_up(rows, where):
    folder, groups = Folder(where), RangeGroups(np.zeros(1, dtype=np.int64), 1)
    name = "ids/wanted/part-000000.slices"
    asked = RowSorter(folder, name, words=QUESTION_WORDS, bounds=groups.range_bounds(0), memory_bytes=1_000_000)
    for first in range(0, rows, 40_000):
        addresses = np.arange(first, min(first + 40_000, rows), every, dtype=np.uint64)
        asked.append(questions(addresses, np.maximum(addresses, 1) - 1))
    sink = IdSink(folder, groups, (asked.commit(),), column="id")
    ids = np.arange(rows) + 10**15
    values = pd.array(ids, "Int64") if kind == "Int64" else pd.array([f"doc-{i}-of-a-crawl" for i in ids], "string[pyarrow]")
    block = pd.DataFrame({"id": values}, index=np.arange(rows))
    del ids, values

    def run():
        part = sink.open(0, None, BUFFER_BYTES)
        part.append(block)
        return part.commit()

    peak_bytes, files = peak_of_call(run)
    assert files[1].rows == sum(min(2, 1 + (n > 0)) for n in range(0, rows, every))
    return peak_bytes - BUFFER_BYTES, block_bytes(block)


look_up(1_000, where + "/small")
print(*look_up(rows, where + "/large"))
"""
SLACK_BYTES = 2_000_000


@pytest.mark.parametrize(("kind", "every"), [("Int64", 100), ("string", 1)])
def test_ids_are_looked_up_in_what_is_stated(tmp_path, kind, every):
    command = [sys.executable, "-c", PEAK, str(tmp_path), kind, str(every)]
    extra_bytes, block_bytes = map(int, subprocess.check_output(command, text=True, timeout=280).split())
    assert extra_bytes <= IdSink.writer_factor * block_bytes + SLACK_BYTES
