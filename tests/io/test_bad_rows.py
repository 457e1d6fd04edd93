# SPDX-License-Identifier: Apache-2.0
import json
import warnings

import pytest

from curator_df.errors import BadRowError, SchemaError
from curator_df.io.jsonl import parse
from curator_df.io.jsonl import reader as jsonl
from curator_df.io.jsonl.reader import read_jsonl

BAD = {
    "malformed": b'{"text": "a',
    "unbalanced": b'{"text": "a"}}',
    "null": b"null",
    "array": b'[{"text": "a"}]',
    "scalar": b"5",
    "two objects": b'{"text": "a"} {"text": "b"}',
    "null between": b'{"text": "a"}null{"text": "b"}',
    "not utf-8": b'{"text": "\xff"}',
    "lone surrogate": b'{"text": "\\ud800"}',
    "raw nul": b'{"text": "a\x00"}',
    "raw tab": b'{"text": "a\tb"}',
    "vertical tab around": b'\x0b{"text": "a"}',
    "duplicate": b'{"text": "a", "text": "b"}',
    "list": b'{"text": ["a"]}',
    "object": b'{"text": {"a": 1}}',
    "large int": b'{"id": 99999999999999999999}',
    "float in int": b'{"id": 1.5}',
    "text in int": b'{"id": "1"}',
}
GOOD = b'{"id": 1, "text": "good"}'


def write(folder, **files):
    """Write each file, named ``name_jsonl`` -> ``name.jsonl``."""
    for name, data in files.items():
        (folder / name.replace("_", ".")).write_bytes(data.encode() if isinstance(data, str) else data)
    return folder


def source_of(df):
    return df.expr.operand("func").source


