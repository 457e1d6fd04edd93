# SPDX-License-Identifier: Apache-2.0
"""Look up published profiles and MinHash schemes by name, and the keys of a mapping of profiles by the values of a column."""

from __future__ import annotations

import datetime as dt
import functools
import operator
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.arguments import choose
from curator_df.core.columns import has_unknown_categories, is_text, require_columns
from curator_df.core.planning.recorded_recipe import recipe_value
from curator_df.errors import ParameterError
from curator_df.kernels.metrics.catalog import Words
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.ops.filters.rules import Profile, ProfileName, ProfilesByValue
from curator_df.suggestions import did_you_mean

_EXAMPLES = {"i": "1", "u": "1", "f": "1.0", "b": "True", "M": "pd.Timestamp('2026-01-31')", "m": "pd.Timedelta('1h')"}
_NO_MATCH = object()
Published = TypeVar("Published", Profile, Scheme)


def keys_of_column(operator: str, keys: Iterable[Any], by: str, dtype: Any) -> list[Any]:
    """Return each key as a value of the column; None for null, such as NaN.

    Raises
    ------
    ParameterError
        If a key can be no value of the column, or two keys mean null.

    Examples
    --------
    >>> keys_of_column("keep_profile", [np.int64(1), float("nan")], "group", np.dtype("float64"))
    [1.0, None]
    """
    values = _value_dtype(dtype)
    found = []
    for key in keys:
        value = _as_value(key, values)
        if value is _NO_MATCH:
            example = "'de'" if values is not None and is_text(values) else _EXAMPLES.get(_kind(values), "")
            raise ParameterError(
                f"{operator}: the key {_plain(key)!r} of the profiles is of the type {type(key).__name__}, but the column {by!r} "
                f"holds {dtype}. Use keys of the column's type{f', such as {example},' * bool(example)} or name another column "
                "with by="
            )
        found.append(value)
    if found.count(None) > 1:
        raise ParameterError(f"{operator}: the dict has two profiles for null, under None and NaN. Keep one of them")
    return found


def _value_dtype(dtype: Any) -> Any:
    """Return the dtype of the values of a column of categories or of an Arrow dictionary; None if it is not known yet."""
    if isinstance(dtype, pd.CategoricalDtype):
        return None if has_unknown_categories(dtype) else dtype.categories.dtype
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_dictionary(dtype.pyarrow_dtype):
        return pd.ArrowDtype(dtype.pyarrow_dtype.value_type)
    return dtype


def _kind(dtype: Any) -> str:
    return str(getattr(dtype, "kind", "O"))


def _as_value(key: Any, dtype: Any) -> Any:
    """Return a key as a value of this dtype, None for null."""
    if key is None or (pd.api.types.is_scalar(key) and pd.isna(key)):
        return None
    key, kind = _plain(key), _kind(dtype)
    value = key
    if dtype is None:
        return value
    if is_text(dtype) or isinstance(key, str):
        value = key if is_text(dtype) and isinstance(key, str) else _NO_MATCH
    elif kind in "iufb":
        value = _as_number(key, kind, getattr(dtype, "itemsize", 8))
    elif isinstance(dtype, pd.ArrowDtype) and pa.types.is_date(dtype.pyarrow_dtype):
        value = key if isinstance(key, dt.date) and not isinstance(key, dt.datetime) else _NO_MATCH
    elif kind == "M":
        zone = getattr(dtype, "tz", None) or getattr(getattr(dtype, "pyarrow_dtype", None), "tz", None)
        is_time = isinstance(key, dt.datetime) and (key.tzinfo is None) == (zone is None)
        value = pd.Timestamp(key) if is_time else _NO_MATCH
    elif kind == "m":
        value = pd.Timedelta(key) if isinstance(key, dt.timedelta) else _NO_MATCH
    return value


def _plain(key: Any) -> Any:
    """Return a NumPy scalar as Python's or pandas's."""
    if isinstance(key, np.datetime64):
        return pd.Timestamp(key)
    if isinstance(key, np.timedelta64):
        return pd.Timedelta(key)
    return key.item() if isinstance(key, np.generic) else key


def _as_number(key: Any, kind: str, item_bytes: int) -> Any:
    """Return a key as a number of this kind, rounded as the column holds it; integers and booleans only if they are equal."""
    if not isinstance(key, bool | int | float):
        return _NO_MATCH
    try:
        if kind == "f":
            return float(key if item_bytes == 8 else np.dtype(f"f{item_bytes}").type(key))
        number = bool(key) if kind == "b" else int(key)
    except OverflowError:
        return _NO_MATCH
    return number if number == key else _NO_MATCH


def profile_of(
    operator: str, profile: Profile | ProfileName, words: Words | None = None, *, from_metrics: bool = False
) -> Profile:
    """Return a profile, or the published one of this name, with other words if asked.

    Raises
    ------
    ParameterError
        If there is none of this name, its metrics are not defined for these words, or ``words`` is given for metrics that
        were counted before.
    """
    if isinstance(profile, list | tuple):
        raise ParameterError(
            f"{operator}: profile= is a {type(profile).__name__}. To apply several profiles, add them: a + b"
        )
    if not isinstance(profile, Profile):
        profile = _named(operator, "profile", profile, published_profiles(), "a Profile")
    if words is None:
        return profile
    choose(operator, "words", words, Words)
    if from_metrics:
        raise ParameterError(
            f"{operator}: words={words!r} changes nothing with from_metrics=True, which reads metrics that were counted before. "
            "Pass words= to add_metrics"
        )
    return profile.replace(words=words)


