# SPDX-License-Identifier: Apache-2.0
"""Names and places by presidio on small spaCy pipelines made here, beside what rules find."""

from __future__ import annotations

import concurrent.futures
import hashlib
import importlib.util
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from unittest import mock

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import curator_df as cdf
from curator_df.errors import CorruptFileError, InputError, MissingExtraError, ParameterError
from curator_df.memory.process_cache import release_held
from curator_df.models import presidio
from curator_df.models.presidio import ENTITIES, OF_PIPELINE, RECOGNIZERS, apart
from curator_df.ops.cleaning import redaction as pii_entities
from curator_df.ops.cleaning.redaction import RedactionSettings, redact_texts
from tests.contracts.operator_cases import computed, fingerprints_of, kernels_of
from tests.core.runner.fake_client import inline_cluster

# Looked for and not imported: each process that collects the tests would take two seconds for them, and hold 43 MB.
if any(importlib.util.find_spec(name) is None for name in ("spacy", "presidio_analyzer")):
    pytest.skip("needs the extra presidio (spaCy and presidio-analyzer)", allow_module_level=True)

PATTERNS = [
    {"label": "PERSON", "pattern": "Ann Smith"},
    {"label": "PERSON", "pattern": "Jürgen Groß"},
    {"label": "PERSON", "pattern": "ann.smith@example.org"},
    {"label": "GPE", "pattern": "Paris"},
    {"label": "GPE", "pattern": "東京"},
    {"label": "MONEY", "pattern": "9 euros"},
]
LETTER = "Ann Smith (ann.smith@example.org, +49 30 1234567) went from Paris to Köln with Jürgen Groß for 9 euros."
BOTH = ("PERSON", "LOCATION")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a pipeline of patterns."""
    import spacy

    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns(PATTERNS)
    made = tmp_path_factory.mktemp("pipeline") / "rules"
    nlp.to_disk(made)
    yield made
    release_held()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a pipeline with a component that has learnt some names."""
    import spacy
    from spacy.training import Example

    names, sentence = ["Ann", "Bob", "Carla", "Dan"], "{} lives in Paris ."
    nlp = spacy.blank("en")
    nlp.add_pipe("ner")
    examples = []
    for name in names:
        text = sentence.format(name)
        place = text.index("Paris")
        spans = [(0, len(name), "PERSON"), (place, place + 5, "GPE")]
        examples.append(Example.from_dict(nlp.make_doc(text), {"entities": spans}))
    spacy.util.fix_random_seed(0)
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(25):
        nlp.update(examples, sgd=optimizer)
    made = tmp_path_factory.mktemp("pipeline") / "trained"
    nlp.to_disk(made)
    return made


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Fail where anything but this machine is looked up."""
    looked_up = socket.getaddrinfo

    def only_here(host, *arguments, **named):
        assert host in {"127.0.0.1", "localhost", "::1", None}, f"{host} was looked up"
        return looked_up(host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", only_here)


def table(texts, npartitions=1):
    rows = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")})
    return dd.from_pandas(rows, npartitions=npartitions)


def redacted(texts, folder, *, entities=BOTH, npartitions=1, **named):
    found = cdf.presidio(entities=entities, model=folder)
    made = computed(cdf.redact_pii(table(texts, npartitions), presidio=found, **named))
    return [None if text is pd.NA else text for text in made["text"]]


def test_names_and_places_go_beside_what_rules_find(folder):
    assert redacted([LETTER], folder) == [
        "<PERSON> (<EMAIL>, <PHONE>) went from <LOCATION> to Köln with <PERSON> for 9 euros."
    ]
    assert redacted([LETTER], folder, entities="LOCATION", kinds=["phone"]) == [
        LETTER.replace("Paris", "<LOCATION>").replace("+49 30 1234567", "<PHONE>")
    ]


def test_an_address_is_one_whatever_the_model_finds_in_it(folder):
    text = "to ann.smith@example.org now"
    assert redacted([text], folder) == ["to <EMAIL> now"]
    assert redacted([text], folder, kinds=()) == ["to <PERSON> now"]


def test_a_mask_is_as_long_as_what_it_hides(folder):
    assert redacted(["of Jürgen Groß, Paris"], folder, replacement="mask") == ["of ***********, *****"]


def test_digests_are_those_of_the_rules(folder):
    def digest(value, kind, key):
        made = hashlib.blake2b(value.encode(), digest_size=8, key=key, person=kind.encode()).hexdigest()
        return f"<{kind.upper()}_{made}>"

    (made,) = redacted(["Ann Smith a@b.org Paris"], folder, replacement="hash", key="secret")
    assert made == " ".join(
        digest(value, kind, b"secret")
        for value, kind in (("Ann Smith", "PERSON"), ("a@b.org", "email"), ("Paris", "LOCATION"))
    )
    assert redacted(["Ann Smith"], folder, replacement="hash") != redacted(["Jürgen Groß"], folder, replacement="hash")


def test_of_entities_that_overlap_the_surest_stays_then_the_longest_then_the_first():
    spans = [
        (4, 9, "B", 0.5),
        (0, 5, "A", 0.9),
        (9, 12, "C", 0.4),
        (10, 14, "D", 0.4),
        (20, 22, "F", 1.0),
        (20, 22, "E", 1.0),
    ]
    wanted = [(0, 5, "A"), (10, 14, "D"), (20, 22, "E")]
    assert apart(spans) == apart(spans[::-1]) == wanted
    assert apart([(2, 5, "B", 1.0), (0, 3, "A", 1.0)]) == [(0, 3, "A")]


def test_texts_of_other_scripts_nulls_and_empty_ones(folder):
    texts = ["😀 Jürgen Groß é", None, "", "e\u0301 東京 Paris", " \n", "…"]
    made = redacted(texts, folder, npartitions=2)
    assert made == ["😀 <PERSON> é", None, "", "e\u0301 <LOCATION> <LOCATION>", " \n", "…"]


def test_bytes_that_are_no_utf8_go_through(folder):
    data = b"\xff\xfe Ann Smith \xed\xa0\x80 Paris"
    array = pa.LargeStringArray.from_buffers(1, pa.py_buffer(np.array([0, len(data)])), pa.py_buffer(data))
    texts = pd.Series(pd.StringDtype("pyarrow").__from_arrow__(pa.chunked_array([array])))
    changed, _ = redact_texts(texts, RedactionSettings((), "label", b"", cdf.presidio(model=folder)))
    wanted = b"\xff\xfe <PERSON> \xed\xa0\x80 <LOCATION>"
    assert changed.array.__arrow_array__().chunk(0).buffers()[2].to_pybytes() == wanted


def test_a_long_text_is_as_its_lines_are(folder):
    lines = [f"{number} Ann Smith wrote to Jürgen Groß of Paris, x{number}@example.org." for number in range(300)]
    assert len("\n".join(lines).encode()) > 4 * pii_entities.PIECE_BYTES
    assert redacted(["\n".join(lines)], folder) == ["\n".join(redacted(lines, folder, npartitions=7))]


def test_the_trained_pipeline_finds_names(trained):
    assert (
        redacted(["Ann lives in Paris .", "Carla lives in Paris ."], trained) == ["<PERSON> lives in <LOCATION> ."] * 2
    )


def test_threads_find_the_same(trained):
    found = cdf.presidio(model=trained)
    texts = [f"{name} {number} lives in Paris ." for number in range(50) for name in ("Ann", "Bob", "Carla")]
    alone = [found.find(text) for text in texts]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(found.find, texts)) == alone
    assert any(alone)


def test_recognizers_of_presidio_work_without_a_network(folder):
    made = redacted(
        ["see https://example.org/a or a@b.org, a@b.zzz"], folder, entities=("URL", "EMAIL_ADDRESS"), kinds=()
    )
    assert made == ["see <URL> or <EMAIL_ADDRESS>, a@b.zzz"]


def test_only_the_named_recognizers_are_made(folder):
    made = presidio._recognizers("en", ("PERSON", "URL"))
    assert [(type(one).__name__, one.supported_entities) for one in made] == [
        ("UrlRecognizer", ["URL"]),
        ("SpacyRecognizer", ["PERSON"]),
    ]


def test_every_entity_is_one_of_the_installed_presidio():
    from presidio_analyzer import predefined_recognizers as predefined

    for name, recognizer in RECOGNIZERS.items():
        assert getattr(predefined, recognizer)(supported_language="en").supported_entities == [name]
    assert set(OF_PIPELINE) <= set(predefined.SpacyRecognizer().supported_entities)
    assert set(ENTITIES) == {*RECOGNIZERS, *OF_PIPELINE}


def test_the_plan_knows_what_the_pipeline_takes(folder):
    found = cdf.presidio(model=folder)
    (kernel,) = kernels_of(cdf.redact_pii(table([LETTER]), presidio=found))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert kernel.price.held_bytes == found.held_bytes > 100_000_000 + size
    assert kernel.price.fixed_bytes > found.call_bytes == 60_000_000
    assert set(kernel.price.shared.values()) == {found.pipeline.held_bytes}
    assert kernel.price.peak_factor > kernels_of(cdf.redact_pii(table([LETTER])))[0].price.peak_factor


def test_another_place_is_the_same_program_and_another_pipeline_is_not(folder, trained, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")

    def prints(**named):
        return fingerprints_of(cdf.redact_pii(table([LETTER]), presidio=cdf.presidio(**named)))

    here = prints(model=folder)
    assert here == prints(model=tmp_path / "copy", entities=BOTH[::-1])
    others = [
        prints(model=trained),
        prints(model=folder, entities="PERSON"),
        prints(model=folder, min_score=0.9),
        fingerprints_of(cdf.redact_pii(table([LETTER]))),
    ]
    (tmp_path / "copy" / "entity_ruler" / "patterns.jsonl").write_text("")
    others.append(prints(model=tmp_path / "copy"))
    with mock.patch("importlib.metadata.version", return_value="99"):
        others.append(prints(model=folder))
    assert len({tuple(one) for one in (here, *others)}) == 7


def test_a_run_counts_what_was_found(folder, tmp_path):
    texts = [LETTER, None, "nothing", "Paris, Paris"] * 50
    pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}).to_parquet(tmp_path / "in.parquet")
    with inline_cluster("6GB", 1):
        docs = cdf.read_parquet(tmp_path / "in.parquet")
        receipt = cdf.write_parquet(docs.pipe(cdf.redact_pii, presidio=cdf.presidio(model=folder)), tmp_path / "out")
    (step,) = [step for step in receipt.steps if step.name == "redact_pii"]
    assert step.counters == {"rows_changed": 100, "PERSON": 100, "LOCATION": 150, "email": 50, "phone": 50}
    out = pd.concat([pd.read_parquet(path) for path in sorted((tmp_path / "out").glob("*.parquet"))])
    assert set(out["text"].dropna()) == {
        "<PERSON> (<EMAIL>, <PHONE>) went from <LOCATION> to Köln with <PERSON> for 9 euros.",
        "nothing",
        "<LOCATION>, <LOCATION>",
    }


def test_neither_package_is_imported_where_the_chain_is_made(folder):
    script = (
        "import sys, pandas, dask.dataframe as dd, curator_df as cdf\n"
        "docs = dd.from_pandas(pandas.DataFrame({'text': ['a']}), npartitions=1)\n"
        "docs.pipe(cdf.redact_pii, presidio=cdf.presidio(model=sys.argv[1]))\n"
        "assert not {'spacy', 'presidio_analyzer'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True, cwd=Path(__file__).parents[2], timeout=120)


def test_an_installed_pipeline_is_found_by_its_name(folder, tmp_path, monkeypatch):
    package = tmp_path / "en_tiny_rules"
    shutil.copytree(folder, package / "en_pipeline-0.0.0")
    shutil.copy(folder / "meta.json", package)
    (package / "__init__.py").write_text("raise RuntimeError('the code of a pipeline is not run')")
    monkeypatch.syspath_prepend(tmp_path)
    assert cdf.presidio(model="en_tiny_rules").pipeline.digest == cdf.presidio(model=folder).pipeline.digest


def test_a_pipeline_that_is_not_there_is_an_error(folder, tmp_path):
    with pytest.raises(
        InputError,
        match=r"the spaCy pipeline 'en_core_web_no' is not installed.*python -m spacy download en_core_web_no",
    ):
        cdf.presidio(model="en_core_web_no")
    with pytest.raises(InputError, match=r"the spaCy pipeline .*nlp\.to_disk"):
        cdf.presidio(model=tmp_path)
    (tmp_path / "config.cfg").write_text("")
    with pytest.raises(CorruptFileError, match=r"meta\.json"):
        cdf.presidio(model=tmp_path)
    with pytest.raises(CorruptFileError, match="cannot be loaded by this release"):
        presidio.LoadedPipeline(str(tmp_path))
    with pytest.raises(InputError, match="is not on this machine"):
        presidio.LoadedPipeline(str(tmp_path / "gone"))


def test_what_has_no_price_or_no_label_is_refused(folder, tmp_path):
    with pytest.raises(
        ParameterError, match=r"does not detect ORGANIZATION\. .* The labels of this one are GPE, MONEY, PERSON"
    ):
        cdf.presidio(model=folder, entities=("ORGANIZATION", "PERSON"))
    assert cdf.presidio(model=folder, entities="DATE_TIME").entities == ("DATE_TIME",)  # has an expression too
    shutil.copytree(folder, tmp_path / "with")
    config = tmp_path / "with" / "config.cfg"
    config.write_text(config.read_text().replace('factory = "entity_ruler"', 'factory = "curated_transformer"'))
    with pytest.raises(
        ParameterError, match="has a component 'curated_transformer', whose memory curator_df cannot plan"
    ):
        cdf.presidio(model=tmp_path / "with")


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"entities": ()}, "entities is empty"),
        ({"entities": "ADDRESS"}, "entities='ADDRESS' is not one of 'ABA_ROUTING_NUMBER', .*'PERSON'"),
        ({"min_score": 85}, "min_score=85 must be from 0 to 1"),
        ({"min_score": True}, "min_score=True must be from 0 to 1"),
    ],
)
def test_what_makes_no_sense_is_refused(folder, named, said):
    with pytest.raises(ParameterError, match=said):
        cdf.presidio(model=folder, **named)


def test_redact_pii_refuses_what_is_no_model_and_what_finds_nothing():
    with pytest.raises(
        ParameterError, match=r"presidio='en_core_web_lg' is not what curator_df\.presidio\(\.\.\.\) returns"
    ):
        cdf.redact_pii(table([LETTER]), presidio="en_core_web_lg")
    with pytest.raises(ParameterError, match=r"kinds is empty\. .*or set presidio="):
        cdf.redact_pii(table([LETTER]), kinds=())


def test_without_the_extra_the_error_names_it():
    with (
        mock.patch.object(importlib.util, "find_spec", return_value=None),
        pytest.raises(MissingExtraError, match=r"pip install .*\[presidio\]"),
    ):
        cdf.presidio()
