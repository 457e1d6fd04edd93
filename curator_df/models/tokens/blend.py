# SPDX-License-Identifier: Apache-2.0
"""Mix tables in random order, by epochs or by shares of rows or tokens: `blend`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Literal

import dask.dataframe as dd
import pandas as pd

from curator_df.arguments import choose, listed
from curator_df.core.columns import refuse_columns, require_columns, require_text
from curator_df.core.ranges.journal import OnExisting
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.errors import ColumnError, ParameterError, SchemaError
from curator_df.io.shuffle.operators import Policies, require_seed, shuffled
from curator_df.io.shuffle.shares import Shares, require_few_epochs
from curator_df.io.shuffle.sink import Taken, tables_alike
from curator_df.models.token_count import add_token_count
from curator_df.models.tokens.tokenizer import Tokenizer, find_tokenizer

BlendUnit = Literal["rows", "tokens"]
COUNT = "__tokens__"
"""Column of the tokens that a tokenizer counts, which is not in the output."""
LARGEST_WEIGHT = 1e300
"""Largest share whose sum with others is still a number."""


def blend(
    tables: dd.DataFrame | Mapping[str, dd.DataFrame],
    path: str | os.PathLike[str] | None = None,
    *,
    epochs: Mapping[Any, float] | None = None,
    weights: Mapping[Any, float] | None = None,
    unit: BlendUnit = "rows",
    rows: int | None = None,
    tokens: int | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    token_column: str | None = None,
    text: str = "text",
    revision: str | None = None,
    source_column: str = "source",
    seed: int = 0,
    on_existing: OnExisting = "resume",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Mix tables, or the kinds of rows of one table, in random order, with a number of epochs or a share for each.

    Parameters
    ----------
    tables : mapping of str to dask.dataframe.DataFrame, or dask.dataframe.DataFrame
        Tables by name, with the same columns; or one table with a column that gives the kind of each row.
    path : str or path, optional
        Folder for the Parquet files, or an fsspec URL. By default they are among the working files of the cluster, and are
        deleted when it is closed.
    epochs : mapping of name (or value of ``source_column``) to float, optional
        How often to take the rows of a table: 3 means each row three times; 0.25 a random quarter of the rows; 1.5 each
        row, and a random half of them twice; 0 none. For one table every value must be named, with None for rows
        without a value.
    weights : mapping of name (or value of ``source_column``) to float, optional
        Instead of ``epochs``: the share of the output for each, in rows or tokens; the shares need not add up to 1. Rows
        or tokens are counted first, in one more pass over each table.
    unit : {"rows", "tokens"}
        With ``weights``: whether the shares are shares of the rows or of the tokens. Tokens need either ``tokenizer`` or
        ``token_column``.
    rows : int, optional
        With ``weights`` and ``unit="rows"``: approximate number of rows of the output. By default as many as possible
        without taking any row twice.
    tokens : int, optional
        With ``weights`` and ``unit="tokens"``: approximate number of tokens of the output, such as
        ``10_000_000_000``. By default as many as possible without taking any row twice.
    tokenizer : str or path, optional
        With ``unit="tokens"``: tokenizer that counts the tokens of ``text``; see `add_token_count`. The output has no
        column of them.
    token_column : str, optional
        With ``unit="tokens"``, instead of a tokenizer: column of whole numbers with the tokens of each row, such as
        ``"token_count"`` from `add_token_count`; null counts as 0.
    text : str, default "text"
        The text column, for ``tokenizer``.
    revision : str, optional
        Commit, tag or branch of a tokenizer on the hub.
    source_column : str, default "source"
        The column that names the table of a row: of several tables it is added, one table has it already.
    seed : int, default 0
        Seed of the order, and of which rows are repeated; independent of `sample_rows` with the same seed.
    on_existing, on_error, on_oom, storage_options
        As in `shuffle_rows`.

    Returns
    -------
    dask.dataframe.DataFrame
        The mixed rows in random order, read back from Parquet. Lazy, in the order of the file names. Copies of the same
        row are placed independently.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    ParameterError
        If ``epochs`` or ``weights`` does not name exactly the tables, has a negative number, or lacks a value of
        ``source_column``; if both or neither are given; if a table with a positive share has no rows or no tokens; if
        a number of tokens is negative; or if an argument does not fit ``unit``.
    SchemaError
        If the tables do not have the same columns and types, or if ``token_column`` does not hold whole numbers.
    ColumnError
        If a table already has the column to add, or lacks ``source_column``, ``text`` or ``token_column``.
    InputError
        If the tokenizer does not exist.
    MissingExtraError
        If ``tokenizer`` is given and the package tokenizers is not installed.
    NoClusterError
        If no cluster is running.

    See Also
    --------
    shuffle_rows, concat, sample_rows, add_token_count

    Notes
    -----
    Rows: those of several tables (or kinds of rows of one), each as often as ``epochs`` says, or to the shares of
    ``weights``. Columns: all; of several tables plus ``source``. Peak extra memory: 3.2 x block. Computes: yes, a pass
    over each table (with ``weights`` a counting pass before it), and one that sorts.

    For tables read directly from Parquet, the counting pass reads only the columns that it needs. With ``tokenizer``, each
    task of this pass needs 60 MB more, and each worker a tokenizer, as for `add_token_count`; texts are tokenized once.
    Between the passes, repeated rows take disk for each copy.

    Every part of the output has the same mixture, up to chance. Which rows are taken, and their positions, follow from
    a hash of name, address and seed, so they do not depend on blocks, memory, workers or a resume; a larger number
    takes all rows that a smaller one took. What the preceding steps did to rows, and the quarantined rows, are in
    ``_curator/before/<name>`` below the output folder (``rows`` for one table). With ``weights``, the number of times
    that rows were taken is ``rows * share / (rows of the table)``, or the same with tokens; it is stored in
    ``_curator/before/epochs.json``. Whole rows are taken at random, so the output has the shares up to chance; its
    receipt says the requested and the actual ones (`Receipt.settings`, ``shares``).

    References
    ----------
    .. [1] Muennighoff et al., Scaling Data-Constrained Language Models, 2023, https://arxiv.org/abs/2305.16264 (up to four epochs
       of the same text are nearly as good as new text)

    Examples
    --------
    >>> mixed = cdf.blend({"web": web, "wiki": wiki}, "mixed/", epochs={"web": 0.5, "wiki": 3})  # doctest: +SKIP
    >>> mixed = cdf.blend(docs, "mixed/", source_column="quality", epochs={"high": 2, "low": 0.1})  # doctest: +SKIP
    >>> mixed = cdf.blend({"web": web, "wiki": wiki}, "mixed/", weights={"web": 0.7, "wiki": 0.3})  # doctest: +SKIP
    >>> weights = {"web": 0.7, "wiki": 0.3}
    >>> mixed = cdf.blend(tables, weights=weights, unit="tokens", tokenizer="tok.json", tokens=10**10)  # doctest: +SKIP
    >>> mixed = cdf.blend(tables, "mixed/", weights=weights, unit="tokens", token_column="n_tokens")  # doctest: +SKIP
    """
    require_seed("blend", seed)
    for called, given in (("epochs", epochs), ("weights", weights)):
        if given is not None and not isinstance(given, Mapping):
            raise ParameterError(
                f"blend: {called}={given!r} must be a dict of names and numbers, such as {called}={{'web': 0.5, 'wiki': 3}}"
            )
    choose("blend", "unit", unit, BlendUnit)
    said = _require_numbers(epochs, weights)
    _require_unit(unit, weights, {"rows": rows, "tokens": tokens}, tokenizer, token_column, revision)
    found = None if tokenizer is None else find_tokenizer("blend", tokenizer, revision)
    shares = _shares(weights, unit, rows if unit == "rows" else tokens, found, token_column, text)
    policies = Policies(on_existing, on_error, on_oom)
    if isinstance(tables, (list, tuple)):
        raise ParameterError(
            f"blend: tables is a {type(tables).__name__}. Pass a dict of tables, such as {{'web': web, 'wiki': wiki}}"
        )
    if not isinstance(tables, Mapping):
        require_columns(tables, "blend", source_column)
        named, chains = {"the table": tables}, [(tables, Taken(seed, "", said, source_column))]
    else:
        _require_names(tables, said, "epochs" if shares is None else "weights", source_column)
        named = {f"the table {name!r}": df for name, df in tables.items()}
        chains = [(df, Taken(seed, name, said[name], source_column)) for name, df in tables_alike(tables).items()]
    if token_column is not None:
        for name, df in named.items():
            _require_whole_numbers(df, token_column, name)
    counted = None
    if tokenizer is not None:
        for name, df in named.items():
            if text not in df.columns and text in {column for other in named.values() for column in other.columns}:
                raise ColumnError(
                    f"blend: {name} has no column {text!r}, but other tables have it; it has: {listed(df.columns)}. Rename the "
                    f"column of texts in that table, as in df.rename(columns={{'content': {text!r}}})"
                )
            require_text(df, f"blend: {name}", text)
        counted = [add_token_count(df, tokenizer, into=COUNT, revision=revision, text=text) for df, _ in chains]
    return shuffled("blend", chains, path, storage_options, policies, shares, counted)


