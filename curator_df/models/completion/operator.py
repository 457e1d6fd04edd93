# SPDX-License-Identifier: Apache-2.0
"""Answer of a language model to each text: `add_completion`."""

from __future__ import annotations

import json
import math
import os
import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from curator_df.arguments import require_mapping, require_number, require_string
from curator_df.core.columns import refuse_columns, require_columns
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError, SchemaError
from curator_df.extras import require_package
from curator_df.memory.process_cache import cached
from curator_df.models.completion.calls import MOST_ANSWER_BYTES, Caller, Server
from curator_df.models.model import require_count
from curator_df.ops.host_only import require_host

ROW_BYTES = 1_000
"""Row size for which the memory multiplier holds; a block of shorter rows is halved if it does not fit."""
TOKEN_BYTES = 8
"""Bytes of a token of an answer; twice that while its column is made. Assumed."""
LIBRARY_BYTES = 30_000_000
"""Bytes that a process holds for the client and its threads; assumed."""
ROWS_AT_A_TIME = 256
"""Number of rows whose columns are held as Python strings."""
MAX_TOKENS = 256
"""Default maximum number of tokens of an answer."""
NO_OPTIONS = {
    "model": "set model=",
    "messages": "set prompt= and system_prompt=",
    "max_tokens": "set max_tokens=",
    "n": "one answer is kept for each row. For more, add further columns with other into= and options={'seed': ...}",
    "stream": "answers are read whole. Leave it out",
}
"""Fields of a request that are not allowed in ``options``, with the alternative."""


