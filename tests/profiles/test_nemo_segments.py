# SPDX-License-Identifier: Apache-2.0
"""`split_documents` and `join_documents` against nemo_curator 0.9.0, run by the Python of ``CURATOR_DF_NEMO_PYTHON``.

See ``test_nemo_parity.py`` for how to make one; this one needs pandas 2 too. What is compared lies in one partition, which is all
that NeMo's joiner looks at. Separators are of one character: longer ones are regular expressions there, and count as one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.kernels.rows.segments import split_block
from curator_df.ops.rows.document_joiner import DocumentJoiner, Joining, SegmentReader
from tests.profiles.peers import TEXTS, Peer, running

PYTHON = os.environ.get("CURATOR_DF_NEMO_PYTHON", "")


def has_pandas() -> bool:
    asked = [PYTHON, "-c", "import pandas; assert pandas.__version__.startswith('2.')"]
    return bool(PYTHON) and subprocess.run(asked, check=False, stderr=subprocess.DEVNULL).returncode == 0


pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not has_pandas(), reason="needs CURATOR_DF_NEMO_PYTHON: a Python that has nemo_curator 0.9.0 and pandas 2"
    ),
]


@pytest.fixture(scope="module")
def nemo() -> Iterator[Peer]:
    with running(PYTHON, "nemo_segments.py") as peer:
        assert peer.hear() == "0.9.0"
        yield peer


def joined(segments: pd.DataFrame, separator: str, most: int | None) -> pd.DataFrame:
    joining = Joining("text", "id", "segment_id", separator, most, True, 1_000_000)
    joiner = DocumentJoiner(joining)
    made = joiner.add(segments, SegmentReader(joining).take(segments).begins)
    return pd.concat([*made, *joiner.end()])


@settings(max_examples=150)
@given(
    st.lists(st.one_of(TEXTS, st.text("ab .\n", max_size=20)), min_size=1, max_size=4),
    st.sampled_from(["\n", " ", ".", "a", "é"]),
    st.integers(1, 60),
)
@example(["", "\n", "a\n\nb"], "\n", 1)
def test_segments_and_what_comes_of_them_are_alike(nemo, texts, separator, most):
    theirs = nemo.ask({"texts": texts, "separator": separator, "most": most})
    block = pd.DataFrame({"id": range(len(texts)), "text": pd.array(texts, "string[pyarrow]")})
    segments = pd.concat(split_block(block, text="text", separator=separator, segment_id="segment_id"))
    assert segments.values.tolist() == theirs["segments"]
    assert joined(segments, separator, None)[["id", "text"]].values.tolist() == theirs["whole"]
    assert joined(segments, separator, most)[["id", "text", "segment_id"]].values.tolist() == theirs["pieces"]