def all_blocks(source, piece_bytes=10**12, block_bytes=10**6, **kwargs):
    return [
        block for piece in map(source.cut(piece_bytes).__getitem__, range(len(source.cut(piece_bytes))))
        for block in source.blocks(piece, block_bytes=block_bytes, **kwargs)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", list(BAD))
def test_a_bad_row_is_an_error_that_names_file_line_and_byte(tmp_path, kind):
    write(tmp_path, a_jsonl=b"\n".join([GOOD, b"", BAD[kind], GOOD]), b_jsonl=GOOD)
    df = read_jsonl(tmp_path, dtype={"id": "int64", "text": "string"})
    with pytest.raises(BadRowError, match=r"a\.jsonl', line 3 \(byte 27\): .*It begins b.*on_bad_rows='quarantine'"):
        df.compute()


@pytest.mark.parametrize("kind", list(BAD))
@pytest.mark.parametrize("block_bytes", [1, 60, 10**6])
def test_bad_rows_are_set_aside_and_good_ones_keep_their_order(tmp_path, kind, block_bytes):
    lines = [GOOD.replace(b"good", b"%d" % number) for number in range(9)]
    for place in (8, 4, 0):
        lines.insert(place, BAD[kind])
    write(tmp_path, a_jsonl=b"\n".join(lines))
    df = read_jsonl(tmp_path, dtype={"id": "int64", "text": "string"}, on_bad_rows="quarantine")
    aside = []
    blocks = all_blocks(source_of(df), 100, block_bytes, on_bad_row=aside.append)
    assert [text for block in blocks for text in block["text"]] == [str(number) for number in range(9)]
    assert [row.line for row in aside] == [1, 6, 11]
    assert {row.raw for row in aside} == {BAD[kind]}
    assert all(row.reason for row in aside)
    data = (tmp_path / "a.jsonl").read_bytes()
    assert all(data[row.offset :].startswith(BAD[kind]) for row in aside)


def test_without_the_runner_bad_rows_are_counted_in_a_warning(tmp_path):
    write(tmp_path, a_jsonl=b"\n".join([GOOD, b"null", GOOD, b"5"]))
    df = read_jsonl(tmp_path, on_bad_rows="quarantine")
    with pytest.warns(UserWarning, match=r"2 bad rows were skipped, the first in .*a\.jsonl', line 2 \(byte 26\)"):
        assert len(df.compute()) == 2


def later(tmp_path, data):
    """Write a file whose last line comes after the head that types are taken from."""
    filler = b'{"id": 1, "text": "good"}\n' * 3000
    return write(tmp_path, a_jsonl=filler + data)


def test_a_field_that_comes_later_is_an_error_with_both_ways_out(tmp_path):
    later(tmp_path, b'{"id": 2, "new": null}')
    message = r"line 3,001 \(byte 78,000\): the field 'new' is not among the columns.*dtype={'new': \.\.\.}.*columns="
    with pytest.raises(SchemaError, match=message):
        read_jsonl(tmp_path).compute()
    assert len(read_jsonl(tmp_path, columns=["id"]).compute()) == 3001
    assert read_jsonl(tmp_path, dtype={"new": "string"}).compute()["new"].isna().all()


def test_a_field_inside_an_object_that_comes_later_is_an_error(tmp_path):
    write(tmp_path, a_jsonl='{"o": {"k": 1}}\n' * 2500 + '{"o": {"k": 1, "z": [1]}}')
    with pytest.raises(SchemaError, match=r"the field 'o\.z' is not among the columns"):
        read_jsonl(tmp_path).compute()


def test_a_type_that_changes_later_is_an_error_that_names_where_it_came_from(tmp_path):
    later(tmp_path, b'{"id": "x2"}')
    write(tmp_path, b_jsonl='{"id": 5}')
    message = (
        r"line 3,001.*column 'id'.*from number to string\. The type was inferred from .*a\.jsonl'.*dtype={'id': \.\.\.}"
    )
    with pytest.raises(SchemaError, match=message):
        read_jsonl(tmp_path).compute()


@pytest.mark.parametrize(
    ("rows", "odd"),
    [
        (['"s"', '"t"', '"u"'], "5"),
        (["1", "2", "3"], '"s"'),
        (["1", str(2**53 + 1), str(2**63 - 1)], "0.5"),
        (["0.5", "1", "2.5"], str(2**53 + 1)),
        (["[1]", "[]", "[2, 3]"], '["s"]'),
        (['{"x": 1}', '{"x": 2, "y": null}', "null", '{"x": 3}'], '{"x": [1]}'),
        (['[{"x": 1}]', '[{"x": 2}]', "[]"], '[{"x": 1}, {"x": "s"}]'),
        (["1", "2", "3"], "[" * 1000 + "]" * 1000),
        (['"s"', '"t"', '"u"'], '{"a": ' * 200 + "1" + "}" * 200),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 3])
def test_one_odd_row_among_the_first_is_named_or_quarantined(tmp_path, rows, odd, place):
    lines = [f'{{"a": {value}}}' for value in rows]
    lines.insert(place, f'{{"a": {odd}}}')
    write(tmp_path, a_jsonl="\n".join(lines))
    with pytest.raises(SchemaError, match=rf"line {place + 1}\b"):
        read_jsonl(tmp_path).compute()
    found = []
    (block,) = all_blocks(source_of(read_jsonl(tmp_path, on_bad_rows="quarantine")), on_bad_row=found.append)
    assert [(row.line, row.raw.decode()) for row in found] == [(place + 1, lines[place])]
    del lines[place]
    write(tmp_path, a_jsonl="\n".join(lines))
    assert block["a"].tolist() == read_jsonl(tmp_path).compute()["a"].tolist()


@pytest.mark.parametrize(
    "odd",
    [r'{"\udfaa": 0}', r'{"a": 1, "m": {"\ud800": 0}}', r'{"a": 1, "m": [{"\udc00\ud800": 0}]}', r'{"t": "\ud83d"}'],
)
@pytest.mark.parametrize("columns", [None, ["a"]])
def test_half_a_surrogate_pair_among_the_first_rows_is_a_bad_row(tmp_path, odd, columns):
    write(tmp_path, a_jsonl='{"a": 1}\n' + odd + '\n{"a": 2}\n')
    with pytest.raises(BadRowError, match=r"line 2 \(byte 9\)"):
        read_jsonl(tmp_path, columns=columns).compute()
    with pytest.warns(UserWarning, match="1 bad row was"):
        block = read_jsonl(tmp_path, columns=columns, on_bad_rows="quarantine").compute()
    assert block.to_dict("list") == {"a": [1, 2]}


WITH_TEXT, WITH_NUMBER = b'{"id":1,"m":"x"}', b'{"id":1,"m":7}'


@pytest.mark.parametrize("size", [70_000, pytest.param(300_000, marks=pytest.mark.proof), 3_000_000])
@pytest.mark.parametrize(
    "bad",
    [
        lambda n: b'{"id":2,"m":' + b"[" * n + b"]" * n + b"}",
        lambda n: b'{"id":2,"m":"' + b"x" * n + b"}",
        lambda n: b'{"id":2,"m":"' + b"x" * n + b'","id":3}',
        lambda n: b"[1]" + b" " * n + b"]",
        lambda n: b" " * n,
        lambda n: b"\t" * n + b"\n\n" + b" " * n,
    ],
    ids=["deep", "open", "twice", "no object", "blank", "blanks"],
)
def test_rows_around_a_long_line_without_a_row_are_read(tmp_path, size, bad):
    long = bad(size)
    for lines in (
        [WITH_TEXT, long, WITH_TEXT],
        [WITH_NUMBER, long, WITH_NUMBER],
        [long, WITH_NUMBER, long, long, WITH_TEXT],
        [WITH_NUMBER + b" " * size, b" " * size + WITH_TEXT, WITH_NUMBER],
        [(WITH_NUMBER.replace(b"7", b'7,"t":"%s"' % (b"y" * size)) + b" " * 60_000), WITH_NUMBER] * 3,
    ):
        text = b"\n".join(lines)
        write(tmp_path, a_jsonl=text)
        types = {"id": "int64", "m": "string", "t": "string"}
        df = read_jsonl(tmp_path, dtype=types, on_bad_rows="quarantine", add_source=True)
        found = []
        (block,) = all_blocks(source_of(df), block_bytes=10**8, on_bad_row=found.append)
        good = [number for number, line in enumerate(text.split(b"\n"), 1) if line.strip().startswith(b'{"id":1,')]
        assert block["source_line"].tolist() == good
        assert {row.raw for row in found} == ({long} if long in lines and long.strip() else set())


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_field_that_nests_too_deep_is_named_and_the_way_out_is_to_choose_columns(tmp_path, depth, brackets):
    deep = brackets[0] * depth + b"1" + brackets[1] * depth
    write(tmp_path, a_jsonl=b'{"id": 1}\n{"id": 2, "m\\u00e9": ' + deep + b"}\n")
    with pytest.raises(
        SchemaError, match=r"line 2 \(byte 10\): the field 'mé' .* nests [\d,]+ levels deep.*columns="
    ) as told:
        read_jsonl(tmp_path).compute()
    assert "dtype=" not in str(told.value)
    assert read_jsonl(tmp_path, columns="id").compute()["id"].tolist() == [1, 2]
    with pytest.warns(UserWarning, match="1 bad row was"):
        assert read_jsonl(tmp_path, on_bad_rows="quarantine").compute()["id"].tolist() == [1]


def test_an_unknown_field_beside_a_number_that_only_arrow_reads_is_named(tmp_path):
    write(tmp_path, a_jsonl='{"s": 0.5}\n{"s": -NaN, "new": 1}\n')
    with pytest.raises(SchemaError, match=r"the field 'new' is not among the columns.*dtype={'new': \.\.\.}"):
        read_jsonl(tmp_path).compute()


def test_an_unknown_field_inside_a_column_names_the_column_to_give_a_type(tmp_path):
    write(tmp_path, a_jsonl='{"o": {"k": 1}}\n' * 2500 + '{"o": {"k": 1, "z": [1]}}')
    with pytest.raises(SchemaError, match=r"the field 'o\.z' .*dtype={'o': \.\.\.}"):
        read_jsonl(tmp_path).compute()


ROW_KINDS = {
    "other key": lambda n: {"text": f"row {n}", f"key_{n}": n},
    "other type": lambda n: {"text": f"row {n}", "n": "many"},
    "inner key": lambda n: {"text": f"row {n}", "about": {"a": 1, f"b{n}": 2}},
    "good": lambda n: {"text": f"row {n}", "n": n, "about": {"a": n}},
}
REASONS = {
    "other key": "the field 'key_{n}' is not among the columns",
    "other type": "column 'n': ",
    "inner key": "the field 'about.b{n}' is not among the columns",
}


def read_rows(path, rows, monkeypatch):
    """Read rows whose columns are those of the first; return the reasons of bad rows, and the texts of the others."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(jsonl, "HEAD_BYTES", len(json.dumps(rows[0])) + 1)
    source, bad = read_jsonl(path, on_bad_rows="quarantine").expr.operand("func").source, []
    (piece,) = source.cut(10**12)
    blocks = source.blocks(piece, block_bytes=10**6, on_bad_row=lambda row: bad.append(row.reason))
    return bad, [text for block in blocks for text in block["text"]]


@pytest.mark.parametrize(
    "kinds",
    [
        ["other key"] * 40,
        ["good", "other key"] * 20,
        ["good", "other type", "other key", "inner key"] * 10,
        ["inner key"] * 3 + ["good"] * 30,
    ],
    ids=["all", "every second", "mixed", "objects"],
)
def test_rows_with_fields_that_are_no_columns_are_named_one_by_one(tmp_path, kinds, monkeypatch):
    first = {"text": "first", "n": 0, "about": {"a": 0}}
    bad, texts = read_rows(
        tmp_path / "in.jsonl", [first, *(ROW_KINDS[kind](n) for n, kind in enumerate(kinds))], monkeypatch
    )
    assert texts == ["first", *(f"row {n}" for n, kind in enumerate(kinds) if kind == "good")]
    expected = [REASONS[kind].format(n=n) for n, kind in enumerate(kinds) if kind != "good"]
    assert all(found.startswith(reason) for found, reason in zip(bad, expected, strict=True))


@pytest.mark.parametrize("kind", ["other key", "inner key", "other type"])
def test_a_bad_row_takes_few_tries_however_many_columns_there_are(tmp_path, kind, monkeypatch):
    tries, try_parse = [], parse.try_parse
    monkeypatch.setattr(parse, "try_parse", lambda *given, **how: tries.append(1) or try_parse(*given, **how))
    first = {"text": "first", "about": {"a": 0}, **{f"c{n}": n for n in range(300)}, "n": 0}
    bad, _ = read_rows(tmp_path / "in.jsonl", [first, ROW_KINDS[kind](0), *[{"text": "good"}] * 3], monkeypatch)
    assert len(bad) == 1 and len(tries) < 40


def test_a_line_that_only_the_parser_of_the_columns_refuses_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(parse, "_unknown_field", lambda value, names: ["key_0"] if "key_0" in value else [])
    rows = [{"text": "first"}, *({"text": "bad", f"key_{n}": n} for n in range(3)), {"text": "good"}]
    bad, texts = read_rows(tmp_path / "in.jsonl", rows, monkeypatch)
    assert len(bad) == 3 and texts == ["first", "good"]


PLAIN_ROW = '{"id": 1, "text": "x"}\n'


def row_with_lists(name, levels, rest='"id": 2, '):
    return f'{{{rest}"{name}": {"[" * levels}{"]" * levels}}}\n'


@pytest.mark.parametrize(
    ("rows", "column", "more"),
    [
        (PLAIN_ROW + row_with_lists("m", 101), "m", {}),
        (PLAIN_ROW + row_with_lists("text", 101), "text", {}),
        (PLAIN_ROW + row_with_lists("m", 5_000), "m", {}),
        (PLAIN_ROW + row_with_lists("text", 5_000), "text", {}),
        (PLAIN_ROW * 3_000 + row_with_lists("m", 200), "m", {}),
        (PLAIN_ROW * 3_000 + row_with_lists("text", 200), "text", {}),
        (PLAIN_ROW + row_with_lists("m", 5_000), "m", {"dtype": {"m": "string"}}),
        (PLAIN_ROW + '{"id": 2, "m": ' + '{"a": ' * 300 + "1" + "}" * 301 + "\n", "m", {}),
    ],
)
def test_values_that_nest_too_deeply_do_not_ask_for_a_type(tmp_path, rows, column, more):
    (tmp_path / "a.jsonl").write_text(rows)
    with pytest.raises((SchemaError, BadRowError), match=r"levels deep") as caught:
        read_jsonl(tmp_path / "a.jsonl", **more).compute()
    said = str(caught.value)
    assert repr(column) in said
    assert "dtype=" not in said
    assert isinstance(caught.value, BadRowError if more else SchemaError)
    good = rows.count(PLAIN_ROW)  # both ways out help
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(read_jsonl(tmp_path / "a.jsonl", on_bad_rows="quarantine", **more).compute()) == good
    assert len(read_jsonl(tmp_path / "a.jsonl", columns=["id"]).compute()) == good + 1


def test_a_file_of_rows_that_nest_too_deeply_is_read_without_them(tmp_path):
    (tmp_path / "a.jsonl").write_text(row_with_lists("m", 5_000) * 2)
    said = r"it nests 5,000 levels deep; name other columns with columns=, and their types with dtype="
    with pytest.raises(BadRowError, match=said):
        read_jsonl(tmp_path / "a.jsonl")
    assert read_jsonl(tmp_path / "a.jsonl", columns=["id"], dtype={"id": "int64"}).compute()["id"].tolist() == [2, 2]
