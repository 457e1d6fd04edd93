# SPDX-License-Identifier: Apache-2.0
"""Signatures are those of libcudf: its own expected values, and a plain version on any text."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numba import njit

from curator_df.errors import ParameterError
from curator_df.kernels.minhash import sketch as minhash_sketch
from curator_df.kernels.minhash.scheme import (
    Scheme,
    candidate_probability,
    permutations,
    shingle_settings,
    steepest_jaccard,
)
from curator_df.kernels.minhash.signatures import (
    band_hashes,
    has_shingles,
    minhash_signatures,
    signature_bands,
)
from curator_df.kernels.text import lane_code, murmur_windows
from tests.kernels.minhash_reference import (
    band_hash,
    character_shingles,
    murmur_32,
    murmur_64,
    signature,
    word_shingles,
)
from tests.kernels.test_content_hash import normalized


def spanned(texts):
    data = np.frombuffer("".join(texts).encode() or b"\0", dtype=np.uint8)
    lengths = [len(text.encode()) for text in texts]
    return data, np.cumsum([0, *lengths]).astype(np.int64)


def numbers_from(first, count, word):
    return np.arange(first, first + count, dtype=word)


def sketched(texts, word, parameters, *, width=None, words=None):
    """Sketch with the seed 0 and the same multipliers as increments, as libcudf's tests do."""
    data, offsets = spanned(texts)
    found = np.full((len(texts), len(parameters)), np.iinfo(word).max, dtype=word)
    scheme = Scheme("characters" if width else "words", width or words, 1, 1)
    settings = shingle_settings(scheme)
    sketch = getattr(minhash_sketch, f"sketch_{scheme.ngrams}_{32 if word is np.uint32 else 64}")
    sketch(data, offsets, *settings, word(0), parameters, parameters, found)
    return found.tolist()


# libcudf 26.10, cpp/tests/text/minhash_tests.cpp: seed 0, multipliers and increments 10, 11, 12.
FOX = "The quick brown fox jumpéd over the lazy brown dog."
EXPECTED_CHARACTERS = {
    "doc 1": (
        [1392101586, 394869177, 811528444],
        [827364888116975697, 1601854279692781452, 70500662054893256],
    ),
    "this is doc 2": ([211415830, 187088503, 130291444], [18312093741021833, 133793446674258329, 21974512489226198]),
    "doc 3": ([2098117052, 394869177, 799753544], [22474244732520567, 1638811775655358395, 949306297364502264]),
    "d": ([2264583304, 2920538364, 3576493424], [1332357434996402861, 2157346081260151330, 676491718310205848]),
    FOX: ([253327882, 41747273, 302030804], [65816830624808020, 43323600380520789, 63511816333816345]),
    "line six": ([2109809594, 1017470651, 326988172], [629657184954525200, 49741036507643002, 97466271004074331]),
    "line seven": ([1303819864, 850676747, 147107852], [301611977846331113, 101188874709594830, 97466271004074331]),
    "line eight": ([736021564, 720812292, 1405158760], [121498891461700668, 171065800427907402, 97466271004074331]),
    "line nine": ([902780242, 134064807, 1613944636], [54617739511834072, 231454301607238929, 97466271004074331]),
    "line ten": ([547084870, 1748895564, 656501844], [576418665851990314, 231454301607238929, 97466271004074331]),
}
EXPECTED_LONG = {  # multipliers and increments 20, 21, 22; the second is one that libcudf cuts into 64 parts
    "x" * 2048: (
        [1731998032, 315359380, 3193688024],
        [1818322427062143853, 641024893347719371, 1769570368846988848],
    ),
    "y" * (2 << 19): (
        [1293098788, 2860992281, 133918478],
        [1389920339306667795, 421787002125838902, 1759496674158703968],
    ),
}
EXPECTED_WORDS = {  # libcudf's ngrams=4, which are five words
    FOX: ([230924604, 55492793, 963436400], [208926840193078200, 576399628675212695, 312927673584437419]),
    "short row": (
        [2380648568, 1330223236, 279797904],
        [1493265692486268500, 720255058049417768, 2253087432826260995],
    ),
    " ".join(["hello"] * 512): (
        [571536396, 2346676954, 4121817512],
        [1947142336021414174, 1219519365938078011, 491896395854741840],
    ),
}
WORDS = [(0, np.uint32), (1, np.uint64)]


