# SPDX-License-Identifier: Apache-2.0
"""The generator of the operators page: where a public value is listed, and what it says of a contract that is not one."""

from __future__ import annotations

import re
from typing import Any

import pytest

import curator_df as cdf
from docs import generate_operators
from docs.generate_operators import ContractError, generated, markdown, public_values, row_of

CONTRACT = "Rows: same. Columns: same. Backends: pandas. Peak extra memory: 1.2 x block. Computes: no."
RETURNS = "dask.dataframe.DataFrame\n    The rows."


def keep_new(df: Any) -> Any:
    return df


def row_of_new(notes: str, returns: str = RETURNS) -> tuple[str, dict[str, str]]:
    """Return the row of a function with this contract."""
    keep_new.__doc__ = f"Keep the new rows.\n\nReturns\n-------\n{returns}\n\nNotes\n-----\n{notes}\n"
    return row_of("keep_new", keep_new)


def test_a_contract_is_the_row_of_its_function():
    see = CONTRACT + " See ``docs/memory.md#terms``.\n\nMore of it."
    group, said = row_of_new(see.replace("same. B", "same; ``text`` changes. B").replace(". Peak", ".\nPeak"))
    assert group == "operators"
    assert {key: said[key] for key in generate_operators.TABLES[group].values()} == {
        "name and summary": "`keep_new`<br>Keep the new rows; see [memory.md](memory.md#terms)",
        "Rows": "same",
        "Columns": "same; `text` changes",
        "Computes": "no",
        "Peak extra memory": "1.2",
        "Backends": "pandas",
    }


def test_why_there_are_no_cudf_blocks_is_beside_the_backends(monkeypatch):
    monkeypatch.setitem(generate_operators.HOST_ONLY, "keep_new", "it works with NumPy")
    assert row_of_new(CONTRACT)[1]["Backends"] == "pandas: it works with NumPy"
    some = CONTRACT.replace("Backends: pandas", "Backends: pandas; cudf by address")
    assert row_of_new(some)[1]["Backends"] == "pandas; cudf by address"


@pytest.mark.parametrize("field", ["Rows", "Columns", "Backends", "Peak extra memory"])
def test_a_field_that_is_missing_is_named(field):
    notes = re.sub(rf"{field}: .*?(\.(?= )|\.$) ?", "", CONTRACT.replace("1.2", "2"))
    with pytest.raises(
        ContractError, match=rf"^keep_new: its contract does not say {field}, as those of operators do$"
    ):
        row_of_new(notes)


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ("", "its Notes do not open with a contract"),
        ("It keeps rows. " + CONTRACT, "its Notes do not open with a contract"),
        ("Computes: no. Rows: same.", "its contract has Computes, Rows; they come once each, as Rows, Columns, "),
        ("Rows: same. Rows: same. Computes: no.", "its contract has Rows, Rows, Computes; they come once each"),
        ("Rows: same. Computes: no", "'Computes' of its contract has no text that ends with a full stop"),
        (CONTRACT + " It is fast.", "'It is fast.' is no part of its contract; begin a paragraph after 'Computes'"),
    ],
)
def test_a_contract_that_is_not_one_is_an_error(notes, message):
    with pytest.raises(ContractError, match=f"^keep_new: {re.escape(message)}"):
        row_of_new(notes)


def test_a_type_alone_does_not_say_what_is_returned():
    with pytest.raises(ContractError, match=r"^keep_new: its Returns have no sentence below the type$"):
        row_of_new("Rows: none. Peak extra memory: none. Computes: no.", "Plan")


def test_what_a_function_returns_and_computes_says_where_it_is_listed():
    assert row_of_new(CONTRACT.replace("no.", "yes."))[0] == "runs"
    group, said = row_of_new("Rows: none. Peak extra memory: none. Computes: no.", "Plan\n    A plan. It shows itself.")
    assert (group, said["returns"]) == ("runs", "A plan")
    listed = {name: row_of(name, value)[0] for name, value in public_values().items()}
    assert [name for name, group in listed.items() if group == "clusters"] == [
        "connect",
        "job_cluster",
        "monitor_memory",
        "serve_metrics",
        "slurm_cluster",
        "start_cluster",
    ]
    assert {name for name, group in listed.items() if group == "readers"} == {
        name for name in cdf.__all__ if name.startswith("read_") and name != "read_receipt"
    }


def test_markup_of_docstrings_is_that_of_the_page():
    assert (
        markdown("``a|b`` of `add_ids` and :func:`explain`, 4 x ``size``")
        == r"`a\|b` of `add_ids` and `explain`, 4 x `size`"
    )
    assert markdown("4.2 x block, 1.0 x to it (``docs/gpu.md``)") == "4.2, 1.0 to it ([gpu.md](gpu.md))"


def test_a_page_without_the_place_of_a_table_is_an_error():
    with pytest.raises(ContractError, match="the page has 0 places '<!-- generated: readers -->'"):
        generated("# Operators\n", {})


def test_check_says_what_differs_and_leaves_the_page(tmp_path, monkeypatch, capsys):
    page = tmp_path / "operators.md"
    page.write_text(generate_operators.PAGE.read_text().replace("| `keep_where`<br>", "| `keep_were`<br>"))
    monkeypatch.setattr(generate_operators, "PAGE", page)
    assert generate_operators.main(["--check"]) == 1
    assert "-| `keep_were`<br>" in capsys.readouterr().out
    assert generate_operators.main([]) == 0
    assert generate_operators.main(["--check"]) == 0
    assert capsys.readouterr().out == ""
