# SPDX-License-Identifier: Apache-2.0
"""Dask's own operations under a budget, as somebody types them in a notebook.

    python benchmarks/interactive.py DOCS.jsonl 1GB [--connect | --gzip | --plain | --working-files]

``DOCS.jsonl`` (or ``.gz``) has a column ``text``; its rows are repeated with a number in front until they make 290 MB. Each
operation runs once, all in one cluster. Printed are its outcome, its seconds, the largest memory of the process tree, and
whether a plain sum succeeds after it. The values are compared with those of pandas.

With ``--working-files``, the operations that write working files run instead: looks, tables that Dask computes, parts of a
compressed file. Printed are the peak of the process tree and the bytes of these files, as a share of the rows and of the input.

The exit code is 1 if a value is wrong, an error is not one of curator_df's, the memory went over the budget, or a sum failed.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from types import FrameType
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
from distributed import Client, LocalCluster

import curator_df as cdf
from curator_df.core.runner.session import PeakSampler, current_session
from curator_df.errors import CuratorError
from curator_df.memory.budget import CLIENT_RESERVED_BYTES
from curator_df.memory.sizes import read_size

SIZE_BYTES = 290_000_000
MOST_SECONDS = 300.0
"""Time after which an operation counts as failed."""
ONE_WORKER_BYTES = 1_500_000_000
"""Budget below which ``--connect`` uses one worker process with two threads."""


def write_rows(source: str, target: str) -> None:
    """Write rows of about `SIZE_BYTES` with columns id, n, f, group and text."""
    with (gzip.open if source.endswith(".gz") else open)(source, "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    with open(target, "w", encoding="utf-8") as out:
        for number in itertools.count():
            text = texts[number % len(texts)]
            text = text if number < len(texts) else f"{number // 2} {text}"
            row = {"id": f"r{number}", "n": number, "group": f"g{number % 11}", "text": text}
            row["f"] = None if number % 7 == 0 else number / 4
            out.write(json.dumps(row) + "\n")
            if out.tell() > SIZE_BYTES:
                return


def operations(folder: str) -> dict[str, Callable[[Any], Any]]:
    """Return operations by name: functions of a Dask or a pandas table whose results can be compared."""
    return {**of_columns(), **of_text(), **of_numbers(), **of_all_rows(folder), **of_shapes(folder)}


def of_columns() -> dict[str, Callable[[Any], Any]]:
    """Return selections, new columns and sums."""
    return {
        "compute": lambda d: done(d)["n"].sum(),
        "compute some columns": lambda d: len(done(d[["id", "n"]])),
        "compute a column": lambda d: done(d["text"]).str.len().sum(),
        "compute a filter": lambda d: len(done(d[d["n"] % 2 == 0])),
        "compute a small filter": lambda d: done(d[d["n"] < 10])["id"].tolist(),
        "len": len,
        "head": lambda d: d.head(3)["id"].tolist(),
        "head of a filter": lambda d: len(d[d["n"] > 5].head(2)),
        "shape": lambda d: done(d.shape[0]),
        "columns": lambda d: list(d.columns),
        "isin": lambda d: len(done(d[d["group"].isin(["g1", "g2"])][["n"]])),
        "assign": lambda d: done(d.assign(m=d["n"] * 2)["m"].sum()),
        "rename": lambda d: done(d.rename(columns={"n": "m"})["m"].max()),
        "astype": lambda d: done(d["n"].astype("float64").sum()),
        "fillna": lambda d: done(d["f"].fillna(0).sum()),
        "dropna": lambda d: len(done(d.dropna()[["n"]])),
        "isna": lambda d: done(d["f"].isna().sum()),
        "where": lambda d: done(d["n"].where(d["n"] > 100, 0).sum()),
        "clip": lambda d: done(d["n"].clip(10, 20).sum()),
        "between": lambda d: done(d["n"].between(10, 20).sum()),
        "map": lambda d: done(d["n"].map(lambda x: x + 1, **meta_of(d, ("n", "int64"))).sum()),
        "apply to a column": lambda d: done(d["text"].apply(len, **meta_of(d, ("text", "int64"))).sum()),
        "apply to rows": lambda d: done(d.apply(lambda r: r["n"] + 1, axis=1, **meta_of(d, (None, "int64"))).sum()),
        "map_partitions": lambda d: done(d.map_partitions(lambda b: b[["n"]]) if is_dask(d) else d[["n"]])["n"].sum(),
        "query": lambda d: len(done(d.query("n < 1000")[["n"]])),
        "eval": lambda d: done(d.eval("n * 2").sum()),
        "drop a column": lambda d: done(d.drop(columns=["text"])["n"].sum()),
        "loc of columns": lambda d: len(done(d.loc[:, ["id"]])),
        "to_frame": lambda d: len(done(d["n"].to_frame())),
        "memory_usage": lambda d: done(d[["n"]].memory_usage(deep=True)).sum() > 0,
        "explode": lambda d: len(done(d.assign(w=d["group"].str.split("g"))[["w"]].explode("w"))),
        "a second sum": lambda d: done(d["n"].sum()) + done(d["n"].max()),
        "two at once": both,
        "delayed": lambda d: (
            sum(dask.compute(*[dask.delayed(len)(p) for p in d.to_delayed()])) if is_dask(d) else len(d)
        ),
    }


def of_text() -> dict[str, Callable[[Any], Any]]:
    """Return operations on text."""
    return {
        "str.len": lambda d: done(d["text"].str.len().sum()),
        "str.lower": lambda d: done(d["text"].str.lower().str.len().sum()),
        "str.contains": lambda d: done(d["text"].str.contains("the").sum()),
        "str.count": lambda d: done(d["text"].str.count("e").sum()),
        "str.replace": lambda d: done(d["text"].str.replace("a", "").str.len().sum()),
        "str.slice": lambda d: done(d["text"].str.slice(0, 10).str.len().sum()),
        "str.strip": lambda d: done(d["text"].str.strip().str.len().sum()),
        "str.startswith": lambda d: done(d["text"].str.startswith("1").sum()),
        "str.split": lambda d: done(d["text"].str.split().str.len().sum()),
        "words": lambda d: done(d["text"].str.lower().str.split().str.len().sum()),
        "str.extract": lambda d: len(done(d["text"].str.extract(r"(\d+)"))),
        "concatenate": lambda d: done((d["id"] + d["group"]).str.len().sum()),
        "text value counts": lambda d: int(done(d["text"].value_counts()).max()),
        "text nunique": lambda d: done(d["text"].nunique()),
        "text unique": lambda d: len(done(d["text"].unique())),
        "text max": lambda d: len(done(d["id"].max())),
        "text drop_duplicates": lambda d: len(done(d.drop_duplicates(subset=["text"])[["n"]])),
        "text groupby": lambda d: int(done(d.groupby("text")["n"].count()).max()),
        "histogram of lengths": lambda d: histogram(d["text"].str.len()),
    }


def of_numbers() -> dict[str, Callable[[Any], Any]]:
    """Return statistics and groups."""
    return {
        **{
            name: statistic(name)
            for name in ("sum", "mean", "min", "max", "std", "var", "count", "prod", "sem", "any", "all")
        },
        "describe": lambda d: float(done(d["n"].describe())["max"]),
        "describe floats": lambda d: float(done(d["f"].describe())["max"]),
        "quantile": lambda d: near(done(d["n"].quantile(0.5))),
        "quantiles of a table": lambda d: near(done(d[["n", "f"]].quantile(0.5))["n"]),
        "median_approximate": lambda d: near(done(d["n"].median_approximate() if is_dask(d) else d["n"].median())),
        "nlargest": lambda d: done(d.nlargest(3, "n"))["id"].tolist(),
        "nsmallest": lambda d: done(d["n"].nsmallest(3)).tolist(),
        "idxmax": lambda d: done(d["n"].idxmax()) >= 0,
        "value_counts": lambda d: int(done(d["group"].value_counts()).max()),
        "nunique": lambda d: done(d["group"].nunique()),
        "unique": lambda d: len(done(d["group"].unique())),
        "mode": lambda d: len(done(d["group"].mode())) > 0,
        "cumsum": lambda d: int(done(d["n"].cumsum()).iloc[-1]),
        "diff": lambda d: done(d["n"].diff().sum()),
        "corr": lambda d: round(float(done(d[["n", "f"]].corr()).loc["n", "f"]), 6),
        "groupby": lambda d: int(done(d.groupby("group")["n"].sum()).sum()),
        "groupby agg": lambda d: int(done(d.groupby("group").agg({"n": ["min", "max", "count"]})).to_numpy().sum()),
        "groupby nunique": lambda d: int(done(d.groupby("group")["n"].nunique()).sum()),
        "groupby size": lambda d: int(done(d.groupby("group").size()).max()),
        "groupby of many keys": lambda d: int(done(d.groupby("id")["n"].sum()).sum()),
        "groupby apply": lambda d: len(
            done(d[["group", "n"]].groupby("group")["n"].apply(len, **meta_of(d, ("n", "int64"))))
        ),
        "groupby median": lambda d: len(done(d.groupby("group")["n"].median())),
        "pivot_table": lambda d: done(pivot(d)).shape[1] > 0,
        "crosstab by groupby": lambda d: len(done(d.assign(odd=d["n"] % 2).groupby(["group", "odd"])["n"].count())),
        "cut": lambda d: int(done(d["n"].map_partitions(lambda s: s // 1000) if is_dask(d) else d["n"] // 1000).max()),
    }


def of_all_rows(folder: str) -> dict[str, Callable[[Any], Any]]:
    """Return operations that need all rows at once."""
    return {
        "sort numbers": lambda d: done(d[["n", "id"]].sort_values("n", ascending=False))["n"].iloc[0],
        "sort and head": lambda d: d.sort_values("n", ascending=False).head(2)["n"].tolist(),
        "sort to Parquet": lambda d: to_parquet(d.sort_values("n", ascending=False), f"{folder}/sorted"),
        "set_index": lambda d: len(done(d[["n", "id"]].set_index("n"))),
        "merge with itself": lambda d: len(done(d.merge(d[["id", "n"]], on="id")[["id"]])),
        "merge to Parquet": lambda d: to_parquet(d.merge(d[["id", "n"]], on="id"), f"{folder}/merged"),
        "merge with pandas": lambda d: len(
            done(d.merge(pd.DataFrame({"group": ["g1"], "weight": [2]}), on="group")[["n"]])
        ),
        "concat": lambda d: len(done((dd if is_dask(d) else pd).concat([d[["n"]], d[["n"]]]))),
        "repartition": lambda d: len(done(d.repartition(npartitions=3)[["n"]] if is_dask(d) else d)),
        "shuffle": lambda d: len(done(d.shuffle("group")[["n"]] if is_dask(d) else d)),
        "to_parquet": lambda d: to_parquet(d, f"{folder}/plain"),
        "persist": persisted,
        "reset_index": lambda d: len(done(d.reset_index(drop=True)[["n"]])),
        "sample": lambda d: len(done(d.sample(frac=0.1, random_state=1)[["n"]])) > 0,
        "partitions": lambda d: len(done(d.partitions[0] if is_dask(d) else d)) > 0,
    }


def of_shapes(folder: str) -> dict[str, Callable[[Any], Any]]:
    """Return operations that give a table another form, look at neighboring rows, or write files."""
    return {
        "melt": lambda d: len(done(d[["id", "n", "f"]].melt(id_vars="id"))),
        "loc of rows": lambda d: done(d.loc[d["n"] < 5, "id"]).tolist(),
        "tail": lambda d: d.tail(2)["n"].tolist(),
        "itertuples": lambda d: sum(1 for _ in d[["id", "text"]].itertuples()),
        "rolling": lambda d: float(done(in_order(d)["m"].rolling(3).sum().max())),
        "shift": lambda d: float(done(d["f"].shift(1).sum())),
        "map_overlap": lambda d: float(done(differences(d))),
        "set_index of sorted rows": lambda d: len(done(in_order(d))),
        "merge_asof": merged_as_of,
        "to_bag": lambda d: d["id"].to_bag().count().compute() if is_dask(d) else len(d),
        "random_split": lambda d: sum(map(len, d[["n"]].random_split([0.5, 0.5], 1))) if is_dask(d) else len(d),
        "nunique_approx": lambda d: near(done(d["group"].nunique_approx() if is_dask(d) else d["group"].nunique())),
        "shares of values": lambda d: round(float(done(d["group"].value_counts(normalize=True)).max()), 6),
        "text of groups": lambda d: int(done(d.groupby("group")["text"].first()).str.len().min()) > 0,
        "groupby transform": lambda d: int(
            done(d[["group", "n"]].groupby("group")["n"].transform("max", **meta_of(d, ("n", "Int64"))).min())
        ),
        "categorize": lambda d: len(
            (d[["group"]].categorize() if is_dask(d) else d.astype("category"))["group"].cat.categories
        ),
        "sum of rows": lambda d: round(float(done(d[["n", "f"]].sum(axis=1).sum())), 2),
        "str.findall": lambda d: int(done(d["text"].str.findall("[A-Z]").str.len().sum())),
        "to_csv": lambda d: written(d[["id", "text"]].to_csv, folder, "csv"),
        "to_json": lambda d: written(d.to_json, folder, "json", orient="records", lines=True),
    }


def curated() -> dict[str, Callable[[Any], Any]]:
    """Return looks at tables with pending drops; with pandas the same rows are made another way."""
    return {
        "head after a drop": lambda d: dropped(d).head(2)["id"].tolist(),
        "len after a drop": lambda d: len(dropped(d)),
        "groupby after a drop": lambda d: int(done(dropped(d).groupby("group")["n"].sum()).sum()),
        "lengths after a drop": lambda d: done(dropped(d)["text"].str.len().mean()),
    }


def is_dask(table: Any) -> bool:
    return not isinstance(table, pd.DataFrame)


def done(value: Any) -> Any:
    return value.compute() if hasattr(value, "compute") else value


def meta_of(table: Any, meta: Any) -> dict[str, Any]:
    return {"meta": meta} if is_dask(table) else {}


def near(value: Any) -> int:
    """Dask's quantiles are approximate: one significant digit."""
    return round(float(value), -math.floor(math.log10(max(float(value), 1))))


