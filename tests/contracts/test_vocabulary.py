# SPDX-License-Identifier: Apache-2.0
"""The parameters of public functions, methods and constructors: a name has one meaning, one unit and one type, and a meaning
has one name.

Values that a function returns, such as receipts, are made by it: their constructors are not for users.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from typing import Any, NamedTuple, get_type_hints

import curator_df as cdf


class Word(NamedTuple):
    """What a name of a parameter stands for, in every function."""

    meaning: str
    unit: str
    """Unit of a number, "" for what is none."""
    types: str
    """Members of its annotation, separated by "|"; None is always allowed."""


PATH = "str | os.PathLike[str]"
PATHS_BY_VALUE = f"Mapping[str, {PATH}]"
TABLE = "dd.DataFrame"
VOCABULARY = {
    "account": Word("account that a batch system charges", "", "str"),
    "adapter": Word("repository of layers on a language model", "", "str"),
    "adapter_revision": Word("state of the repository of an adapter", "", "str"),
    "add_eos": Word("whether the end of a document is a token", "", "bool"),
    "add_metrics": Word("whether a column is added for each metric", "", "bool"),
    "add_source": Word("whether the file is added as a column", "", "bool"),
    "address": Word("network address to listen on", "", "str"),
    "against": Word("table of other rows to compare with", "", TABLE),
    "alert_rules": Word("when to alert", "", "Sequence[AlertRule]"),
    "allow_lists": Word("lists of URLs to keep", "", "Paths"),
    "alt_texts": Word("whether descriptions of images are kept", "", "bool"),
    "answer_into": Word("new column of a classifier's raw answers", "", "str"),
    "answers": Word("function that reads the answers of a generative classifier", "", "Callable[[], Answers]"),
    "api_key_env": Word("environment variable of a server's key", "", "str"),
    "backend": Word("library of the blocks", "", "Backend"),
    "bands_per_iteration": Word("bands processed in one pass", "bands", "int"),
    "base_revision": Word("state of the repository of a language model", "", "str"),
    "base_url": Word("URL of a server", "", "str"),
    "benchmark_columns": Word("columns of benchmarks", "", "Sequence[str]"),
    "benchmarks": Word("files of benchmarks", "", "Paths"),
    "block_lists": Word("lists of URLs to drop", "", "Paths"),
    "blocksize": Word("size of a block", "bytes", "int | str"),
    "buckets": Word("bounds between buckets of a score", "", "Sequence[float] | Mapping[str, Sequence[float]]"),
    "by": Word("property of a row that decides how it is treated", "", "IdentityKind | str"),
    "cache": Word("folder of earlier answers", "", PATH),
    "card": Word("whether a dataset card is written", "", "bool"),
    "cdc": Word("whether pages of Parquet end by their content", "", "bool"),
    "center_chars": Word("characters around the center of a text that are read", "characters", "int"),
    "changes": Word("fields of a value that are replaced", "", "Any"),
    "classes": Word("classes to keep", "", "str | Sequence[str]"),
    "classifier": Word("model that gives a text a class", "", "Classifies"),
    "client_or_address": Word("running cluster of Dask", "", f"Client | {PATH}"),
    "clip": Word("bounds to which a score is clipped", "", "tuple[float, float]"),
    "cluster": Word("running cluster to observe", "", "Any"),
    "column": Word("column of numbers whose best value is kept", "", "str"),
    "columns": Word("columns to take", "", "Sequence[str] | str"),
    "combine": Word("way in which several scores become one", "", "Combine"),
    "comparison": Word("comparison that is true for a kept row", "", "Comparison"),
    "compression": Word(
        "codec of files", "", "ParquetCompression | JsonlCompression | Compression | Mapping[Path, Compression]"
    ),
    "compute_dtype": Word("number format in which a model computes", "", "Dtype"),
    "content_types": Word("media types of pages", "", "Sequence[str] | str"),
    "count_into": Word("new column of the rows that a kept row stands for", "", "str"),
    "cpus": Word("threads at most", "threads", "int"),
    "create": Word("whether a missing dataset is created", "", "bool"),
    "dashboard_port": Word("port of Dask's dashboard", "", "int"),
    "delimiter": Word("character between two fields", "", "str"),
    "dense": Word("whether rows are numbered consecutively", "", "bool"),
    "device_memory": Word("memory budget of a GPU", "bytes", "str | int"),
    "df": Word(
        "table to process",
        "",
        f"{TABLE} | pd.DataFrame | Mapping[str, {TABLE}] | Mapping[str, {TABLE} | pd.DataFrame] | {PATH}",
    ),
    "dimensions": Word("length of a vector", "numbers", "int"),
    "directives": Word("further lines of a job script's head", "", "Sequence[str]"),
    "directory": Word("folder of metrics", "", PATH),
    "docs": Word("table in which groups were found", "", TABLE),
    "document": Word("one text", "", "str"),
    "domains": Word("result of `describe_domains`", "", "pd.DataFrame"),
    "dtype": Word("types of columns that are read", "", "Dtypes"),
    "duplicates": Word("what a repeated key of another table does", "", "Duplicates"),
    "embedding": Word("column of vectors", "", "str"),
    "encoding": Word("character encoding of files", "", "str"),
    "entities": Word("kinds of named entities", "", "str | Collection[str]"),
    "eos_token": Word("token at the end of a document", "", "str | int"),
    "epochs": Word("how often each table is repeated", "", "Mapping[Any, float]"),
    "eps": Word("1 minus the least cosine similarity of a match", "0 to 2", "float | Sequence[float]"),
    "examples": Word("rows shown of each group", "rows", "int"),
    "extractor": Word("library that extracts the text of a page", "", "Extractor | Sequence[Extractor]"),
    "extractor_into": Word("new column of the extractor whose text is kept", "", "str"),
    "favor": Word("amount of text that an extractor prefers", "", "Favor"),
    "file": Word("file of a model in its repository", "", "str"),
    "files_per_partition": Word("files of a partition", "files", "int"),
    "first": Word("receipt to compare", "", "Receipt"),
    "fix_encoding": Word("whether mojibake is repaired", "", "bool"),
    "fix_line_breaks": Word("whether line breaks become line feeds", "", "bool"),
    "folder": Word("output of a run", "", f"{PATH} | {TABLE} | Mapping[str, Path]"),
    "form": Word("Unicode normalization form", "", "Form"),
    "format": Word("format of files", "", "Format | TokenFormat | Mapping[Path, Format]"),
    "fraction": Word("share of rows", "0 to 1", "float"),
    "from_metrics": Word("whether metrics are read from columns", "", "bool"),
    "function": Word("function that computes a metric", "", "Callable[[Any], Any]"),
    "gpu_memory": Word("memory that one call takes of a GPU", "bytes", "str | int"),
    "gpus": Word("number of GPUs", "GPUs", "int | float | Literal['auto']"),
    "group_column": Word("column whose equal values stay together", "", "str"),
    "groups": Word("table of groups that a find_ operator returned", "", f"{TABLE} | {PATH}"),
    "hard_words": Word("words of which one drops a row", "", "WordList"),
    "how": Word("way in which tables are put together", "", "How | Alignment"),
    "id": Word("column that identifies a document", "", "str"),
    "identity": Word("what identifies a row", "", "IdentityKind"),
    "ignore_common": Word("share of documents above which a shingle is ignored", "0 to 1", "float"),
    "importance": Word("column of weights of `add_importance`", "", "str"),
    "include_left": Word("whether the left bound is kept", "", "bool"),
    "include_right": Word("whether the right bound is kept", "", "bool"),
    "index": Word("index of a corpus that grows", "", "Index"),
    "inside_words": Word("whether markup inside words is removed", "", "bool"),
    "interface": Word("network interface", "", "str"),
    "interval_seconds": Word("time between two samples", "seconds", "float"),
    "into": Word("name of the new column", "", "str"),
    "jaccard": Word("Jaccard similarity of two documents", "0 to 1", "Any"),
    "jaccard_threshold": Word("least Jaccard similarity of a match", "0 to 1", "float"),
    "job_directory": Word("folder of job scripts and logs", "", PATH),
    "jobs": Word("number of jobs", "jobs", "int | tuple[int, int]"),
    "k_means": Word("library that clusters vectors", "", "KMeansBy"),
    "keep": Word(
        "which of several alike is kept",
        "",
        "Survivor | SemanticKeep | Best | Literal['first', 'last', 'none'] | Literal['first', 'none']",
    ),
    "keep_keys": Word("folder for the keys of kept rows", "", PATH),
    "keep_segment_id": Word("whether the segment number stays", "", "bool"),
    "key": Word("secret of hashes", "", "str | bytes"),
    "kind": Word("kind of document about a run", "", "SaveKind"),
    "kinds": Word("kinds of personal data", "", "Collection[Kind]"),
    "labels": Word("names of a model's classes", "", "Sequence[str] | tuple[str, ...]"),
    "language": Word("programming language of the texts", "", "Language | str"),
    "languages": Word("natural languages to keep", "", "str | Sequence[str] | Mapping[str, float]"),
    "largest": Word("number of groups listed", "groups", "int"),
    "left": Word("left bound of what is kept of a text", "", "int | str"),
    "license": Word("license of what is published", "", "str"),
    "lines": Word("lines to remove", "", "Collection[str]"),
    "linkage": Word("way in which similar pairs decide which rows go", "", "Linkage"),
    "links": Word("part of a link that is kept", "", "LinkPart"),
    "main_content": Word("whether navigation is left out", "", "bool"),
    "margin": Word("characters removed around a match", "characters", "int"),
    "matching": Word("way in which URLs are compared", "", "Matching"),
    "max_batch_tokens": Word("tokens of a batch at most", "tokens", "int"),
    "max_chars": Word("characters of a text at most", "characters", "int"),
    "max_concurrent": Word("concurrent requests at most", "requests", "int"),
    "max_document_size": Word("size of a joined document at most", "bytes", "int | str"),
    "max_documents": Word("documents in which a part of a text may occur", "rows", "int"),
    "max_file_size": Word("size of a source file at most", "bytes", "int | str"),
    "max_page_size": Word("size of an HTML page at most", "bytes", "int | str"),
    "max_retries": Word("repetitions of a request at most", "requests", "int"),
    "max_tokens": Word("tokens of a text at most", "tokens", "int"),
    "measure": Word(
        "function that measures what a rule is about",
        "",
        "Callable[[Sequence[Mapping[str, Any]]], Mapping[str, float]]",
    ),
    "memory": Word("memory budget", "bytes", "str | int"),
    "merge": Word("whether all parts are also written as one", "", "bool"),
    "message": Word("message of an alert", "", "str"),
    "metric": Word("metric of a text", "", "str | UserMetric"),
    "metrics": Word("metrics of a text", "", "Profile | Sequence[str | UserMetric] | Sequence[str]"),
    "min_bytes": Word("size of a repeated substring at least", "bytes", "int | str"),
    "min_chars": Word("characters of a text at least", "characters", "int"),
    "min_ngram_size": Word("words of a short benchmark text at least", "words", "int"),
    "min_piece_chars": Word("characters of a remaining piece at least", "characters", "int"),
    "min_score": Word("least score of a model's answer", "0 to 1", "float"),
    "min_soft_words": Word("least number of words that drop a row together", "words", "int"),
    "minhashes_per_band": Word("hashes of a band", "hashes", "int"),
    "missing": Word("whether rows without a URL are kept", "", "Missing"),
    "model": Word(
        "model that is run",
        "",
        f"{PATH} | {PATHS_BY_VALUE} | Callable[[Sequence[str]], Any] | Classifier | Model | Any",
    ),
    "model_inference_batch_size": Word("documents of a batch at most", "documents", "BatchRows"),
    "name": Word("name under which a thing is shown", "", "str"),
    "names": Word("names of the fields of files", "", "Sequence[str]"),
    "ngram_size": Word("length of an n-gram in its parts", "parts", "int"),
    "ngram_weights": Word("weights of n-grams of `describe_importance`", "", f"pd.DataFrame | {PATH}"),
    "ngrams": Word("parts of an n-gram", "", "Ngrams"),
    "noise": Word("whether random numbers are added to weights", "", "bool"),
    "normalization": Word("how a text is normalized before a model reads it", "", "Normalization"),
    "normalize": Word("how texts are made alike before they are compared", "", "Normalize"),
    "normalize_vectors": Word("whether vectors are scaled to length 1", "", "bool"),
    "num_bands": Word("number of bands of a signature", "bands", "int"),
    "num_buckets": Word("number of buckets of n-grams", "buckets", "int"),
    "num_clusters": Word("number of clusters of vectors", "clusters", "int"),
    "of": Word("argument of the function of a metric", "", "Of"),
    "on": Word("key columns of two tables", "", "str | Sequence[str] | Mapping[str, str]"),
    "on_alert": Word("function called with an alert", "", "Callable[[Alert], object]"),
    "on_bad_rows": Word("what an unreadable row does", "", "OnBadRows"),
    "on_error": Word("what an exception of a user's function does", "", "OnError"),
    "on_existing": Word("what files in the output folder do", "", "OnExisting"),
    "on_oom": Word("what running out of memory does", "", "OnOom"),
    "operator": Word("operator to measure", "", "Callable[[Any], Any]"),
    "options": Word("further options by name", "", "Mapping[str, Any] | Any"),
    "other": Word("table to join with", "", f"{TABLE} | pd.DataFrame"),
    "output": Word("markup of the text that a page becomes", "", "TextOutput"),
    "pack": Word("length of sequences", "tokens", "int"),
    "pad_id": Word("token that fills a sequence", "", "int"),
    "pairs": Word("number of deletions to look at", "pairs", "int"),
    "partition": Word("partition of Slurm", "", "str"),
    "partition_on": Word("columns whose values become folders", "", "str | list[str] | Mapping[Path, str | list[str]]"),
    "parts": Word("names and shares of random parts", "", "Mapping[str, float]"),
    "path": Word("place to write to", "", PATH),
    "paths": Word("files to read", "", "Paths"),
    "per_token": Word("unit counted per token", "", "PerToken"),
    "pooling": Word("how vectors of tokens become one", "", "Pooling"),
    "port": Word("port of a metrics server", "", "int"),
    "precision": Word("number format in which vectors are stored", "", "Precision"),
    "predicate": Word("condition of a kept row", "", "Callable[[Any], Any] | str"),
    "prefix": Word("beginning of the names of new columns", "", "str"),
    "presidio": Word("finder of named entities", "", "EntityFinder"),
    "private": Word("whether a new dataset is private", "", "bool"),
    "private_suffixes": Word("whether private suffixes count as public suffixes", "", "bool"),
    "processes": Word("whether workers may be processes", "", "bool"),
    "profile": Word("rules that a text must pass", "", "Profile | ProfileName | Mapping[Any, Profile | ProfileName]"),
    "prologue": Word("shell commands before a job's worker", "", "Sequence[str]"),
    "prompt": Word("template of a request", "", "str"),
    "protocol": Word("protocol between workers", "", "Literal['tcp', 'ucx']"),
    "provenance": Word("whether the row that tokens come from is written", "", "bool"),
    "python": Word("Python interpreter of jobs", "", "str"),
    "queue": Word("queue of a batch system", "", "str"),
    "queue_timeout_seconds": Word("time to wait for a job", "seconds", "float"),
    "quote": Word("quotation mark around fields", "", "str"),
    "reason": Word("reason under which rows are dropped", "", "str"),
    "recipe": Word("recipe to load", "", PATH),
    "recycle_after": Word("growth after which a worker is restarted", "bytes", "str | int"),
    "rejects": Word(
        "folder of dropped rows",
        "",
        f"{PATH} | bool | Mapping[Path, Path] | Mapping[Any, Any]",
    ),
    "replacement": Word("what stands for personal data", "", "Replacement"),
    "repo": Word("name of a dataset on the hub", "", "str"),
    "require_punctuation": Word("whether lines without punctuation are removed", "", "bool"),
    "resources": Word("what a model's call takes of a worker", "", "Resources"),
    "reuse": Word("whether first steps run once for several passes", "", "Reuse"),
    "revision": Word("state of a repository on the hub", "", "str"),
    "right": Word("right bound of what is kept of a text", "", "int | str"),
    "row_bytes": Word("size of the longest row", "bytes", "int"),
    "rows": Word("rows to take", "rows", "int"),
    "rule": Word("name of the rule that raised an alert", "", "str"),
    "rules": Word("rules of a profile", "", "tuple[Rule, ...]"),
    "run": Word("function whose call is planned", "", "Callable[..., Any]"),
    "sample": Word("table to measure on", "", f"{TABLE} | pd.DataFrame"),
    "sample_size": Word("amount of text to measure on", "bytes", "str | int"),
    "scale": Word("how columns map to 0 to 1", "", "Mapping[str, Sequence[float]]"),
    "scheme": Word("MinHash scheme", "", "Scheme | SchemeName"),
    "score_of": Word("class whose score is given", "", "str"),
    "scores": Word("columns of scores", "", "Sequence[str] | Mapping[str, float]"),
    "second": Word("receipt to compare with", "", "Receipt"),
    "seconds": Word("time since the monitor started", "seconds", "float"),
    "security": Word("TLS of a cluster", "", "bool | Security"),
    "seed": Word("seed of random choices", "", "int"),
    "segment_id": Word("column of a segment's number", "", "str"),
    "separator": Word("text between segments", "", "str"),
    "settings": Word("values that replace those of a recipe", "", "Any"),
    "signatures": Word("column of MinHash signatures", "", "str"),
    "snapshot": Word("snapshot of an Iceberg table", "", "int"),
    "soft_words": Word("words of which several drop a row", "", "WordList"),
    "source": Word("publication from which numbers come", "", "str"),
    "source_column": Word("column that names the source of a row", "", "str"),
    "special_tokens": Word("whether a tokenizer's own tokens are included", "", "bool"),
    "spill_directory": Word("folder of what workers spill", "", PATH),
    "spill_limit": Word("size of what workers may spill", "bytes", "str | int"),
    "split_documents": Word("whether a document may be in several sequences", "", "bool"),
    "start": Word("number of the first row", "", "int"),
    "stop_words": Word("frequent words of a language", "", "str | Sequence[str] | tuple[str, ...]"),
    "storage_options": Word("options of fsspec", "", "dict[str, Any] | Mapping[str, Any]"),
    "stored": Word("what `to_json` returned", "", "dict[str, Any]"),
    "strip": Word("whether white space at the ends is removed", "", "bool"),
    "subject": Word("process that an alert is about", "", "str"),
    "subset": Word("columns that are looked at", "", "str | Sequence[str]"),
    "substrings": Word("texts of which one drops a row anywhere in a URL", "", "WordList"),
    "suffix": Word("end of the names of columns of another table", "", "str"),
    "suffixes": Word("endings of the names of files", "", "Sequence[str]"),
    "system": Word("batch system", "", "BatchSystem"),
    "system_prompt": Word("instruction before a request", "", "str"),
    "table": Word("table of a table format", "", f"{PATH} | Any"),
    "table_options": Word("options of the package that reads the metadata of a table", "", "Mapping[str, str]"),
    "tables": Word(
        "tables that are processed together",
        "",
        f"{TABLE} | Sequence[{TABLE}] | Mapping[str, {TABLE}] | Mapping[Path, {TABLE}]",
    ),
    "target": Word("texts that the selected rows are to resemble", "", f"{TABLE} | pd.DataFrame"),
    "target_file_size": Word("size at which a file is closed", "bytes", "str | int"),
    "task_bytes": Word("memory of a task", "bytes", "int"),
    "text": Word("the text column", "", "str"),
    "threshold": Word("value at which a rule decides", "", "float"),
    "thresholds": Word("bounds by name", "", "Mapping[str, float] | float"),
    "timeout_seconds": Word("time after which a call is given up", "seconds", "float"),
    "times": Word("how often the rows of each class are written", "", "Mapping[str | None, float]"),
    "token_column": Word("column of numbers of tokens", "", "str"),
    "tokenizer": Word("tokenizer of texts", "", f"{PATH} | {PATHS_BY_VALUE}"),
    "tokens": Word("tokens to take", "tokens", "int"),
    "top": Word("number of the best entries that are listed", "entries", "int"),
    "trust_remote_code": Word("whether a model's own code may run", "", "bool"),
    "unescape_html": Word("whether HTML entities are decoded", "", "Literal['auto'] | bool"),
    "unit": Word("size of the pieces in which the work is done", "", "Unit | PartKind | BlendUnit"),
    "url": Word("column of URLs", "", "str"),
    "use_64_bit_hash": Word("whether hashes have 64 bits", "", "bool"),
    "value": Word("value that was measured", "", "float"),
    "values": Word("values of a metric", "", "npt.NDArray[np.generic]"),
    "verdicts": Word("verdicts of a reader", "", "Mapping[int, bool]"),
    "version": Word("version that is meant", "", "int | str"),
    "walltime": Word("time limit of a job", "hours:minutes:seconds", "str"),
    "weights": Word("shares of tables in a blend", "", "Mapping[Any, float]"),
    "where": Word("condition of a removed document", "", "str"),
    "which": Word("end of the values that wins", "", "Literal['max', 'min']"),
    "words": Word("how texts are split into words", "", "Words"),
    "workdir": Word("folder of temporary files", "", f"{PATH} | Path"),
}
"""Every parameter of every public function, method, and class that users make."""

PUBLIC = {name: getattr(cdf, name) for name in cdf.__all__}
FUNCTIONS = {name: inspect.unwrap(value) for name, value in PUBLIC.items() if inspect.isfunction(value)}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
RETURNED = set(re.findall(r"\w+", " ".join(str(get_type_hints(each)["return"]) for each in FUNCTIONS.values())))


def parameters_of(called: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function, method or constructor, with annotations as the source has them."""
    plain = inspect.unwrap(getattr(called, "__func__", called))
    written = inspect.get_annotations(plain)
    return [
        each.replace(annotation=written[each.name])
        for each in inspect.signature(plain).parameters.values()
        if each.name in written
    ]


