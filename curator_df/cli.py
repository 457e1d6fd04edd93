# SPDX-License-Identifier: Apache-2.0
"""Command line of curator_df: ``curator-df`` calls the public functions.

Each command imports what it runs when it runs, so that ``--help`` and ``--version`` answer at once.
"""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import re
import shlex
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

import curator_df as cdf
from curator_df.arguments import absolute
from curator_df.cluster.beside_start import beside_start, started_with
from curator_df.errors import UNEXPECTED, CuratorError, ParameterError, RecipeError, exit_code
from curator_df.memory.small_input import bytes_of_files
from curator_df.monitor.targets import LOOPBACK, default_directory
from curator_df.recipes.commands import recipe_app
from curator_df.standard_streams import watch_standard_streams
from curator_df.suggestions import did_you_mean

VERBOSE = "CURATOR_DF_VERBOSE"
"""Environment variable that shows the traceback of an error, as ``--verbose`` does."""


class Commands(TyperGroup):
    """Group of all commands, each of which exits with a code of `curator_df.errors.exit_code`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options that all commands share, one of which shows the help."""
        with reported(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with reported(ctx):
            result = super().invoke(ctx)
            sys.stdout.flush()  # so that a closed pipe is noticed here
        return result


@contextmanager
def reported(ctx: Any) -> Iterator[None]:
    """Report an error of the block in a few lines, and exit with its code."""
    try:
        yield
    except (typer.Exit, typer.Abort, USAGE_ERROR):
        raise
    except (Exception, KeyboardInterrupt) as exc:
        report(exc, is_verbose=ctx.params.get("verbose", False))
        raise typer.Exit(exit_code(exc)) from exc


USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
"""Class of the error for options and arguments that a command does not have; it is reported with the command's usage."""
# Markup is off: it would treat "[html]" in a text as a style and remove it.
app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    help="Curate text for training language models within a memory budget.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)
monitor_app = typer.Typer(no_args_is_help=True, help="Watch runs with Prometheus and Grafana.", rich_markup_mode=None)
app.add_typer(monitor_app, name="monitor")
app.add_typer(recipe_app, name="recipe")
PROFILES = (
    "datatrove_c4", "datatrove_fineweb", "datatrove_gopher_quality", "datatrove_gopher_repetition",
    "dclm_quality", "dclm_repetition", "dolma_c4", "dolma_gopher_v1", "dolma_gopher_v2", "fineweb_c4",
    "fineweb_paper", "nemo_code", "nemo_code_comments", "nemo_code_html", "nemo_code_tokens", "nemo_english",
)  # fmt: skip
SCHEMES = ("nemo", "default", "fineweb", "data_juicer", "redpajama_v2")
JACCARD_THRESHOLD = 0.8
"""Names and a default that the help shows, repeated from the library, whose import takes a second."""
DEFAULT_PROFILE = "datatrove_gopher_quality"
DEMO_MEMORY = "1GB"
OPTIONS = "address bands_per_iteration cpus device_memory grafana_port keep memory normalize on_bad_rows on_existing"
OPTIONS += " partition_on port profile rejects sample_size scheme text jaccard_threshold unit words workdir"
"""Python arguments that are also command-line options."""
_ARGUMENT = re.compile(rf"(?<![\w-])({OPTIONS.replace(' ', '|')})=('[^']*'|\"[^\"]*\"|(?:-?\w+(?:\.\w+)*)?)")

Input = Annotated[
    str,
    typer.Argument(metavar="INPUT", help="File, folder, glob or URL of JSONL (.gz, .zst) or Parquet files."),
]
Memory = Annotated[
    str | None,
    typer.Option(show_default="60% of the machine", help="Memory budget of all processes together, such as 4GB."),
]
Cpus = Annotated[int | None, typer.Option(show_default="all CPUs", help="Maximum number of concurrent threads.")]
Text = Annotated[str, typer.Option(help="Name of the text column.")]
ProfileName = Annotated[str, typer.Option("--profile", help=f"Filter rules to apply: {', '.join(PROFILES)}, or none.")]
WordsOption = Annotated[
    str | None,
    typer.Option(
        "--words",
        show_default="as the profile has them",
        help="How to split texts into words: whitespace (fastest), datatrove or icu.",
    ),
]
FileFormat = Annotated[str, typer.Option("--format", help="Output format: parquet or jsonl.")]
PartitionOn = Annotated[
    str | None, typer.Option(show_default=False, help="Write one subfolder for each value of this column.")
]
Metrics = Annotated[
    bool, typer.Option("--metrics", help="Serve metrics during the run; `curator-df monitor up` shows them.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value, with sizes in bytes, instead of text.")]
Rejects = Annotated[
    str | None, typer.Option(show_default=False, help="Folder for the dropped rows and the reason for each drop.")
]
OnBadRows = Annotated[
    str, typer.Option(help="raise: stop at an unreadable row. quarantine: write it to the output's _quarantine folder.")
]
OnExisting = Annotated[
    str,
    typer.Option(
        help="When the output folder holds files: raise (stop with an error), resume (continue an interrupted run) or overwrite."
    ),
]


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"curator-df {cdf.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    verbose: Annotated[
        bool, typer.Option("--verbose", help=f"Show the traceback of an error, as {VERBOSE}=1 does.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Accept the options that all commands share; `Commands` parses them."""


@app.command(short_help="Normalize and filter text, and write it.")
def curate(
    source: Input,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="Folder or URL for the curated files.")],
    memory: Memory = None,
    cpus: Cpus = None,
    text: Text = "text",
    profile: ProfileName = DEFAULT_PROFILE,
    words: WordsOption = None,
    file_format: FileFormat = "parquet",
    rejects: Rejects = None,
    partition_on: PartitionOn = None,
    on_bad_rows: OnBadRows = "raise",
    on_existing: OnExisting = "raise",
    metrics: Metrics = False,
    as_json: Json = False,
) -> None:
    """Normalize Unicode, keep the rows that pass a profile's filter rules, and write them."""
    write = _writer(file_format)
    chain, is_usual = partial(_chain, source, text, profile, words, on_bad_rows), profile in (*PROFILES, "none")
    started = _started(memory, cpus, source, chain, is_usual=is_usual and text == "text" and words is None)
    with started as (cluster, docs), _served(cluster, metrics):
        _console(stderr=True).print(repr(cluster))
        receipt = write(docs, output, rejects=rejects, partition_on=partition_on, on_existing=on_existing)
    _show(receipt, as_json)