def _shares(
    weights: Mapping[Any, float] | None,
    unit: BlendUnit,
    total: int | None,
    tokenizer: Tokenizer | None,
    token_column: str | None,
    text: str,
) -> Shares | None:
    """Return the shares of the output; None if epochs are given instead."""
    if weights is None:
        return None
    if tokenizer is None:
        return Shares(dict(weights), total, unit, token_column)
    return Shares(dict(weights), total, unit, COUNT, tokenizer, text)


def _require_names(tables: Mapping[str, Any], said: Mapping[Any, float], called: str, column: str) -> None:
    """Raise an error unless tables have the names of the numbers, and do not have the column to add."""
    if set(tables) != set(said) or not tables:
        raise ParameterError(
            f"blend: {called}= has the names {', '.join(map(repr, said)) or 'none'}, but the tables are "
            f"{', '.join(map(repr, tables)) or 'none'}. Use each table's name once"
        )
    for name, df in tables.items():
        if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
            raise ParameterError(
                f"blend: {name!r} is not a valid name of a table. Use letters, digits, '_', '.' and '-', beginning with a "
                "letter or digit"
            )
        refuse_columns(df, "blend", column, parameter="source_column")


def _require_numbers(epochs: Mapping[Any, float] | None, weights: Mapping[Any, float] | None) -> dict[Any, float]:
    """Return how often rows are taken, by name; once if that follows from weights."""
    given = weights if epochs is None else epochs
    if given is None or (epochs is not None and weights is not None):
        raise ParameterError(
            "blend: set either epochs= (how often the rows of each table are taken) or weights= (the share of each table in "
            "the output), not both"
        )
    called = "weights" if epochs is None else "epochs"
    for name, number in given.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= LARGEST_WEIGHT:
            raise ParameterError(
                f"blend: {called}={{{name!r}: {number!r}}} must be a number of 0 or more, at most 10**300"
            )
        if epochs is not None:
            require_few_epochs({name: number})
    if not any(given.values()):
        raise ParameterError(f"blend: {called}= selects zero rows. Use at least one number above 0")
    return {name: 1.0 if epochs is None else float(number) for name, number in given.items()}


