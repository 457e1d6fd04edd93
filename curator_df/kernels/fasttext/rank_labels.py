# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Labels of texts by a fastText model, of whole texts or by the votes of their lines, on the Arrow buffers of a column.

Labels are scored from the mean vector of a line as in fastText: by a tree, softmax, or each label alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.fasttext.model_tables import (
    DICTIONARY,
    HIERARCHICAL,
    INPUTS,
    KEPT,
    NUMBERS,
    OUTPUTS,
    SIGMOID_LIMIT,
    SIGMOID_SIZE,
    SOFTMAX,
    FastTextTables,
)
from curator_df.kernels.fasttext.word_vectors import CACHE, CACHE_BYTES, add_line, forget_words, new_cache
from curator_df.kernels.metrics.words.word_counts import SPAN
from curator_df.kernels.text.buffers import array_spans
from curator_df.kernels.text.code_points import ALPHA, SPACE, word_byte_classes, word_classes
from curator_df.kernels.text.unicode_words import class_at

LEAST_LINE = 20
"""Characters of a line that has a vote: of shorter ones (menus, names) the language is a guess."""
SPAN_SCORES = 65_536
"""Maximum number of labels that are returned together, unless a single text has more."""
SPAN_ROWS = 4096
_SCORE_BYTES = 32
"""Bytes of a label that is returned with its score, and of the arrays that a caller makes from both."""
_LABEL_BYTES = 64
"""Bytes of a label in the arrays that scores are computed in, and in the order of the names."""
_MODEL = types.Tuple((NUMBERS, DICTIONARY, INPUTS, KEPT))
ABSENT = -1.0
"""Score of a label that fastText does not return."""
_ADDED = 1e-5
"""Number that fastText adds before each logarithm."""
_ONE, _NONE = np.float32(1), np.float32(0)

SCORES = types.Tuple((types.float32[::1], types.float32[::1], types.int32[::1], types.float32[::1], types.float64[::1]))
"""Type of `new_scores`: mean vector, score of each label, nodes that wait, their scores, and votes."""


@dataclass(frozen=True)
class RankedLabels:
    """Labels of consecutive texts."""

    first_row: int
    """Position of the first text in the column."""
    found: npt.NDArray[np.int32]
    """Numbers of labels, the most likely first, -1 after the last one; shape (rows, top). If all labels are wanted: each at its
    own place, -1 for a label that fastText does not return; shape (rows, labels)."""
    scores: npt.NDArray[np.float64]
    """Scores of these labels, 0 to 1 (fastText adds 0.00001, which may exceed 1), NaN where there is none; the same shape."""


def new_scores(width: int, labels: int) -> tuple[Any, ...]:
    """Return the arrays that scores are computed in."""
    return (
        np.empty(width, dtype=np.float32),
        np.empty(labels, dtype=np.float32),
        np.empty(labels + 1, dtype=np.int32),
        np.empty(labels + 1, dtype=np.float32),
        np.empty(labels, dtype=np.float64),
    )


@inlined
def _logarithm(share: Any) -> Any:
    return types.float32(np.log(types.float64(share) + _ADDED))


@helper
def _score_tree(hidden: Any, room: Any, outputs: Any, is_single: bool) -> None:
    """Score the labels whose path has a share of at least 0.00001; if one is wanted, those that may be the best."""
    _, scores, nodes, waiting, _ = room
    vectors, children, _ = outputs
    labels = len(scores)
    scores[:] = ABSENT
    limit = _logarithm(_NONE)
    nodes[0], waiting[0] = 2 * labels - 2, 0
    depth = 1
    while depth:
        depth -= 1
        node, score = types.int64(nodes[depth]), waiting[depth]
        if score < limit:
            continue
        if node < labels:
            scores[node] = np.exp(score)
            if is_single:
                limit = score
            continue
        inner = node - labels
        product = _NONE
        for place in range(vectors.shape[1]):
            product += hidden[place] * vectors[inner, place]
        share = types.float32(1.0 / (1.0 + np.exp(types.float64(-product))))
        # The left child is visited first.
        nodes[depth], waiting[depth] = children[inner, 1], score + _logarithm(share)
        nodes[depth + 1], waiting[depth + 1] = children[inner, 0], score + _logarithm(_ONE - share)
        depth += 2


@helper
def _score_products(hidden: Any, scores: Any, vectors: Any) -> None:
    """Multiply the mean vector with the vectors of all labels; these are the columns of ``vectors``."""
    scores[:] = 0
    for place in range(len(vectors)):
        factor = hidden[place]
        for label in range(len(scores)):
            scores[label] += factor * vectors[place, label]


