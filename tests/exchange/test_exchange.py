# SPDX-License-Identifier: Apache-2.0
"""An exchange finds the survivors and matches that a dictionary finds, whatever files, reducers and memory."""

import collections
import subprocess
import sys
import textwrap
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curator_df.core.ranges.source import Ranges, range_starts
from curator_df.core.runner.passes import skew
from curator_df.errors import CorruptFileError, ParameterError, RowCountError
from curator_df.exchange import key_stages as exchange_reduce
from curator_df.exchange.drops import DropReader, collect_drops, read_drops
from curator_df.exchange.exchange import Exchange, KeyWriter, drop_bounds, hash_bounds, ranks
from curator_df.exchange.key_stages import reduce_keys
from curator_df.files import slice_file
from curator_df.files.row_sort import merge_slices
from curator_df.files.slice_file import open_slices
from curator_df.files.storage import Folder
from tests.examples import examples

A, B, C = (5, 1), ((1 << 64) - 1, 0), (1 << 63, 7)
"""Keys: of the first, the last and the middle of three reducers."""


def write_range(exchange, number, rows, memory_bytes=10**6, step=3):
    """Write the key rows of a range: (key, address, value)."""
    writer = KeyWriter(exchange, number, memory_bytes=memory_bytes)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        keys = np.array([key for key, _, _ in part], dtype=np.uint64)
        values = np.array([np.nan if value is None else value for _, _, value in part], dtype=np.float64)
        writer.append(keys, np.array([address for _, address, _ in part], dtype=np.int64), values)
    return writer.commit()


def run_exchange(exchange, ranges, memory_bytes=10**6):
    """Return (address, survivor) of each range, and what the reducers reported."""
    files = [write_range(exchange, number, rows, memory_bytes) for number, rows in enumerate(ranges)]
    reduced = [reduce_keys(exchange, n, files, memory_bytes=memory_bytes) for n in range(exchange.reducers)]
    drops = [one.file for one in reduced]
    if exchange.ranges_per_drop_file > 1:
        numbers = range(exchange.drop_files)
        drops = [collect_drops(exchange, number, drops, memory_bytes=memory_bytes) for number in numbers]
    found = []
    for number in range(len(ranges)):
        pieces = read_drops(exchange, number, drops, memory_bytes=memory_bytes)
        found.append([tuple(row) for piece in pieces for row in piece.tolist()])
    return found, reduced


def expected_drops(ranges, keep):
    order = {
        "first": lambda row: row[1],
        "last": lambda row: -row[1],
        "none": lambda row: row[1],
        "largest": lambda row: (row[2] is None, -(row[2] or 0), row[1]),
        "smallest": lambda row: (row[2] is None, row[2] or 0, row[1]),
    }[keep]
    groups = collections.defaultdict(list)
    for row in sorted((row for rows in ranges for row in rows), key=order):
        groups[row[0]].append(row[1])
    matched = {a: members[0] for members in groups.values() for a in members[1:]}
    if keep == "none":
        matched |= {members[0]: members[1] for members in groups.values() if len(members) > 1}
    return [[(a, matched[a]) for _, a, _ in rows if a in matched] for rows in ranges]


TWO_RANGES = [
    [(A, 0, 1.0), (B, 10, 5.0), (A, 20, 3.0)],
    [(A, 30, None), (B, 40, 2.0), (C, 50, None), (A, 60, 3.0)],
]


