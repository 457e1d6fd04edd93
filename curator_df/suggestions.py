# SPDX-License-Identifier: Apache-2.0
"""Suggestions for misspelled names: one rule for modules, attributes, parameters, choices, columns and commands.

See also `core.calls` for parameters of functions, and `core.columns` for columns and closed choices.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

SURE = 0.8
"""Similarity of two names from which on the most similar one alone is suggested."""
SIMILAR = 0.65
"""Least similarity of a suggested name."""
MOST_SUGGESTED = 3
"""Names that are suggested at most, where several are equally similar."""
OTHERS = {
    "add_id": ("add_ids",),
    "batch_size": ("model_inference_batch_size",),
    "by": ("importance", "partition_on"),
    "client": ("connect", "start_cluster"),
    "column": ("text", "subset", "partition_on", "source_column"),
    "concatenate_datasets": ("concat",),
    "content_field": ("text", "subset"),
    "dedup": ("drop_exact_duplicates", "drop_near_duplicates"),
    "deduplicate": ("drop_exact_duplicates", "drop_near_duplicates"),
    "documentdataset": ("read_jsonl", "read_parquet"),
    "drop_duplicates": ("drop_exact_duplicates", "drop_near_duplicates"),
    "entities": ("kinds", "presidio"),
    "exactdedup": ("drop_exact_duplicates",),
    "exactduplicates": ("drop_exact_duplicates", "find_exact_duplicates"),
    "filter": ("keep_where", "keep_profile"),
    "fuzzy_deduplicate": ("drop_near_duplicates",),
    "fuzzyduplicates": ("drop_near_duplicates", "find_near_duplicates"),
    "get_client": ("start_cluster", "connect"),
    "gopherqualityfilter": ("keep_profile",),
    "gopherrepetitionfilter": ("keep_profile",),
    "header": ("names",),
    "id_column": ("id", "into"),
    "id_field": ("id", "into"),
    "interleave_datasets": ("blend",),
    "join": ("how",),
    "jsonlreader": ("read_jsonl",),
    "jsonlwriter": ("write_jsonl",),
    "languagefilter": ("keep_language",),
    "left_on": ("on",),
    "load_dataset": ("read_parquet", "read_jsonl"),
    "local_directory": ("spill_directory",),
    "localcluster": ("start_cluster",),
    "localpipelineexecutor": ("start_cluster",),
    "merge": ("join",),
    "minhash_dedup": ("drop_near_duplicates",),
    "minhashdedupsignature": ("add_minhash",),
    "mode": ("on_existing",),
    "n": ("fraction", "rows"),
    "n_workers": ("cpus", "jobs"),
    "nprocs": ("cpus", "jobs"),
    "npartitions": ("blocksize",),
    "num_perm": ("scheme",),
    "num_proc": ("cpus",),
    "num_workers": ("cpus", "jobs"),
    "output_dir": ("path",),
    "output_path": ("path",),
    "parquetreader": ("read_parquet",),
    "parquetwriter": ("write_parquet",),
    "piiformatter": ("redact_pii",),
    "probabilities": ("weights",),
    "random_state": ("seed",),
    "read_json": ("read_jsonl",),
    "right_on": ("on",),
    "sample": ("sample_rows",),
    "scorefilter": ("keep_where", "keep_profile"),
    "semdedup": ("drop_semantic_duplicates",),
    "semanticdedup": ("drop_semantic_duplicates",),
    "sep": ("delimiter", "separator"),
    "seq_length": ("pack",),
    "shuffle": ("shuffle_rows",),
    "slurmpipelineexecutor": ("slurm_cluster",),
    "shutdown": ("close",),
    "supported_entities": ("kinds", "presidio"),
    "text": ("subset",),
    "text_column": ("text", "subset"),
    "text_field": ("text", "subset"),
    "text_key": ("text", "subset"),
    "threshold": ("min_score", "jaccard_threshold"),
    "threads_per_worker": ("cpus",),
    "to_csv": ("write_jsonl", "write_parquet"),
    "to_json": ("write_jsonl",),
    "tokenizer_name_or_path": ("tokenizer",),
    "trafilatura": ("remove_html",),
    "train_test_split": ("split_rows",),
    "urlfilter": ("keep_urls",),
    "usecols": ("columns",),
}
"""Names of ours for what pandas, Dask, datasets of Hugging Face, datatrove and NeMo Curator call otherwise, in lower case."""
ADVICE = {
    "dataframe": "Tables are Dask DataFrames, which readers such as read_parquet() return",
    "dataset": "Tables are Dask DataFrames, which readers such as read_parquet() return",
    "from_dask": "Tables of Dask need no conversion. Pass the table to a function, such as write_parquet(df, 'out/')",
    "from_pandas": "Convert a table of pandas with dask.dataframe.from_pandas(df, npartitions=1)",
    "pipeline": "Apply functions to a table, as in read_parquet('in/').pipe(keep_language, 'en'), and write the result with "
    "write_parquet(df, 'out/')",
    "processingstage": "Any function of a table of pandas is a step: use df.map_partitions(function)",
    "to_parquet": "Write a table with write_parquet(df, 'out/')",
    "to_pandas": "Compute a table with df.compute()",
}
"""Advice for names of other tools for which there is not one function."""
MADE_BY = {
    "Cluster": "start_cluster()",
    "Connection": "connect()",
    "DuplicateAudit": "audit_duplicates()",
    "DuplicateReport": "describe_exact_duplicates() or describe_semantic_duplicates()",
    "Index": "open_index()",
    "JobCluster": "slurm_cluster() or job_cluster()",
    "MemoryMonitor": "monitor_memory()",
    "MemoryProfile": "profile_memory()",
    "MetricsServer": "serve_metrics()",
    "NearDuplicateReport": "describe_near_duplicates()",
    "Plan": "explain()",
    "Presidio": "presidio()",
    "Preview": "preview()",
    "Receipt": "read_receipt()",
    "Recipe": "load_recipe()",
    "Recommendation": "recommend()",
    "TablesByValue": "write_by()",
    "ThresholdExplorer": "explore_thresholds()",
}
"""Functions that return objects of classes which users do not create themselves."""
_WORD = re.compile("[a-z0-9]+")
_COLLECTED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Kind = TypeVar("Kind", bound=type)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a sentence, after a space, that suggests the most similar of some names; empty if none is similar.

    Words of a name, between underscores, are compared too.

    Examples
    --------
    >>> did_you_mean("FineWeb", ["nemo", "fineweb"])
    " Did you mean 'fineweb'?"
    >>> did_you_mean("gofer", ["c4", "dolma_gopher_v1", "dolma_gopher_v2"])
    " Did you mean 'dolma_gopher_v1' or 'dolma_gopher_v2'?"
    >>> did_you_mean("x", ["nemo"])
    ''
    """
    by_lower_case = {one.lower(): one for one in names}
    letters = sorted(name.lower())
    close = [one for one in by_lower_case if sorted(one) == letters][:1]  # two letters are swapped
    close = close or difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=SURE)
    if not close:
        scores = {one: _likeness(name.lower(), one) for one in by_lower_case}
        best = max(scores.values(), default=0.0)
        close = [one for one, score in scores.items() if score == best >= SIMILAR][:MOST_SUGGESTED]
    close = close or [one for one in by_lower_case if len(name) > 2 and name.lower() in one][:1]
    return _question([by_lower_case[one] for one in close])