def _require_unit(
    unit: BlendUnit,
    weights: Mapping[Any, float] | None,
    totals: Mapping[BlendUnit, int | None],
    tokenizer: Any,
    token_column: str | None,
    revision: str | None,
) -> None:
    """Raise `ParameterError` unless the unit of shares fits the other arguments."""
    of_tokens = {"tokenizer": tokenizer, "token_column": token_column}
    name: str
    for name, value in totals.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ParameterError(f"blend: {name}={value!r} must be a whole number of 1 or more")
        if value is not None and unit != name:
            raise ParameterError(
                f"blend: {name}={value} counts {name}, but unit={unit!r}. Set unit={name!r}, or leave {name}= out"
            )
        if value is not None and weights is None:
            raise ParameterError(
                f"blend: {name}={value}, the size of the output, needs weights=, the share of each table in it. Set "
                f"weights=, or leave {name}= out"
            )
    if unit == "tokens" and weights is None:
        raise ParameterError(
            "blend: unit='tokens' needs weights=, the share of each table in the output. Set weights=, or leave "
            "unit= out"
        )
    for name, given in of_tokens.items():
        if given is not None and unit != "tokens":
            raise ParameterError(
                f"blend: {name}={given!r} needs unit='tokens', but unit={unit!r}. Set unit='tokens', or leave "
                f"{name}= out"
            )
    if unit == "tokens" and sum(given is not None for given in of_tokens.values()) != 1:
        raise ParameterError(
            "blend: unit='tokens' needs the number of tokens of each row. Set either tokenizer=, to count them, or "
            "token_column=, to a column that has them, such as that of add_token_count, but not both"
        )
    if revision is not None and tokenizer is None:
        raise ParameterError(
            f"blend: revision={revision!r} needs tokenizer=, the ID of a model on the Hugging Face hub. Set tokenizer=, or "
            "leave revision= out"
        )


def _require_whole_numbers(df: Any, token_column: str, named: str) -> None:
    """Raise an error unless the column that is added up exists and holds whole numbers."""
    if token_column not in df.columns:
        raise ColumnError(
            f"blend: token_column={token_column!r} is not a column of {named}, which has: {listed(df.columns)}. Name a column "
            "with the number of tokens, or set tokenizer= to count them"
        )
    require_columns(df, "blend", token_column)
    if not pd.api.types.is_integer_dtype(df.dtypes[token_column]):
        raise SchemaError(
            f"blend: token_column={token_column!r} must be a column of whole numbers, but {named} has "
            f"{df.dtypes[token_column]} in it. Convert it, as in "
            f"df.assign({token_column}=df[{token_column!r}].astype('Int64'))"
        )