@pytest.mark.parametrize(("column", "word"), WORDS)
def test_libcudf_expects_these_signatures_of_characters(column, word):
    expected = [values[column] for values in EXPECTED_CHARACTERS.values()]
    assert sketched(list(EXPECTED_CHARACTERS), word, numbers_from(10, 3, word), width=4) == expected


@pytest.mark.parametrize(("column", "word"), WORDS)
def test_libcudf_expects_these_signatures_of_long_texts(column, word):
    expected = [values[column] for values in EXPECTED_LONG.values()]
    assert sketched(list(EXPECTED_LONG), word, numbers_from(20, 3, word), width=4) == expected


@pytest.mark.parametrize(("column", "word"), WORDS)
def test_libcudf_expects_these_signatures_of_words(column, word):
    expected = [values[column] for values in EXPECTED_WORDS.values()]
    assert sketched(list(EXPECTED_WORDS), word, numbers_from(10, 3, word), words=5) == expected


def test_the_product_wraps_at_32_bits():
    # The other reading, ((a * h + b) mod 2^61 - 1) mod 2^32 of the whole product, gives 382150299 here.
    assert murmur_32(b"A tes", 1608637543) * 1608637543 > (1 << 61)
    scheme = Scheme("characters", 5, 2, 2)
    a, b = (numbers.tolist() for numbers in scheme.permutations())
    hashes = [murmur_32(shingle.encode(), a[0]) for shingle in character_shingles("A test string", 5)]
    [found] = minhash_signatures(pd.Series(["A test string"]), scheme).tolist()
    assert found == [min((x * h + y) % (1 << 32) for h in hashes) for x, y in zip(a, b, strict=True)]
    assert min((a[0] * h + b[0]) % ((1 << 61) - 1) % (1 << 32) for h in hashes) == 382150299 != found[0]


def test_permutations_are_those_of_nemo_curator():
    pairs = [
        list(zip(*(n[:4].tolist() for n in permutations(260, 42, use_64_bit_hash=wide)), strict=True))
        for wide in (False, True)
    ]
    assert pairs == [
        [(1608637543, 1273642419), (1935803229, 787846414), (996406379, 1201263687), (423734973, 415968276)],
        [
            (2297359619001564596, 1396682528897996046),
            (1973689801170867272, 1819927849474927636),
            (572192888165898362, 571748048327668950),
            (1071453510346823115, 2143071682933157236),
        ],
    ]


def test_a_known_signature_of_64_bits():
    scheme = Scheme("characters", 5, 2, 2, use_64_bit_hash=True)
    expected = [223193964715524651, 281856243729200576, 1646061038438207, 124954735237130400]
    assert minhash_signatures(pd.Series(["A test string"]), scheme).tolist() == [expected]


SCHEMES = st.builds(
    Scheme,
    ngrams=st.sampled_from(["characters", "words"]),
    ngram_size=st.integers(2, 30),
    num_bands=st.integers(1, 5),
    minhashes_per_band=st.integers(1, 4),
    use_64_bit_hash=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    normalize=st.sampled_from([None, "case_and_spaces"]),
)
ALIKE = st.text(st.sampled_from("aAzZ 09.\t\n\x1c\x85\xa0\u3000ßİΣÉд我𐐀\U0001f600\0"), max_size=300)
REPEATED = st.builds(lambda text, times: text * times, st.text(max_size=20), st.integers(1, 300))
TEXTS = st.lists(st.none() | st.text() | ALIKE | REPEATED, max_size=6)


def expected_signature(text, scheme):
    text = normalized(text) if scheme.normalize else text
    shingles = character_shingles(text, scheme.ngram_size)
    if scheme.ngrams == "words":
        shingles = word_shingles(text.split(), scheme.ngram_size)
    a, b = (numbers.tolist() for numbers in scheme.permutations())
    return signature(shingles, a[0], a, b, scheme.bits)