@app.command(short_help="Show what `curate` would do, and whether it fits into memory.")
def explain(
    source: Input,
    memory: Memory = None,
    cpus: Cpus = None,
    text: Text = "text",
    profile: ProfileName = DEFAULT_PROFILE,
    words: WordsOption = None,
    file_format: FileFormat = "parquet",
    rejects: Rejects = None,
    partition_on: PartitionOn = None,
    as_json: Json = False,
) -> None:
    """Show the plan of `curate` for this input and the memory it needs. Only the start of each file is read."""
    docs, write = _chain(source, text, profile, words, "raise"), _writer(file_format)
    options: dict[str, Any] = {"partition_on": partition_on, **({"rejects": rejects} if rejects else {})}
    with beside_start(lambda: None, input_bytes=bytes_of_files(source)):
        _show(cdf.explain(docs, write, memory=memory, cpus=cpus, **options), as_json)


@app.command(short_help="Recommend settings to deduplicate an input.")
def recommend(
    source: Input,
    memory: Memory = None,
    cpus: Cpus = None,
    text: Text = "text",
    workdir: Annotated[
        str | None,
        typer.Option(show_default="current directory", help="Folder for temporary files, whose free space is checked."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(show_default=False, help="Folder or Hugging Face ID of the model to size batches for.")
    ] = None,
    device_memory: Annotated[
        str | None, typer.Option(show_default=False, help="Memory of the GPU that runs the model, such as 40GB.")
    ] = None,
    sample_size: Annotated[
        str, typer.Option(help="Amount of text to run for the time estimate. 0: no estimate.")
    ] = "32MB",
    as_json: Json = False,
) -> None:
    """Recommend settings to deduplicate this input: workers, blocks, bands, disk space and time."""
    asked = {"memory": memory, "device_memory": device_memory, "cpus": cpus, "model": model, "workdir": workdir}
    sample = None if sample_size == "0" else sample_size
    _show(cdf.recommend(source, text=text, sample_size=sample, **asked), as_json)  # type: ignore[arg-type]


@app.command(short_help="Remove near-duplicate or exact duplicate rows.")
def dedup(
    source: Input,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="Folder or URL for the files without duplicates.")],
    exact: Annotated[
        bool, typer.Option("--exact", help="Remove exact duplicates only. Otherwise near-duplicates are removed too.")
    ] = False,
    memory: Memory = None,
    cpus: Cpus = None,
    text: Text = "text",
    normalize: Annotated[
        str | None,
        typer.Option(show_default=False, help="With --exact. case_and_spaces: ignore case and extra spaces."),
    ] = None,
    keep: Annotated[str, typer.Option(help="Row of a group to keep: first, last, longest or none.")] = "first",
    unit: Annotated[
        str | None,
        typer.Option(show_default=False, help="With --exact. lines or paragraphs: remove repeated ones, not rows."),
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(show_default="default", help=f"MinHash shingles and bands: {', '.join(SCHEMES)}.")
    ] = None,
    jaccard_threshold: Annotated[
        float | None,
        typer.Option(
            show_default=str(JACCARD_THRESHOLD),
            help="Minimum Jaccard similarity of a match. 0 skips the check and groups all rows that share an LSH band.",
        ),
    ] = None,
    bands_per_iteration: Annotated[
        int | None, typer.Option(show_default="from the memory budget", help="LSH bands to compare in one pass.")
    ] = None,
    rejects: Rejects = None,
    on_bad_rows: OnBadRows = "raise",
    on_existing: OnExisting = "raise",
    metrics: Metrics = False,
    as_json: Json = False,
) -> None:
    """Remove near-duplicate rows (exact duplicates with --exact) and write the rest to Parquet."""
    near = {"--scheme": scheme, "--jaccard-threshold": jaccard_threshold, "--bands-per-iteration": bands_per_iteration}
    if exact and (given := [name for name, value in near.items() if value is not None]):
        raise ParameterError(
            f"{' and '.join(given)} cannot be used with --exact, because --exact compares whole texts. Leave out one or the "
            "other"
        )
    if not exact and (normalize is not None or unit is not None):
        raise ParameterError("--normalize and --unit have an effect only with --exact. Add --exact, or leave them out")
    least = JACCARD_THRESHOLD if jaccard_threshold is None else jaccard_threshold

    def chain() -> Any:
        docs, policy = _read(source, on_bad_rows), {"keep": keep}
        if exact and unit is not None:
            return cdf.remove_repeated_parts(docs, unit, normalize=normalize, text=text, **policy)  # type: ignore[arg-type]
        if exact:
            return cdf.drop_exact_duplicates(docs, subset=text, normalize=normalize, **policy)  # type: ignore[arg-type]
        bands = {"jaccard_threshold": least or None, "bands_per_iteration": bands_per_iteration}
        return cdf.drop_near_duplicates(docs, text=text, scheme=scheme or "default", **policy, **bands)  # type: ignore[arg-type]

    is_usual = (text, normalize, keep, unit) == ("text", None, "first", None) and scheme in (None, *SCHEMES)
    started = _started(memory, cpus, source, chain, is_usual=is_usual)
    with started as (cluster, docs), _served(cluster, metrics):
        _console(stderr=True).print(repr(cluster))
        receipt = cdf.write_parquet(docs, output, rejects=rejects, on_existing=on_existing)  # type: ignore[arg-type]
    _show(receipt, as_json)


