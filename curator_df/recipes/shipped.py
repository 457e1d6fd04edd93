# SPDX-License-Identifier: Apache-2.0
"""Shipped recipes: published pipelines as files of the package."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import yaml

from curator_df.errors import RecipeError
from curator_df.suggestions import did_you_mean

_NAME = re.compile(r"[a-z0-9_]+")


def shipped_names() -> list[str]:
    """Return the names of the shipped recipes, sorted."""
    found = [entry.name for entry in files("curator_df.recipes").iterdir() if entry.name.endswith(".yaml")]
    return sorted(name.removesuffix(".yaml") for name in found)


def is_name(name: str) -> bool:
    """Return whether a text is the name of a shipped recipe."""
    return _NAME.fullmatch(name) is not None and name in shipped_names()


def shipped_text(name: str) -> str:
    """Return the file of a shipped recipe; raise `RecipeError` if there is none of this name."""
    if not is_name(name):
        raise no_such_recipe(name)
    return (files("curator_df.recipes") / f"{name}.yaml").read_text(encoding="utf-8")


def no_such_recipe(name: str) -> RecipeError:
    """Return the error for a path or name of no recipe."""
    names = shipped_names()
    hint = did_you_mean(name, names) or f" The shipped recipes are: {', '.join(names)}"
    return RecipeError(f"there is no file {name!r}, and no shipped recipe of this name.{hint}")


def shipped_about() -> dict[str, dict[str, Any]]:
    """Return what each shipped recipe says of itself."""
    return {name: yaml.safe_load(shipped_text(name))["about"] for name in shipped_names()}