@pytest.mark.parametrize(
    ("keep", "drops"),
    [
        ("first", [[(20, 0)], [(30, 0), (40, 10), (60, 0)]]),
        ("last", [[(0, 60), (10, 40), (20, 60)], [(30, 60)]]),
        ("largest", [[(0, 20)], [(30, 20), (40, 10), (60, 20)]]),
        ("smallest", [[(10, 40), (20, 0)], [(30, 0), (60, 0)]]),
        ("none", [[(0, 20), (10, 40), (20, 0)], [(30, 0), (40, 10), (60, 0)]]),
    ],
)
@pytest.mark.parametrize("place", ["local", "memory"])
def test_each_policy_on_two_ranges(tmp_path, place, keep, drops):
    folder = Folder(str(tmp_path) if place == "local" else f"memory://{tmp_path.name}")
    exchange = Exchange(folder, keep, 3, np.array([0, 30]))
    found, reduced = run_exchange(exchange, TWO_RANGES)
    assert found == drops == expected_drops(TWO_RANGES, keep)
    going = (4, 0, 2) if keep == "none" else (3, 0, 1)
    assert [(one.rows, one.groups, one.file.rows) for one in reduced] == [
        (rows, 1, count) for rows, count in zip((4, 1, 2), going, strict=True)
    ]
    assert skew([one.rows for one in reduced]) == 4 * 3 / 7


PARTS = [[(A, 0, 0), (B, 0, 1), (A, 0, 2)], [(A, 30, 1), (C, 30, 2), (B, 40, 0)]]


@pytest.mark.parametrize(
    ("keep", "drops"),
    [("first", [[(0, 2)], [(30, 1), (40, 0)]]), ("last", [[(0, 0), (0, 1), (0, 2)], []])],
)
def test_a_drop_of_a_part_names_its_row_and_its_number_in_it(tmp_path, keep, drops):
    exchange = Exchange(Folder(str(tmp_path)), keep, 3, np.array([0, 30]), of_parts=True)
    files = []
    for number, parts in enumerate(PARTS):
        writer = KeyWriter(exchange, number, memory_bytes=10**6)
        keys = np.array([key for key, _, _ in parts], dtype=np.uint64)
        addresses, ordinals = (np.array(column, dtype=np.int64) for column in list(zip(*parts, strict=True))[1:])
        writer.append(keys, addresses, parts=ordinals)
        files.append(writer.commit())
    reduced = [reduce_keys(exchange, number, files, memory_bytes=10**6).file for number in range(exchange.reducers)]
    found = [list(read_drops(exchange, number, reduced, memory_bytes=10**6)) for number in range(2)]
    assert [[tuple(row) for piece in pieces for row in piece.tolist()] for pieces in found] == drops


def test_the_first_slice_of_drops_has_what_is_before_its_range_too():
    assert drop_bounds(np.array([5, 30])).tolist() == [0, 30]


WORD = st.sampled_from([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]) | st.integers(0, (1 << 64) - 1)
KEYS = st.sampled_from([[A], [A, B, C], [A, (5, 2), (6, 1)]]).flatmap(st.sampled_from) | st.tuples(WORD, WORD)
VALUES = st.none() | st.sampled_from([-1e300, -1.0, 0.0, 0.5, 1e300])


@st.composite
def inputs(draw):
    """Ranges of rows with increasing addresses, and the least address of each range."""
    lengths = draw(st.lists(st.integers(0, 30), min_size=1, max_size=7))
    address, ranges, starts = 0, [], []
    for length in lengths:
        starts.append(address)
        rows = []
        for _ in range(length):
            address += draw(st.integers(0, 2))
            rows.append((draw(KEYS), address, draw(VALUES)))
            address += 1
        ranges.append(rows)
        address += 1 << 40 if draw(st.booleans()) else 1
    return ranges, np.array(starts)


@settings(max_examples=examples(150))
@given(
    inputs(),
    st.sampled_from(["first", "last", "largest", "smallest", "none"]),
    st.sampled_from([1, 2, 3, 17]),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([1, 400, 2000, 10**6]),
    st.sampled_from([1, 96, 32_000]),
)
def test_same_survivors_as_a_dictionary(data, keep, reducers, per_file, memory_bytes, page_bytes):
    ranges, starts = data
    exchange = Exchange(Folder("memory://exchange"), keep, reducers, starts, per_file)
    with mock.patch.object(slice_file, "PAGE_BYTES", page_bytes):
        found, reduced = run_exchange(exchange, ranges, memory_bytes)
    assert found == expected_drops(ranges, keep)
    assert sum(one.groups for one in reduced) == len({key for rows in ranges for key, _, _ in rows})
    assert sum(one.rows for one in reduced) == sum(map(len, ranges))