@app.command(short_help="Run a recipe.")
def run(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="YAML file, or name of a shipped recipe (`curator-df recipe list`).")
    ],
    source: Annotated[
        str | None, typer.Option("--input", show_default="that of the recipe", help="What to read.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", show_default="that of the recipe", help="Folder or URL to write to.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            show_default=False,
            help="Replace a value, such as memory=8GB or steps.keep_language.min_score=0.8. Repeatable.",
        ),
    ] = None,
    memory: Annotated[str | None, typer.Option(show_default="that of the recipe", help="Memory budget.")] = None,
    cpus: Annotated[int | None, typer.Option(show_default="that of the recipe", help="Concurrent threads.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the plan and its memory, and run nothing.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run: the same as --on-existing resume.")
    ] = False,
    on_existing: Annotated[
        str | None, typer.Option(show_default="that of the recipe", help="raise, resume or overwrite, as for `curate`.")
    ] = None,
    metrics: Metrics = False,
    as_json: Json = False,
) -> None:
    """Run a recipe: reader, steps, writer and memory budget from a YAML file."""
    from curator_df.recipes.recipe import read_recipe
    from curator_df.recipes.settings import typed_settings
    from curator_df.recipes.yaml_values import plain_value

    # Unlike values of --set, paths are not YAML: they may contain any character.
    paths = {"input": source, "output": output}
    plain = {name: plain_value(path, f"--{name} {path}") for name, path in paths.items() if path is not None}
    sizes = [f"{name}={value}" for name, value in (("memory", memory), ("cpus", cpus)) if value is not None]
    loaded = read_recipe(recipe, plain | typed_settings([*sizes, *(settings or ())]))
    if explain:
        _show(loaded.explain(on_existing="resume" if resume else on_existing), as_json)  # type: ignore[arg-type]
        return
    with loaded.cluster() as cluster, _served(cluster, metrics):
        _console(stderr=True).print(repr(cluster))
        result = loaded.run(on_existing="resume" if resume else on_existing)  # type: ignore[arg-type]
    _show(getattr(result, "receipt", result), as_json)


