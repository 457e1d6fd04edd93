# SPDX-License-Identifier: Apache-2.0
"""Numbers and booleans in columns that the user asked to be text."""

import json
import weakref

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.io.jsonl import blocks as text_field
from curator_df.io.jsonl.parse import ScalarsAsText
from tests.core.runner.fake_client import inline_cluster


def source_of(df):
    return df.expr.operand("func").source


def as_text(raw, *names, read_bytes=1 << 20):
    file, parts = ScalarsAsText(np.frombuffer(raw, np.uint8), names), []
    while part := file.read(read_bytes):
        parts.append(part)
    assert all(len(part) == read_bytes for part in parts[:-1])
    return b"".join(parts)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"id": 5, "n": 5}', '{"id": "5", "n": 5}'),
        ('{"id":-0.50e+3}', '{"id":"-0.50e+3"}'),
        ('{"id" :\ttrue , "n": true}', '{"id" :\t"true" , "n": true}'),
        ('{"id": false}', '{"id": "false"}'),
        ('{"id": null}', None),
        ('{"id": "5"}', None),
        ('{"id": [5]}', None),
        ('{"id": {"id": 5}}', None),
        ('{"n": {"id": 5}, "id": 6}', '{"n": {"id": 5}, "id": "6"}'),
        ('{"n": [{"id": 5}, {"id": 6}], "id": 7}', '{"n": [{"id": 5}, {"id": 6}], "id": "7"}'),
        (r'{"t": "{\"id\": 5, [", "id": 6}', r'{"t": "{\"id\": 5, [", "id": "6"}'),
        (r'{"t": "\\", "id": 6}', r'{"t": "\\", "id": "6"}'),
        ('{"t": "id", "n": 6}', None),
        ('{"id": 05}', None),  # no number of JSON: not made right
        ('{"id": 5x}', None),
        ('{"id": tru}', None),
        ('{"id": +5}', None),
        ('{"id": 5', None),
    ],
)
@pytest.mark.parametrize("read_bytes", [1, 7, 1 << 20])
def test_only_scalars_of_the_line_itself_become_strings(line, expected, read_bytes):
    raw = f'{{"id": 1}}\n{line}\n{{"id": 2}}\n'
    wanted = f'{{"id": "1"}}\n{expected or line}\n{{"id": "2"}}\n'
    assert as_text(raw.encode(), "id", read_bytes=read_bytes).decode() == wanted


def test_names_may_have_any_characters_in_either_spelling():
    name = 'a.b (é) "*'
    for is_ascii in (True, False):
        raw = json.dumps({name: 5, "a": 6}, ensure_ascii=is_ascii)
        assert json.loads(as_text(raw.encode(), name, "other")) == {name: "5", "a": 6}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "n", "é"]), inner, max_size=3),
    max_leaves=12,
)
ROWS = st.lists(st.dictionaries(st.sampled_from(["id", "n", "é", '"id":']) | st.text(), VALUES), max_size=6)


@given(ROWS, st.sampled_from([None, 1]), st.booleans())
def test_rows_are_the_same_but_for_those_values(rows, indent, is_ascii):
    spaces = (", ", " : ") if indent else (",", ":")
    raw = "".join(json.dumps(row, ensure_ascii=is_ascii, separators=spaces) + "\n" for row in rows)
    wanted = [
        {
            name: json.dumps(value) if name in ("id", "é") and type(value) in (bool, int, float) else value
            for name, value in row.items()
        }
        for row in rows
    ]
    found = as_text(raw.encode("utf-8", "surrogatepass"), "id", "é").decode("utf-8", "surrogatepass")
    assert [json.loads(line) for line in found.split("\n") if line] == wanted


def test_the_lines_are_let_go_of_with_the_file():
    data = np.frombuffer(b'{"id": 1}\n{"id": 2}\n', np.uint8)[:]
    file, watch = ScalarsAsText(data, ["id"]), weakref.ref(data)
    file.read(3)
    del file, data
    assert watch() is None


def test_a_line_with_very_many_such_fields_further_in_ends_in_the_time_of_a_test():
    """Brackets counted from the beginning of the line for each field would be 300 GB of them."""
    raw = json.dumps({"n": [{"id": number} for number in range(200_000)], "id": 1}).encode()
    assert as_text(raw, "id") == raw[:-2] + b'"1"}'


@pytest.mark.parametrize("prose", [0, 3_000], ids=["short rows", "mostly text"])
@pytest.mark.parametrize("is_mixed", [True, False])
def test_ids_of_two_kinds_are_read_into_one_column(tmp_path, prose, is_mixed):
    text_bytes = max(text_field.LEAST_BYTES * 2, prose) // 1_000
    ids = [f"web-{number}" if is_mixed and number % 3 else number for number in range(1_000)]
    with open(tmp_path / "a.jsonl", "w") as file:
        file.writelines(
            json.dumps({"id": number, "text": "prose " * (text_bytes // 6 if prose else 1)}) + "\n" for number in ids
        )
    if is_mixed:
        with pytest.raises(errors.SchemaError, match=r"'string' reads numbers literally"):
            cdf.read_jsonl(tmp_path)
    for columns in (None, ["id"]):
        rows = cdf.read_jsonl(tmp_path, dtype={"id": "string"}, columns=columns).compute()
        assert rows["id"].dtype == pd.StringDtype("pyarrow")
        assert rows["id"].tolist() == [str(number) for number in ids]


def test_what_was_not_asked_to_be_text_stays_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "a", "t": "x"}\n' * 3_000 + '{"id": 5, "t": 6}\n')
    with pytest.raises(errors.SchemaError, match=r"line 3,001.*column 't'.*from string to number"):
        cdf.read_jsonl(tmp_path, dtype={"id": "string"}).compute()
    rows = cdf.read_jsonl(tmp_path, dtype={"id": "string", "t": "string"}).compute()
    assert rows.iloc[-1].tolist() == ["5", "6"]


def test_broken_lines_beside_them_are_set_aside_as_ever(tmp_path):
    lines = ['{"id": 1}', '{"id": 02}', '{"id": [3]}', '{"id": "4"}', '{"id": tru}', '{"id": 6, "id": 6}', '{"id": 7}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="4 bad rows"):
        rows = cdf.read_jsonl(tmp_path, dtype={"id": "string"}, on_bad_rows="quarantine").compute()
    assert rows["id"].tolist() == ["1", "4", "7"]


def test_a_run_reads_them(tmp_path):
    rows = [{"id": number if number % 2 else f"b{number}", "text": "some words"} for number in range(5_000)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    docs = cdf.read_jsonl(tmp_path / "in.jsonl", dtype={"id": "string"}, blocksize="50kB")
    with inline_cluster(memory="900MB", cpus=1):
        receipt = cdf.write_parquet(docs, tmp_path / "out")
    assert receipt.rows_written == len(rows)
    assert pd.read_parquet(tmp_path / "out")["id"].tolist() == [str(row["id"]) for row in rows]


def test_a_table_that_reads_them_has_another_fingerprint(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "a"}\n')
    prints = {source_of(cdf.read_jsonl(tmp_path, dtype=dtype)).fingerprint for dtype in (None, {"id": "string"})}
    assert len(prints) == 2