@helper
def _softmax(scores: Any) -> None:
    largest = scores[0]
    for label in range(1, len(scores)):
        largest = max(largest, scores[label])
    total = _NONE
    for label in range(len(scores)):
        scores[label] = np.exp(scores[label] - largest)
        total += scores[label]
    for label in range(len(scores)):
        scores[label] = np.exp(_logarithm(scores[label] / total))


@helper
def _logistic(scores: Any, table: Any) -> None:
    for label in range(len(scores)):
        product = scores[label]
        share = _NONE
        if product > SIGMOID_LIMIT:
            share = _ONE
        elif product >= -SIGMOID_LIMIT:
            share = table[
                types.int64(
                    (product + types.float32(SIGMOID_LIMIT)) * types.float32(SIGMOID_SIZE / (2 * SIGMOID_LIMIT))
                )
            ]
        scores[label] = np.exp(_logarithm(share))


@helper
def score_labels(count: int, room: Any, outputs: Any, loss: int, is_single: bool) -> None:
    """Score all labels by the sum of ``count`` rows: `ABSENT` for those that fastText does not return."""
    hidden, scores, _, _, _ = room
    if count == 0:
        scores[:] = ABSENT
        return
    share = types.float32(1.0 / count)
    for place in range(len(hidden)):
        hidden[place] *= share
    if loss == HIERARCHICAL:
        _score_tree(hidden, room, outputs, is_single)
        return
    _score_products(hidden, scores, outputs[0])
    if loss == SOFTMAX:
        _softmax(scores)
    else:
        _logistic(scores, outputs[2])


@helper
def best_label(scores: Any) -> int:
    """Return the label with the highest score, of equal ones the last, as fastText does; -1 if it returns none."""
    best, found = types.float32(ABSENT), types.int64(-1)
    for label in range(len(scores)):
        if scores[label] >= best and scores[label] >= 0:
            best, found = scores[label], types.int64(label)
    return found


@helper
def put_all(values: Any, found: Any, scores: Any) -> None:
    """Put each label that fastText returns, and its value, at its own place of a row."""
    for label in range(len(values)):
        if values[label] >= 0:
            found[label], scores[label] = label, values[label]


@helper
def put_best(values: Any, order: Any, found: Any, scores: Any) -> None:
    """Put the labels with the highest values above 0, in order, into a row; of equal ones the one that is later in ``order``."""
    held = 0
    for step in range(len(values)):
        label = order[step] if len(order) else step
        value = types.float64(values[label])
        if not value >= 0 or (held == len(found) and value < scores[held - 1]):
            continue
        place = held if held < len(found) else held - 1
        while place > 0 and scores[place - 1] <= value:
            found[place], scores[place] = found[place - 1], scores[place - 1]
            place -= 1
        found[place], scores[place] = label, value
        held = min(held + 1, len(found))


@helper
def _head_stop(data: Any, start: int, stop: int, most: int) -> int:
    """Return where the first ``most`` characters of a text end."""
    if stop - start <= most:
        return stop
    at, seen = start, 0
    while at < stop:
        if data[at] & 0xC0 != 0x80:
            if seen == most:
                break
            seen += 1
        at += 1
    return at


@helper
def _has_letter(data: Any, at: int, stop: int, classes: Any) -> bool:
    while at < stop:
        flags, width = class_at(data, at, stop, classes)
        if flags & ALPHA:
            return True
        at += width
    return False