@app.command(short_help="Compile kernels before the first run.")
def warm(
    operators: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OPERATOR",
            show_default=False,
            help="Operators whose kernels to compile, such as drop_near_duplicates. Default: those of `curate` and `demo`.",
        ),
    ] = None,
    all_kernels: Annotated[bool, typer.Option("--all", help="Compile the kernels of all operators.")] = False,
) -> None:
    """Compile kernels on this machine, so that no run has to. Kernels that are already compiled are skipped."""
    from curator_df.cluster.compiling import compile_kernels
    from curator_df.kernels.compiling.compile_cache import cache_folder
    from curator_df.kernels.compiling.kernel_sets import kernels_to_warm

    kernels = kernels_to_warm(operators or [], is_all=all_kernels)
    compile_kernels(kernels)
    _console().print(
        f"{len(kernels)} kernels are compiled for this machine, in {cache_folder()}", soft_wrap=True, highlight=False
    )


@app.command(short_help="Curate text that is already on this machine.")
def demo(
    output: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUTPUT",
            show_default=False,
            help="Folder for the corpus and the results. Without it, the results are deleted when the demo ends.",
        ),
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory budget of all processes together, such as 4GB.")] = DEMO_MEMORY,
    cpus: Cpus = None,
) -> None:
    """Curate real text that is on this machine: documentation, docstrings and licenses of installed packages."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that temporary files are deleted
    from curator_df.demo import run_demo

    if output is not None:
        _make_folder(output)
    console = _console()
    if not run_demo(console, output, DEFAULT_PROFILE, memory, cpus):
        raise typer.Exit(1)
    said = "The results of the demo were deleted. To keep them, name a folder: curator-df demo FOLDER"
    if output is not None:
        said = (
            f"The curated text is in {output / 'clean'}, the dropped rows with their reasons in {output / 'rejects'}."
        )
    console.print(f"\n{said}", soft_wrap=True)


def _make_folder(path: Path) -> None:
    """Make a folder for the results; raise `ParameterError` if that is impossible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        said = "it is a file, not a folder" if path.is_file() else exc.strerror or exc
        raise ParameterError(f"the folder {str(path)!r} cannot be created: {said}. Choose another folder") from exc


