# SPDX-License-Identifier: Apache-2.0
"""Documents that `Receipt.save` writes, among them Croissant metadata and the EU's public summary of training content.

Both say what the receipt knows. What it does not know is left out of Croissant, and is "not known" in the summary, for the
provider of a model to fill in. Receipts are `Any` here: their module imports this one when they are saved.

References
----------
MLCommons, Croissant format specification 1.0. European Commission, Template for the Public Summary of Training Content for
general-purpose AI models, required by Article 53 (1)(d) of Regulation (EU) 2024/1689, 24 July 2025.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
import yaml

from curator_df.arguments import did_you_mean_path, listed, path_of
from curator_df.errors import InputError, ParameterError
from curator_df.files.storage import Folder, output_errors, shown_path
from curator_df.memory.sizes import show_count, show_size
from curator_df.receipts.dataset_card import CardSplit, dataset_card

NOT_KNOWN = "not known"
FORMATS = {
    ".parquet": "application/x-parquet",
    ".jsonl": "application/jsonlines",
    ".jsonl.gz": "application/jsonlines+gzip",
    ".jsonl.zst": "application/jsonlines+zstd",
}
"""Media types of output files, by ending."""
TERMS = "citeAs column equivalentProperty extract field fileProperty fileObject fileSet format includes isLiveDataset jsonPath "
TERMS += "key md5 parentField path recordSet references regex repeated replace samplingRate separator source subField transform"
CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{term: f"cr:{term}" for term in TERMS.split()},
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "sc": "https://schema.org/",
}
"""The context that Croissant 1.0 prescribes."""
OF_OUTPUT = ("dataset_card", "croissant")
SUMMARY = "eu_training_data_summary"
OPTIONS: Mapping[str, Sequence[str]] = {
    "name": OF_OUTPUT,
    "license": OF_OUTPUT,
    "domains": (SUMMARY,),
    "storage_options": OF_OUTPUT,
}
"""Kinds of documents that an option of `Receipt.save` belongs to."""
SAMPLE_LINES = 100
"""Lines of a JSON Lines file from which types of columns are taken."""
TOKEN_RANGES = (
    (10**9, "less than 1 billion tokens"),
    (10**13, "1 billion to 10 trillion tokens"),
    (float("inf"), "more than 10 trillion tokens"),
)
"""Sizes of text that the template offers."""
INTRODUCTION = f"""\
By the template of the European Commission for providers of general-purpose AI models, for one data set. curator_df filled in
what its receipt says. Complete what is *{NOT_KNOWN}*, and repeat section 2 for every other data set."""
COUNTS_TOKENS = ("add_token_count", "write_tokens")
"""Steps that count the tokens of a data set. Steps with models count those that the model reads, of other tokenizers."""
SYNTHETIC, PERSONAL = ("add_completion",), ("redact_pii",)
HARMFUL = ("keep_urls", "add_class", "keep_class", "keep_profile", "keep_where")
"""Steps that the template asks about."""


def saved_document(
    receipt: Any,
    kind: str,
    *,
    name: str | None = None,
    license: str | None = None,  # noqa: A002
    domains: pd.DataFrame | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Return the text of a document about the output of a `Receipt`, of a kind that is not the receipt itself."""
    if kind == SUMMARY:
        return eu_summary(receipt, domains)
    folder = Folder(receipt.output, storage_options or {})
    if kind == "dataset_card":
        return card(receipt, folder, name, license)
    return json.dumps(croissant(receipt, folder, name, license), indent=1)


def require_options(kind: str, options: Mapping[str, Any]) -> None:
    """Raise `ParameterError` if an option of `Receipt.save` does not belong to the kind of document."""
    for option, value in options.items():
        if value is not None and kind not in OPTIONS[option]:
            only = " or ".join(map(repr, OPTIONS[option]))
            raise ParameterError(
                f"save: {option}= has no effect with kind={kind!r}, only with {only}. Leave it out, or change kind="
            )


def require_parent(path: str | os.PathLike[str]) -> None:
    """Raise `InputError` unless the folder of a file that `Receipt.save` writes exists on this machine."""
    text = path_of("save", "path", path)
    if "://" in text:
        raise InputError(f"save: path={text!r} is a URL. Save the file on this machine, and copy it there")
    folder = Path(text).parent
    if not folder.is_dir():
        said = os.fspath(folder)
        raise InputError(
            f"save: the folder {said!r} of {text!r} does not exist. Create it first{did_you_mean_path(said)}"
        )