def methods_of(kind: type) -> dict[str, Any]:
    """Return the public methods of a class, and its constructor if users make it."""
    found = {name: getattr(each, "__func__", each) for name, each in vars(kind).items() if not name.startswith("_")}
    methods = {name: each for name, each in found.items() if inspect.isfunction(each)}
    return methods if kind.__name__ in RETURNED else {**methods, "__init__": vars(kind)["__init__"]}


OPTIONS = [(name, each) for name, function in FUNCTIONS.items() for each in parameters_of(function)]
OF_CLASSES = [
    (f"{kind.__name__}.{name}", each)
    for kind in CLASSES.values()
    for name, method in methods_of(kind).items()
    for each in parameters_of(method)
]
USED = OPTIONS + OF_CLASSES


def members(annotation: str) -> set[str]:
    """Return the members of a union, but for None.

    >>> sorted(members("str | Mapping[Path, str | list[str]] | None"))
    ['Mapping[Path, str | list[str]]', 'str']
    """
    found, depth = [""], 0
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and not depth:
            found.append("")
        else:
            found[-1] += letter
    return {one.strip() for one in found} - {"None"}


def test_the_table_has_exactly_the_parameters_that_there_are() -> None:
    assert set(VOCABULARY) == {each.name for _, each in USED}


def test_a_name_has_one_meaning() -> None:
    """Two meanings that are joined are two."""
    assert [name for name, word in VOCABULARY.items() if re.search(r"\bor\b|;", word.meaning)] == []