def add_completion(
    df: dd.DataFrame,
    prompt: str,
    *,
    base_url: str,
    model: str,
    into: str = "completion",
    system_prompt: str | None = None,
    max_tokens: int = MAX_TOKENS,
    options: Mapping[str, Any] | None = None,
    max_chars: int = 20_000,
    max_concurrent: int = 8,
    max_retries: int = 6,
    timeout_seconds: float = 120.0,
    api_key_env: str | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> dd.DataFrame:
    r"""Add the answer of a language model behind an OpenAI-compatible server: a rewrite, a translation, a judgement.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    prompt : str
        The prompt, with column names in braces: ``"Translate into English:\n\n{text}"``. Double a literal brace.
    base_url : str
        Base URL of the server, without ``/chat/completions``, such as ``"http://127.0.0.1:8000/v1"``. It may change
        before a run is resumed.
    model : str
        Model name on the server.
    into : str, default "completion"
        Name of the column.
    system_prompt : str, optional
        System message.
    max_tokens : int, default 256
        Maximum tokens of an answer. The plan reserves memory for this many.
    options : mapping, optional
        Additional fields of each request, such as ``{"temperature": 0.7, "seed": 1}``. By default
        ``{"temperature": 0}``. If it contains ``"max_completion_tokens"``, as some servers require, ``max_tokens``, which
        must then be left out, is not sent, and memory is planned for that number. ``"model"``, ``"messages"``,
        ``"max_tokens"``, ``"n"`` and ``"stream"`` are not options.
    max_chars : int, default 20_000
        Characters of each column to include in a prompt.
    max_concurrent : int, default 8
        Concurrent requests in each worker process.
    max_retries : int, default 6
        Retries after the first attempt: if the connection fails or is dropped, after ``timeout_seconds``, and for the
        statuses 408, 409, 425, 429 and 500 and above. The delay doubles each time, from half a second to a minute, or
        follows Retry-After.
    timeout_seconds : float, default 120
        Timeout for connecting, and between two chunks of a response.
    api_key_env : str, optional
        Name of the workers' environment variable with the API key, in printable ASCII; white space around it is removed.
        The key itself is never stored or shown.
    cache : str or path, optional
        Folder visible to all workers that stores each answer under a hash of model, messages and options: no run sends
        the same request again, to whichever server. Where two servers answer differently under one model name, choose
        a folder for each. By default ``~/.cache/curator_df/completions``.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with a column of text, null where a column of the prompt is null, or the answer has no text: a
        refusal, or a model that was truncated while reasoning.

    Raises
    ------
    ColumnError
        If a column of the prompt is missing, or ``into`` already exists.
    ParameterError
        If the prompt names no column, the URL is invalid, a parameter is out of range, an option belongs elsewhere or
        is not JSON, or httpx is missing; when running, if the environment variable is not set, or its value is not a valid key.
    SchemaError
        If a column of the prompt has lists or structs.
    OperatorError
        When running, regardless of ``on_error``, if it does not concern rows: the statuses 401, 402, 403 and 404, redirects, and
        20 consecutive failed requests in a process. Resume when the cause is fixed.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    add_class, redact_pii

    Notes
    -----
    Rows: same. Columns: plus ``completion``. Backends: pandas. Peak extra memory: 5.1 x block with 256 tokens for rows
    of 1,000 bytes, and 4 MB for each request in flight. Computes: no.

    Another request that the server rejects, or that fails on all attempts, is an error of the row:
    ``on_error="quarantine"`` of a run quarantines it. The receipt counts ``requests`` (for answers that came),
    ``retries``, ``cached`` (answers from before), ``cut_answers`` (truncated at ``max_tokens``), ``empty_answers``,
    ``prompt_tokens`` and ``completion_tokens``; ``receipt.models()`` has ``documents`` (answers requested) and
    ``tokens`` per second. A chain that runs twice, such as before a drop, sends its requests once.

    Examples
    --------
    >>> docs = cdf.add_completion(  # doctest: +SKIP
    ...     docs, prompt="Rate from 1 to 5:\n{text}", base_url="http://127.0.0.1:8000/v1", model="judge", max_tokens=1
    ... )
    """
    operator = "add_completion"
    require_string(operator, "prompt", prompt)
    require_string(operator, "base_url", base_url)
    require_string(operator, "model", model)
    for name, words in (("system_prompt", system_prompt), ("api_key_env", api_key_env)):
        if words is not None:
            require_string(operator, name, words)
    require_number(operator, "timeout_seconds", timeout_seconds)
    columns = _columns(operator, prompt)
    require_columns(df, operator, *columns)
    require_host(df._meta, operator)
    _require_words(df, operator, columns)
    refuse_columns(df, operator, into)
    require_package(operator, "httpx", "completions")
    if urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).netloc:
        raise ParameterError(
            f"{operator}: base_url={base_url!r} is not an http:// or https:// URL. Use one such as "
            "'http://localhost:8000/v1'"
        )
    fields, most_tokens = _fields(operator, options, max_tokens)
    for name, value in (("max_chars", max_chars), ("max_concurrent", max_concurrent)):
        require_count(operator, name, value)
    if not isinstance(max_retries, int) or max_retries < 0:
        raise ParameterError(f"{operator}: max_retries={max_retries!r} must be a whole number, 0 or more")
    if not timeout_seconds > 0:
        raise ParameterError(f"{operator}: timeout_seconds={timeout_seconds!r} must be above 0")
    folder = _own_cache(operator) if cache is None else cache
    server = Server(
        base_url=base_url.rstrip("/"),
        model=model,
        options=fields,
        api_key_env=api_key_env,
        max_concurrent=max_concurrent,
        max_retries=max_retries,
        timeout_seconds=timeout_seconds,
        cache=os.fspath(folder),
    )
    parameters = {
        "prompt": prompt,
        "system_prompt": system_prompt,
        "max_chars": max_chars,
        "server": server,
        "into": into,
    }
    kernel = BlockKernel(
        operator,
        add_completion_block,
        parameters,
        price=Price(
            round(1.0 + 2 * TOKEN_BYTES * most_tokens / ROW_BYTES, 1),
            fixed_bytes=2 * MOST_ANSWER_BYTES * max_concurrent,
            held_bytes=LIBRARY_BYTES,
            libraries={"httpx": LIBRARY_BYTES},
        ),
        is_offloaded=True,
        is_users=True,
    )
    return map_blocks(df, kernel, meta=df._meta.assign(**{into: pd.Series([], dtype=pd.StringDtype("pyarrow"))}))


def _own_cache(operator: str) -> Path:
    try:
        return Path.home() / ".cache/curator_df/completions"
    except RuntimeError as exc:
        raise ParameterError(
            f"{operator}: this user has no home folder in which to store the answers of the model. Set a folder with cache="
        ) from exc


