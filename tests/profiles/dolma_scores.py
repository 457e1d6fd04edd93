# SPDX-License-Identifier: Apache-2.0
"""dolma's tags, by its own released code: a script for a Python that has dolma 1.2.1.

Reads lines of JSON texts; answers each with ``{tagger: {tag: score}}`` of the tags of whole texts. Only the modules of the
taggers are loaded: what they import for other purposes is left empty.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any


class Struct:
    """What dolma's classes need of msgspec's."""

    def __init_subclass__(cls, **options: Any) -> None:
        del options


def stand_in(name: str, path: list[str] | None = None, **names: Any) -> None:
    module = ModuleType(name)
    vars(module).update(names)
    if path:
        module.__path__ = path
    sys.modules[name] = module


def load(name: str) -> Any:
    return importlib.import_module(f"dolma.{name}")


(root,) = importlib.util.find_spec("dolma").submodule_search_locations
stand_in("msgspec", Struct=Struct)
stand_in("dolma", [root])
stand_in("dolma.core", [f"{root}/core"])
stand_in("dolma.taggers", [f"{root}/taggers"])
TAGGERS = {
    "gopher_v1": load("taggers.gopher").GopherTagger(),
    "gopher_v2": load("taggers.gopher").GopherTaggerV2(),
    "c4_v2": load("taggers.c4").FasterC4Tagger(),
}


def tags(name: str, text: str) -> dict[str, float]:
    spans = TAGGERS[name].predict(SimpleNamespace(text=text)).spans
    return {span.type: span.score for span in spans if not span.type.startswith("lines_with")}


def main() -> None:
    print(json.dumps(importlib.metadata.version("dolma")), flush=True)
    for line in sys.stdin:
        text = json.loads(line)
        print(json.dumps({name: tags(name, text) for name in TAGGERS}), flush=True)


if __name__ == "__main__":
    main()
