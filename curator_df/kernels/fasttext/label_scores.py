# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled scores of labels from the mean vector of a line, as in fastText: by a tree, softmax, or each label alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, types
from curator_df.kernels.fasttext.model_tables import HIERARCHICAL, SIGMOID_LIMIT, SIGMOID_SIZE, SOFTMAX

ABSENT = -1.0
"""Score of a label that fastText does not return."""
_ADDED = 1e-5
"""Number that fastText adds before each logarithm."""
_ONE, _NONE = np.float32(1), np.float32(0)

SCORES = types.Tuple((types.float32[::1], types.float32[::1], types.int32[::1], types.float32[::1], types.float64[::1]))
"""Type of `new_scores`: mean vector, score of each label, nodes that wait, their scores, and votes."""


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