def both(table: Any) -> tuple[int, int]:
    values = (
        dask.compute(table["n"].sum(), table["n"].max()) if is_dask(table) else (table["n"].sum(), table["n"].max())
    )
    return int(values[0]), int(values[1])


def statistic(name: str) -> Callable[[Any], Any]:
    return lambda table: round(float(done(getattr(table["n"] % 5 + 1 if name == "prod" else table["n"], name)())), 4)


def histogram(lengths: Any) -> list[int]:
    counts = done((lengths // 1000).value_counts())
    return sorted(int(count) for count in counts)


def pivot(table: Any) -> Any:
    columns = table[["group", "n", "f"]].assign(odd=(table["n"] % 2).astype("int64"))
    groups = pd.CategoricalDtype([f"g{number}" for number in range(11)])
    columns["group"] = columns["group"].astype("str").astype(groups)
    return columns.pivot_table(index="odd", columns="group", values="n", aggfunc="sum")


def to_parquet(table: Any, folder: str) -> int:
    os.makedirs(folder, exist_ok=True)
    if is_dask(table):
        table.to_parquet(folder, write_index=False)
    else:
        table.to_parquet(f"{folder}.parquet", index=False)
    rows = pd.read_parquet(folder if is_dask(table) else f"{folder}.parquet", columns=["id"])
    return len(rows)


def differences(table: Any) -> Any:
    numbers = table["n"].astype("float64")
    change = lambda part: part - part.shift(1)  # noqa: E731 - as somebody types it
    return (numbers.map_overlap(change, 1, 0, meta=("n", "f8")) if is_dask(table) else change(numbers)).sum()


def in_order(table: Any) -> Any:
    numbers = table[["n"]].assign(m=table["n"].astype("float64"))
    return numbers.set_index("n", **({"sorted": True} if is_dask(table) else {}))


def merged_as_of(table: Any) -> int:
    """Dask (2026.7.1) merges by nullable numbers with an error that says that they contain nulls."""
    marks = pd.DataFrame({"n": [0, 100, 1000], "mark": [1, 2, 3]})
    merge = dd.merge_asof if is_dask(table) else pd.merge_asof
    numbers = table[["n"]].astype("int64")
    return int(done(merge(numbers, dd.from_pandas(marks, 1) if is_dask(table) else marks, on="n")["mark"].sum()))


def written(write: Callable[..., Any], folder: str, kind: str, **options: Any) -> int:
    where = f"{folder}/{kind}"
    os.makedirs(where, exist_ok=True)
    is_table_of_dask = is_dask(write.__self__)  # type: ignore[attr-defined]
    write(f"{where}/part-*.{kind}" if is_table_of_dask else f"{where}/all.{kind}", **options)
    size = sum(os.path.getsize(f"{where}/{name}") for name in os.listdir(where))
    return near(size)


def persisted(table: Any) -> int:
    if not is_dask(table):
        return int(table["n"].sum())
    kept = table[["n"]].persist()
    return int(kept["n"].sum().compute())


def dropped(table: Any) -> Any:
    return table.pipe(cdf.drop_exact_duplicates) if is_dask(table) else table.drop_duplicates(subset="text")


def same(found: Any, expected: Any) -> bool:
    if isinstance(found, float) or isinstance(expected, float):
        return math.isclose(float(found), float(expected), rel_tol=1e-6) or (math.isnan(found) and math.isnan(expected))
    return bool(found == expected)


def attempt(call: Callable[[Any], Any], table: Any, most_seconds: float = 0) -> tuple[Any, BaseException | None]:
    def ends(_: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as the system calls it
        raise TimeoutError(f"no end within {most_seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ends)
    signal.setitimer(signal.ITIMER_REAL, most_seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(table), None
    except Exception as exc:  # noqa: BLE001 - which errors come is what is measured
        return None, exc
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def values_of_pandas(path: str, only: list[str]) -> tuple[dict[str, Any], int]:
    """Return what operations give with pandas (all if ``only`` is empty), and the characters of all texts."""
    # Types as the readers have them, so that nulls mean the same.
    frame = pd.read_json(path, lines=True).convert_dtypes(dtype_backend="numpy_nullable")
    frame["text"] = frame["text"].astype("string[pyarrow]")
    with tempfile.TemporaryDirectory() as folder:
        calls = {**operations(folder), **curated()}
        chosen = {name: calls[name] for name in only or calls}
        return {name: attempt(call, frame)[0] for name, call in chosen.items()}, int(frame["text"].str.len().sum())


def measure(
    start: Callable[[], Any],
    calls: dict[str, Any],
    expected: dict[str, Any],
    characters: int,
    allowed_bytes: int,
    most_seconds: float = MOST_SECONDS,
) -> int:
    """Run every operation; print a line for each; return how many faults there were.

    ``start`` returns the table, and is called again for a new cluster where a sum failed and the budget is 0, which means that
    it is not checked.
    """
    sampler, faults, succeeded, refused = PeakSampler(exact=True), 0, 0, 0
    table = start()
    for name, call in calls.items():
        sampler.take()
        started = time.perf_counter()
        found, error = attempt(call, table, most_seconds)
        seconds, peak_bytes = time.perf_counter() - started, sampler.take()
        if error is None:
            right = same(found, expected[name])
            outcome = "right" if right else f"WRONG: {found!r:.60} for {expected[name]!r:.60}"
            succeeded += right
            faults += not right
        else:
            ours = isinstance(error, CuratorError)
            refused += ours
            faults += not ours
            said = str(error).splitlines()[0] if str(error) else ""
            outcome = f"{'' if ours else 'FOREIGN '}{type(error).__name__}: {said}"
        error = None
        probe, failed = attempt(lambda d: done(d["text"].str.len().sum()), table, most_seconds)
        holds = failed is None and int(probe) == characters
        over = bool(allowed_bytes) and peak_bytes > allowed_bytes
        faults += (not holds) + over
        notes = f"{'' if holds else ' PROBE FAILED'}{' OVER' if over else ''}"
        print(f"{name:<24} {seconds:6.1f} s {peak_bytes / 1e6:6.0f} MB{notes}  {outcome:.160}", flush=True)
        if not allowed_bytes and not holds:
            table = start()
    sampler.close()
    print(f"{len(calls)} operations: {succeeded} right, {refused} refused by name, {faults} faults")
    return faults


def main() -> int:
    """Print a line for each operation; return 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("docs")
    parser.add_argument("memory")
    parser.add_argument("--plain", action="store_true", help="plain Dask with the same bytes for its workers")
    parser.add_argument("--gzip", action="store_true", help="read one compressed file")
    parser.add_argument("--connect", action="store_true", help="connect to a cluster that is running")
    parser.add_argument("--working-files", action="store_true", help="peaks and sizes of what looks and Dask write")
    parser.add_argument(
        "--limit", type=float, default=MOST_SECONDS, help="seconds after which an operation is a failure"
    )
    parser.add_argument("--only", help="names of operations, with commas between them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows.jsonl"
        write_rows(arguments.docs, path)
        if arguments.working_files:
            return measure_working_files(path, folder, read_size("memory", arguments.memory))
        # In a process of its own: the tables of pandas would count as held by this one.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            only = arguments.only.split(",") if arguments.only else []
            expected, characters = pool.submit(values_of_pandas, path, only).result()
        if arguments.gzip:
            with open(path, "rb") as file, gzip.open(f"{path}.gz", "wb", 1) as out:
                out.writelines(file)
            path += ".gz"
        calls = operations(folder) if arguments.plain else {**operations(folder), **curated()}
        if only:
            calls = {name: calls[name] for name in only}
        allowed_bytes = read_size("memory", arguments.memory)
        return min(_run(path, calls, expected, characters, allowed_bytes, arguments), 1)


def measure_working_files(path: str, folder: str, allowed_bytes: int) -> int:
    """Print the peak of each operation that writes working files, and the size of these files; return 1 if one went over."""
    with open(path, "rb") as file, gzip.open(f"{path}.gz", "wb", 6) as out:
        out.writelines(file)
    numbers = f"{folder}/numbers.jsonl"
    with open(numbers, "w", encoding="utf-8") as out:
        out.writelines(
            json.dumps({"id": f"r{n}", "n": n, "f": n / 7, "group": f"g{n % 11}"}) + "\n" for n in range(10**6)
        )
    cases: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "a look after a drop (looks)": (path, lambda d: len(dropped(d))),
        "a sort to Parquet (spool)": (path, lambda d: cdf.write_parquet(d.sort_values("n"), f"{folder}/sorted")),
        "numbers, sorted (spool)": (numbers, lambda d: cdf.write_parquet(d.sort_values("f"), f"{folder}/numbers")),
        "a compressed file (parts)": (f"{path}.gz", lambda d: done(d["text"].str.len().sum())),
    }
    over = 0
    print("| operation | peak, MB | rows, MB | input, MB | working files, MB | of the rows | of the input |")
    print("|---|---|---|---|---|---|---|")
    for name, (source, call) in cases.items():
        with cdf.start_cluster(memory=allowed_bytes) as cluster:
            sampler, table = PeakSampler(exact=True), cdf.read_jsonl(source)
            rows_bytes = int(
                done(table.map_partitions(lambda block: block.memory_usage(deep=True).sum(), meta=("n", "i8")).sum())
            )
            sampler.take()
            call(table)
            peak_bytes, home = sampler.take(), current_session().working_folder
            folders = [cluster._spill.path, *([] if home is None else [home()])]
            made = {
                file: size for each in folders for file, size in _sizes(each) if f"/{name.split('(')[1][:-1]}/" in file
            }
            sampler.close()
        size_bytes, input_bytes = sum(made.values()), os.path.getsize(source)
        over += peak_bytes > allowed_bytes
        print(
            f"| {name} | {peak_bytes / 1e6:,.0f} | {rows_bytes / 1e6:,.0f} | {input_bytes / 1e6:,.0f} "
            f"| {size_bytes / 1e6:,.0f} | "
            f"{size_bytes / rows_bytes:.2f} | {size_bytes / input_bytes:.2f} |",
            flush=True,
        )
    return min(over, 1)


def _sizes(folder: str) -> list[tuple[str, int]]:
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(os.path.realpath(place), name)
            with contextlib.suppress(FileNotFoundError):
                found.append((path, os.path.getsize(path)))
    return found


def _run(
    path: str,
    calls: dict[str, Any],
    expected: dict[str, Any],
    characters: int,
    allowed_bytes: int,
    how: argparse.Namespace,
) -> int:
    how_to_measure = (calls, expected, characters, 0 if how.plain else allowed_bytes, how.limit)
    if not (how.plain or how.connect):
        with cdf.start_cluster(memory=allowed_bytes):
            return measure(lambda: cdf.read_jsonl(path), *how_to_measure)
    # What the budget leaves to the workers of a connection, in as few processes as start_cluster would start.
    workers = 1 if how.connect and allowed_bytes < ONE_WORKER_BYTES else 2
    share_bytes = (allowed_bytes - how.connect * CLIENT_RESERVED_BYTES) // workers
    with contextlib.ExitStack() as stack:

        def start() -> Any:
            stack.close()
            cluster = LocalCluster(n_workers=workers, threads_per_worker=2 // workers, memory_limit=share_bytes)
            client = stack.enter_context(Client(stack.enter_context(cluster)))
            if how.connect:
                stack.enter_context(cdf.connect(client, memory=allowed_bytes, workdir=f"{os.path.dirname(path)}/work"))
                return cdf.read_jsonl(path)
            table = dd.read_json(path, lines=True, blocksize=None if how.gzip else 2**23)
            return table.astype({"n": "Int64", "f": "Float64"})

        return measure(start, *how_to_measure)


if __name__ == "__main__":
    sys.exit(main())
