# SPDX-License-Identifier: Apache-2.0
"""Help, completion and display of a table in IPython cost nothing and say what is pending."""

from __future__ import annotations

import json
import warnings

import dask.dataframe as dd
import pandas as pd
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import curator_df as cdf
from curator_df.core.planning.lowering import ReadPartition
from curator_df.ops import notebook


@pytest.fixture(scope="module")
def shell():
    """A shell of IPython with our hooks, which is gone afterwards."""
    made = InteractiveShell()
    notebook.integrate(made)
    yield made
    InteractiveShell.clear_instance()


@pytest.fixture
def reads(monkeypatch) -> list[int]:
    """The partitions that were read, in order."""
    found: list[int] = []
    read = ReadPartition.__call__

    def counted(self, number, columns=None):
        found.append(number)
        return read(self, number, columns)

    monkeypatch.setattr(ReadPartition, "__call__", counted)
    return found


@pytest.fixture
def docs(tmp_path, reads, shell):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"n": n, "text": "word " * n}) + "\n" for n in range(50)))
    table = cdf.read_jsonl(tmp_path, blocksize="1kB")
    shell.user_ns.update(docs=table, kept=table.pipe(cdf.drop_exact_duplicates), cdf=cdf)
    return table


def completions(shell, code: str) -> list[str]:
    with provisionalcompleter():
        return [found.text for found in shell.Completer.completions(code, len(code))]


def test_help_about_a_table_reads_nothing(shell, docs, reads):
    for name, table in {"docs": docs, "text": docs["text"], "few": docs[docs["n"] > 3]}.items():
        shell.user_ns[name] = table
        for detail in (0, 1):
            found = shell.object_inspect(name, detail_level=detail)
            assert found["found"]
            assert found["length"] is None
    assert reads == []
    assert len(docs) == 50
    assert len(reads) == docs.npartitions


def test_help_about_a_pending_drop_runs_no_pass(shell, docs, reads):
    assert shell.object_inspect("kept")["length"] is None
    assert reads == []


def test_completion_after_a_table_reads_nothing_and_asks_no_analyzer(shell, docs, reads, monkeypatch):
    monkeypatch.setattr(shell.Completer, "_jedi_matches", lambda *_, **__: pytest.fail("Jedi was asked"))
    operators = completions(shell, "docs.curate.")
    assert "keep_where" in " ".join(operators)
    assert len(operators) == len([name for name in dir(docs.curate) if not name.startswith("_")])
    assert [name.rpartition(".")[2] for name in completions(shell, "docs.curate.keep_w")] == ["keep_where"]
    assert [name.rpartition(".")[2] for name in completions(shell, "len(docs.npart")] == ["npartitions"]
    assert [name.rpartition(".")[2] for name in completions(shell, "docs.tex")] == ["text"]
    assert [name.rpartition(".")[2] for name in completions(shell, "cdf.write_m")] == ["write_many"]
    assert reads == []


def test_completion_after_anything_else_is_left_to_ipython(shell, docs):
    shell.user_ns["plain"] = pd.DataFrame({"n": [1]})
    assert notebook.completions_of("plain.", shell.user_ns) == []
    assert notebook.completions_of("docs", shell.user_ns) == []
    assert notebook.completions_of("docs.text.str.", shell.user_ns) == []
    assert "nlargest" in " ".join(completions(shell, "plain.nlarg"))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("docs.curate.drop_exakt_duplicates()", "Did you mean 'drop_exact_duplicates'?"),
        ("docs.pipe(cdf.drop_exact_duplicates()).head()", "drop_exact_duplicates needs a table. Call"),
        ("docs.iloc[0]", "only supports selecting columns"),
        ("dd.concat([docs, 3])", "Input must be a pandas DataFrame or Series"),
        ("docs['text'].str.get(0, 1, 2)", "takes"),
    ],
)
def test_an_error_about_a_table_is_a_few_lines(shell, docs, capsys, code, said):
    shell.user_ns["dd"] = dd
    result = shell.run_cell(code)
    assert said in str(result.error_in_exec)
    shown = capsys.readouterr().out.strip().split("\n")
    assert shown[0] == f"----> 1 {code}"
    assert said in shown[1]
    assert len(shown) <= 3


def test_an_error_of_dask_about_tables_of_others_is_shown_by_ipython(shell, capsys):
    shell.user_ns["others"] = dd.from_pandas(pd.DataFrame({"n": [1]}), 1)
    shell.run_cell("others.iloc[0]")
    assert "dask_expr/_indexing.py" in capsys.readouterr().out


def test_only_public_names_are_listed():
    assert [name for name in dir(cdf) if not name.startswith("__")] == sorted(cdf.__all__)
    assert "__version__" in dir(cdf)


def test_a_table_is_displayed_as_what_it_is(shell, docs, reads):
    shown, _ = shell.display_formatter.format(shell.user_ns["kept"])
    assert "drop_exact_duplicates (deferred until all rows were read)" in shown["text/plain"]
    assert f"{docs.npartitions:,}" in shown["text/plain"]
    assert "<th style='text-align:left'>deferred</th>" in shown["text/html"]
    assert reads == []


def test_a_table_of_dask_alone_is_displayed_by_dask(shell):
    table = dd.from_pandas(pd.DataFrame({"n": [1, 2]}), npartitions=1)
    shown, _ = shell.display_formatter.format(table)
    assert shown["text/plain"] == repr(table)
    assert shown["text/html"] == table._repr_html_()


def test_hooks_are_registered_once_and_those_of_the_user_stay(shell):
    mine = InteractiveShell()
    mine.display_formatter.formatters["text/html"].for_type(dd.DataFrame, lambda df: "mine")
    before = len(mine.Completer.custom_matchers)
    notebook.integrate(mine)
    notebook.integrate(mine)
    assert len(mine.Completer.custom_matchers) == before + 1
    table = dd.from_pandas(pd.DataFrame({"n": [1, 2]}), npartitions=1)
    assert mine.display_formatter.format(table)[0]["text/html"] == "mine"


def test_without_ipython_nothing_is_registered():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert notebook.integrate() is None
