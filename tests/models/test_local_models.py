# SPDX-License-Identifier: Apache-2.0
"""`add_class` with fastText models in files and pipelines of scikit-learn, held against these libraries themselves."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.ops.language.fasttext_file import fasttext_layout
from tests.contracts.operator_cases import fingerprints_of, kernels_of

TEXTS = [
    "the river is long\nand wide",
    None,
    "",
    "buy cheap pills now",
    "the long river",
    "cheap cheap offers",
    "漢字 🙂",
] * 30


def table(npartitions=1):
    docs = pd.DataFrame({"text": pd.array(TEXTS, "string[pyarrow]")}, index=pd.RangeIndex(0, 7 * len(TEXTS), 7))
    return dd.from_pandas(docs, npartitions=npartitions)


def computed(docs):
    return docs.compute(scheduler="synchronous")


def write_fasttext(path: Path) -> str:
    """Write a fastText model of four words and two labels, as its own training writes them (version 12)."""
    words, labels, dim = ["</s>", "river", "long", "cheap"], ["__label__good", "__label__bad"], 2
    head = struct.pack("<ii12id", 793712314, 12, dim, 5, 1, 1, 5, 1, 3, 3, 0, 0, 0, 100, 1e-4)
    dictionary = struct.pack("<iiiqq", 6, 4, 2, 10, -1)
    for entry in (*words, *labels):
        dictionary += entry.encode() + b"\0" + struct.pack("<qb", 5, int(entry in labels))
    inputs = np.array([[0.2, 0], [1, 0], [1, 0], [0, 2]], dtype="<f4")
    outputs = np.array([[2, 0], [0, 2]], dtype="<f4")
    matrices = b"".join(b"\0" + struct.pack("<qq", *matrix.shape) + matrix.tobytes() for matrix in (inputs, outputs))
    path.write_bytes(head + dictionary + matrices)
    return str(path)


def test_a_fasttext_file_gives_what_fasttext_gives(tmp_path):
    fasttext = pytest.importorskip("fasttext", reason="needs the language extra (fasttext-predict is not installed)")
    path = write_fasttext(tmp_path / "quality.bin")
    made = table(3).pipe(cdf.add_class, path, into="quality", score_of="good")
    (kernel,) = kernels_of(made)
    assert kernel.price.held_bytes > 100
    assert kernel.compiled
    found = computed(made)
    model = fasttext.load_model(path)
    for text, label, score in zip(found["text"], found["quality"], found["quality_score"], strict=True):
        if pd.isna(text):
            assert pd.isna(label)
            assert pd.isna(score)
            continue
        scores = dict(zip(*model.predict(text.replace("\n", " "), k=2), strict=True))
        assert label == max(scores, key=scores.get).removeprefix("__label__")
        assert score == pytest.approx(min(scores["__label__good"], 1.0), abs=1e-6)
    assert set(found["quality"].dropna()) == {"good", "bad"}
    kept = computed(table().pipe(cdf.keep_class, path, classes="bad"))["text"]
    assert set(kept) == {"buy cheap pills now", "cheap cheap offers"}
    other = write_fasttext(tmp_path / "same.bin")
    assert fingerprints_of(table().pipe(cdf.add_class, path)) == fingerprints_of(table().pipe(cdf.add_class, other))


def test_files_that_are_no_fasttext_models_are_refused(tmp_path):
    path = tmp_path / "model.bin"
    whole = Path(write_fasttext(path)).read_bytes()
    assert fasttext_layout("add_class", str(path)).labels == ("good", "bad")
    for content in (b"", b"not a model", b"x" * 500):
        path.write_bytes(content)
        with pytest.raises(errors.InputError, match=r"model\.bin' is not a fastText model"):
            table().pipe(cdf.add_class, path)
    for size in range(4, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(errors.CorruptFileError, match=r"model\.bin' .* is truncated"):
            table().pipe(cdf.add_class, path)
    with pytest.raises(errors.InputError, match="there is no fastText model"):
        table().pipe(cdf.add_class, tmp_path / "other.ftz")


@pytest.mark.parametrize("number", [-1, -(1 << 62), (1 << 63) - 1])
@pytest.mark.parametrize("place", ["entries", "rows", "columns"])
def test_a_damaged_fasttext_file_is_said(tmp_path, place, number):
    path = tmp_path / "model.bin"
    whole = bytearray(Path(write_fasttext(path)).read_bytes())
    matrix = whole.index(struct.pack("<qq", 4, 2))
    if place == "entries":
        struct.pack_into("<i", whole, 64, max(min(number, (1 << 31) - 1), -(1 << 31)))
    else:
        struct.pack_into("<q", whole, matrix + 8 * (place == "columns"), number)
    path.write_bytes(whole)
    with pytest.raises(errors.CorruptFileError, match=rf"model\.bin' .*({place}=|is truncated|is damaged)"):
        fasttext_layout("add_class", str(path))


def test_a_worker_with_another_copy_of_a_fasttext_model_does_not_use_it(tmp_path):
    path = Path(write_fasttext(tmp_path / "model.bin"))
    made = table().pipe(cdf.add_class, path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(errors.CorruptFileError, match=r"model\.bin' has 272 bytes on this machine, but had 277 bytes"):
        computed(made)
    path.unlink()
    with pytest.raises(errors.InputError, match=r"model\.bin' is not on this machine"):
        computed(made)


@pytest.fixture
def fitted():
    pytest.importorskip("sklearn", reason="needs the models extra (scikit-learn is not installed)")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts = [text for text in TEXTS[:7] if text] * 3
    return make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(
        texts, ["spam" if "cheap" in text else "ham" for text in texts]
    )


def test_a_pipeline_gives_what_scikit_learn_gives(fitted):
    made = table(3).pipe(cdf.add_class, fitted)
    (kernel,) = kernels_of(made)
    assert kernel.price.held_bytes > 60_000_000
    found = computed(made)
    texts = found["text"].dropna().tolist()
    assert found["label"].dropna().tolist() == fitted.predict(texts).tolist()
    np.testing.assert_allclose(
        found["label_score"].dropna().to_numpy(dtype=float), fitted.predict_proba(texts).max(axis=1), atol=1e-6
    )
    assert found["label"].isna().equals(found["text"].isna())
    spam = computed(table().pipe(cdf.add_class, fitted, score_of="spam"))["label_score"].dropna()
    np.testing.assert_allclose(spam.to_numpy(dtype=float), fitted.predict_proba(texts)[:, 1], atol=1e-6)


def test_decisions_and_single_numbers(fitted):
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    texts = ["good river", "bad pills", "river", "pills", "good"]
    machine = make_pipeline(fitted[0], LinearSVC()).fit(texts, [1, 0, 1, 0, 1])
    found = computed(table().pipe(cdf.add_class, cdf.model(machine, max_chars=17)))
    cut = [text[:17] for text in found["text"].dropna()]
    assert found["label"].dropna().tolist() == [str(one) for one in machine.predict(cut)]
    number = make_pipeline(fitted[0], Ridge()).fit(texts, [1.0, 0.0, 0.9, 0.1, 0.8])
    thresholds = {"high": 0.5, "low": 0.0}
    found = computed(table().pipe(cdf.add_class, number, thresholds=thresholds))
    scores = number.predict(found["text"].dropna().tolist())
    np.testing.assert_allclose(found["label_score"].dropna().to_numpy(dtype=float), scores, atol=1e-6)
    assert found["label"].dropna().tolist() == ["high" if score >= 0.5 else "low" for score in scores]
    with pytest.raises(errors.ParameterError, match="a single score"):
        table().pipe(cdf.add_class, number)
    with pytest.raises(errors.ParameterError, match="score_of='high'"):
        table().pipe(cdf.add_class, number, thresholds=thresholds, score_of="high")
    with pytest.raises(errors.ParameterError, match="Fit it first"):
        table().pipe(cdf.add_class, make_pipeline(type(fitted[0])(), LinearSVC()))


def test_a_pickled_file_is_not_loaded(fitted, tmp_path):
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(_Trap(tmp_path / "trapped")))
    with pytest.raises(errors.ParameterError, match="loading it would execute code in it"):
        table().pipe(cdf.add_class, path)
    assert not (tmp_path / "trapped").exists()


class _Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_a_file_of_skops_is_loaded_and_strange_types_in_it_are_not(fitted, tmp_path):
    skops = pytest.importorskip("skops.io", reason="needs the models extra (skops is not installed)")
    skops.dump(fitted, tmp_path / "model.skops")
    made = table().pipe(cdf.add_class, tmp_path / "model.skops")
    pd.testing.assert_frame_equal(computed(made), computed(table().pipe(cdf.add_class, fitted)))
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    strange = make_pipeline(FunctionTransformer(write_fasttext), fitted)
    skops.dump(strange, tmp_path / "strange.skops")
    with pytest.raises(errors.InputError, match=r"not loaded.*write_fasttext"):
        table().pipe(cdf.add_class, tmp_path / "strange.skops")


def test_a_pipeline_that_only_names_classes_says_what_is_missing(fitted):
    from sklearn.ensemble import VotingClassifier

    class Names:
        """Names a class for each text."""

        classes_ = ("a", "b")

        def get_params(self):
            return {}

        def predict(self, texts):
            return ["a"] * len(texts)

    with pytest.raises(
        errors.ParameterError, match=r"returns a class without scores.*predict_proba or decision_function"
    ):
        table().pipe(cdf.add_class, Names(), into="kind")
    hard = VotingClassifier([("one", fitted)], voting="hard").fit(["cheap pills", "dear friend"], ["x", "y"])
    with pytest.raises(errors.ParameterError, match="VotingClassifier returns a class"):
        table().pipe(cdf.add_class, hard, into="kind")


def test_settings_of_other_models_are_refused(fitted):
    def function(texts):
        return [[1.0, 0.0]] * len(texts)

    for name, value in (("revision", "v1"), ("max_tokens", 3), ("max_batch_tokens", 7), ("compute_dtype", "bfloat16")):
        for model, labels in ((fitted, None), (function, ["a", "b"])):
            with pytest.raises(errors.ParameterError, match=f"{name}={value!r} applies only to transformers models"):
                table().pipe(cdf.add_class, cdf.model(model, **{name: value}), into="kind", labels=labels)
        with pytest.raises(errors.ParameterError, match=f"{name}={value!r} applies only to"):
            table().pipe(cdf.add_embedding, cdf.model(function, **{name: value}), dimensions=2)
    with pytest.raises(errors.ParameterError, match="thresholds= is for models that return a single score"):
        table().pipe(cdf.add_class, function, into="kind", labels=["a", "b"], thresholds={"a": 0.5, "b": 0})
    with pytest.raises(errors.ParameterError, match="pooling='cls' applies only to"):
        table().pipe(cdf.add_embedding, function, dimensions=2, pooling="cls")


@pytest.mark.parametrize("share", [0, 0.3, 0.7, 0.99])
def test_a_truncated_file_of_skops_is_named(fitted, tmp_path, share):
    skops = pytest.importorskip("skops.io", reason="needs the models extra (skops is not installed)")
    path = tmp_path / "model.skops"
    skops.dump(fitted, path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(errors.CorruptFileError, match=r"model\.skops' .*(truncated|cannot be loaded).*skops\.io\.dump"):
        table().pipe(cdf.add_class, path)