@monitor_app.command(short_help="Configure and start Prometheus and Grafana.")
def up(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            show_default="curator-df/monitor in $XDG_STATE_HOME or ~/.local/state",
            help="Folder for configuration and measurements.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port of Prometheus.")] = 9090,
    grafana_port: Annotated[int, typer.Option(help="Port of Grafana.")] = 3000,
    address: Annotated[
        str,
        typer.Option(help="Address to listen on. Other machines can reach any address except the loopback address."),
    ] = LOOPBACK,
    write_only: Annotated[bool, typer.Option("--write-only", help="Write the files and start nothing.")] = False,
) -> None:
    """Write the configuration of Prometheus and Grafana, and start the installed ones. Ctrl-C stops them."""
    from curator_df.monitor import stack

    console = _console()
    folder = Path(absolute(default_directory() if directory is None else directory))
    watched = stack.Stack(folder, address, port, grafana_port)
    for path in stack.write_stack(watched):
        console.print(f"written     {path}", soft_wrap=True)
    if write_only:
        return
    prometheus, grafana = stack.prometheus_command(watched), stack.grafana_command(watched)
    for command, missing in ((prometheus, stack.PROMETHEUS_MISSING), (grafana, stack.GRAFANA_MISSING)):
        if command is None:
            console.print(missing, style="yellow", soft_wrap=True)
    if prometheus is None:
        raise typer.Exit(1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that both servers are stopped
    with suppress(KeyboardInterrupt), stack.running_servers(watched) as servers:
        console.print(f"prometheus  {watched.prometheus_url}", soft_wrap=True)
        if grafana is not None:
            console.print(f"grafana     {stack.dashboard_url(watched)}", soft_wrap=True)
        given = "" if directory is None else f"directory={str(folder)!r}"
        console.print(f"To show a run, start it inside `with cdf.serve_metrics({given})`", soft_wrap=True)
        stack.wait_for_end(servers)


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error, which has its own exit code; rich would exit with code 1."""
        raise BrokenPipeError(errno.EPIPE, "the reader of the output exited")


def _console(*, stderr: bool = False) -> Console:
    """Return a console that prints text unchanged: names in square brackets are not styles."""
    return _Terminal(stderr=stderr, markup=False, highlight=False)


def _started(memory: str | None, cpus: int | None, source: str, chain: Callable[[], Any], *, is_usual: bool) -> Any:
    """Return a context with a cluster and a table, which is made while workers start, or before if it may be a mistake."""
    is_first = not (is_usual and os.path.exists(source))
    start = partial(cdf.start_cluster, memory=memory, cpus=cpus)
    return started_with(start, chain, is_first=is_first, input_bytes=bytes_of_files(source))


@contextmanager
def _served(cluster: Any, metrics: bool) -> Iterator[None]:
    if not metrics:
        yield
        return
    with cdf.serve_metrics(cluster) as served:
        _console(stderr=True).print(repr(served), soft_wrap=True)
        yield


def _writer(file_format: str) -> Any:
    if file_format not in ("parquet", "jsonl"):
        hint = did_you_mean(file_format, ("parquet", "jsonl"))
        raise ParameterError(f"--format {file_format!r} is not one of 'parquet', 'jsonl'{'.' * bool(hint)}{hint}")
    return cdf.write_parquet if file_format == "parquet" else cdf.write_jsonl


def _chain(source: str, text: str, profile: Any, words: Any, on_bad_rows: Any) -> Any:
    docs = cdf.normalize_unicode(_read(source, on_bad_rows), text=text)
    if profile == "none":
        return docs
    return cdf.keep_profile(docs, profile, words=words, text=text)


def _read(source: str, on_bad_rows: Any) -> Any:
    from curator_df.io.kinds import holds_parquet

    read = cdf.read_parquet if holds_parquet(source) else cdf.read_jsonl
    return read(source, on_bad_rows=on_bad_rows)


def _show(result: Any, as_json: bool) -> None:
    """Print a plan, a recommendation, a receipt, or receipts by output; advice names options of the command line."""
    if as_json:
        several = isinstance(result, dict)
        plain = {name: each.to_json() for name, each in result.items()} if several else result.to_json()
        sys.stdout.write(f"{json.dumps(plain, indent=1)}\n")
        return
    for each in result.values() if isinstance(result, dict) else [result]:
        if isinstance(each, cdf.Receipt):
            each = replace(each, advice=[_with_options(advice) for advice in each.advice])  # noqa: PLW2901
        _console().print(each if isinstance(each, cdf.Receipt | cdf.Plan) else _with_options(str(each)))


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Write a warning to standard error, without the line of the library that issued it."""
    _console(stderr=True).print(f"{category.__name__}: {_with_options(str(message))}", style="yellow", soft_wrap=True)


def _with_options(message: str) -> str:
    """Replace arguments of Python in a message by options of the command line.

    Examples
    --------
    >>> _with_options("cpus=-3 must be at least 1. Use on_existing='resume', or about memory=2_000_000_000")
    '--cpus -3 must be at least 1. Use --on-existing resume, or about --memory 2_000_000_000'
    >>> _with_options("not even 1% of the rows fits. Use another workdir=.")
    'not even 1% of the rows fits. Use another --workdir.'
    """

    def option(found: re.Match[str]) -> str:
        value = found[2].strip("'\"")
        return f"--{found[1].replace('_', '-')}" + (f" {value}" if value else "")

    return _ARGUMENT.sub(option, message)


def report(exc: BaseException, *, is_verbose: bool) -> None:
    """Write an error to standard error as one message, preceded by its traceback if requested."""
    if isinstance(exc, BrokenPipeError):
        # The reader has exited. Discard the output that Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if is_verbose or os.environ.get(VERBOSE, "0") not in ("", "0"):
        traceback.print_exception(exc)
    if isinstance(exc, KeyboardInterrupt):
        said = f"Interrupted.{_how_to_continue(sys.argv)}"
    elif isinstance(exc, CuratorError):  # what a recipe says are its own words
        message = str(exc) if isinstance(exc, RecipeError) else _with_options(str(exc))
        said = f"{type(exc).__name__}: {message}"
    else:
        said = f"{type(exc).__name__}: {str(exc) or 'no message'}"
        if exit_code(exc) == UNEXPECTED:
            said += f"\nThis is a defect of curator_df or of a library. Set {VERBOSE}=1 to see the traceback, and report it."
    _console(stderr=True).print(said, style="red", soft_wrap=True)


def _how_to_continue(command: list[str]) -> str:
    """Return the command that continues a run; empty for commands that cannot be continued.

    Examples
    --------
    >>> _how_to_continue(["curator-df", "curate", "my corpus", "out", "--on-existing=raise"])
    " To continue: curator-df curate 'my corpus' out --on-existing resume"
    >>> _how_to_continue(["curator-df", "explain", "corpus"])
    ''
    """
    if command[1:2] == ["run"]:
        return f" To continue: {shlex.join(['curator-df', *command[1:], *['--resume'] * ('--resume' not in command)])}"
    if not {"curate", "dedup"}.intersection(command[1:2]):
        return ""
    kept, skips = ["curator-df"], False
    for word in command[1:]:
        if not skips and word != "--on-existing" and not word.startswith("--on-existing="):
            kept.append(word)
        skips = word == "--on-existing"
    return f" To continue: {shlex.join([*kept, '--on-existing', 'resume'])}"


def main() -> None:
    """Run the command line."""
    watch_standard_streams()
    warnings.showwarning = _show_warning
    try:
        app()
    finally:
        gc.freeze()  # at its end, Python would walk all objects of all packages several times, for 0.5 s
        # The last line is the error: Dask would still log the end of processes that a failed start has left.
        logging.disable(logging.CRITICAL)


if __name__ == "__main__":
    main()
