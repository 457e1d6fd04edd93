# SPDX-License-Identifier: Apache-2.0
"""YAML of a recipe as values that know their lines; what a reader could take for something else is refused.

PyYAML follows YAML 1.1, in which ``no`` is false and ``010`` is 8. Only what YAML 1.1, YAML 1.2 and a person read alike is
accepted without quotes. Anchors, aliases, merge keys, tags and several documents in one file are refused.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import yaml

from curator_df.errors import RecipeError

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][-+]?[0-9]+)?")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
_SPELLINGS = {"yes", "no", "on", "off", "y", "n"}
"""Words that YAML 1.1 reads as true or false, and YAML 1.2 as text."""
_TRUE = {"yes", "on", "y"}
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt\s].*)?")
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_ODD_NUMBER = re.compile(r"[-+]?(0[0-9]+|0[xXoObB][0-9a-fA-F_]+|[0-9][0-9_]*_[0-9_]*)|[-+]?\.(inf|nan)", re.IGNORECASE)
MOST_LEVELS = 100
"""Maximum levels of lists and mappings. PyYAML takes time for each open level at each word."""
LONGEST_SHOWN = 80
"""Characters of a line that an error shows."""


@dataclass
class Value:
    """Value of a recipe with its place."""

    data: Any
    """None, bool, int, float, str, a list of `Value`, or a dict of `Value`."""
    path: str
    """File, or what stands for it in errors, such as ``--set memory=8``."""
    line: int = 0
    """Line, from 1; 0 if the value does not come from a file."""
    doubt: str = ""
    """Reason why the text of a scalar has no certain meaning, and what to write; empty if it has one."""
    text: str | None = None
    """Text of an unquoted scalar as written; None for other values."""
    key_lines: dict[str, int] | None = None
    """Line of each key of a dict."""
    is_typed: bool = False
    """Whether the text was typed on a command line, where quotes are lost: a number is text where text is wanted."""

    def error(self, key: str, said: str) -> RecipeError:
        """Return the error for this place."""
        return RecipeError.at(self.path, self.line, key, said)


def read_yaml(text: str, path: str) -> Value:
    r"""Return the value of a YAML text; raise `RecipeError` with its line if it is not a recipe's YAML.

    Examples
    --------
    >>> value = read_yaml("steps:\n- remove_html", "a.yaml")
    >>> value.data["steps"].line, value.data["steps"].data[0].data
    (2, 'remove_html')
    """
    try:
        _refuse_events(text, path)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as exc:
        raise _syntax_error(text, path, exc) from exc
    if node is None:
        raise RecipeError.at(path, 1, "", "the file is empty. A recipe has read:, steps: and write:")
    return _value(node, path, "")


def plain_value(data: Any, path: str) -> Value:
    """Return a Python value as a value of a recipe."""
    if isinstance(data, dict):
        return Value({key: plain_value(one, path) for key, one in data.items()}, path)
    if isinstance(data, list | tuple):
        return Value([plain_value(one, path) for one in data], path)
    return Value(os.fspath(data) if isinstance(data, os.PathLike) else data, path)


def _refuse_events(text: str, path: str) -> None:
    """Raise `RecipeError` for the parts of YAML that recipes do not have."""
    documents = levels = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if levels > MOST_LEVELS:
            said = (
                f"lists and mappings are nested more than {MOST_LEVELS} levels deep. Write the values with fewer levels"
            )
            raise RecipeError.at(path, line, "", said)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise RecipeError.at(
                    path, line, "", "a second document begins at '---'. A file holds one recipe: remove the line"
                )
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            kind = "alias" if isinstance(event, yaml.AliasEvent) else "anchor"
            sign = "*" if kind == "alias" else "&"
            said = f"found the {kind} {sign}{anchor}, which recipes do not have. Write the value out where it is used"
            raise RecipeError.at(path, line, "", f"{said}, or in quotes if it is text")
        tag = getattr(event, "tag", None)
        if tag is not None and not isinstance(event, yaml.AliasEvent):
            said = f"found the tag {tag!r}, which recipes do not have. Remove it; text is written in quotes"
            raise RecipeError.at(path, line, "", said)


def _syntax_error(text: str, path: str, exc: yaml.YAMLError) -> RecipeError:
    """Return the error for text that is not YAML."""
    mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
    if mark is None:  # a character that YAML does not have
        position = int(getattr(exc, "position", 0))
        line = text.count("\n", 0, position) + 1
        found = f"U+{getattr(exc, 'character', 0):04X}"
        return RecipeError.at(path, line, "", f"found the character {found}, which YAML does not allow. Remove it")
    lines = text.splitlines()
    line = mark.line + 1
    shown = lines[mark.line].strip()[:LONGEST_SHOWN] if mark.line < len(lines) else "the end of the file"
    problem = getattr(exc, "problem", None) or "not valid YAML"
    if "'\\t'" in problem:
        return RecipeError.at(path, line, "", f"found a tab at {shown!r}. Indent with spaces")
    hint = "Check the indentation, and put text that has ': ' or ' #' in it, or begins with a sign, in quotes"
    if "mapping values are not allowed" in problem:
        hint = "Put a text that has ': ' in it in quotes, and indent all keys of a mapping alike"
    context = getattr(exc, "context_mark", None)
    since = f" (in what begins in line {context.line + 1})" if context is not None and context.line != mark.line else ""
    return RecipeError.at(path, line, "", f"not valid YAML at {shown!r}: {problem}{since}. {hint}")


def _value(node: Any, path: str, key: str) -> Value:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, line, key)
    if isinstance(node, yaml.SequenceNode):
        items = [_value(one, path, f"{key}[{number}]") for number, one in enumerate(node.value, 1)]
        return Value(items, path, line)
    if node.style is not None:
        return Value(node.value, path, line)
    return scalar(node.value, path, line)


def _mapping(node: yaml.MappingNode, path: str, line: int, key: str) -> Value:
    items: dict[Any, Value] = {}
    lines: dict[str, int] = {}
    for key_node, value_node in node.value:
        key_line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise RecipeError.at(
                path, key_line, key, "found a list or a mapping as a key. Write a name before the colon"
            )
        name = _value(key_node, path, key)
        if name.data == "<<" and key_node.style is None:
            raise RecipeError.at(
                path, key_line, key, "found the merge key '<<', which recipes do not have. Write the values out"
            )
        if name.doubt:
            raise RecipeError.at(path, key_line, key, f"the key {key_node.value}: {name.doubt}")
        if name.data in items:
            first = lines[str(name.data)]
            raise RecipeError.at(
                path, key_line, key, f"the key {name.data!r} occurs twice, first in line {first}. Remove one of them"
            )
        lines[str(name.data)] = key_line
        inner = f"{key}.{name.data}" if key else str(name.data)
        items[name.data] = _value(value_node, path, inner)
    return Value(items, path, line, key_lines=lines)


def scalar(text: str, path: str, line: int = 0) -> Value:
    """Return the value of a scalar without quotes.

    Examples
    --------
    >>> [scalar(text, "").data for text in ("true", "7", "1e-3", "~", "en", "8GB")]
    [True, 7, 0.001, None, 'en', '8GB']
    >>> scalar("no", "").doubt
    'no without quotes is false in YAML 1.1 and text in YAML 1.2. Write "no" for the text, or false'
    """
    if doubt := _doubt(text):
        return Value(text, path, line, doubt, text)
    return Value(_plain(text), path, line, text=text)


def _plain(text: str) -> Any:
    low = text.lower()
    if low in _CONSTANTS:
        return _CONSTANTS[low]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) and low != "." else text


def _doubt(text: str) -> str:
    """Return why programs may read a text without quotes as something else, and what to write; empty if they do not."""
    if text.lower() in _SPELLINGS:
        meant = "true" if text.lower() in _TRUE else "false"
        return f'{text} without quotes is {meant} in YAML 1.1 and text in YAML 1.2. Write "{text}" for the text, or {meant}'
    if _DATE.fullmatch(text) or _BASE_60.fullmatch(text):
        found = "a date" if _DATE.fullmatch(text) else "a number to base 60"
        return f'{text} without quotes is {found} in YAML 1.1 and text in YAML 1.2. Write "{text}" for the text'
    if _ODD_NUMBER.fullmatch(text):
        return f'not all programs read {text} without quotes alike. Write "{text}" for the text, or plain digits'
    return ""
