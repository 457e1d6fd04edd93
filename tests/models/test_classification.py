# SPDX-License-Identifier: Apache-2.0
"""`add_class` and `keep_class`: models as files, functions, what numbers mean, and which rows go."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.ranges.rejects import reject_rows
from curator_df.memory.process_cache import cached
from curator_df.memory.resources import NO_LIMITS
from curator_df.models.classifiers.catalogue import Classifier
from curator_df.models.classifiers.class_scores import ClassScores
from curator_df.models.inference import LoadedModel
from tests.contracts.operator_cases import fingerprints_of, kernels_of
from tests.models.tiny_models import write_bert

TEXTS = ["the river is long", None, "", "short water " * 30, "one of them", "not in a country"]
LABELS = ("good", "bad", "ugly")


def table(texts=TEXTS, npartitions=1):
    docs = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}, index=pd.RangeIndex(0, 7 * len(texts), 7))
    return dd.from_pandas(docs, npartitions=npartitions)


def letters(texts):
    return [[10 - len(text), len(text), 0] for text in texts]


def computed(docs):
    return docs.compute(scheduler="synchronous")


@pytest.fixture(scope="module")
def three_classes(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("classes"), labels=LABELS, seed=1)


@pytest.fixture(scope="module")
def one_number(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("number"), labels=("LABEL_0",), seed=2)


def logits(folder, texts):
    """Return what transformers makes of each text alone."""
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    module = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        made = [module(**tokenizer(text, truncation=True, return_tensors="pt")).logits[0] for text in texts]
        return torch.stack(made)


def test_classes_and_probabilities_are_those_of_transformers(three_classes):
    wanted = logits(three_classes, [text for text in TEXTS if text is not None]).softmax(1).numpy()
    result = computed(table(npartitions=2).pipe(cdf.add_class, three_classes))
    assert result["label"].isna().tolist() == result["label_score"].isna().tolist() == [text is None for text in TEXTS]
    assert result["label"].dropna().tolist() == [LABELS[place] for place in wanted.argmax(1)]
    np.testing.assert_allclose(result["label_score"].dropna().to_numpy(float), wanted.max(1), atol=1e-5)
    assert len(set(result["label"].dropna())) > 1
    renamed = computed(table().pipe(cdf.add_class, three_classes, labels=["x", "y", "z"], into="kind"))
    assert renamed["kind"].dropna().tolist() == ["xyz"[place] for place in wanted.argmax(1)]


@pytest.mark.parametrize("how", [{}, {"max_batch_tokens": 1}, {"model_inference_batch_size": 3}], ids=str)
def test_scores_do_not_depend_on_batches_partitions_order_or_memory(three_classes, how):
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    texts = [text for text in TEXTS if text] * 5
    wanted = computed(table(texts).pipe(cdf.add_class, cdf.model(three_classes, max_batch_tokens=1_000)))

    def same(found):
        assert found["label"].tolist() == wanted["label"].tolist()
        found, scores = (docs["label_score"].to_numpy(float) for docs in (found, wanted))
        np.testing.assert_allclose(found, scores, atol=1e-5)

    same(computed(table(texts, npartitions=4).pipe(cdf.add_class, cdf.model(three_classes, **how))))
    same(computed(table(texts[::-1]).pipe(cdf.add_class, cdf.model(three_classes, **how))).iloc[::-1])

    def scarce(module, args, given):
        if given["input_ids"].numel() > 70:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    docs = table(texts).pipe(cdf.add_class, cdf.model(three_classes, **{"max_batch_tokens": 1_000, **how}))
    (kernel,) = kernels_of(docs)
    model = kernel.parameters["model"]
    cached((model, NO_LIMITS), lambda: LoadedModel(model))._weights.module.register_forward_pre_hook(
        scarce, with_kwargs=True
    )
    outcome = kernel.run(computed(table(texts)))
    same(outcome.block)
    assert (outcome.counters["batches_halved"] > 0) == ("max_batch_tokens" not in how)


@pytest.mark.parametrize(
    ("scores", "made", "classes", "numbers"),
    [
        (ClassScores(("low", "high"), "one", (0.7,)), [[np.nan], [0.7], [0.6]], [-1, 1, 0], [None, 0.7, 0.6]),
        (
            ClassScores(("a", "b"), "probabilities"),
            [[np.nan, 1], [np.inf, 1], [-np.inf, 1]],
            [-1, -1, 1],
            [None, None, 1],
        ),
        (ClassScores(("a", "b"), "largest"), [[1, np.nan], [2, 1]], [-1, 0], [None, 2]),
        (ClassScores(("a", "b"), "largest", column=1), [[np.nan, 1], [2, 1]], [-1, 0], [None, 1]),
    ],
    ids=["one number", "probabilities", "largest", "of one class"],
)
def test_what_is_no_number_is_no_class(scores, made, classes, numbers):
    found, given = scores.read(np.array(made, dtype=np.float32))
    assert found.tolist() == classes
    assert [None if np.isnan(one) else one for one in given.tolist()] == pytest.approx(numbers)


def test_rows_of_which_a_function_makes_no_number_are_null_or_go():
    def odd(texts):
        return [[np.nan, 1.0] if text.startswith("one") else [0.0, 1.0] for text in texts]

    found = computed(table().pipe(cdf.add_class, odd, labels=["a", "b"]))
    none = [text is None or text.startswith("one") for text in TEXTS]
    assert found["label"].isna().tolist() == found["label_score"].isna().tolist() == none
    (kernel,) = kernels_of(table().pipe(cdf.keep_class, odd, labels=["a", "b"], classes="b"))
    assert kernel.run(computed(table())).dropped == {"no_class": sum(none)}


def test_rows_of_other_classes_go_with_their_columns_left_to_those_that_stay(three_classes):
    every = computed(table(npartitions=2).pipe(cdf.add_class, three_classes))
    docs = table(npartitions=2).pipe(cdf.keep_class, three_classes, classes=["good", "ugly"], into="label")
    pd.testing.assert_frame_equal(computed(docs), every[every["label"].isin(["good", "ugly"]).fillna(False)])
    (kernel,) = kernels_of(docs)
    (same,) = kernels_of(table().pipe(cdf.keep_class, three_classes, classes=["good", "ugly"]))
    outcome, wanted = (each.run(computed(table())) for each in (kernel, same))
    assert outcome.dropped == wanted.dropped
    assert outcome.block["text"].equals(wanted.block["text"])
    assert outcome.rejects()[1]["rule"] == wanted.rejects()[1]["rule"]
    with pytest.raises(
        errors.ParameterError, match=r"keep_class: classes= has 'nice', .* classes among: 'good', 'bad', 'ugly'"
    ):
        table().pipe(cdf.keep_class, three_classes, classes="nice")


def test_one_number_becomes_a_class_by_tiers(one_number):
    wanted = logits(one_number, [text for text in TEXTS if text is not None])[:, 0].numpy()
    middle = float(np.median(wanted)) + 1e-4
    with pytest.raises(errors.ParameterError, match="returns a single score"):
        table().pipe(cdf.add_class, one_number)
    result = computed(table().pipe(cdf.add_class, one_number, thresholds={"low": -1e9, "high": middle}))
    np.testing.assert_allclose(result["label_score"].dropna().to_numpy(float), wanted, atol=1e-5)
    assert result["label"].dropna().tolist() == ["high" if number >= middle else "low" for number in wanted]
    clipped = Classifier("ours", str(one_number), "here", thresholds={"yes": middle, "no": 0}, clip=(middle, middle))
    found = computed(table().pipe(cdf.add_class, clipped))
    assert set(found["label"].dropna()) == {"yes"}
    np.testing.assert_allclose(found["label_score"].dropna().to_numpy(float), middle, atol=1e-6)


@pytest.mark.parametrize(
    ("thresholds", "said"),
    [
        ({"hi": "1", "lo": 0.0}, r"thresholds\['hi'\]='1' must be a number, not str"),
        ({"hi": None, "lo": 0.0}, r"thresholds\['hi'\]=None must be a number, not NoneType"),
        ({"hi": 0.0, "lo": 0.0}, r"thresholds=\{'hi': 0.0, 'lo': 0.0\} must give each tier a different minimum score"),
        (
            {"hi": float("nan"), "lo": 0.0},
            r"thresholds=\{'hi': nan, 'lo': 0.0\} must give each tier a different minimum score",
        ),
        (
            {"hi": 1.0, "lo": -np.inf},
            r"thresholds=\{'hi': 1.0, 'lo': -inf\} must give each tier a different minimum score",
        ),
    ],
)
def test_tiers_that_are_no_thresholds_are_refused(one_number, thresholds, said):
    for operator, given in ((cdf.add_class, {}), (cdf.keep_class, {"classes": "hi"})):
        with pytest.raises(errors.ParameterError, match=f"^{operator.__name__}: {said}"):
            table().pipe(operator, one_number, thresholds=thresholds, **given)


def test_labels_are_refused_where_tiers_name_the_classes(one_number):
    thresholds = {"hi": np.float32(0.5), "lo": 0}
    assert table().pipe(cdf.add_class, one_number, thresholds=thresholds).columns.tolist() == [
        "text",
        "label",
        "label_score",
    ]
    for labels in ("x", ["hi", "lo"], []):
        with pytest.raises(errors.ParameterError, match=r"labels=\[.*\] does not apply.*thresholds= names its classes"):
            table().pipe(cdf.add_class, one_number, labels=labels, thresholds=thresholds)


def test_no_class_at_all_cannot_be_kept():
    said = r"is empty, so no row would be kept\. Use at least one of: 'good', 'bad', 'ugly'"
    with pytest.raises(errors.ParameterError, match=rf"keep_class: classes=\[\] {said}"):
        table().pipe(cdf.keep_class, letters, labels=LABELS, classes=[])
    with pytest.raises(errors.ParameterError, match=rf"keep_class: classes=\(\) {said}"):
        table().pipe(cdf.keep_class, letters, labels=LABELS, classes=())


def test_rows_of_other_classes_go_with_class_and_score(three_classes):
    classes = computed(table().pipe(cdf.add_class, three_classes))
    stays = classes["label"].dropna().iloc[0]
    docs = table().pipe(cdf.keep_class, three_classes, classes=stays)
    assert computed(docs)["text"].tolist() == classes["text"][classes["label"] == stays].tolist()
    block = computed(table())
    outcome = kernels_of(docs)[0].run(block)
    rejects = reject_rows("keep_class", block, outcome, ["a.jsonl"], block.iloc[:0])
    gone = classes[~(classes["label"] == stays).fillna(False)]
    assert rejects["reject_rule"].tolist() == gone["label"].tolist()
    assert rejects["reject_reason"].tolist() == [
        f"class_{name}" if name is not pd.NA else "no_class" for name in gone["label"]
    ]
    np.testing.assert_allclose(
        rejects["reject_value"].to_numpy(float, na_value=np.nan), gone["label_score"].to_numpy(float, na_value=np.nan)
    )
    assert sum(outcome.dropped.values()) == len(gone)


def test_a_model_of_no_classes_is_refused(three_classes, tmp_path):
    folder = write_bert(tmp_path)
    with pytest.raises(errors.ParameterError, match="no weights for classifier"):
        computed(table().pipe(cdf.add_class, folder, labels=["LABEL_0", "LABEL_1"]))


def test_functions_give_classes_too():
    result = computed(table().pipe(cdf.add_class, letters, labels=LABELS))
    assert result["label"].dropna().tolist() == ["bad", "good", "bad", "bad", "bad"]
    assert result["label_score"].dropna().tolist() == [17, 10, 360, 11, 16]
    kept = computed(table().pipe(cdf.keep_class, letters, classes=["good", "ugly"], labels=LABELS))
    assert kept["text"].tolist() == [""]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "labels="),
        ({"labels": ["a", "a"]}, "2 different names"),
        ({"labels": ["a", 1]}, "must hold only str"),
    ],
)
def test_what_does_not_fit_a_function_is_refused(arguments, said):
    with pytest.raises(errors.ParameterError, match=said):
        table().pipe(cdf.add_class, letters, **arguments)


def test_a_class_that_is_not_there_cannot_be_kept():
    with pytest.raises(errors.ParameterError, match=r"'fine'.*'good', 'bad', 'ugly'"):
        table().pipe(cdf.keep_class, letters, classes="fine", labels=LABELS)


def test_a_catalogue_entry_is_one_of_published_facts():
    for entry in (cdf.classifiers.FINEWEB_EDU, cdf.classifiers.FINEWEB_MIXTRAL_EDU):
        scores = ClassScores.of("add_class", None, (), 1, entry.thresholds, entry.clip, "probabilities")
        codes, numbers = scores.read(np.array([[-1], [2.4999], [2.5], [6]], dtype=np.float32))
        assert [scores.labels[code] for code in codes] == ["low_quality", "low_quality", "high_quality", "high_quality"]
        assert (numbers.min(), numbers.max()) == (0, 5)


def test_batches_are_no_part_of_what_a_run_compares(three_classes):
    one = table().pipe(cdf.add_class, three_classes)
    two = table().pipe(cdf.add_class, cdf.model(three_classes, max_batch_tokens=64, model_inference_batch_size=2))
    other = table().pipe(cdf.add_class, cdf.model(three_classes, max_tokens=20))
    assert fingerprints_of(one) == fingerprints_of(two) != fingerprints_of(other)
