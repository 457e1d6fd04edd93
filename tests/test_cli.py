# SPDX-License-Identifier: Apache-2.0
import fcntl
import importlib.util
import inspect
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

import curator_df as cdf
from curator_df import cli, demo
from curator_df.errors import CorruptFileError
from curator_df.ops.filters.published import schemes
from curator_df.receipts.rich_tables import grid_of, table_of
from tests.core.runner.fake_client import inline_cluster

HELP = Path(__file__).parent / "data" / "help"


def curator_df(*arguments):
    command = [sys.executable, "-m", "curator_df.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def write_rows(folder):
    folder.mkdir()
    good = "The cat and the dog have been to the house of a friend, and that was good with them. " * 5
    rows = [{"id": n, "text": good if n % 2 else f"short {n}"} for n in range(20)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_small(folder):
    """Write what the demo gathers: too little, but whole."""
    (folder / "docstrings.jsonl").write_text('{"id": "a", "text": "One.", "kind": "docstring"}\n')
    about = {"folder": "", "files": {"docstrings.jsonl": 49}, "documents": 1, "text_bytes": 4, "skipped_files": 0}
    about |= {"documents_by_kind": {"docstring": 1}, "seconds": 0.0, "is_enough": False}
    about["files"]["docstrings.jsonl"] = (folder / "docstrings.jsonl").stat().st_size
    (folder / "corpus.about").write_text(json.dumps(about))


def invoke(*arguments):
    """Run a command in this process."""
    return CliRunner().invoke(cli.app, [str(word) for word in arguments])


def answer(*arguments):
    """Run a command in this process; return its exit code and its output."""
    done = invoke(*arguments)
    return done.exit_code, done.output


def ended(*arguments):
    """Run a command in this process that says nothing but an error; return its exit code and the name of the error."""
    done = invoke(*arguments)
    assert (done.stdout, "Traceback" in done.stderr) == ("", False)
    return done.exit_code, done.stderr.splitlines()[-1].partition(":")[0]


@pytest.fixture
def corpus(tmp_path):
    write_rows(tmp_path / "in")
    return tmp_path / "in"


@pytest.fixture
def without_processes(monkeypatch):
    """Commands of this process start a cluster without processes; `test_curate_writes_and_says_why_rows_went` has a real one."""
    monkeypatch.setattr(cdf, "start_cluster", lambda *, memory, cpus: inline_cluster(memory, cpus or 2))


def test_curate_writes_and_says_why_rows_went(corpus, tmp_path, monkeypatch):
    pytest.importorskip("prometheus_client", reason="prometheus-client is in the monitor extra")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    done = curator_df(
        "curate", corpus, tmp_path / "out", "--memory", "1GB", "--rejects", tmp_path / "rejects", "--metrics"
    )
    assert done.returncode == 0, done.stderr
    assert "20 read, 10 written, 10 dropped" in done.stdout
    assert "gopher_short_doc" in done.stdout
    assert "dashboard" in done.stderr
    assert "metrics at http://127.0.0.1:" in done.stderr
    assert f"through {tmp_path}/curator-df/monitor/targets/" in done.stderr
    assert list((tmp_path / "curator-df/monitor/targets").iterdir()) == []


@pytest.mark.usefixtures("without_processes")
def test_the_exit_code_tells_what_may_pass(corpus, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/part-000000-000.parquet").touch()
    home = tmp_path / "out/_curator"
    home.mkdir(parents=True)
    with open(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        busy = ended("curate", corpus, tmp_path / "out", "--memory", "2GB", "--on-existing", "resume")
    assert busy == (1, "OutputInUseError")
    for source, target, code, error in (
        (tmp_path / "nothing", "other", 1, "InputError"),  # what is to be read may come
        (corpus, "full", 2, "OutputExistsError"),
        ("nowhere://x", "other", 2, "ParameterError"),
        *([] if importlib.util.find_spec("gcsfs") else [("gs://bucket/in", "other", 2, "MissingExtraError")]),
    ):
        assert ended("curate", source, tmp_path / target, "--memory", "500MB", "--json") == (code, error)


@pytest.mark.usefixtures("without_processes")
@pytest.mark.parametrize("command", ["curate", "dedup"])
def test_files_of_crawls_are_named_with_their_reader(tmp_path, command):
    (tmp_path / "in/2026").mkdir(parents=True)
    (tmp_path / "in/2026/a.warc.gz").write_bytes(b"")
    for source, said in (
        (tmp_path / "in", "has no file that ends in .*read_warc reads files that end in .warc or .wet"),
        (tmp_path / "in/2026/a.warc.gz", "has 1 WARC file, but .* curator_df.read_warc"),
    ):
        code, output = answer(command, source, tmp_path / "out", "--memory", "500MB")
        assert code in (1, 2)
        assert re.search(said, output.splitlines()[-1])


def test_explain_runs_nothing(corpus, tmp_path):
    code, output = answer("explain", corpus, "--memory", "500MB")
    assert code == 0, output
    assert "keep_profile: 2.2 x block (measured)" in output and "of this process" in output  # as `curate` would start
    options = ("--words", "whitespace", "--partition-on", "text", "--format", "jsonl")
    options += ("--rejects", tmp_path / "rejects")
    code, output = answer("explain", corpus, "--memory", "500MB", *options)
    assert code == 0, output
    assert "keep_profile: 1.2 x block (measured)" in output
    assert "write: 2.0 x block (assumed)" in output
    assert not (tmp_path / "rejects").exists()
    code, output = answer("explain", corpus, "--memory", "500MB", "--json")
    plan = json.loads(output)
    assert (code, plan["budget_bytes"], plan["input_files"], len(plan["passes"])) == (0, 500_000_000, 1, 1)
    assert {"name": "keep_profile", "peak_factor": 2.2, "is_measured": True} in plan["passes"][0]["steps"]
    assert plan["lines"][0][0] == "memory"
    _, output = answer("explain", corpus, "--words", "spacy")
    assert "keep_profile: --words spacy is not one of 'whitespace', 'datatrove', 'icu'" in " ".join(output.split())


def test_recommend_says_what_to_set_and_why(corpus, tmp_path):
    code, output = answer(
        "recommend", corpus, "--memory", "1GB", "--cpus", "2", "--workdir", tmp_path, "--sample-size", "0"
    )
    assert code == 0, output
    assert "--bands-per-iteration 20 of 20" in output
    assert "budget 1.00 GB" in output
    code, output = answer("recommend", corpus, "--memory", "1GB", "--cpus", "2", "--sample-size", "0", "--json")
    settings = json.loads(output)
    assert (code, settings["memory_bytes"], settings["bands_per_iteration"]) == (0, 1_000_000_000, 20)


@pytest.mark.parametrize("fraction", [0.0, 0.25])
def test_recommend_names_options_in_what_it_prints(corpus, monkeypatch, fraction):
    monkeypatch.setattr("curator_df.monitor.recommend._fraction", lambda *_: fraction)
    code, output = answer("recommend", corpus, "--memory", "1GB", "--cpus", "2", "--sample-size", "0")
    assert code == 0
    assert " ".join(output.split()).endswith("another --workdir")


@pytest.mark.usefixtures("without_processes")
def test_advice_and_warnings_name_options(corpus, tmp_path, monkeypatch, capsys):
    said = "To process such rows, set a larger memory= and run with on_existing='overwrite', or use cpus=4."
    options = "set a larger --memory and run with --on-existing overwrite, or use --cpus 4."
    monkeypatch.setattr("curator_df.core.runner.run.advice", lambda _: [said])
    code, output = answer("curate", corpus, tmp_path / "out", "--memory", "1GB", "--cpus", "1")
    assert (code, options in " ".join(output.split())) == (0, True), output
    assert cdf.read_receipt(tmp_path / "out").advice == [said]
    cli._show_warning(UserWarning(said), UserWarning, "run.py", 1)
    assert capsys.readouterr().err == f"UserWarning: To process such rows, {options}\n"


@pytest.mark.usefixtures("without_processes")
def test_dedup_keeps_one_of_each(corpus, tmp_path):
    done = invoke("dedup", corpus, tmp_path / "out", "--exact", "--memory", "500MB", "--json")
    assert done.exit_code == 0, done.stderr
    receipt = json.loads(done.stdout)
    assert (receipt["rows_read"], receipt["rows_written"]) == (20, 11)
    assert cdf.Receipt.from_json(receipt) == cdf.read_receipt(tmp_path / "out")


@pytest.mark.usefixtures("without_processes")
def test_dedup_without_more_keeps_one_of_those_that_are_alike(tmp_path):
    page = " ".join(f"word{number}" for number in range(200))
    texts = [page, f"{page} and more", "another one", page]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    arguments = ("--memory", "500MB", "--scheme", "fineweb")
    code, output = answer("dedup", tmp_path / "in.jsonl", tmp_path / "out", *arguments)
    assert code == 0, output
    assert "4 read, 2 written, 2 dropped" in output


MISTAKES = [
    (["curate", "nowhere/*.jsonl", "out"], "InputError: "),
    (["curate", "IN", "out", "--memory", "50MB"], "BudgetError: --memory 50 MB is below the minimum"),
    (
        ["curate", "IN", "out", "--profile", "fineweb_papers"],
        "ParameterError: keep_profile: --profile fineweb_papers is neither a Profile nor the name of a published one. Did you",
    ),
    (["curate", "IN", "out", "--format", "csv"], "ParameterError: --format 'csv'"),
    (["curate", "IN", "out", "--text", "body"], "ColumnError: normalize_unicode needs the column 'body'"),
    (["dedup", "IN", "out", "--exact", "--keep", "best"], "ParameterError: drop_exact_duplicates: --keep best"),
    (["dedup", "IN", "out", "--scheme", "mine"], "ParameterError: drop_near_duplicates: --scheme mine is neither"),
    (
        ["dedup", "IN", "out", "--exact", "--scheme", "fineweb", "--jaccard-threshold", "0.5"],
        "ParameterError: --scheme and --jaccard-threshold cannot be used with --exact",
    ),
    (
        ["dedup", "IN", "out", "--unit", "lines"],
        "ParameterError: --normalize and --unit have an effect only with --exact",
    ),
    (
        ["dedup", "IN", "out", "--exact", "--unit", "words"],
        "ParameterError: remove_repeated_parts: --unit words",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[message.partition(" ")[0] for _, message in MISTAKES])
def test_mistakes_are_one_message_without_a_traceback(corpus, monkeypatch, arguments, message):
    monkeypatch.chdir(corpus.parent)
    done = invoke(*("in" if argument == "IN" else argument for argument in arguments))
    assert done.exit_code == (1 if message.startswith("InputError") else 2)  # a file may come; the rest stays as it is
    assert " ".join(done.stderr.split()).startswith(message.strip()), done.stderr
    assert "Traceback" not in done.stderr


def test_monitor_up_writes_what_prometheus_and_grafana_need(tmp_path):
    code, output = answer("monitor", "up", "--dir", tmp_path / "watch", "--write-only")
    assert code == 0, output
    written = {line.split()[1] for line in output.splitlines()}
    assert f"{tmp_path}/watch/prometheus.yml" in written
    assert all(Path(name).stat().st_size for name in written)


@pytest.mark.parametrize(
    ("command", "code", "closed"),
    [
        *(("--version", 0, closed) for closed in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-")),
        ("explain {0}", 0, "<&- >&- 2>&-"),
        ("explain {0}/none", 1, "2>&-"),
    ],
)
def test_closed_standard_streams_change_no_exit_code(corpus, command, code, closed):
    line = f"{sys.executable} -m curator_df.cli {command.format(corpus)} {closed}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("monitor up --write-only --dir file", "ParameterError: The folder '{0}/file' cannot be written to"),
        ("monitor up --write-only --dir d --port 0", "ParameterError: --port 0 is not a valid port number"),
        (
            "monitor up --write-only --dir d --grafana-port 70000",
            "ParameterError: --grafana-port 70000 is not a valid port",
        ),
        ("monitor up --write-only --dir d --address a..b", "ParameterError: --address a..b is not an address or name"),
        ("demo file", "ParameterError: the folder 'file' cannot be created: it is a file, not a folder. Choose"),
        ("demo file/below", "ParameterError: the folder 'file/below' cannot be created: Not a directory. Choose"),
        ("explain in --memory 1e400", "ParameterError: --memory 1e400 is not a number of bytes"),
        ("explain in --memory MB", "ParameterError: --memory MB is not a number of bytes"),
    ],
)
def test_values_that_make_no_sense_are_named_as_options(corpus, monkeypatch, command, said):
    monkeypatch.chdir(corpus.parent)
    (corpus.parent / "file").touch()
    code, output = answer(*command.split())
    assert (code, said.format(corpus.parent) in output) == (2, True), output


@pytest.mark.parametrize(
    "command", ["curate in out", "explain in/*.jsonl", "dedup in out --exact", "monitor up --write-only --dir d"]
)
def test_a_working_directory_that_was_deleted_is_named(tmp_path, monkeypatch, command):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    code, output = answer(*command.split())
    assert code == 2, output
    assert "is a relative path, and the working directory of this process was deleted. Change to a directory" in output


RECIPE = """
read: {jsonl: {paths: in}}
steps:
- keep_where: {predicate: id > 3}
- sample_rows: {fraction: 0.5}
write: {parquet: {path: out}}
cluster: {memory: 1GB, cpus: 1}
"""


def test_a_recipe_is_planned_run_and_resumed(corpus, tmp_path):
    (tmp_path / "mine.yaml").write_text(RECIPE)
    arguments = ("run", tmp_path / "mine.yaml", "--input", corpus, "--output", tmp_path / "out")
    code, output = answer(*arguments, "--explain", "--memory", "700MB")
    assert code == 0, output
    assert "700 MB budget: it fits" in output
    assert not (tmp_path / "out").exists()
    with inline_cluster("1GB", 1):
        code, output = answer(*arguments, "--set", "steps.sample_rows=null")
        assert (code, "20 read, 16 written, 4 dropped" in output) == (0, True), output
        code, output = answer(*arguments, "--set", "steps.sample_rows=null", "--resume")
        assert (code, "20 read, 16 written" in output) == (0, True), output
        assert ended(*arguments, "--resume") == (2, "ResumeError")


def test_the_paths_of_a_recipe_on_the_command_line_are_taken_as_they_are_typed(corpus, tmp_path):
    (tmp_path / "mine.yaml").write_text(RECIPE.replace("- sample_rows: {fraction: 0.5}\n", ""))
    source = corpus.rename(tmp_path / "[2024] crawl #1")
    with inline_cluster("1GB", 1):
        code, output = answer("run", tmp_path / "mine.yaml", "--input", source, "--output", tmp_path / "out #1")
    assert code == 0, output
    assert (tmp_path / "out #1/part-000000-000.parquet").exists()


def test_what_is_wrong_in_a_recipe_is_the_last_line_with_exit_code_2(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(RECIPE.replace("memory: 1GB", "memory: 8"))
    for arguments, said in (
        (("mine.yaml",), "RecipeError: mine.yaml:7: cluster.memory: found the number 8, but memory is"),
        (
            ("finweb",),
            "RecipeError: there is no file 'finweb', and no shipped recipe of this name. Did you mean 'fineweb'?",
        ),
        (("dedup", "--set", "memry=1GB"), "RecipeError: --set memry=1GB: there is no setting 'memry'. Did you mean"),
        (("dedup", "--memory", "8"), "RecipeError: --set memory=8: cluster.memory: found the number 8"),
    ):
        code, output = answer("run", *arguments)
        assert code == 2
        assert " ".join(output.split()).startswith(said), output


def test_a_run_of_a_recipe_is_continued_with_resume():
    command = ["curator-df", "run", "a b.yaml", "--set", "cpus=2", "--set", "memory=2GB"]
    said = [cli._how_to_continue(each) for each in (command, [*command, "--resume"])]
    assert said == 2 * [" To continue: curator-df run 'a b.yaml' --set cpus=2 --set memory=2GB --resume"]


def test_shipped_recipes_are_listed_and_shown():
    code, output = answer("recipe", "list")
    assert (code, output.splitlines()[0].split()[0]) == (0, "code")
    assert "FineWeb-2 (Penedo et al. 2025)" in output
    assert answer("recipe", "show", "fineweb") == (0, (Path(cdf.__file__).parent / "recipes/fineweb.yaml").read_text())
    code, output = answer("recipe", "show", "fine")
    assert (code, output.startswith("RecipeError: there is no file 'fine'")) == (2, True)
    code, output = answer("recipe", "schema")
    assert (code, json.loads(output)["title"]) == (0, "Recipe of curator_df")


def test_monitor_up_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, output = answer("monitor", "up", "--dir", tmp_path / "watch")
    assert code == 1
    assert "Prometheus is not on the PATH. Install it with `apt install prometheus`" in output
    assert "Neither grafana-server nor grafana is on the PATH" in output


COMMANDS = ("", "curate", "explain", "recommend", "dedup", "run", "warm", "demo", "monitor", "monitor up")
COMMANDS += ("recipe", "recipe list", "recipe show", "recipe schema")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command or "curator-df")
def test_help_screens_are_as_kept(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    shown = CliRunner().invoke(cli.app, [*command.split(), "--help"], prog_name="curator-df")
    kept = HELP / f"{command.replace(' ', '_') or 'curator-df'}.txt"
    if "CURATOR_DF_WRITE_HELP" in os.environ:  # to keep new ones, which a person then reads
        kept.write_text(shown.output)
    assert (shown.exit_code, shown.output) == (0, kept.read_text())


def test_every_command_has_a_kept_help_screen():
    def below(group, path=()):
        for name, command in group.commands.items():
            yield " ".join((*path, name))
            yield from below(command, (*path, name)) if hasattr(command, "commands") else ()

    assert {"", *below(typer.main.get_command(cli.app))} == set(COMMANDS)
    assert {path.stem for path in HELP.iterdir()} == {name.replace(" ", "_") or "curator-df" for name in COMMANDS}


def test_defaults_in_words_stand_in_the_help():
    shown = CliRunner().invoke(cli.app, ["dedup", "--help"]).output
    for default in ("(all CPUs)", "(60% of the machine)", "(default)", "(0.8)", "(from the memory budget)"):
        assert f"[default: {default}]" in " ".join(shown.split()), shown
    assert " ".join(CliRunner().invoke(cli.app, ["demo", "--help"]).output.split()).count("[default: ") == 2


def test_the_help_repeats_what_the_library_has():
    profiles = [getattr(cdf.profiles, name).name for name in cdf.profiles.__all__ if name.isupper()]
    assert list(cli.PROFILES) == profiles
    assert list(cli.SCHEMES) == list(schemes())
    parameters = inspect.signature(cdf.drop_near_duplicates).parameters
    assert parameters["jaccard_threshold"].default == cli.JACCARD_THRESHOLD


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["demo", "--help"], ["curate", "--help"]], ids=" ".join
)
def test_help_comes_at_once(arguments):
    program = (
        "import sys; from curator_df.cli import app; app(sys.argv[1:], standalone_mode=False); print('took', "
        "*sorted({'dask', 'distributed', 'numpy', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.splitlines()[-1].split() == ["took"]
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_the_version_is_shown():
    assert CliRunner().invoke(cli.app, ["--version"]).output == f"curator-df {cdf.__version__}\n"


def test_names_in_square_brackets_are_shown(capsys):
    cli._console().print("[all] /a[1]/[b]")
    cli._console().print(table_of(pd.DataFrame({"[a]": ["x[/html]y"]})))
    cli._console().print(grid_of([("[name]", "[value]")]))
    shown = capsys.readouterr().out
    for text in ("[all] /a[1]/[b]", "[a]", "x[/html]y", "[name]", "[value]"):
        assert text in shown


def test_the_value_of_a_rule_is_not_shown_as_its_threshold(capsys):
    table = pd.DataFrame({"reject_value": [0.13, 41.0], "reject_threshold": [0.1, 100_000.0], "seconds": [0.13, 41.0]})
    cli._console().print(table_of(table))
    assert re.findall(r"[\d.,]+", capsys.readouterr().out) == ["0.13", "0.1", "0.1", "41", "100,000", "41.0"]


def invoked(monkeypatch, error, *options):
    """Run `explain` where reading raises an error; return the code and what is said."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(cli, "_read", fail)
    monkeypatch.setattr(sys, "argv", ["/bin/curator-df", *options, "curate", "in put", "out", "--on-existing", "raise"])
    ended = CliRunner().invoke(cli.app, sys.argv[1:])
    return ended.exit_code, ended.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            PermissionError(13, "Permission denied", "/root/in"),
            2,
            "PermissionError: [Errno 13] Permission denied: '/root/in'",
        ),
        (OSError(5, "Input/output error", "a.gz"), 1, "OSError: [Errno 5]"),
        (CorruptFileError("'a.gz' is truncated"), 2, "CorruptFileError: 'a.gz' is truncated"),
        (MemoryError(), 2, "MemoryError: no message"),
        (KeyError("a [bracket]"), 70, "KeyError: 'a [bracket]'\nThis is a defect"),
        (KeyboardInterrupt(), 130, "Interrupted. To continue: curator-df curate 'in put' out --on-existing resume"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_any_error_is_a_few_lines_with_its_exit_code(monkeypatch, error, code, said):
    ended, shown = invoked(monkeypatch, error)
    assert (ended, shown.startswith(said)) == (code, True), shown
    assert "Traceback" not in shown
    assert shown.count("\n") <= 3


@pytest.mark.parametrize("way", ["option", "variable"])
def test_a_traceback_is_shown_on_request(monkeypatch, way):
    if way == "variable":
        monkeypatch.setenv("CURATOR_DF_VERBOSE", "1")
    code, shown = invoked(monkeypatch, ZeroDivisionError("by zero"), *["--verbose"] * (way == "option"))
    assert code == 70
    assert shown.startswith("Traceback (most recent call last):")
    assert "in fail" in shown


def test_kernels_are_compiled_before_the_first_run(tmp_path, monkeypatch):
    monkeypatch.setenv("CURATOR_DF_CACHE", str(tmp_path))
    shown = CliRunner().invoke(cli.app, ["warm", "add_ids"])
    assert (shown.exit_code, shown.stdout) == (0, f"2 kernels are compiled for this machine, in {tmp_path}\n")
    assert len(list(tmp_path.glob("*/*.nbc"))) == 2
    ended = CliRunner().invoke(cli.app, ["warm", "sort"])
    assert ended.exit_code == 2
    said = " ".join(ended.output.split())
    assert "'sort' has no kernels (functions to compile). The operators with kernels are add_comment_ratio," in said


@pytest.mark.parametrize("arguments", [("--help",), ("demo", "--help"), ("explain", "IN", "--memory", "500MB")])
def test_a_reader_that_goes_away_is_no_error(corpus, arguments):
    asked = [str(corpus) if argument == "IN" else argument for argument in arguments]
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "curator_df.cli", *asked]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no file that is always full")
@pytest.mark.parametrize(
    ("command", "code"),
    [("--help", 1), ("curate --help", 1), ("--version", 1), ("explain {0}", 1)],
)
def test_standard_output_that_cannot_be_written_is_named(corpus, command, code):
    line = f"{sys.executable} -m curator_df.cli {command.format(corpus)} >/dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code
    assert done.stderr == (
        "DiskFullError: The standard output of curator-df cannot be written: No space left on device. Finished files "
        "are complete. Free some space, or send the standard output elsewhere\n"
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no file that is always full")
def test_an_error_that_cannot_be_written_keeps_its_exit_code(corpus):
    line = f"{sys.executable} -m curator_df.cli explain {corpus}/none 2>/dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1, done.stdout


@pytest.mark.parametrize("is_named", [True, False], ids=["a folder", "no folder"])
@pytest.mark.parametrize("error", [None, RuntimeError("x"), KeyboardInterrupt()], ids=["whole", "error", "Ctrl-C"])
def test_the_demo_leaves_files_only_where_a_folder_is_named(tmp_path, monkeypatch, is_named, error):
    def curate(console, corpus, folder, *_):
        folder.mkdir(exist_ok=True)
        (folder / "clean.parquet").write_text("{}")
        if error is not None:
            raise error
        return True

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("CURATOR_DF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(demo, "_curate", curate)
    monkeypatch.setattr(demo, "_gather", lambda folder, tell: write_small(folder))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    code = {type(None): 0, RuntimeError: 70, KeyboardInterrupt: 130}[type(error)]
    ended = CliRunner().invoke(cli.app, ["demo", *[str(tmp_path / "kept")] * is_named])
    assert ended.exit_code == code, ended.output
    assert (tmp_path / "kept/clean.parquet").exists() == is_named
    assert (tmp_path / "kept/corpus/docstrings.jsonl").exists() == is_named
    assert list((tmp_path / "tmp").iterdir()) == []


OPTIONS = ("--on-bad-rows", "quarantine", "--memory", "1GB", "--cpus", "1")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no file that is always full")
@pytest.mark.parametrize("encoding", [pytest.param("utf-8", marks=pytest.mark.proof), "ascii"])
def test_names_that_are_not_utf8_are_read_and_written_where_standard_error_is_full(tmp_path, encoding):
    folder, out, rejects = (
        os.fsdecode(os.fsencode(tmp_path) + name) for name in (b"/in\xe9", b"/out\xe9", b"/rejects\xe9")
    )
    Path(folder).mkdir()
    good = "The cat and the dog have been to the house of a friend, and that was good with them. " * 5
    for name in (b"/caf\xe9.jsonl", b"/\xc3\xa9.jsonl"):
        rows = [{"id": 1, "text": "short"}, {"id": 2, "text": good}]
        Path(os.fsdecode(os.fsencode(folder) + name)).write_text(
            "".join(json.dumps(row) + "\n" for row in rows) + "{oops\n"
        )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "curator_df.cli", "curate", folder, out, "--rejects", rejects, *OPTIONS],
            env=environment if encoding == "ascii" else None,
            stdout=subprocess.PIPE,
            stderr=full,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stdout
    assert b"6 read, 2 written, 2 dropped, 2" in done.stdout
    found = pq.read_table(io.BytesIO(next(Path(rejects).glob("*.parquet")).read_bytes()))["reject_file"].to_pylist()
    assert sorted(name.rpartition("/")[2] for name in found) == ["caf\\xe9.jsonl", "é.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["curat", "a", "b"], "Did you mean 'curate'?"),
        (["curate", "a", "b", "--memry", "4GB"], "--memory"),
        (["warm", "drop_near_duplicate"], "Did you mean 'drop_near_duplicates'?"),
        (["monitor", "upp"], "Did you mean 'up'?"),
    ],
)
def test_misspelled_commands_and_options_suggest_the_right_one(arguments, said):
    assert said in " ".join(CliRunner().invoke(cli.app, arguments).output.split())