def _published() -> ModuleType:
    """Return the module of published profiles, which are made of classes of this layer."""
    from curator_df import profiles

    return profiles


def published_profiles() -> dict[str, Profile]:
    """Return the published profiles by name."""
    profiles = _published()
    return {each.name: each for each in map(vars(profiles).get, profiles.__all__) if isinstance(each, Profile)}


@recipe_value.register(Profile)
def recipe_of_profile(profile: Profile) -> Any:
    """Return a profile as a recipe names it: a name, a list of names that are joined, or what makes it; None if nothing does.

    Examples
    --------
    >>> from curator_df.profiles import DCLM_QUALITY, fineweb_2
    >>> recipe_of_profile(DCLM_QUALITY), recipe_of_profile(DCLM_QUALITY.replace(stop_word=None))
    ('dclm_quality', {'replace': {'of': 'dclm_quality', 'stop_word': None}})
    >>> recipe_of_profile(fineweb_2("de", words="whitespace"))
    {'fineweb_2': {'language': 'deu_Latn', 'words': 'whitespace'}}
    """
    listed, names = published_profiles(), profile.name.split(" + ")
    if names[0].startswith("fineweb_2 "):
        made: dict[str, Any] = {"language": names[0].partition(" ")[2], "words": profile.words}
        try:
            return {"fineweb_2": made} if _published().fineweb_2(**made) == profile else None
        except ParameterError:  # of a configuration that is not included
            return None
    if not all(name in listed for name in names):
        return None
    of = names[0] if len(names) == 1 else names
    try:
        base = functools.reduce(operator.add, (listed[name] for name in names))
    except ParameterError:  # they were joined after their words were replaced
        return None
    if base == profile:
        return of
    kept = {rule.reason: rule.threshold for rule in profile.rules}
    changes: dict[str, Any] = {
        rule.reason: kept.get(rule.reason) for rule in base.rules if kept.get(rule.reason) != rule.threshold
    }
    changes |= {"words": profile.words} if profile.words != base.words else {}
    changes |= {"stop_words": list(profile.stop_words)} if profile.stop_words != base.stop_words else {}
    return {"replace": {"of": of, **changes}} if base.replace(**changes) == profile else None


def profiles_of(
    df: Any,
    operator: str,
    profile: Profile | ProfileName | Mapping[Any, Profile | ProfileName],
    by: str | None,
    words: Words | None,
    *,
    from_metrics: bool,
) -> Profile | ProfilesByValue:
    """Return a profile, or the profiles for the values of a column.

    Raises
    ------
    ParameterError
        If only one of a mapping and a column is given, a key cannot be a value of the column, two profiles have different
        user-defined metrics of one name, or as `profile_of`.
    """
    if by is None and not isinstance(profile, Mapping):
        return profile_of(operator, profile, words, from_metrics=from_metrics)
    if by is None:
        raise ParameterError(
            f"{operator}: profile= is a dict of profiles, and by= does not name the column that chooses one for each row. "
            "Use by='language', for example"
        )
    if not isinstance(profile, Mapping):
        raise ParameterError(
            f"{operator}: by={by!r} needs a dict of a profile for each value of the column, such as "
            "profile={'de': fineweb_2('de'), 'fr': fineweb_2('fr')}, or leave out by= to use one profile for all rows"
        )
    require_columns(df, operator, by)
    if not profile:
        raise ParameterError(
            f"{operator}: the dict of profiles is empty. Pass at least one, such as profile={{'de': fineweb_2('de')}}"
        )
    keys = keys_of_column(operator, profile, by, df.dtypes[by])
    found = {
        key: profile_of(operator, one, words, from_metrics=from_metrics)
        for key, one in zip(keys, profile.values(), strict=True)
    }
    # The fingerprint of the step does not depend on the order of the dict.
    values = sorted((key for key in found if key is not None), key=repr)
    different = list(dict.fromkeys(found[key] for key in [*values, *([None] if None in found else [])]))
    _refuse_two_metrics_of_a_name(operator, different)
    chosen = tuple((key, different.index(found[key])) for key in values)
    return ProfilesByValue(by, tuple(different), chosen, different.index(found[None]) if None in found else -1)


def _refuse_two_metrics_of_a_name(operator: str, profiles: Iterable[Profile]) -> None:
    metrics = {metric for profile in profiles for metric in profile.user_metrics}
    own = [metric.name for metric in metrics]
    if twice := sorted({name for name in own if own.count(name) > 1}):
        raise ParameterError(
            f"{operator}: the profiles have two different metrics of your own (UserMetric) with the name "
            f"{', '.join(map(repr, twice))}. Give each another name"
        )


def scheme_of(operator: str, scheme: Scheme | str) -> Scheme:
    """Return a scheme, or the published one of this name; raise `ParameterError` if there is none."""
    return scheme if isinstance(scheme, Scheme) else _named(operator, "scheme", scheme, schemes(), "a Scheme")


def schemes() -> dict[str, Scheme]:
    """Return the published schemes by name."""
    from curator_df.profiles import minhash

    return {found.name.lower(): found for found in vars(minhash).values() if isinstance(found, Scheme)}


def _named(operator: str, parameter: str, value: Any, listed: Mapping[str, Published], kind: str) -> Published:
    if isinstance(value, str) and value in listed:
        return listed[value]
    names = ", ".join(map(repr, listed))
    hint = did_you_mean(value, listed) if isinstance(value, str) else ""
    raise ParameterError(
        f"{operator}: {parameter}={value!r} is neither {kind} nor the name of a published one.{hint} The names are: {names}"
    )