def save_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a document into a folder of this machine; raise `ParameterError` if this process may not."""
    with output_errors(Folder(os.path.dirname(os.path.abspath(path)))):
        Path(path).write_text(shown_path(text), encoding="utf-8")  # paths in it may not be UTF-8


def croissant(receipt: Any, folder: Folder, name: str | None, license: str | None) -> dict[str, Any]:  # noqa: A002
    """Return the Croissant metadata of an output, to be stored in its folder: paths of files are relative.

    Columns are left out if Croissant has no type for them (nested and binary ones), and those of JSON Lines also if the
    first `SAMPLE_LINES` lines have only nulls or mixed types.
    """
    file, suffix = _first_file(folder)
    keys = [part.partition("=")[0] for part in posixpath.dirname(file).split("/") if "=" in part]
    pattern = "/".join([*(f"{key}=*" for key in keys), f"part-*{suffix}"])
    source = {"fileSet": {"@id": "files"}}
    fields = [
        _field(column, kind, {**source, "extract": {"column": column}}, repeated=repeated)
        for column, kind, repeated in _columns(folder, file, suffix)
    ]
    for key in keys:
        of_path = {
            **source,
            "extract": {"fileProperty": "fullpath"},
            "transform": {"regex": f"(?:^|/){re.escape(key)}=([^/]*)/"},
        }
        fields.append(_field(key, "sc:Text", of_path))
    made = {
        "@context": dict(CONTEXT),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name or posixpath.basename(receipt.output.rstrip("/")),
        "description": (
            f"{show_count(receipt.rows_written, 'row')} in {show_count(receipt.files, 'file')} "
            f"({show_size(receipt.output_bytes)}), of {receipt.rows_read:,} read. Steps: {_steps(receipt)}. "
            f"Made with curator_df {receipt.version or NOT_KNOWN}."
        ),
        "distribution": [
            {
                "@type": "cr:FileSet",
                "@id": "files",
                "name": "files",
                "encodingFormat": FORMATS[suffix],
                "includes": pattern,
            }
        ],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "rows", "name": "rows", "field": fields}],
    }
    made |= {} if license is None else {"license": license}
    return made | ({"datePublished": receipt.started[:10]} if receipt.started else {})


def _field(name: str, kind: str, source: Mapping[str, Any], *, repeated: bool = False) -> dict[str, Any]:
    made = {"@type": "cr:Field", "@id": f"rows/{name}", "name": name, "dataType": kind, "source": source}
    return {**made, "repeated": True} if repeated else made


def _first_file(folder: Folder) -> tuple[str, str]:
    """Return the first output file and its ending."""
    for name in folder.names():
        suffix = next((suffix for suffix in FORMATS if name.endswith(suffix)), None)
        if name[:1] != "_" and suffix is not None and posixpath.basename(name).startswith("part-"):
            return name, suffix
    raise InputError(
        f"save: no Parquet or JSON Lines files that a run wrote were found in {folder.url}, the output folder of the receipt, so "
        "the columns are unknown. If the files were moved, move them back. Otherwise, repeat the run with write_parquet or "
        "write_jsonl, or save a kind= that does not list columns, such as 'dataset_card'"
    )


def _columns(folder: Folder, file: str, suffix: str) -> Iterator[tuple[str, str, bool]]:
    """Yield name, Croissant type and whether it is a list, of each column that is not nested."""
    import fsspec

    with fsspec.open(folder.remote_url + f"/{file}", "rb", compression="infer", **folder.options) as stream:
        if suffix == ".parquet":
            import pyarrow.parquet as pq

            types = {field.name: field.type for field in pq.read_schema(stream)}
        else:
            rows = [orjson.loads(line) for line, _ in zip(stream, range(SAMPLE_LINES), strict=False)]
            keys = dict.fromkeys(key for row in rows for key in row)
            types = {key: _type_of_values([row.get(key) for row in rows]) for key in keys}
    for name, kind in types.items():
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        said = _type_of(kind.value_type if is_list else kind)
        if said is not None:
            yield name, said, is_list


def _type_of_values(values: Sequence[Any]) -> pa.DataType:
    """Return the Arrow type of JSON values; that of nulls if they are of different types."""
    try:
        return pa.array(values).type
    except OverflowError:  # from 2**63
        is_whole = all(value is None or type(value) is int for value in values)
        return pa.uint64() if is_whole else pa.null()
    except pa.ArrowException:
        return pa.null()


def _type_of(kind: pa.DataType) -> str | None:
    """Return the Croissant type of an Arrow type; None for nested and binary ones, and for nulls."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    for is_kind, said in (
        (pa.types.is_integer, "sc:Integer"),
        (pa.types.is_floating, "sc:Float"),
        (pa.types.is_decimal, "sc:Float"),
        (pa.types.is_boolean, "sc:Boolean"),
        (pa.types.is_date, "sc:Date"),
        (pa.types.is_timestamp, "sc:DateTime"),
        (pa.types.is_string, "sc:Text"),
        (pa.types.is_large_string, "sc:Text"),
        (pa.types.is_string_view, "sc:Text"),
    ):
        if is_kind(kind):
            return said
    return None