def name_of_ours(name: str, names: Iterable[str]) -> str:
    """Return what `did_you_mean` does for names of functions or of parameters, which other tools may call otherwise.

    Examples
    --------
    >>> name_of_ours("merge", ["join", "concat"]), name_of_ours("concta", ["join", "concat"])
    (" Did you mean 'join'?", " Did you mean 'concat'?")
    """
    names = list(names)
    in_other_case = name.lower() in {one.lower() for one in names}
    known = [] if in_other_case else [one for one in OTHERS.get(name.lower(), ()) if one in names]
    return _question(known[:MOST_SUGGESTED]) or did_you_mean(name, names)


def _question(names: list[str]) -> str:
    quoted = list(map(repr, names))
    shown = ", ".join(quoted[:-1]) + (" or " if len(quoted) > 1 else "") + "".join(quoted[-1:])
    return f" Did you mean {shown}?" if names else ""


def no_such_name(module: str, names: list[str]) -> Callable[[str], Any]:
    """Return a function ``__getattr__`` for a module, which suggests the most similar public name."""

    def refuse(name: str) -> Any:
        hint = ""
        if not name.startswith("_"):  # what programs ask every object for
            hint = f" {ADVICE[name.lower()]}" if name.lower() in ADVICE else name_of_ours(name, names)
        raise AttributeError(f"module {module!r} has no attribute {name!r}.{hint}", name=name)

    return refuse


def suggests_names(kind: Kind) -> Kind:
    """Decorate a class so that a misspelled attribute, or argument of its constructor, is an error that suggests the right name.

    Examples
    --------
    >>> @suggests_names
    ... class Counts:
    ...     rows_read = 3
    >>> Counts().row_read
    Traceback (most recent call last):
    ...
    AttributeError: 'Counts' object has no attribute 'row_read'. Did you mean 'rows_read'?
    """
    make: Callable[..., None] = kind.__init__  # type: ignore[misc]
    parameters = list(inspect.signature(make).parameters.values())[1:]
    names = [each.name for each in parameters]
    required = {each.name for each in parameters if each.default is each.empty and each.kind not in _COLLECTED}
    made_by = f" Call {MADE_BY[kind.__name__]}, which returns one" if kind.__name__ in MADE_BY else ""
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)

    @functools.wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if not takes_any and (unknown := [name for name in kwargs if name not in names]):
            hint = name_of_ours(unknown[0], names) or made_by or f" Its parameters are: {', '.join(names)}"
            raise TypeError(f"{kind.__name__} has no parameter {unknown[0]!r}.{hint}")
        if made_by and not args and not required <= kwargs.keys():
            raise TypeError(f"{kind.__name__} objects are not created directly.{made_by}")
        make(self, *args, **kwargs)

    kind.__init__ = init  # type: ignore[misc]
    kind.__getattr__ = _refuse_attribute  # type: ignore[attr-defined]
    return kind


def _refuse_attribute(self: Any, name: str) -> Any:
    """Raise the error of a missing attribute with the most similar public one; called only where there is none."""
    try:
        return object.__getattribute__(self, name)  # raises again, with the reason where a property failed
    except AttributeError as exc:
        if name.startswith("_") or exc.name != name or exc.obj is not self or hasattr(type(self), name):
            raise
        names = {*dir(type(self)), *vars(self), *getattr(type(self), "__dataclass_fields__", ())}
        hint = name_of_ours(name, sorted(one for one in names if not one.startswith("_")))
        raise AttributeError(f"{str(exc).rstrip('.')}.{hint}", name=name) from None


def _likeness(name: str, other: str) -> float:
    """Return how similar two names are, from 0 to 1: as a whole, or each word of the first to one of the second."""
    whole = difflib.SequenceMatcher(None, name, other).ratio()
    words, others = _WORD.findall(name), _WORD.findall(other)
    best = [max((difflib.SequenceMatcher(None, word, each).ratio() for each in others), default=0.0) for word in words]
    return max(whole, sum(best) / len(best) if best else 0.0)
