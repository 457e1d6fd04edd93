# SPDX-License-Identifier: Apache-2.0
"""Names of the kernels that each operation calls, and how long each takes to compile.

A name is ``module.function``. Nothing here imports numba: the client of a cluster compiles what the steps of a run name
(`BlockKernel.compiled`) in processes of its own before the run, and workers only load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from curator_df.errors import ParameterError
from curator_df.kernels.metrics import counts
from curator_df.suggestions import did_you_mean

START_SECONDS = 3.0
"""Seconds of CPU until a process that compiles has imported numba and compiled its first lines."""
COMPILE_SECONDS: Mapping[str, float] = {
    "metrics.c4.c4_texts.copy_c4_lines": 3.6,
    "metrics.c4.c4_lines.count_c4_of_span": 3.4,
    "metrics.nemo.character_counts.count_characters_of_span": 2.1,
    "edits.clean_texts.copy_cleaned": 1.0,
    "fasttext.model_tables.index_entries": 0.4,
    "fasttext.rank_labels.rank_labels_of_span": 7.1,
    "metrics.source.comments.count_comments_of_span": 0.9,
    "text.bucket_ngrams.count_ngrams": 0.5,
    "text.bucket_ngrams.sum_ngram_weights": 0.3,
    "text.csv_records.find_records": 0.4,
    "edits.cut_copy.copy_slices": 1.4,
    "edits.cut_copy.copy_without_boilerplate": 0.9,
    "edits.cut_copy.copy_without_lines": 1.5,
    "edits.cut_copy.copy_without_quotation_marks": 0.4,
    "metrics.dclm_counts.count_dclm_of_span": 5.0,
    "metrics.ngrams.gram_counts.count_grams_of_span": 6.5,
    "text.json_texts.take_texts": 1.1,
    "metrics.lines.line_counts.count_lines_of_span": 1.1,
    "metrics.words.listed_words.count_listed_words_of_span": 0.7,
    "edits.cut_texts.copy_without_markdown": 1.6,
    "minhash.signatures.hash_bands_32": 0.1,
    "minhash.signatures.hash_bands_64": 0.1,
    "minhash.sketch.sketch_characters_32": 2.0,
    "minhash.sketch.sketch_characters_64": 0.8,
    "minhash.sketch.sketch_normalized_32": 1.2,
    "minhash.sketch.sketch_normalized_64": 0.5,
    "minhash.sketch.sketch_words_32": 1.5,
    "minhash.sketch.sketch_words_64": 0.9,
    "text.murmur_hash.hash_normalized": 0.6,
    "text.murmur_hash.hash_texts": 0.1,
    "text.murmur_windows.murmur_64": 0.0,
    "edits.ngram_match.count_characters": 0.1,
    "edits.ngram_match.find_regions": 1.3,
    "edits.ngram_match.find_rows": 0.3,
    "edits.ngram_match.keep_pieces": 0.3,
    "edits.ngram_match.put_ngrams": 0.5,
    "edits.text_parts.copy_without_parts": 1.1,
    "edits.text_parts.find_parts": 0.2,
    "pii.scan.next_suspect": 0.8,
    "metrics.ngrams.gram_repeats.count_repeats_of_span": 3.1,
    "rows.keep_rows.copy_rows": 0.0,
    "rows.key_tables.put_keys": 0.2,
    "rows.key_tables.find_earlier": 0.1,
    "rows.segment_copy.begin_pieces": 0.1,
    "rows.segment_copy.copy_pieces": 0.3,
    "rows.segment_copy.find_segments": 0.2,
    "rows.segment_copy.join_rows": 0.4,
    "metrics.lines.sentences.count_sentences_of_span": 0.3,
    "minhash.jaccard.similarities_of_characters": 2.4,
    "minhash.jaccard.similarities_of_normalized": 1.4,
    "minhash.jaccard.similarities_of_words": 1.1,
    "minhash.jaccard.fill_table": 0.1,
    "minhash.frequent_shingles.count_cells_of_characters": 0.7,
    "minhash.frequent_shingles.count_cells_of_normalized": 0.7,
    "minhash.frequent_shingles.count_cells_of_words": 0.6,
    "minhash.frequent_shingles.count_exactly_of_characters": 0.8,
    "minhash.frequent_shingles.count_exactly_of_normalized": 0.9,
    "minhash.frequent_shingles.count_exactly_of_words": 1.0,
    "minhash.frequent_shingles.list_hashes_of_characters": 0.6,
    "minhash.frequent_shingles.list_hashes_of_normalized": 0.7,
    "minhash.frequent_shingles.list_hashes_of_words": 0.6,
    "minhash.residuals.residuals_of_characters": 1.0,
    "minhash.residuals.residuals_of_normalized": 1.1,
    "minhash.residuals.residuals_of_words": 1.0,
    "metrics.source.source_metrics.count_source_of_span": 0.3,
    "english_tokens.spans.split_span": 7.1,
    "metrics.lines.text_sentences.count_sentences_of_lines": 0.3,
    "edits.unicode_repair.next_suspect": 1.1,
    "edits.repeated_spans.find_stretches": 0.6,
    "edits.repeated_spans.hash_spans": 0.1,
    "edits.repeated_spans.hash_windows": 0.2,
    "edits.repeated_spans.mark_spans": 0.1,
    "edits.repeated_spans.next_spans": 0.3,
    "minhash.graphs.join_edges": 0.2,
    "minhash.graphs.name_roots": 0.1,
    "minhash.graphs.drop_neighbors": 0.1,
    "metrics.nemo.web_metrics.count_web_of_span": 1.1,
    "metrics.words.word_counts.count_words_of_span": 1.0,
}
"""Every kernel that Python calls, and the seconds of CPU that it took to compile after others of the same process (measured by
``benchmarks/first_minutes.py``)."""

EVERY_RUN = ("rows.keep_rows.copy_rows",)
"""Any step may leave out rows."""
BUCKETS = ("text.bucket_ngrams.count_ngrams", "text.bucket_ngrams.sum_ngram_weights")
CSV_RECORDS = ("text.csv_records.find_records",)
JSON_LINES = ("text.json_texts.take_texts",)
UNICODE = ("edits.unicode_repair.next_suspect",)
CONTENT = ("text.murmur_hash.hash_texts",)
NORMALIZED_CONTENT = ("text.murmur_hash.hash_normalized",)
PARTS = ("edits.text_parts.find_parts", "edits.text_parts.copy_without_parts")
REPEATED_SUBSTRINGS = tuple(
    f"edits.repeated_spans.{name}"
    for name in ("find_stretches", "hash_spans", "hash_windows", "mark_spans", "next_spans")
)
CLEANING = ("edits.clean_texts.copy_cleaned",)
COMMENTS = ("metrics.source.comments.count_comments_of_span",)
CONTAMINATION = tuple(
    f"edits.ngram_match.{name}"
    for name in ("put_ngrams", "find_rows", "find_regions", "keep_pieces", "count_characters")
)
QUOTATION_MARKS = ("edits.cut_copy.copy_without_quotation_marks",)
BOILERPLATE = ("edits.cut_copy.copy_without_boilerplate",)
LISTED_LINES = ("text.murmur_windows.murmur_64", "edits.cut_copy.copy_without_lines")
SLICES = ("edits.cut_copy.copy_slices",)
MARKDOWN = ("edits.cut_texts.copy_without_markdown",)
C4_LINES = ("metrics.c4.c4_texts.copy_c4_lines",)
PERSONAL_DATA = ("pii.scan.next_suspect",)
SPLITTING = ("rows.segment_copy.find_segments", "rows.segment_copy.copy_pieces")
JOINING = ("rows.segment_copy.begin_pieces", "rows.segment_copy.join_rows", *CONTENT)
LISTED_WORDS = ("metrics.words.listed_words.count_listed_words_of_span",)
FASTTEXT = ("fasttext.model_tables.index_entries", "fasttext.rank_labels.rank_labels_of_span")
COMPONENTS = ("minhash.graphs.join_edges", "minhash.graphs.name_roots")
COVER = ("minhash.graphs.drop_neighbors",)
FIRST_KEYS = ("rows.key_tables.put_keys",)
REPEATS_OF_ROWS = ("rows.key_tables.find_earlier",)


Unit = Literal["characters", "normalized", "words"]
"""Kind of shingles; see `minhash.scheme.shingle_unit`."""


def signatures(unit: Unit, *, use_64_bit_hash: bool) -> tuple[str, ...]:
    """Return the kernels that compute MinHash signatures of this many bits, and the hashes of their bands."""
    bits = 64 if use_64_bit_hash else 32
    return f"minhash.sketch.sketch_{unit}_{bits}", f"minhash.signatures.hash_bands_{bits}", *CONTENT


def frequent_shingles(unit: Unit) -> tuple[str, ...]:
    """Return the kernels that count the documents with a shingle."""
    counting = tuple(
        f"minhash.frequent_shingles.{name}_of_{unit}" for name in ("count_cells", "count_exactly", "list_hashes")
    )
    return (*counting, "minhash.jaccard.fill_table")


def near_duplicates(unit: Unit, *, use_64_bit_hash: bool, compares_texts: bool) -> tuple[str, ...]:
    """Return the kernels that find near duplicates, and compare texts where that is wanted."""
    compared = (f"minhash.jaccard.similarities_of_{unit}", f"minhash.residuals.residuals_of_{unit}")
    found = signatures(unit, use_64_bit_hash=use_64_bit_hash)
    return (*found, *(compared if compares_texts else ()), *COMPONENTS, *COVER, *REPEATS_OF_ROWS)


METRICS = (
    *dict.fromkeys(kernel for family in counts.FAMILIES for kernel in family.kernels + family.token_kernels),
    *LISTED_WORDS,
)
_ALL_NEAR = [
    near_duplicates(unit, use_64_bit_hash=use_64_bit_hash, compares_texts=True) + frequent_shingles(unit)
    for unit in get_args(Unit)
    for use_64_bit_hash in (False, True)
]
_NEAR = tuple(dict.fromkeys(kernel for kernels in _ALL_NEAR for kernel in kernels))
_SIGNATURES = tuple(
    kernel for kernel in _NEAR if kernel.startswith(("minhash.sketch.", "minhash.signatures.")) or kernel in CONTENT
)
OPERATORS: Mapping[str, tuple[str, ...]] = {
    "add_comment_ratio": COMMENTS,
    "add_class": FASTTEXT,
    "add_contamination": CONTAMINATION,
    "add_ids": CONTENT,
    "add_importance": BUCKETS,
    "add_language": FASTTEXT,
    "add_metrics": METRICS,
    "add_profile": METRICS,
    "add_minhash": _SIGNATURES,
    "describe_domains": CONTENT,
    "describe_drops": METRICS,
    "describe_importance": BUCKETS,
    "drop_contaminated": CONTAMINATION,
    "drop_exact_duplicates": CONTENT + NORMALIZED_CONTENT + FIRST_KEYS,
    "drop_near_duplicates": _NEAR,
    "find_exact_duplicates": CONTENT + NORMALIZED_CONTENT,
    "find_near_duplicates": _NEAR,
    "join": CONTENT,
    "join_documents": JOINING,
    "keep_class": FASTTEXT,
    "keep_language": FASTTEXT,
    "keep_profile": METRICS,
    "keep_urls": CONTENT,
    "normalize_newlines": CLEANING,
    "normalize_unicode": UNICODE,
    "normalize_whitespace": CLEANING,
    "read_csv": CSV_RECORDS,
    "read_jsonl": JSON_LINES,
    "redact_pii": PERSONAL_DATA,
    "remove_boilerplate": BOILERPLATE,
    "remove_c4_lines": C4_LINES,
    "remove_contamination": CONTAMINATION,
    "remove_lines": LISTED_LINES,
    "remove_markdown": MARKDOWN,
    "remove_outside": SLICES,
    "remove_quotation_marks": QUOTATION_MARKS,
    "remove_repeated_parts": CONTENT + NORMALIZED_CONTENT + PARTS,
    "remove_repeated_substrings": CONTENT + REPEATED_SUBSTRINGS,
    "remove_urls": CLEANING,
    "repeat_rows": SPLITTING,
    "sample_rows": CONTENT,
    "split_documents": SPLITTING,
    "split_rows": CONTENT,
}
"""All kernels that an operator may call, where it calls any. A run compiles only those that its arguments need."""


def kernels_to_warm(operators: Sequence[str], *, is_all: bool) -> tuple[str, ...]:
    """Return the kernels of some operators, of all, or, without any, of the chain that the command line runs by default.

    Raises
    ------
    ParameterError
        If there is no such operator, or if all and some are requested.
    """
    if is_all and operators:
        raise ParameterError(
            "warm: --all compiles the kernels of all operators; leave out either --all or the operators"
        )
    if is_all:
        return tuple(COMPILE_SECONDS)
    for name in operators:
        if name not in OPERATORS:
            hint = did_you_mean(name, OPERATORS)
            raise ParameterError(
                f"warm: {name!r} has no kernels (functions to compile).{hint} The operators with kernels are "
                f"{', '.join(OPERATORS)}"
            )
    chosen = [kernel for name in operators for kernel in OPERATORS[name]] or [
        *JSON_LINES,
        *UNICODE,
        *counts.WORDS.token_kernels,
    ]
    return tuple(dict.fromkeys([*EVERY_RUN, *chosen]))


def compile_seconds(kernels: Iterable[str]) -> float:
    """Return about how many seconds of CPU some kernels take to compile; 0 for none.

    Examples
    --------
    >>> compile_seconds([]), compile_seconds(counts.WORDS.kernels)
    (0.0, 4.0)
    """
    seconds = [COMPILE_SECONDS.get(kernel, 1.0) for kernel in kernels]
    return START_SECONDS + sum(seconds) if seconds else 0.0