@given(TEXTS, SCHEMES)
@example(["a" * 5000 + "é" + "b" * 5000, "é" * 5000, "ab " * 3000], Scheme("characters", 24, 2, 2))
@example(["a" * 40_000 + " b c", "x " * 9000, " ".join(["w" * 9000] * 12)], Scheme("words", 5, 2, 2))
def test_any_text_with_any_scheme(texts, scheme):
    texts = [None if text is None else text.encode("utf-8", "ignore").decode() for text in texts]
    expected = [expected_signature(text or "", scheme) for text in texts]
    series = pd.Series(texts, dtype="string[pyarrow]")
    assert minhash_signatures(series, scheme).tolist() == expected
    chunked = pa.chunked_array([pa.array(["no", *texts], pa.string()).slice(1), pa.array(texts, pa.string())])
    again = pd.Series(pd.ArrowDtype(pa.string()).__from_arrow__(chunked))
    assert minhash_signatures(again, scheme).tolist() == expected * 2


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 15, 16, 17, 33])
def test_the_hash_of_any_length(length):
    data = np.frombuffer(b"zz" + bytes(range(200, 200 + length)) + b"", dtype=np.uint8)
    assert murmur_windows.murmur_32(data, 2, length, np.uint32(7)) == murmur_32(data.tobytes()[2:], 7)
    assert murmur_windows.murmur_64(data, 2, length, np.uint64(7)) == murmur_64(data.tobytes()[2:], 7)


def test_a_hash_of_zero_counts_as_one():
    seed = zero_seed()
    assert murmur_32(bytes(4), seed) == 0
    data = np.zeros(4, dtype=np.uint8)
    assert murmur_windows.murmur_32(data, 0, 4, np.uint32(seed)) == 1


@pytest.mark.parametrize("can_gather", [False, murmur_windows.CAN_GATHER], ids=["one by one", "as here"])
def test_runs_of_any_lengths_are_hashed_side_by_side(monkeypatch, can_gather):
    monkeypatch.setattr(murmur_windows, "CAN_GATHER", can_gather)
    hash_runs = njit(murmur_windows._hash_word_runs_32.py_func)
    choose, zeros = np.random.default_rng(5), np.uint32(zero_seed())
    for size, gap, seed in [(1, 0, np.uint32(7)), (5, 0, np.uint32(7)), (3, 1, np.uint32(7)), (1, 0, zeros)]:
        lengths = choose.integers(1, 40, 100 + size - 1)
        lengths[0] = 4
        ends = np.cumsum(lengths + gap) - gap
        data = choose.integers(0, 256, ends[-1] + 3, dtype=np.uint8)
        data[:4] = 0
        hashes, starts, sizes = np.empty((3, 100), dtype=np.uint32)
        hash_runs(data, ends, 100, size, gap, seed, starts, sizes, hashes)
        begins = [0, *(ends[:99] + gap)]
        runs = [data[begin:end].tobytes() for begin, end in zip(begins, ends[size - 1 :], strict=True)]
        assert hashes.tolist() == [max(murmur_32(run, int(seed)), 1) for run in runs]


def zero_seed():
    """Run the one round of MurmurHash3_x86_32 over four zero bytes backwards, from the state that finishes as 0."""
    state = (4 - 0xE6546B64) * pow(5, -1, 1 << 32) % (1 << 32)
    return (state >> 13 | state << 19) % (1 << 32)


@pytest.mark.parametrize("ngrams", ["characters", "words"])
@pytest.mark.parametrize("normalize", [None, "case_and_spaces"])
def test_bytes_that_are_not_utf8_have_signatures(ngrams, normalize):
    broken = pa.array([b"A\xff B\xe4", b"\x80" * 5000, b"\xf0\x9f", b"\xe4\x80" * 3000, b"a" * 3000 + b"\xc3"])
    texts = pd.Series(pd.ArrowDtype(pa.string()).__from_arrow__(broken.view(pa.string())))
    scheme = Scheme(ngrams, 24, 2, 2, normalize=normalize)
    signatures = minhash_signatures(texts, scheme)
    assert len(np.unique(signatures, axis=0)) == 5
    assert (signatures == minhash_signatures(texts[::-1], scheme)[::-1]).all()


