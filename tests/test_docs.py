# SPDX-License-Identifier: Apache-2.0
"""The documentation says what is so: names, figures, links, and examples that run."""

from __future__ import annotations

import builtins
import collections
import functools
import importlib
import inspect
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import nbformat
import orjson
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.planning.plan import MAX_DEFAULT_BLOCK_BYTES
from curator_df.core.planning.price import largest_block
from curator_df.io import text_files
from curator_df.io.csv import reader as csv
from curator_df.io.jsonl import reader as jsonl
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import Folder, JsonlFormat, ParquetFormat
from curator_df.io.parquet import reader as parquet
from curator_df.io.shuffle import source as shuffle_source
from curator_df.io.warc import reader as warc
from curator_df.kernels.metrics.catalog import CATALOGUE
from curator_df.memory.budget import choose_layout
from curator_df.memory.process_cache import release_held
from curator_df.memory.sizes import read_size
from docs import generate_operators, llms
from tests.contracts.operator_cases import CASES, OPERATORS, OTHER_ROWS, SAME_ROWS, kernels_of, table
from tests.core.runner.fake_client import inline_cluster

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = CHECKOUT / "curator_df"
PAGES = [*sorted(CHECKOUT.glob("*.md")), *sorted((CHECKOUT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((CHECKOUT / "notebooks").glob("*.ipynb"))
TEXTS = {path: path.read_text() for path in PAGES}


def page(name: str) -> str:
    return (CHECKOUT / name).read_text()


def rows_of(text: str, *first_columns: str) -> list[list[str]]:
    """Return the cells of every table whose head begins with these columns."""
    found, inside = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")] if line.startswith("|") else []
        if cells[: len(first_columns)] == list(first_columns):
            inside = True
        elif not cells:
            inside = False
        elif inside and not line.startswith("|---"):
            found.append(cells)
    return found


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def prose_of(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors_of(text: str) -> set[str]:
    """Return the anchors that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", prose_of(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def found_on_pages(pattern: str, *, in_code: bool = False) -> list[tuple[str, Any]]:
    """Return each match of a pattern with the name of its page, outside of code blocks if not told otherwise."""
    return [
        (path.relative_to(CHECKOUT).as_posix(), match)
        for path, text in TEXTS.items()
        for match in re.findall(pattern, text if in_code else prose_of(text))
    ]


def linked() -> list[tuple[str, str]]:
    """Return the target of each link and picture with the name of its page, notebook or template of GitHub."""
    found = found_on_pages(r"\]\(([^)]+)\)") + found_on_pages(r"(?m)^```\{image\} (\S+)$", in_code=True)
    found += [
        ("docs/index.md", f"{entry}.md")
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", page("docs/index.md"), re.DOTALL | re.MULTILINE)
        for entry in re.findall(r"^[\w/]+$", tree, re.MULTILINE)
    ]
    others = {path: path.read_text() for path in (CHECKOUT / ".github").rglob("*.md")}
    for path in NOTEBOOKS:
        others[path] = "\n".join(cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown")
    for path, text in others.items():
        found += [(path.relative_to(CHECKOUT).as_posix(), target) for target in re.findall(r"\]\(([^)]+)\)", text)]
    return found


def test_relative_links_lead_somewhere():
    anchors = functools.cache(lambda path: anchors_of(path.read_text()))
    links = [(name, target) for name, target in linked() if "://" not in target]
    broken = []
    for name, target in links:
        path, _, anchor = target.partition("#")
        found = (CHECKOUT / name).parent.joinpath(path).resolve() if path else CHECKOUT / name
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append((name, target))
    assert len(links) > 100
    assert broken == []


def test_links_to_other_sites_are_whole():
    links = [(name, target) for name, target in linked() if "://" in target]
    broken = [
        (name, target)
        for name, target in links
        if not re.fullmatch(r"https://([a-z0-9-]+\.)+[a-z]{2,}(/[^\s()<>]*)?", target) or ".example" in target
    ]
    assert links
    assert broken == []


def test_named_errors_and_modules_exist():
    named = found_on_pages(r"`(\w+Error)`")
    missing = [
        (name, error) for name, error in named if not hasattr(builtins, error) and not hasattr(cdf.errors, error)
    ]
    modules = found_on_pages(r"`((?:core|io|ops|cluster|kernels)/\w+\.py)`")
    missing += [(name, module) for name, module in modules if not (PACKAGE / module).is_file()]
    others = found_on_pages(r"`((?:tests|benchmarks|docs)/[\w/]+\.\w+)`")
    missing += [(name, other) for name, other in others if not (CHECKOUT / other).is_file()]
    missing += [(name, public) for name, public in found_on_pages(r"`cdf\.(\w+)") if public not in cdf.__all__]
    assert missing == []
    assert all((named, others, found_on_pages(r"`cdf\.(\w+)")))


def test_named_tests_exist():
    named = found_on_pages(r"`([\w/]+\.py)::(\w+)`", in_code=True)
    missing = []
    for name, (path, test) in named:
        file = CHECKOUT / (path if "/" in path else f"tests/faults/{path}")
        if not re.search(rf"^def {test}\(", file.read_text(), re.MULTILINE):
            missing.append((name, path, test))
    assert len(named) > 10
    assert missing == []


def test_the_readme_has_each_command_alone_in_a_block():
    blocks = code_blocks(page("README.md"), "sh")
    assert [block.count("\n") for block in blocks if block.startswith("python3 -m venv ")] == [1, 1]
    assert [block.split(" && ")[-1].strip() for block in blocks[:2]] == [
        ".venv/bin/curator-df demo",
        ".venv/bin/python -m pytest",
    ]


def test_every_public_name_is_on_the_operators_page():
    rows = [row for heads in generate_operators.TABLES.values() for row in rows_of(page("docs/operators.md"), *heads)]
    assert {row[0].split("`")[1] for row in rows} == set(cdf.__all__)


def documented(column: str) -> dict[str, str]:
    """Return what the operators page says of each function of a table, by the head of the column."""
    text = page("docs/operators.md")
    return {
        row[0].split("`")[1]: dict(zip(heads, row, strict=True))[column]
        for heads in generate_operators.TABLES.values()
        if column in heads
        for row in rows_of(text, *heads)
    }


def documented_peaks() -> dict[str, set[float]]:
    """Return the figures in the column "peak" of the operators page, by function."""
    return {
        name: {float(figure) for figure in re.findall(r"\d+\.\d+", peak)} for name, peak in documented("peak").items()
    }


def test_the_operators_page_is_generated_from_the_docstrings():
    text = page("docs/operators.md")
    assert generate_operators.generated(text, generate_operators.public_values()) == text, (
        "run docs/generate_operators.py"
    )


def test_rows_columns_and_computes_on_the_operators_page_are_what_the_contracts_hold_operators_to():
    rows, columns, computes = (documented(head) for head in ("rows", "columns", "computes"))
    for case in CASES:
        name = case.operator
        if name not in OTHER_ROWS:
            assert re.match(r"\w+", rows[name])[0] == ("same" if name.startswith(SAME_ROWS) else "subset")
        assert re.match(r"\w+", computes[name])[0] == "no"
        if case.adds and case.before is None:
            assert "plus" in columns[name], name
        if case.rewrites and name not in OTHER_ROWS:
            assert re.search("text` changes|text is shorter", columns[name]), name


def test_the_peaks_of_operators_are_those_of_their_kernels():
    with_case = {case.operator for case in CASES}
    tables = [(case.operator, case(table())) for case in CASES]
    tables += [(name, getattr(cdf, name)(table())) for name in OPERATORS if name not in with_case]
    stated: dict[str, set[float]] = {}
    for name, docs in tables:
        stated.setdefault(name, set()).update(kernel.price.peak_factor for kernel in kernels_of(docs))
    assert stated == {name: peaks for name, peaks in documented_peaks().items() if name in OPERATORS}


def test_the_peaks_of_readers_and_writers_are_theirs():
    peaks = documented_peaks()
    assert peaks["read_jsonl"] == {jsonl.READER_FACTOR}
    assert peaks["read_parquet"] == peaks["read_delta"] == peaks["read_iceberg"] == {parquet.READER_FACTOR}
    assert peaks["read_csv"] == {csv.READER_FACTOR}
    assert peaks["read_text_files"] == {text_files.READER_FACTOR}
    assert peaks["read_warc"] == {warc.READER_FACTOR}
    assert peaks["shuffle_rows"] == peaks["blend"] == {shuffle_source.READER_FACTOR}
    for name, file_format in (("write_parquet", ParquetFormat("zstd")), ("write_jsonl", JsonlFormat("none"))):
        sinks = [FileSink(Folder("out"), file_format, 1, columns) for columns in ((), ("lang",))]
        assert peaks[name] == {sink.writer_factor for sink in sinks}


def test_the_backends_on_the_operators_page_are_those_of_the_cases():
    taken = collections.defaultdict(set)
    for case in CASES:
        taken[case.operator] |= {", ".join(case.backends)}
    taken["drop_near_duplicates"].add("pandas")  # with signatures= and against=, of which there is no case
    # "pandas; cudf by address" is what takes cuDF blocks for some of its arguments; after a colon is why the others do not.
    listed = {
        name: {"pandas", "pandas, cudf"} if backends.startswith("pandas; cudf ") else {backends.partition(":")[0]}
        for name, backends in documented("backends").items()
    }
    assert {name: listed[name] for name in taken} == taken


def test_the_constants_on_the_memory_page_are_those_in_the_code():
    rows = [row for row in rows_of(page("docs/memory.md"), "constant", "value") if "_" in row[0]]
    assert len(rows) > 8
    for name, value, module, _ in rows:
        constant = getattr(
            importlib.import_module("curator_df." + module.strip("`")[:-3].replace("/", ".")), name[1:-1]
        )
        assert constant == (read_size(name, value) if "B" in value else float(value)), name


def test_the_tables_on_the_scaling_page_are_those_that_are_computed():
    script = CHECKOUT / "benchmarks" / "scaling.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, timeout=280)
    lines, shown = [line for line in done.stdout.splitlines() if line], page("docs/scaling.md").splitlines()
    assert len(lines) > 20
    assert [line for line in lines if line not in shown] == []


def test_the_layouts_on_the_memory_page_are_those_that_are_chosen():
    rows = rows_of(page("docs/memory.md"), "CPUs", "budget")
    assert len(rows) == 23
    factor = 4.6
    for cpus, allowed, workers, threads, *sizes in rows:
        layout = choose_layout(read_size("memory", allowed), cpus=int(cpus))
        assert workers == ("this process" if layout.in_process else str(layout.workers))
        assert int(threads) == layout.threads
        longest = largest_block(layout.thread_bytes, factor)
        expected = [layout.reserved_bytes, layout.work_bytes, layout.thread_bytes]
        expected += [min(longest, MAX_DEFAULT_BLOCK_BYTES), longest, largest_block(layout.exclusive_bytes, factor)]
        for size, value in zip(sizes, expected, strict=True):
            assert float(size.replace(",", "")) == pytest.approx(value / 1e6, abs=0.51 if "." not in size else 0.051)


def test_the_tree_of_layers_has_every_folder():
    tree = next(block for block in code_blocks(page("docs/architecture.md"), "text") if "errors.py" in block)
    for folder in [*PACKAGE.iterdir(), *(PACKAGE / "core").iterdir()]:
        if folder.is_dir() and (folder / "__init__.py").exists():
            assert f"\n{'    ' if folder.parent.name == 'core' else '  '}{folder.name}/" in tree


def test_the_files_that_the_page_on_the_architecture_names_exist():
    text = page("docs/architecture.md")
    named = set(
        re.findall(
            r"(?<![\w/])((?:memory|files|core|exchange|dedup|io|ops|interactive|kernels|cluster)/[\w/]+\.py)", text
        )
    )
    assert len(named) > 15
    assert [name for name in sorted(named) if not (PACKAGE / name).is_file()] == []
    assert len(text.splitlines()) <= 150


def test_every_public_name_is_in_the_api():
    assert set(cdf.__all__) <= set(re.findall(r"\w+", page("docs/api.md")))


def test_the_text_for_agents_has_every_public_name_and_page():
    text = llms.page()
    assert [name for name in cdf.__all__ if f"\n- `{name}" not in text] == []
    links = re.findall(r"\]\((.+)\.html\)", text)
    assert len(links) > 40
    assert [link for link in links if not (CHECKOUT / f"docs/{link}.md").exists()] == []
    assert "drop_exact_duplicates(df, *, subset=" in text


def test_decisions_are_listed():
    listed = set(re.findall(r"\((\d{4}-[\w-]+\.md)\)", page("docs/decisions/README.md")))
    assert listed == {path.name for path in (CHECKOUT / "docs/decisions").glob("0*.md")}


def operator_of_the_page_on_extending() -> Any:
    namespace: dict[str, Any] = {"__name__": "example"}
    source = next(block for block in code_blocks(page("docs/extending.md"), "python") if "def keep_longer" in block)
    exec(compile(source, "extending.md", "exec"), namespace)
    return namespace["keep_longer"]


def test_the_operator_of_the_page_on_extending_works():
    keep_longer = operator_of_the_page_on_extending()
    rows = pd.DataFrame({"text": pd.array(["short", None, "long enough"], "string[pyarrow]")})
    docs = dd.from_pandas(rows, npartitions=1)
    assert docs.pipe(keep_longer, characters=6).compute()["text"].tolist() == ["long enough"]
    (kernel,) = kernels_of(docs.pipe(keep_longer, characters=6))
    assert kernel.run(rows).dropped == {"too_short": 2}
    with pytest.raises(cdf.errors.ColumnError, match="keep_longer needs the column 'body'"):
        docs.pipe(keep_longer, characters=6, text="body")


def test_the_object_of_the_operators_page_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("urls.txt").write_text("https://a\nhttps://b\n")
    docs = dd.from_pandas(pd.DataFrame({"url": ["https://b", "https://c"]}), npartitions=1)
    source, _ = code_blocks(page("docs/operators.md"), "python")
    exec(compile(source, "operators.md", "exec"), namespace := {"cdf": cdf, "docs": docs})
    (kernel,) = kernels_of(namespace["known"])
    assert kernel.price.held_bytes == 200_000_000
    assert namespace["known"].compute(scheduler="synchronous")["url"].tolist() == ["https://b"]
    release_held()


def test_the_profiles_of_the_operators_page_work():
    namespace: dict[str, Any] = {"cdf": cdf}
    _, source = code_blocks(page("docs/operators.md"), "python")
    exec(compile(source, "operators.md", "exec"), namespace)
    assert namespace["short"].reasons == ("too_short",)
    assert namespace["stricter"].rules[0].threshold == 100


def test_the_profiles_page_is_what_the_profiles_say():
    names = [name for name in cdf.profiles.__all__ if name.isupper()]
    text = page("docs/profiles.md")
    (head,) = [line for line in text.splitlines() if line.startswith("| metric | `")]
    assert re.findall(r"`(\w+)`", head) == names
    documented = {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in side_by_side(text)}
    for number, name in enumerate(names):
        said: dict[str, str] = {}
        for rule in getattr(cdf.profiles, name).rules:
            sign = f"{rule.comparison} {rule.threshold:g}"
            said[rule.metric] = f"{said[rule.metric]}, {sign}" if rule.metric in said else sign
        assert {metric: cells[number] for metric, cells in documented.items() if cells[number]} == said


def side_by_side(text: str) -> list[list[str]]:
    start = text.index("| metric | `")
    lines = text[start : text.index("\n\n", start)].splitlines()[2:]
    return [line.strip()[1:-1].split("|") for line in lines]


def test_the_catalogue_on_the_profiles_page_is_the_one_in_the_code():
    listed = {
        name.strip("`"): (dtype, text) for name, dtype, text in rows_of(page("docs/profiles.md"), "metric", "dtype")
    }
    assert listed == {metric.name: (metric.dtype, metric.definition) for metric in CATALOGUE.values()}


def test_the_examples_of_the_profiles_page_work():
    namespace: dict[str, Any] = {"cdf": cdf}
    for source in code_blocks(page("docs/profiles.md"), "python"):
        exec(compile(source, "profiles.md", "exec"), namespace)
    assert "top_2_gram" not in namespace["looser"].reasons
    funnel, tuned = namespace["tune"](table())
    assert funnel["rows_left"].iloc[-1] == len(tuned.compute(scheduler="synchronous"))
    steps = [kernel.name for kernel in kernels_of(namespace["filter_as_fineweb"](table()))]
    assert steps == ["keep_profile", "remove_c4_lines", "keep_profile"]


def test_the_example_of_the_page_on_urls_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, *runs = code_blocks(page("docs/urls.md"), "python")
    namespace: dict[str, Any] = {}
    exec(compile(source, "urls.md", "exec"), namespace)  # it asserts which URLs are left
    compared = namespace["table"].set_index("domain")
    assert compared.loc["adult-pages.example", ["rows_before", "rows_after"]].tolist() == [2, 1]
    assert {name for run in runs for name in re.findall(r"\bcdf\.(\w+)", run)} <= set(cdf.__all__)


def test_what_the_pages_for_other_machines_and_users_call_exists():
    calls = []
    for name in ("docs/migration.md", "docs/clusters.md", "docs/gpu.md", "docs/security.md"):
        text = page(name)
        assert set(re.findall(r"\bcdf\.(\w+)", text)) <= set(cdf.__all__)
        calls += re.findall(r"(\w+)\(([^()]*)\)", text)
    ours = [(name, arguments) for name, arguments in calls if name in cdf.__all__]
    assert len(ours) > 20
    for name, arguments in ours:
        named = set(re.findall(r"(\w+)=", arguments))
        accepted = set(inspect.signature(getattr(cdf, name)).parameters)
        if "options" in accepted:
            accepted |= set(inspect.signature(cdf.job_cluster).parameters)
        assert named <= accepted, name


def write_corpus(folder: Path) -> None:
    folder.mkdir()
    prose = "It was the best of times, and it was the worst of times; that we have to be with all of it.\n"
    texts = [prose * 5, "cafÃ© noir. " + prose * 4, "too short"]
    rows = [{"id": number, "text": texts[number % 3]} for number in range(300)]
    (folder / "a.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def run_as_script(name: str, folder: Path) -> str:
    """Run the first example of a page over a small corpus, as a user would who copies it into a file."""
    write_corpus(folder / "corpus")
    source, *_ = code_blocks(page(name), "python")
    (folder / "example.py").write_text(source)
    run = subprocess.run(
        [sys.executable, "example.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.slow
def test_the_example_of_the_readme_runs_as_a_script(tmp_path):
    said = run_as_script("README.md", tmp_path)
    assert "300 read, 200 written, 100 dropped" in said
    assert "1.00 GB budget" in said
    kept = pd.read_parquet(tmp_path / "clean")
    assert kept["id"].tolist() == [number for number in range(300) if number % 3 != 2]
    assert kept["text"][1].startswith("café noir.")
    assert set(pd.read_parquet(tmp_path / "rejects")["reject_reason"]) == {"gopher_short_doc"}


def test_the_first_example_of_the_site_runs(tmp_path, monkeypatch, capsys):
    write_corpus(tmp_path / "corpus")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cdf, "start_cluster", lambda *, memory: inline_cluster(memory))
    source, *_ = code_blocks(page("docs/index.md"), "python")
    Path("example.py").write_text(source)
    runpy.run_path("example.py", run_name="__main__")
    said = capsys.readouterr().out
    assert "300 read, 2 written, 298 dropped" in said
    assert "4.00 GB budget" in said


def test_notebooks_are_kept_without_outputs():
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
        ran = [cell.source for cell in cells if cell.outputs or cell.execution_count is not None]
        assert (path.name, ran) == (path.name, [])


def test_commands_of_the_page_for_contributors_exist():
    text, makefile = page("CONTRIBUTING.md"), (CHECKOUT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert {*re.findall(r"`make (\w+)`", text)} <= targets
    [set_up] = code_blocks(text, "sh")
    assert set_up.strip() in page("README.md")