def card(receipt: Any, output: Folder, name: str | None, license: str | None) -> str:  # noqa: A002
    """Return the dataset card of one output, which has its files as the split ``train``."""
    _, suffix = _first_file(output)
    patterns = {folder.replace("/", ","): f"{folder}/part-*" for folder in receipt.rows_by_folder if folder}
    split = CardSplit("train", receipt, patterns or {"default": f"part-*{suffix}"})
    return dataset_card(name or posixpath.basename(receipt.output.rstrip("/")), [split], license=license, existing=None)


def eu_summary(receipt: Any, domains: pd.DataFrame | None) -> str:
    """Return the summary as Markdown, by the sections of the template."""
    parts = [
        "# Public summary of training content",
        INTRODUCTION,
        "## 1. General information",
        *_section("1.1 Provider", {"Provider, and authorized representative in the Union": NOT_KNOWN}),
        *_section(
            "1.2 Model",
            dict.fromkeys(
                ("Names of the model", "Model it was derived from", "Date of placement on the Union market"), NOT_KNOWN
            ),
        ),
        *_section("1.3 Modalities and size", _size(receipt)),
        "## 2. Data sources",
        *_section("2.1 Publicly available data sets", {"Data sets": _public(receipt)}),
        *_section("2.2 Private data sets of third parties", {"Data sets": NOT_KNOWN}),
        *_section("2.3 Data crawled and scraped from online sources", _crawled(receipt)),
        *([] if domains is None else ["Domains with the most content:", _domains(domains)]),
        *_section("2.4 User data", {"Data of users of the provider's services": NOT_KNOWN}),
        *_section("2.5 Synthetic data", {"Generated by models": _named(receipt, SYNTHETIC) or "not by this run"}),
        *_section("2.6 Other sources", {"Sources": NOT_KNOWN}),
        "## 3. Data processing",
        *_section("3.1 Reservations of rights from text and data mining", {"Measures": NOT_KNOWN}),
        *_section("3.2 Removal of illegal content", _removal(receipt)),
        *_section("3.3 Other information", _processing(receipt)),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, facts: Mapping[str, str]) -> list[str]:
    return [f"### {title}", "\n".join(f"- **{name}**: {said}" for name, said in facts.items())]


def _size(receipt: Any) -> dict[str, str]:
    said = NOT_KNOWN + " in tokens (add_token_count counts them)"
    places = [
        place for place, step in enumerate(receipt.steps) if step.name in COUNTS_TOKENS and "tokens" in step.counters
    ]
    if places:
        tokens, later = receipt.steps[places[-1]].counters["tokens"], receipt.steps[places[-1] + 1 :]
        dropped, made = sum(s.rows_dropped for s in later), sum(max(s.rows_out - s.rows_in, 0) for s in later)
        changes = [f"{show_count(dropped, 'document')} dropped"] * bool(dropped)
        changes += [f"{show_count(made, 'document')} added"] * bool(made)
        of = f"before later steps: {', '.join(changes)}" if changes else "in this data set"
        said = next(name for most, name in TOKEN_RANGES if tokens < most) + f" ({show_count(tokens, 'token')} {of})"
    return {
        "Modality": "text",
        "Size": f"{said}; {show_count(receipt.rows_written, 'document')}, {show_size(receipt.output_bytes)} on disk",
        "Latest date of acquisition": f"{NOT_KNOWN}; processed on {receipt.started[:10] or NOT_KNOWN}",
        "Languages": NOT_KNOWN + _by_folder(receipt),
    }