def test_bands_are_hashed_value_by_value():
    scheme = Scheme("characters", 3, 4, 3)
    texts = pd.Series(["one text", "", None, "one text", "another"] * 300, dtype="string[pyarrow]")
    signatures = minhash_signatures(texts, scheme)
    found = band_hashes(texts, scheme)
    assert found[:5].tolist() == [
        [band_hash(values) for values in np.array(row).reshape(4, 3).tolist()] for row in signatures[:5].tolist()
    ]
    assert (found == signature_bands(signatures, scheme)).all()
    assert has_shingles(signatures)[:5].tolist() == [True, False, False, True, True]


def test_bands_may_be_cut_anew():
    scheme = Scheme("characters", 3, 4, 3)
    signatures = minhash_signatures(pd.Series(["one text"]), scheme)
    assert signature_bands(signatures, Scheme("characters", 3, 2, 5)).shape == (1, 2)
    with pytest.raises(ParameterError, match=r"12 hashes.*needs 15"):
        signature_bands(signatures, Scheme("characters", 3, 3, 5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ngrams": "lines"}, "ngrams='lines' is not one of 'characters', 'words'"),
        ({"ngram_size": 1}, "ngram_size=1 is not from 2 to 192"),
        ({"ngrams": "words", "ngram_size": 300}, "ngram_size=300 is not from 1 to 256"),
        ({"num_bands": 0}, "num_bands=0 and minhashes_per_band=13: both"),
        ({"seed": -1}, "seed=-1 must be from 0"),
        ({"normalize": "lower"}, "normalize='lower' is not one of None, 'case_and_spaces'"),
    ],
)
def test_what_cannot_be_computed_is_refused(change, message):
    settings = {"ngrams": "characters", "ngram_size": 24, "num_bands": 20, "minhashes_per_band": 13}
    with pytest.raises(ParameterError, match=message):
        Scheme(**{**settings, **change})


def test_the_curve_is_the_published_one():
    jaccards = np.array([0.6, 0.7, 0.75, 0.8, 0.85, 0.9])
    assert candidate_probability(jaccards, 20, 13).round(3).tolist() == [0.026, 0.177, 0.382, 0.677, 0.924, 0.997]
    assert float(candidate_probability(0.8, 14, 8)) == pytest.approx(0.924, abs=5e-4)
    assert steepest_jaccard(14, 8) == pytest.approx(0.719, abs=5e-4)
    assert Scheme("words", 5, 14, 8).candidate_probability(1.0) == 1.0


def test_the_header_is_all_but_name_and_source():
    one, other = Scheme("words", 5, 14, 8, name="a"), Scheme("words", 5, 14, 8, source="b")
    assert one.header() == other.header() != Scheme("words", 5, 14, 8, seed=1).header()
    json.dumps(one.header())


def test_agreement_estimates_the_similarity_of_real_texts(shared_data):
    with gzip.open(shared_data / "docs_neardup.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = {row["id"]: row["text"] for row in map(json.loads, lines)}
    truth = pd.read_parquet(shared_data / "truth_char24.parquet")
    truth = truth[truth["id_a"].isin(texts) & truth["id_b"].isin(texts)]
    ids = sorted(texts)
    signatures = minhash_signatures(pd.Series([texts[number] for number in ids]), Scheme("characters", 24, 20, 13))
    places = {number: place for place, number in enumerate(ids)}
    first, second = (signatures[[places[number] for number in truth[side]]] for side in ("id_a", "id_b"))
    errors = (first == second).mean(axis=1) - truth["jaccard"].to_numpy()
    deviation = np.sqrt((truth["jaccard"] * (1 - truth["jaccard"]) / 260).mean())
    assert abs(errors.mean()) < 0.006
    assert np.sqrt((errors**2).mean()) < 1.15 * deviation


def test_the_code_for_several_runs_hashes_as_many_as_its_caller_expects():
    assert lane_code.LANES == murmur_windows.LANES
