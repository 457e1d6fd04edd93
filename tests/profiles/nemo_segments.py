# SPDX-License-Identifier: Apache-2.0
"""Documents as NeMo Curator splits and joins them, by its own released code: for a Python that has nemo_curator 0.9.0 and pandas.

Reads lines of JSON, ``{"texts": [...], "separator": ..., "most": ...}``; answers with the segments, ``[position of the text,
segment, number]``, and with what comes of joining them, whole and to pieces, as ``[position, text]``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

import pandas as pd


def stand_in(name: str, path: list[str] | None = None, **names: Any) -> None:
    module = ModuleType(name)
    vars(module).update(names)
    if path:
        module.__path__ = path
    sys.modules[name] = module


class BaseModule:
    """Takes the place of one that imports Dask."""

    def __init__(self, input_backend: str) -> None:
        pass


(root,) = importlib.util.find_spec("nemo_curator").submodule_search_locations
stand_in("nemo_curator", [root])
stand_in("nemo_curator.modules", [f"{root}/modules"])
stand_in("nemo_curator.modules.base", BaseModule=BaseModule)
stand_in("nemo_curator.datasets", DocumentDataset=None)
stand_in("nemo_curator.utils", [f"{root}/utils"])
stand_in("nemo_curator.utils.import_utils", gpu_only_import=lambda _: None)
DocumentSplitter = importlib.import_module("nemo_curator.modules.splitter").DocumentSplitter
DocumentJoiner = importlib.import_module("nemo_curator.modules.joiner").DocumentJoiner


def answer(texts: list[str], separator: str, most: int) -> dict[str, Any]:
    documents = pd.DataFrame({"id": range(len(texts)), "text": texts})
    segments = DocumentSplitter(separator)._split_partition(documents)
    columns = ["id", "text", "segment_id"]
    joiner = DocumentJoiner(separator, drop_segment_id_field=False)
    whole = joiner._join_partition(segments, columns)
    segments["length"] = segments["text"].str.len()
    joiner = DocumentJoiner(separator, drop_segment_id_field=False, max_length=most, length_field="length")
    pieces = joiner._join_partition(segments, [*columns, "length"])
    return {
        "segments": segments[columns].values.tolist(),
        "whole": whole[["id", "text"]].values.tolist(),
        "pieces": pieces[columns].values.tolist(),
    }


def main() -> None:
    print(json.dumps(importlib.metadata.version("nemo_curator")), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
