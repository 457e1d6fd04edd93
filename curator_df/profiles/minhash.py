# SPDX-License-Identifier: Apache-2.0
"""Published MinHash schemes: shingles and bands as data, each with its source.

A scheme has the collision probabilities that its source states: the same shingles, bands and hashes per band. The
hashes are always those of `kernels.minhash.signatures`, so signatures of another program cannot be compared with these,
except that `NEMO` follows cuDF's. To define your own scheme, use
``Scheme("words", 5, num_bands=20, minhashes_per_band=5)``; to change one,
``FINEWEB.replace(use_64_bit_hash=False)``. See ``docs/near_duplicates.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from curator_df.kernels.minhash.scheme import Scheme, candidate_probability, steepest_jaccard
from curator_df.suggestions import no_such_name

__all__ = [
    "DATA_JUICER",
    "DEFAULT",
    "FINEWEB",
    "NEMO",
    "REDPAJAMA_V2",
    "Scheme",
    "candidate_probability",
    "steepest_jaccard",
]

# NeMo Curator 0.9, FuzzyDuplicatesConfig: char_ngrams=24, num_buckets=20, hashes_per_bucket=13, use_64_bit_hash=False,
# seed=42. The same numbers in 1.4, FuzzyDeduplicationWorkflow.
NEMO = Scheme(
    "characters",
    24,
    num_bands=20,
    minhashes_per_band=13,
    seed=42,
    name="NEMO",
    source="NeMo Curator 0.9, FuzzyDuplicatesConfig",
)

# NEMO, but operators use 64-bit hashes for a billion rows or more.
DEFAULT = NEMO.replace(name="DEFAULT", source=NEMO.source)

# datatrove 0.10, examples/fineweb.py: n_grams=5, num_buckets=14, hashes_per_bucket=8, precision=64, seed=1. datatrove splits
# words with spaCy after simplify_text, which also removes punctuation; here only case and white space are normalized.
FINEWEB = Scheme(
    "words",
    5,
    num_bands=14,
    minhashes_per_band=8,
    use_64_bit_hash=True,
    seed=1,
    normalize="case_and_spaces",
    name="FINEWEB",
    source="datatrove 0.10, examples/fineweb.py; Penedo et al., arXiv 2406.17557",
)

# data-juicer, document_minhash_deduplicator: 256 permutations, jaccard_threshold=0.7, window_size=5, lowercase=True, of
# which its optimizer makes 25 bands of 10.
DATA_JUICER = Scheme(
    "words",
    5,
    num_bands=25,
    minhashes_per_band=10,
    normalize="case_and_spaces",
    name="DATA_JUICER",
    source="data-juicer, document_minhash_deduplicator at threshold 0.7",
)

# RedPajama-V2: 128 permutations of 13 words, 9 bands of 13 for a similarity of 0.8.
REDPAJAMA_V2 = Scheme(
    "words",
    13,
    num_bands=9,
    minhashes_per_band=13,
    normalize="case_and_spaces",
    name="REDPAJAMA_V2",
    source="RedPajama-Data v2, minhash signatures for 0.8; arXiv 2411.12372",
)

if not TYPE_CHECKING:  # with it, a type checker would take any name for a public one
    __getattr__ = no_such_name("curator_df.minhash", __all__)
