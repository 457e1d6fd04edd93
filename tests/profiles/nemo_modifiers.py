# SPDX-License-Identifier: Apache-2.0
"""Texts as NeMo Curator changes them, by its own released code: a script for a Python that has nemo_curator 0.9.0.

Reads lines of JSON, each a text; answers with ``{name: text or null}``, null where the modifier fails.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from types import ModuleType
from typing import Any


def stand_in(name: str, path: list[str] | None = None, **names: Any) -> None:
    module = ModuleType(name)
    vars(module).update(names)
    if path:
        module.__path__ = path
    sys.modules[name] = module


def load(name: str) -> Any:
    return importlib.import_module(f"nemo_curator.modifiers.{name}")


(root,) = importlib.util.find_spec("nemo_curator").submodule_search_locations
stand_in("nemo_curator", [root])
stand_in("nemo_curator.modifiers", [f"{root}/modifiers"])
stand_in("nemo_curator.utils", [f"{root}/utils"])
sys.modules["nemo_curator.modifiers"].DocumentModifier = load("doc_modifier").DocumentModifier

LINES = ["It was the best of times.", "", "one two"]
MODIFIERS = {
    "newlines": load("newline_normalizer").NewlineNormalizer(),
    "urls": load("url_remover").UrlRemover(),
    "lines": load("line_remover").LineRemover(LINES),
    "markdown": load("markdown_remover").MarkdownRemover(),
    "quotation_marks": load("quotation_remover").QuotationRemover(),
    "boilerplate": load("c4").BoilerPlateStringModifier(),
    "slice": load("slicer").Slicer(left=2, right=-3),
    "marks": load("slicer").Slicer(left="the", right="e", include_left=False, include_right=False, strip=False),
}


def modified(name: str, text: str) -> str | None:
    try:
        return str(MODIFIERS[name].modify_document(text))
    except IndexError:
        return None


def main() -> None:
    print(json.dumps(importlib.metadata.version("nemo_curator")), flush=True)
    for line in sys.stdin:
        text = json.loads(line)
        print(json.dumps({name: modified(name, text) for name in MODIFIERS}), flush=True)


if __name__ == "__main__":
    main()