def _fields(operator: str, options: Any, max_tokens: int) -> tuple[str, int]:
    """Return the fields of each request, without model and messages, as JSON, and the maximum number of tokens of an answer."""
    if options is not None:
        require_mapping(operator, "options", options)
    given = dict(options or {})
    for name, instead in NO_OPTIONS.items():
        if name in given:
            raise ParameterError(f"{operator}: options= has {name!r}, which is not an option: {instead}")
    limit, most_tokens = "max_tokens", max_tokens
    if "max_completion_tokens" in given:
        limit, most_tokens = "max_completion_tokens", given["max_completion_tokens"]
        if max_tokens not in (MAX_TOKENS, most_tokens):
            raise ParameterError(
                f"{operator}: max_tokens={max_tokens!r} and {limit!r}: {most_tokens!r} in options= conflict. Set only one "
                "of them"
            )
    require_count(operator, limit, most_tokens)
    try:
        fields = json.dumps({"temperature": 0, **given, limit: most_tokens}, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise ParameterError(
            f"{operator}: options={options!r} cannot be sent as JSON: {exc}. Use text, numbers, booleans, lists and dicts"
        ) from exc
    return fields, most_tokens


def _require_words(df: Any, operator: str, columns: tuple[str, ...]) -> None:
    for name in columns:
        arrow = getattr(df._meta[name].dtype, "pyarrow_dtype", None)
        if arrow is not None and pa.types.is_nested(arrow):
            raise SchemaError(
                f"{operator}: the prompt uses the column {name!r}, which has the type {arrow}. Convert it to text, as with "
                f"docs.assign(**{{{name!r}: docs[{name!r}].astype('string')}})"
            )


def add_completion_block(
    block: Any, *, prompt: str, system_prompt: str | None, max_chars: int, server: Server, into: str
) -> Outcome:
    """Kernel of `add_completion`."""
    require_host(block, "add_completion")
    caller = cached(server, lambda: Caller(server))
    told: list[dict[str, str]] = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    found = caller.answers(_prompts(block, prompt, told, max_chars))
    answers = [None if answer is None else answer["content"] for answer in found]
    dtype: Any = pd.StringDtype("pyarrow")
    column = dtype.__from_arrow__(pa.chunked_array([pa.array(answers, pa.large_string())]))
    return Outcome(
        block.assign(**{into: pd.Series(column, index=block.index, copy=False)}), counters=caller.tally.counters()
    )


def _prompts(
    block: Any, prompt: str, told: list[dict[str, str]], max_chars: int
) -> Iterator[list[dict[str, str]] | None]:
    """Yield the messages for each row; None if a column is null."""
    columns = _columns("add_completion", prompt)
    parts = [(literal, name) for literal, name, _, _ in string.Formatter().parse(prompt)]
    for start in range(0, len(block), ROWS_AT_A_TIME):
        some = block[list(columns)].iloc[start : start + ROWS_AT_A_TIME]
        for values in zip(*(some[name].astype(object).tolist() for name in columns), strict=True):
            if any(
                value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)) for value in values
            ):
                yield None
                continue
            filled = dict(zip(columns, (str(value)[:max_chars] for value in values), strict=True))
            content = "".join(literal + ("" if name is None else filled[name]) for literal, name in parts)
            yield [*told, {"role": "user", "content": content}]


def _columns(operator: str, prompt: str) -> tuple[str, ...]:
    """Return the columns used in a prompt."""
    try:
        parts = list(string.Formatter().parse(prompt))
    except ValueError as exc:
        raise ParameterError(
            f"{operator}: prompt={prompt!r} cannot be parsed: {exc}. Write {{{{ and }}}} for literal braces"
        ) from exc
    names = [name for _, name, _, _ in parts if name is not None]
    if not names or any(not name or form or convert for _, name, form, convert in parts if name is not None):
        raise ParameterError(
            f"{operator}: prompt={prompt!r} must have at least one column in braces, with nothing in them but its name, such "
            "as '{text}'. Remove format specifications, and write {{ and }} for literal braces"
        )
    return tuple(dict.fromkeys(names))