@settings(max_examples=examples(100))
@given(
    inputs(),
    st.sampled_from(["first", "last", "largest", "smallest", "none"]),
    st.sampled_from([1, 3]),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([1, 2, 7, 8192]),
    st.sampled_from([1, 2000, 10**6]),
)
def test_members_are_all_rows_of_groups_with_their_sizes(data, keep, reducers, per_slice, piece_rows, memory_bytes):
    ranges, starts = data
    bounds = drop_bounds(starts[::per_slice])
    exchange = Exchange(Folder("memory://members"), keep, reducers, starts, member_bounds=bounds)
    with mock.patch.object(exchange_reduce, "PIECE_ROWS", piece_rows):
        drops, reduced = run_exchange(exchange, ranges, memory_bytes)
    assert drops == expected_drops(ranges, keep)
    keys = {address: key for rows in ranges for key, address, _ in rows}
    sizes = collections.Counter(keys.values())
    survivors = expected_drops(ranges, "first" if keep == "none" else keep)
    gone = {address: survivor for rows in survivors for address, survivor in rows}
    expected = [(a, gone.get(a, a), sizes[key]) for a, key in sorted(keys.items()) if sizes[key] > 1]
    found = []
    for number in range(len(bounds)):
        slices = open_slices(exchange.folder, [one.members for one in reduced], number)
        found += [tuple(row) for piece in merge_slices(slices, memory_bytes=10**6) for row in piece.tolist()]
    assert found == expected


def test_reducers_are_equal_parts_of_the_hashes():
    for reducers in (1, 2, 3, 7, 1000):
        bounds = hash_bounds(reducers)
        for high in {0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, *bounds.tolist(), *(bounds[1:] - 1).tolist()}:
            assert np.searchsorted(bounds, np.uint64(high), side="right") - 1 == (high * reducers) >> 64


def test_ranges_start_at_their_first_address():
    assert range_starts(Ranges(np.array([[0, 7, 1, 9], [2, 3, 2, 5]]))).tolist() == [7, (2 << 40) + 3]


def test_ranks_of_integers_and_floats():
    whole = np.array([0, -(1 << 63), (1 << 63) - 1, 5])
    assert np.argsort(ranks(whole, "smallest")).tolist() == [1, 0, 3, 2]
    assert np.argsort(ranks(whole, "largest", np.array([False, False, True, False]))).tolist() == [3, 0, 1, 2]
    floats = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-300, -1.0, -2.0])
    ordered = ranks(floats, "largest")
    assert ordered[0] == ordered[1]
    assert np.argsort(ordered, kind="stable").tolist() == [2, 5, 0, 1, 6, 7, 3, 4]


def test_a_policy_by_value_needs_values(tmp_path):
    writer = KeyWriter(Exchange(Folder(str(tmp_path)), "largest", 1, np.array([0])), 0, memory_bytes=10**6)
    with pytest.raises(ParameterError, match="keep='largest' compares values"):
        writer.append(np.zeros((1, 2), np.uint64), np.zeros(1, np.int64))
    writer.discard()


def test_a_flipped_byte_stops_the_reducer_and_nothing_is_committed(tmp_path):
    exchange = Exchange(Folder(str(tmp_path)), "first", 1, np.array([0, 30]))
    files = [write_range(exchange, number, rows) for number, rows in enumerate(TWO_RANGES)]
    path = tmp_path / files[1].name
    damaged = bytearray(path.read_bytes())
    damaged[60] ^= 4
    path.write_bytes(damaged)
    with pytest.raises(CorruptFileError, match=r"keys/part-000001\.slices is damaged: the page at byte 32 "):
        reduce_keys(exchange, 0, files, memory_bytes=10**6)
    assert [name for name in exchange.folder.names() if not name.startswith("keys/")] == []


