# SPDX-License-Identifier: Apache-2.0
"""A notebook as somebody would type it: start, read, look, filter, change a threshold, drop, look, write, interrupt, go on."""

from __future__ import annotations

import json
import re

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = """
import curator_df as cdf
cluster = cdf.start_cluster(memory="1GB", cpus=2)
cluster
---
docs = cdf.read_jsonl("in.jsonl")
docs
---
docs.head(3)
---
len(docs)
---
lengths = docs["text"].str.len().compute()
lengths.describe().round(1)
---
axis = lengths.plot.hist(bins=10)
---
long = docs.pipe(cdf.keep_where, "n_words > 20")
len(long)
---
long = docs.pipe(cdf.keep_where, "n_words > 30")
len(long)
---
clean = long.pipe(cdf.drop_exact_duplicates)
clean
---
clean.head(2)[["n"]]
---
len(clean), len(clean.pipe(cdf.keep_where, "n < 100"))
---
looked = cdf.preview(clean, rows=500)
looked.dropped[["reject_step", "reject_reason", "n"]].tail(2)
---
big = docs.map_partitions(lambda block: block if bytearray(3_000_000_000) else block, meta=docs._meta)
big.compute()
---
docs?
---
def divided(block):
    nothing = 0 * len(block)
    return block.assign(n=block["n"].sum() / nothing if nothing else 1 / nothing)
wrong = docs.map_partitions(divided, meta=docs._meta)
wrong.compute()
---
cdf.write_parquet(wrong, "wrong")
---
docs.assign(more=lambda table: table["nope"])
---
docs["text"].apply(len)
---
unlucky = docs.map_partitions(lambda block: {}["word"], meta=docs._meta).head(2)
---
import os, signal, threading, time
threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
slow = clean.map_partitions(lambda block: (time.sleep(5), block)[1], meta=clean._meta)
cdf.write_parquet(slow, "slow")
---
with cdf.monitor_memory() as monitor:
    receipt = cdf.write_parquet(clean, "out")
receipt.rows_written
---
monitor.plot()
---
receipt.plot()
---
last = docs.pipe(cdf.drop_exact_duplicates, keep="last").persist()
---
cluster.close()
with cdf.start_cluster(memory="700MB", cpus=1):
    print(len(cdf.read_parquet("out")))
""".strip().split("\n---\n")
ROWS = 2_000
WORDS = [number // 2 % 50 for number in range(ROWS)]
TEXTS = [f"{number // 2} " + "word " * words for number, words in enumerate(WORDS)]
"""Each text twice, one after the other."""
FAILING = (
    *("big = ", "def divided", "cdf.write_parquet(wrong", "docs.assign(more=", 'docs["text"].apply', "unlucky"),
    "import os, signal",
)


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The cells with their outputs."""
    folder = tmp_path_factory.mktemp("typed")
    with (folder / "in.jsonl").open("w") as file:
        for number, (text, words) in enumerate(zip(TEXTS, WORDS, strict=True)):
            file.write(json.dumps({"n": number, "n_words": words, "text": text}) + "\n")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, allow_errors=True, timeout=120, kernel_name="python3", resources=where).execute()
    return notebook.cells


def outputs_of(cells, beginning: str) -> list:
    return next(cell.outputs for cell in cells if cell.source.startswith(beginning))


def value_of(cells, beginning: str) -> str:
    return outputs_of(cells, beginning)[-1].data["text/plain"]


def test_values_are_right(cells):
    assert value_of(cells, "len(docs)") == str(ROWS)
    assert f"max       {max(map(len, TEXTS))}.0" in value_of(cells, "lengths =")
    assert value_of(cells, 'long = docs.pipe(cdf.keep_where, "n_words > 20")') == str(sum(n > 20 for n in WORDS))
    kept = {text: n for n, text in reversed(list(enumerate(TEXTS))) if WORDS[n] > 30}
    assert value_of(cells, "len(clean)") == str((len(kept), sum(n < 100 for n in kept.values())))
    assert value_of(cells, "with cdf.monitor_memory") == str(len(kept))
    assert outputs_of(cells, "cluster.close()")[-1].text == f"{len(kept)}\n"


def test_a_table_says_that_a_drop_is_deferred(cells):
    assert "drop_exact_duplicates (deferred" in value_of(cells, "clean = ")


def test_a_preview_shows_what_was_dropped_and_why(cells):
    panel, rows = outputs_of(cells, "looked = ")
    assert panel.data["text/plain"].startswith("preview\n")
    assert "drop_exact_duplicates  exact_duplicate" in rows.data["text/plain"]


def test_a_plot_is_a_picture(cells):
    for beginning in ("axis", "monitor.plot", "receipt.plot"):
        assert "image/png" in outputs_of(cells, beginning)[-1].data


def test_a_saved_notebook_has_no_widget_as_text(cells):
    assert "VBox(children" not in json.dumps([cell.outputs for cell in cells])


def test_persist_shows_the_passes_that_it_runs(cells):
    assert any(
        "full pass for drop_exact_duplicates" in output.data["text/plain"] for output in outputs_of(cells, "last = ")
    )


def test_a_lack_of_memory_is_a_few_lines_with_the_line_of_the_user(cells):
    (error,) = [output for output in outputs_of(cells, "big = ") if output.output_type == "error"]
    lines = "\n".join(error.traceback).split("\n")
    assert len(lines) <= 10
    assert lines[0] == "----> 2 big.compute()"
    assert lines[1].startswith("in <lambda>, line 1: big = docs.map_partitions(")
    assert lines[2].startswith("BudgetError: The Dask operation 'lambda' ran out of memory twice")
    assert not re.search(r"site-packages|curator_df/", error.traceback[0])


def error_of(cells, beginning: str) -> list[str]:
    (error,) = [output for output in outputs_of(cells, beginning) if output.output_type == "error"]
    assert [output for output in outputs_of(cells, beginning) if output.get("name") == "stderr"] == []
    return "\n".join(error.traceback).split("\n")


def test_an_error_of_a_function_is_its_line_and_the_rows(cells):
    first, inside, said, rows = error_of(cells, "def divided")
    assert first == "----> 5 wrong.compute()"
    assert inside == 'in divided, line 3: return block.assign(n=block["n"].sum() / nothing if nothing else 1 / nothing)'
    assert said == "ZeroDivisionError: division by zero"
    assert re.fullmatch(r"The rows are those of \S+in\.jsonl from offset 0 to offset [0-9,]+\.", rows)


def test_an_error_of_a_step_of_a_writer_names_the_line_too(cells):
    first, inside, said = error_of(cells, "cdf.write_parquet(wrong")
    assert first == '----> 1 cdf.write_parquet(wrong, "wrong")'
    assert inside.startswith("in divided, line 3: return block.assign(")
    assert said.startswith("OperatorError: step 'map_partitions(divided)' raised ZeroDivisionError: division by zero")


def test_an_error_while_a_chain_is_built_is_short(cells):
    assert error_of(cells, "docs.assign(more=") == [
        '----> 1 docs.assign(more=lambda table: table["nope"])',
        'in <lambda>, line 1: docs.assign(more=lambda table: table["nope"])',
        "KeyError: 'nope'",
    ]


def test_a_function_that_dask_cannot_try_out_is_told_how_to_give_meta(cells):
    first, said, remedy = error_of(cells, 'docs["text"].apply(len)')
    assert (first, said) == ('----> 1 docs["text"].apply(len)', "TypeError: object of type 'NAType' has no len()")
    assert "say what it returns with meta=" in remedy


def test_an_error_in_head_is_short(cells):
    first, inside, said, _ = error_of(cells, "unlucky")
    assert inside.startswith("in <lambda>, line 1: unlucky = ")
    assert (first[:7], said) == ("----> 1", "KeyError: 'word'")


def test_help_about_a_table_is_shown_without_its_length(cells):
    assert outputs_of(cells, "docs?") == []  # it is sent to the pager of the frontend


def test_an_interrupt_says_how_to_go_on(cells):
    outputs = outputs_of(cells, "import os, signal")
    assert [output.ename for output in outputs if output.output_type == "error"] == ["KeyboardInterrupt"]
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "on_existing='resume'" in said
    first, last = "\n".join(outputs[-1].traceback).strip().split("\n")
    assert (first, last) == ('----> 4 cdf.write_parquet(slow, "slow")', "KeyboardInterrupt")


def test_no_other_cell_fails_or_writes_to_standard_error(cells):
    for cell in cells:
        if not cell.source.startswith(FAILING):
            assert not [output for output in cell.outputs if output.output_type == "error"], cell.source
            assert not [output for output in cell.outputs if output.get("name") == "stderr"], cell.source
