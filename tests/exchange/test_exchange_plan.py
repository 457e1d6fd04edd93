# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import numpy as np
import pytest

from curator_df.core.planning.disk import WorkingFiles
from curator_df.errors import BudgetError, DiskFullError
from curator_df.exchange.exchange import Exchange, KeyWriter
from curator_df.exchange.exchange_plan import MOST_REDUCERS, choose_reducers, merge_passes, project_exchange
from curator_df.exchange.key_stages import reduce_keys
from curator_df.files.row_sort import merge_row_bytes
from curator_df.files.slice_file import rows_in_page
from curator_df.files.storage import Folder


def test_reducers_follow_from_rows_and_memory():
    assert choose_reducers(0, 24, 10**8) == 1
    assert choose_reducers(10**6, 24, 10**9) == 1
    assert choose_reducers(10**7, 24, 10**8) < choose_reducers(10**8, 24, 10**8) < choose_reducers(10**8, 24, 10**7)
    assert choose_reducers(10**12, 24, 10**8) == MOST_REDUCERS
    fitting = 10**8 // 2 // merge_row_bytes(3)
    assert [choose_reducers(3 * fitting + more, 24, 10**8) for more in (0, 1)] == [3, 4]


def test_passes_grow_with_files():
    assert merge_passes(10, 10**6, 3, 10**8) == 1
    assert merge_passes(5000, 10**8, 3, 10**7) > 1
    assert merge_passes(10**6, 10**6, 3, 10**7) > 1  # a row of each file
    assert merge_passes(2, 10**9, 3, 1) == 1
    page_bytes = rows_in_page(3) * merge_row_bytes(3)
    assert merge_passes(4, 4 * rows_in_page(3), 3, 4 * page_bytes) == 1  # they just fit
    assert merge_passes(4, 4 * rows_in_page(3), 3, 4 * page_bytes - 1) == 2


def test_many_reducers_and_ranges_ask_for_collected_drops():
    few = project_exchange(10**6, keep="first", map_files=8, work_bytes=10**8)
    many = project_exchange(10**9, keep="first", map_files=2500, work_bytes=10**8)
    assert (few.ranges_per_drop_file, many.ranges_per_drop_file) == (1, 50)


def test_too_little_memory_or_disk_is_refused(tmp_path):
    with pytest.raises(
        BudgetError, match=r"comparing the keys of all rows needs 8 MB for each task, but a task has only 4 MB"
    ):
        project_exchange(10**6, keep="first", map_files=8, work_bytes=4_000_000)
    files = WorkingFiles((project_exchange(10**9, keep="first", map_files=8, work_bytes=10**8).need("a_drop"),))
    with (
        mock.patch.object(Folder, "free_bytes", return_value=10**9),
        pytest.raises(
            DiskFullError,
            match=r"of keys.*1\.00 GB are free in .*Nothing was started.* put sample_rows\(fraction=0\.0[1-9]\)",
        ),
    ):
        files.require(Folder(str(tmp_path)))


@pytest.mark.parametrize("keep", ["first", "largest"])
def test_projected_bytes_are_those_on_disk(tmp_path, keep):
    rows, files = 60_000, 6
    plan = project_exchange(rows, keep=keep, map_files=files, work_bytes=8_500_000)
    each = rows // files
    exchange = Exchange(Folder(str(tmp_path)), keep, plan.reducers, np.arange(files) * each)
    records = []
    for number in range(files):
        writer = KeyWriter(exchange, number, memory_bytes=10**6)
        writer.append(np.full((each, 2), 3, np.uint64), np.arange(each) + number * each, np.zeros(each))
        records.append(writer.commit())
    reduced = [reduce_keys(exchange, number, records, memory_bytes=10**6) for number in range(plan.reducers)]
    assert plan.key_bytes == pytest.approx(sum(record.size_bytes for record in records), rel=0.01)
    assert plan.drop_bytes == pytest.approx(sum(one.file.size_bytes for one in reduced), rel=0.01)