def drop_reader(tmp_path):
    exchange = Exchange(Folder(str(tmp_path)), "first", 2, np.array([0, 30]))
    files = [write_range(exchange, number, rows) for number, rows in enumerate(TWO_RANGES)]
    reduced = [reduce_keys(exchange, number, files, memory_bytes=10**6) for number in range(2)]
    return DropReader(exchange, 1, [one.file for one in reduced], memory_bytes=10**6)


def test_drops_block_by_block(tmp_path):
    reader = drop_reader(tmp_path)
    assert reader.drops(np.array([30])).tolist() == [True]
    assert reader.drops(np.array([], dtype=np.int64)).tolist() == []
    assert reader.drops(np.array([35, 40, 50])).tolist() == [False, True, False]
    assert reader.drops(np.array([60, 61])).tolist() == [True, False]
    assert reader.finish() == 0


def test_drops_whose_rows_do_not_come_are_counted(tmp_path):
    reader = drop_reader(tmp_path)
    assert reader.drops(np.array([31, 45])).tolist() == [False, False]
    assert (reader.missed, reader.finish()) == (2, 3)


@pytest.mark.parametrize(("before", "rows"), [([40], [30]), ([40], [40]), ([30], [50, 40]), ([30], [40, 40])], ids=str)
def test_rows_that_moved_or_are_repeated_are_an_error_within_a_block_too(tmp_path, before, rows):
    reader = drop_reader(tmp_path)
    reader.drops(np.array(before))
    with pytest.raises(
        RowCountError, match=r"reordered or repeated rows, .* is not followed by a larger one\)\. Move that step behind"
    ):
        reader.drops(np.array(rows))


SKEWED = """
    import sys, tempfile
    import numpy as np
    from curator_df.exchange.drops import DropReader
    from curator_df.exchange.exchange import Exchange, KeyWriter
    from curator_df.exchange.key_stages import reduce_keys
    from curator_df.memory.limits import give_back_large_buffers, limit_data
    from curator_df.files.storage import Folder

    ROWS, FILES, MEMORY = 20_000_000, 20, 40_000_000
    each = ROWS // FILES
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as home:
        exchange = Exchange(Folder(home), "largest", 2, np.arange(FILES, dtype=np.int64) * each)
        give_back_large_buffers()
        limit_data(MEMORY + 8_000_000)
        files = []
        for number in range(FILES):
            writer = KeyWriter(exchange, number, memory_bytes=MEMORY, scratch=home)
            for start in range(number * each, (number + 1) * each, 10_000):
                addresses = np.arange(start, start + 10_000, dtype=np.int64)
                keys = np.full((10_000, 2), 7, dtype=np.uint64)
                keys[::2, 0] = addresses[::2].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
                writer.append(keys, addresses, addresses % 1000)
            files.append(writer.commit())
        reduced = [reduce_keys(exchange, number, files, memory_bytes=MEMORY, scratch=home) for number in range(2)]
        assert sum(one.rows for one in reduced) == ROWS
        assert sum(one.file.rows for one in reduced) == ROWS // 2 - 1, [one.file.rows for one in reduced]
        reader = DropReader(exchange, 0, [one.file for one in reduced], memory_bytes=1_000_000)
        going = np.concatenate([reader.drops(np.arange(s, s + 10_000)) for s in range(0, each, 10_000)])
        assert np.flatnonzero(~going[1::2]).tolist() == [499], np.flatnonzero(~going[1::2])
        assert not going[::2].any() and reader.finish() == 0
"""


@pytest.mark.proof
def test_one_key_in_half_of_twenty_million_rows_stays_under_a_hard_limit(tmp_path):
    subprocess.run([sys.executable, "-c", textwrap.dedent(SKEWED), str(tmp_path)], check=True, timeout=280)