def _by_folder(receipt: Any) -> str:
    total = max(sum(receipt.rows_by_folder.values()), 1)
    shares = sorted(receipt.rows_by_folder.items(), key=lambda item: -item[1])[:20]
    return (
        "; documents by folder: " + ", ".join(f"{name} {100 * rows / total:.1f}%" for name, rows in shares)
        if shares
        else ""
    )


def _reader(receipt: Any) -> tuple[str, list[str]]:
    """Return the reader of the run and its paths; empty if the receipt has no recipe."""
    read = (yaml.safe_load(receipt.recipe_text) or {}).get("read") if receipt.recipe_text else None
    if not isinstance(read, dict) or len(read) != 1:
        return "", []
    ((name, options),) = read.items()
    paths = options.get("paths", []) if isinstance(options, dict) else options
    return str(name), [str(path) for path in (paths if isinstance(paths, list) else [paths])]


def _public(receipt: Any) -> str:
    hub = [path for path in _reader(receipt)[1] if path.startswith("hf://datasets/")]
    return "; ".join(hub) if hub else NOT_KNOWN


def _crawled(receipt: Any) -> dict[str, str]:
    reader, paths = _reader(receipt)
    asked = ("Crawlers, and their operators", "Purposes", "Behavior of the crawlers", "Period of collection")
    content = f"pages of web archives: {'; '.join(paths)}" if reader == "warc" else NOT_KNOWN
    return {**dict.fromkeys(asked, NOT_KNOWN), "Content": content}


def _domains(domains: pd.DataFrame) -> str:
    if not {"domain", "rows"} <= set(domains.columns):
        several = [name for name in domains.columns if str(name).startswith("rows_")]
        found = f"it counts several tables ({listed(several)})" if several else f"it has {listed(domains.columns)}"
        raise ParameterError(
            f"save: domains= must be a table with the columns 'domain' and 'rows', but {found}. Pass "
            "describe_domains(output), where output is the table that was written"
        )
    total = domains.attrs.get("totals", {}).get("rows") or domains["rows"].sum()
    named = domains.dropna(subset="domain")
    lines = ["| domain | documents | share |", "|---|---|---|"]
    lines += [
        f"| {name} | {rows:,} | {100 * rows / max(total, 1):.2f}% |"
        for name, rows in zip(named["domain"], named["rows"], strict=True)
    ]
    return "\n".join(lines)


def _named(receipt: Any, steps: Sequence[str]) -> str:
    """Return those of some steps that ran, with the rows that they dropped; what they counted if they drop none."""
    said = []
    for step in receipt.steps:
        if step.name in steps:
            drops = step.rows_dropped or step.name.startswith("keep_")
            what = f"dropped {show_count(step.rows_dropped, 'document')}" if drops else step.counted()
            said.append(step.name + (f" ({what})" if what else ""))
    return "; ".join(said)


def _removal(receipt: Any) -> dict[str, str]:
    return {
        "Measures against illegal content": NOT_KNOWN,
        "Filters that may serve them": _named(receipt, HARMFUL) or "not in this run",
        "Personal data": _named(receipt, PERSONAL) or "not redacted by this run",
    }


def _processing(receipt: Any) -> dict[str, str]:
    reasons = ", ".join(f"{row.reason} {row.rows:,}" for row in receipt.reasons().head(20).itertuples())
    return {
        "Steps": _steps(receipt),
        "Documents": f"{receipt.rows_read:,} read, {receipt.rows_written:,} written",
        "Dropped by reason": reasons or "none",
        "Made with": f"curator_df {receipt.version or NOT_KNOWN}",
    }


def _steps(receipt: Any) -> str:
    return ", ".join(dict.fromkeys(step.name for step in receipt.steps))