def test_a_meaning_has_one_name() -> None:
    counted = Counter(word.meaning for word in VOCABULARY.values())
    assert [meaning for meaning, count in counted.items() if count > 1] == []


def test_a_name_has_one_type() -> None:
    odd = [
        (function, each.name, str(each.annotation))
        for function, each in USED
        if not members(str(each.annotation)) <= members(VOCABULARY[each.name].types)
    ]
    assert odd == []


def test_every_type_in_the_table_is_used() -> None:
    used: dict[str, set[str]] = {}
    for _, each in USED:
        used.setdefault(each.name, set()).update(members(str(each.annotation)))
    unused = {name: members(word.types) - used[name] for name, word in VOCABULARY.items()}
    assert {name: types for name, types in unused.items() if types} == {}


def test_names_say_their_units() -> None:
    endings = {"chars": "characters", "tokens": "tokens", "seconds": "seconds", "bytes": "bytes"}
    for name, word in VOCABULARY.items():
        unit = endings.get(name.rpartition("_")[2])
        assert unit is None or not word.unit or word.unit == unit, name
    limits = {name for name, word in VOCABULARY.items() if word.unit in ("characters", "tokens", "seconds")}
    assert {name for name in limits if name.rpartition("_")[2] not in endings} == {"margin", "pack"}


def test_sizes_may_be_written_with_a_unit() -> None:
    sizes = {name: members(word.types) for name, word in VOCABULARY.items() if word.unit == "bytes"}
    assert {name for name, types in sizes.items() if types != {"str", "int"}} == {"row_bytes", "task_bytes"}


def test_defaults_of_one_name_differ_only_where_it_is_meant() -> None:
    seeds = {function: each.default for function, each in OPTIONS if each.name == "seed"}
    assert len(seeds) > 4
    assert set(seeds.values()) == {0}
    texts = {function: each.default for function, each in OPTIONS if each.name in ("text", "subset")}
    assert set(texts.values()) == {"text"}


def test_old_words_are_gone() -> None:
    gone = re.compile(r"max_length|characters$|^verify$|^tiers$|filter_by|on_text|^threshold$|^groups_of$")
    assert [each.name for _, each in OPTIONS if gone.search(each.name)] == []