@helper
def _line_length(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the number of characters of a line that has a vote; 0 if it has none."""
    length = first = last = 0
    has_letter = False
    while at < stop:
        flags, width = class_at(data, at, stop, classes)
        length += 1
        if not flags & SPACE:
            first = first or length
            last = length
        has_letter = has_letter or flags & ALPHA != 0
        at += width
    return length if has_letter and last - first + 1 >= LEAST_LINE else 0


@helper
def _vote(data: Any, at: int, stop: int, classes: Any, model: Any, outputs: Any, room: Any, cache: Any) -> int:
    """Add up the votes of the lines of a text, length times score; return the length of these lines."""
    hidden, scores, _, _, votes = room
    votes[:] = 0
    total = 0
    while at <= stop:
        end = at
        while end < stop and data[end] != 0x0A:
            end += 1
        length = _line_length(data, at, end, classes)
        if length:
            count = add_line(hidden, data, at, end, model, cache)
            score_labels(count, room, outputs, model[0][5], True)
            label = best_label(scores)
            if label >= 0:
                votes[label] += length * min(types.float64(scores[label]), 1.0)
            total += length
        at = end + 1
    return total


@kernel(
    types.void(
        *SPAN,
        _MODEL,
        OUTPUTS,
        types.Array(types.int32, 1, "C", readonly=True),
        types.UniTuple(types.int64, 4),
        SCORES,
        CACHE,
        types.int32[:, ::1],
        types.float64[:, ::1],
    ),
    allocates=False,
)
def rank_labels_of_span(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    model: Any,
    outputs: Any,
    by_name: Any,
    options: Any,
    room: Any,
    cache: Any,
    found: Any,
    scores: Any,
) -> None:
    """Rank the labels of each text of a span in its row of ``found`` and ``scores``, which hold -1 and NaN before.

    ``options``: maximum number of characters of a text, 1 if a text without a letter has no label, 1 if lines vote,
    1 if each label has its own place.
    """
    classes = (byte_classes, page_of, pages)
    most, needs_letter, by_lines, in_place = options
    hidden, values, _, _, votes = room
    top = found.shape[1]
    for row in range(len(found)):
        start = offsets[row]
        stop = _head_stop(data, start, offsets[row + 1], most)
        if needs_letter and not _has_letter(data, start, stop, classes):
            continue
        if by_lines:
            total = _vote(data, start, stop, classes, model, outputs, room, cache)
            if total:
                for label in range(len(votes)):
                    votes[label] = votes[label] / total if votes[label] > 0 else ABSENT
                put_best(votes, by_name, found[row], scores[row])
                continue
        count = add_line(hidden, data, start, stop, model, cache)
        score_labels(count, room, outputs, model[0][5], top == 1)
        if in_place:
            put_all(values, found[row], scores[row])
        else:
            put_best(values, by_name[:0], found[row], scores[row])


def call_bytes(labels: int) -> int:
    """Return the maximum bytes of a call for a model with this number of labels.

    These are the cache of word vectors, the arrays that scores are computed in, and the labels that are returned together.

    Examples
    --------
    >>> call_bytes(2_000_000) > 2_000_000 * 64 > call_bytes(2)
    True
    """
    return CACHE_BYTES + _SCORE_BYTES * max(SPAN_SCORES, labels) + _LABEL_BYTES * labels


def rank_labels(
    model: FastTextTables,
    texts: pa.ChunkedArray,
    *,
    max_chars: int,
    top: int | None,
    needs_letter: bool,
    by_lines: bool = False,
) -> Iterator[RankedLabels]:
    """Rank the labels of the texts of a column; null texts have none.

    Parameters
    ----------
    model : FastTextTables
        Model, see `fasttext_file.read_model`.
    texts : pyarrow.ChunkedArray of strings
        Texts. Bytes that are not UTF-8 are hashed unchanged.
    max_chars : int
        Number of characters to read at the beginning of a text.
    top : int or None
        Maximum number of labels of a text; None for all, in the order of the model.
    needs_letter : bool
        Whether a text without a letter has no label.
    by_lines : bool, default False
        Whether lines of at least `LEAST_LINE` characters vote, with their length times the score; not with all labels.

    Yields
    ------
    RankedLabels
        Labels of consecutive texts.
    """
    numbers = model.numbers
    count, width = len(model.labels), numbers[9]
    in_place, top = int(top is None), count if top is None else min(top, count)
    classes, byte_classes = word_classes(), word_byte_classes("")
    order = np.array(sorted(range(count), key=lambda label: model.labels[label], reverse=True), dtype=np.int32)
    order.flags.writeable = False
    room, cache = new_scores(width, count), new_cache(width)
    tables = (numbers, model.dictionary, model.inputs, model.kept)
    options = (max_chars, int(needs_letter), int(by_lines), in_place)
    first_row = 0
    for chunk in texts.chunks:
        forget_words(cache)
        for span in array_spans(chunk, first_row, max(min(SPAN_ROWS, SPAN_SCORES // top), 1)):
            found, scores = np.full((len(span), top), -1, dtype=np.int32), np.full((len(span), top), np.nan)
            rank_labels_of_span(
                *(span.data, span.offsets, byte_classes, classes.page_of, classes.pages),
                *(tables, model.outputs, order, options, room, cache, found, scores),
            )
            if span.valid is not None:
                found[~span.valid], scores[~span.valid] = -1, np.nan
            yield RankedLabels(span.first_row, found, scores)
        first_row += len(chunk)
