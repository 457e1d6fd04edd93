# SPDX-License-Identifier: Apache-2.0
"""`keep_urls`: what drops a row, in which order, and what is said of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_stream
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import Folder, ParquetFormat
from curator_df.memory.budget import choose_layout
from tests.contracts.operator_cases import fingerprints_of, kernels_of
from tests.core.runner.fake_client import inline_cluster

pytest.importorskip("tldextract", reason="needs the extra urls")

PYTHON = os.environ.get("CURATOR_DF_DATATROVE_PYTHON", "")
SCRIPT = Path(__file__).resolve().parents[1] / "profiles/datatrove_url_filter.py"
REASONS = {
    None: None,
    "domain": "blocked_domain",
    "subdomain": "blocked_subdomain",
    "url": "blocked_url",
    "hard_blacklisted": "hard_word",
    "soft_blacklisted": "soft_words",
    "blacklisted_subword": "substring",
}


def list_of(folder, **files):
    folder.mkdir(parents=True)
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def docs_of(urls):
    return dd.from_pandas(pd.DataFrame({"url": pd.array(urls, "string[pyarrow]")}), npartitions=1)


def rejected(urls, **options):
    """Return reason and rule of each dropped URL, and the counters."""
    docs = docs_of(urls)
    (kernel,) = kernels_of(cdf.keep_urls(docs, **options))
    outcome = kernel.run(docs.compute())
    if outcome.rejects is None:
        assert outcome.dropped == {}
        return {}, {}
    removed, why = outcome.rejects()
    assert Counter(why["reason"]) == outcome.dropped
    kept = set(outcome.block.index)
    assert kept.isdisjoint(removed.index) and len(kept) + len(removed) == len(urls)
    return dict(zip(removed["url"], zip(why["reason"], why["rule"], strict=True), strict=True)), outcome.counters


def test_a_domain_blocks_its_host_and_all_below_it(tmp_path):
    adult = list_of(
        tmp_path / "adult", domains=["bad.example", "sub.nice.example", "10.0.0.1", "Bücher.example", "[::1]"]
    )
    blocked = {
        "http://bad.example/x": "bad.example",
        "https://A.B.BAD.example.:80": "bad.example",
        "http://u:p@sub.nice.example": "sub.nice.example",
        "http://deep.sub.nice.example": "sub.nice.example",
        "http://10.0.0.1/": "10.0.0.1",
        "http://0xa.1/": "10.0.0.1",
        "http://xn--bcher-kva.example/": "xn--bcher-kva.example",
        "http://bücher.example/": "xn--bcher-kva.example",
        "http://[0::1]/": "[::1]",
        "bad.example/no/scheme": "bad.example",
    }
    kept = [
        "http://notbad.example/",
        "http://nice.example/",
        "http://bad.example.org/",
        "http://good.example/bad.example",
        "http://110.0.0.1/",
        "http://good.example\\@bad.example/",
        "http://bad.example@good.example/",
        "",
        None,
        "no URL",
    ]
    found, lists = rejected([*blocked, *kept], block_lists=adult)
    assert found == {url: ("blocked_domain", f"adult: {entry}") for url, entry in blocked.items()}
    assert lists == {"adult": len(blocked)}


def test_a_url_blocks_what_begins_with_it(tmp_path):
    entries = ["http://www.host.example:80/dir/", "other.example/a?id=1", "root.example/", "ca.example/Case"]
    adult = list_of(tmp_path / "adult", urls=entries)
    blocked = {
        "https://host.example/dir": "host.example/dir",
        "http://www2.host.example/DIR/page.html": "host.example/dir",
        "http://host.example/dir?x": "host.example/dir",
        "http://host.example/dir#x": "host.example/dir",
        "http://u@other.example:8080/a?id=1": "other.example/a?id=1",
        "http://root.example": "root.example",
        "http://root.example/any/page": "root.example",
        "http://ca.example/case/x": "ca.example/case",
    }
    kept = [
        "http://host.example/",
        "http://host.example/directory",
        "http://sub.host.example/dir",
        "http://other.example/a?id=12",
        "http://other.example/a",
        "http://good.example/host.example/dir",
    ]
    found, _ = rejected([*blocked, *kept], block_lists=adult)
    assert found == {url: ("blocked_url", f"adult: {entry}") for url, entry in blocked.items()}


def test_an_expression_is_found_anywhere_in_any_case(tmp_path):
    pattern = r"(^|[-\?+=/_])(casino|slots?)([-\?+=/_]|$)"
    games = list_of(tmp_path / "games", expressions=["# words", "", pattern])
    found, _ = rejected(
        ["http://a.example/x-CASINO-y", "http://a.example/slot", "http://a.example/slotted"], block_lists=games
    )
    assert set(found) == {"http://a.example/x-CASINO-y", "http://a.example/slot"}
    assert set(found.values()) == {("blocked_expression", f"games: {pattern}")}


def test_words_are_runs_of_letters_and_digits():
    urls = ["http://a.example/Casino", "http://casino.example/", "http://a.example/casinos", "http://a.example/ca-sino"]
    found, _ = rejected(urls, hard_words=["CASINO!"])
    assert found == dict.fromkeys(urls[:2], ("hard_word", "casino"))
    urls = ["http://free.example/Slots", "http://free.example/free", "http://a.example/win/free?slots"]
    found, _ = rejected(urls, soft_words=["slots", "free", "win"])
    assert found == {urls[0]: ("soft_words", "slots, free"), urls[2]: ("soft_words", "slots, free, win")}
    assert set(rejected(urls, soft_words=["slots", "free", "win"], min_soft_words=3)[0]) == {urls[2]}
    found, _ = rejected(["http://a.example/FREE-money", "http://a.example/freemon"], substrings=["free money"])
    assert found == {"http://a.example/FREE-money": ("substring", "freemoney")}


def test_soft_words_say_their_number_and_the_least():
    docs = docs_of(["http://a.example/free/slots", "http://a.example/bad"])
    (kernel,) = kernels_of(cdf.keep_urls(docs, soft_words=["free", "slots"], hard_words=["bad"]))
    _, why = kernel.run(docs.compute()).rejects()
    assert (why["value"][0], why["threshold"][0]) == (2.0, 2.0)
    assert pd.isna([why["value"][1], why["threshold"][1]]).all()


def test_the_first_reason_counts_and_the_first_list(tmp_path):
    first = list_of(tmp_path / "first", domains=["b.example"], urls=["c.example/x"])
    second = list_of(tmp_path / "second", domains=["a.b.example", "c.example"], expressions=["casino"])
    urls = ["http://a.b.example/casino", "http://c.example/x", "http://b.example", "http://d.example/casino"]
    found, lists = rejected(urls, block_lists=[first, second], hard_words=["casino"])
    assert list(found.values()) == [
        ("blocked_domain", "second: a.b.example"),
        ("blocked_domain", "second: c.example"),
        ("blocked_domain", "first: b.example"),
        ("blocked_expression", "second: casino"),
    ]
    assert lists == {"first": 1, "second": 3}
    same = list_of(tmp_path / "same", domains=["b.example"])
    assert rejected(urls[2:3], block_lists={"one": same, "two": first})[1] == {"one": 1}


def test_allow_lists_win(tmp_path):
    block = list_of(tmp_path / "block", domains=["bad.example"], urls=["mixed.example/x"])
    allow = list_of(
        tmp_path / "allow", domains=["fine.bad.example"], urls=["mixed.example/x/good"], expressions=["/about$"]
    )
    urls = [
        "http://fine.bad.example/casino",
        "http://a.fine.bad.example/",
        "http://mixed.example/x/good/1",
        "http://bad.example/about",
        "http://bad.example/",
        "http://mixed.example/x",
        "http://other.example/casino",
    ]
    found, _ = rejected(urls, block_lists=block, allow_lists=allow, hard_words=["casino"])
    assert set(found) == set(urls[4:])


@pytest.mark.parametrize("matching", ["ut1", "datatrove"])
def test_rows_without_a_url_are_kept_or_dropped(matching):
    urls = ["", None, "  ", "http://a.example", "http://a.example/" + "x" * 70_000]
    assert rejected(urls, hard_words=["b"], matching=matching)[0] == {}
    docs = docs_of(urls)
    (kernel,) = kernels_of(cdf.keep_urls(docs, missing="drop", matching=matching))
    outcome = kernel.run(docs.compute())
    assert outcome.dropped == {"no_url": 4} and outcome.block["url"].tolist() == [urls[3]]
    assert outcome.rejects()[1]["rule"] == ["no URL"] * 4


def test_more_rows_than_a_span_are_dropped_where_they_stand(tmp_path):
    bad = list_of(tmp_path / "bad", domains=[f"site-{number}.example" for number in range(0, 30_000, 7)])
    docs = docs_of([f"http://www.site-{number}.example/" for number in range(10_000)])
    kept = cdf.keep_urls(docs, block_lists=bad).compute().index.tolist()
    assert kept == [number for number in range(10_000) if number % 7]


FROZEN_LISTS = {
    "domains": [
        "bad.com",
        "sub.nice.com",
        "1.2.3.4",
        "Bad.Org",
        "github.io",
        "me.github.io",
        "a.unlisted",
        "localhost",
    ],
    "urls": ["http://x.org/", "http://y.org/A"],
    "hard": ["casino", "Foo-Bar"],
    "soft": ["free", "slots", "win"],
    "parts": ["freemoney", "vi-agra"],
}
FROZEN = {
    "http://bad.com/": "domain",
    "http://a.b.bad.com:80/x": "domain",
    "http://u:p@bad.com": "domain",
    "http://BAD.com/": None,
    "http://bad.com./": "domain",
    "http://Bad.Org/": "domain",
    "http://bad.org/": None,
    "http://sub.nice.com/": "subdomain",
    "http://deep.sub.nice.com/": None,
    "http://1.2.3.4/": None,
    "http://a.unlisted/": None,
    "http://localhost/": None,
    "http://me.github.io/": "domain",
    "bad.com/x": "domain",
    "//bad.com/x": "domain",
    "http:/bad.com/x": None,
    "http://x.org/": "url",
    "http://x.org": None,
    "https://x.org/": None,
    "http://y.org/a": None,
    "http://z.org/casino": "hard_blacklisted",
    "http://z.org/Casino": None,
    "http://z.org/foobar": "hard_blacklisted",
    "http://z.org/foo-bar": None,
    "http://z.org/free/slots": "soft_blacklisted",
    "http://z.org/free/free": None,
    "http://z.org/Free/slots": None,
    "http://z.org/FREE-money": "blacklisted_subword",
    "http://z.org/xviagrax": "blacklisted_subword",
    "http://z.org/ok": None,
}
"""Verdicts of datatrove 0.10.1 with tldextract 5.4.0 on `FROZEN_LISTS`."""


def datatrove_reasons(folder, urls, lists):
    options = {"hard_words": lists["hard"], "soft_words": lists["soft"], "substrings": lists["parts"]}
    adult = list_of(folder / "adult", domains=lists["domains"], urls=lists["urls"])
    docs = docs_of(urls)
    (kernel,) = kernels_of(cdf.keep_urls(docs, block_lists=adult, matching="datatrove", **options))
    removed, why = kernel.run(docs.compute()).rejects()
    found = dict(zip(removed.index, why["reason"], strict=True))
    return [found.get(place) for place in range(len(urls))]


def test_verdicts_are_those_that_datatrove_gave(tmp_path):
    found = datatrove_reasons(tmp_path, list(FROZEN), FROZEN_LISTS)
    assert dict(zip(FROZEN, found, strict=True)) == {url: REASONS[verdict] for url, verdict in FROZEN.items()}


def generated_urls(seed, count):
    pick = random.Random(seed)
    domains = FROZEN_LISTS["domains"]
    hosts = [*domains, *(f"x.y.{name}" for name in domains), *(name.upper() for name in domains)]
    hosts += [
        "nice.com",
        "co.uk",
        "[::1]",
        "bad.com.",
        "bad.com:80",
        "u:p@bad.com",
        "b。ad.com",
        "bad。com",
        "",
        "a b.com",
    ]
    words = [
        "casino",
        "FREE",
        "free",
        "slots",
        "win",
        "money",
        "freemoney",
        "vi",
        "agra",
        "foobar",
        "é",
        "日本",
        "a.html",
    ]
    schemes = [
        "http://",
        "https://",
        "HTTP://",
        "//",
        "",
        "ftp://",
        "http:/",
        "a b://",
        "http:////",
        "://",
        "x//",
        " http://",
    ]
    marks = ["/", "-", "_", ".", "?", "&", "=", "#", "%20", "", "é", "+"]

    def url():
        end = "".join(pick.choice(marks) + pick.choice(words) for _ in range(pick.randint(0, 4)))
        return pick.choice(schemes) + pick.choice(hosts) + end

    return [made for made in (url() for _ in range(count)) if made]


@pytest.mark.peer
@pytest.mark.skipif(
    not PYTHON,
    reason="needs CURATOR_DF_DATATROVE_PYTHON: a Python that has datatrove 0.10.1, tldextract, pyahocorasick and fasteners",
)
@pytest.mark.parametrize("seed", [1, 2])
def test_verdicts_are_those_of_datatrove(tmp_path, seed):
    urls = [*FROZEN, *generated_urls(seed, 5_000)]
    lists = {**FROZEN_LISTS, "urls": [*FROZEN_LISTS["urls"], *(url for url in urls[100:140] if url == url.strip())]}
    given = json.dumps({**lists, "min_soft_words": 2, "input": urls})
    ran = subprocess.run([PYTHON, str(SCRIPT)], input=given, stdout=subprocess.PIPE, text=True, check=True)
    verdicts = json.loads(ran.stdout)
    assert dict(zip(FROZEN, verdicts, strict=False)) == FROZEN
    assert set(verdicts) == set(REASONS)
    assert datatrove_reasons(tmp_path, urls, lists) == [REASONS[verdict] for verdict in verdicts]


def test_what_is_wrong_is_said(tmp_path):
    docs = docs_of(["a"])
    with pytest.raises(errors.ParameterError, match="nothing to drop rows by"):
        cdf.keep_urls(docs)
    with pytest.raises(
        errors.ParameterError, match=r"hard_words= has '日本', which has neither ASCII letters nor digits"
    ):
        cdf.keep_urls(docs, hard_words=["a", "日本"])
    with pytest.raises(errors.ParameterError, match="min_soft_words=0 must be at least 1"):
        cdf.keep_urls(docs, soft_words=["a"], min_soft_words=0)
    with pytest.raises(errors.ColumnError, match="'link'"):
        cdf.keep_urls(docs, hard_words=["a"], url="link")
    with pytest.raises(errors.InputError, match=r"none\.txt"):
        cdf.keep_urls(docs, hard_words=tmp_path / "none.txt")


def test_words_are_read_from_a_file(tmp_path):
    (tmp_path / "words.txt").write_bytes("\ufeff# soft\r\nfree\r\n\r\nslots\r\n".encode())
    found, _ = rejected(["http://a.example/free-slots", "http://a.example/soft"], soft_words=tmp_path / "words.txt")
    assert list(found.values()) == [("soft_words", "free, slots")]


def test_content_identifies_lists_and_their_place_does_not(tmp_path):
    docs = docs_of(["a"])
    first = list_of(tmp_path / "a/adult", domains=["a.example", "b.example"], expressions=["x"])
    before = fingerprints_of(cdf.keep_urls(docs, block_lists=first))
    assert (
        fingerprints_of(
            cdf.keep_urls(
                docs, block_lists=list_of(tmp_path / "b/adult", domains=["a.example", "b.example"], expressions=["x"])
            )
        )
        == before
    )
    for number, files in enumerate(
        (
            {"domains": ["a.example", "c.example"], "expressions": ["x"]},
            {"domains": ["a.example", "b.example"], "expressions": ["y"]},
        )
    ):
        other = list_of(tmp_path / f"{number}/adult", **files)
        assert fingerprints_of(cdf.keep_urls(docs, block_lists=other)) != before
    assert fingerprints_of(cdf.keep_urls(docs, allow_lists=first, missing="drop")) != before


def write_rows(path, urls):
    path.mkdir()
    (path / "a.jsonl").write_text("".join(json.dumps({"url": url, "text": "a"}) + "\n" for url in urls))
    return cdf.read_jsonl(path)


def test_the_plan_counts_the_lists(tmp_path):
    docs = write_rows(tmp_path / "in", ["http://a.example"])
    layout = choose_layout(2_000_000_000, cpus=2)

    def planned(entries, kind):
        lists = list_of(
            tmp_path / f"{kind}{entries}", **{kind: [f"host-{number}.example" for number in range(entries)]}
        )
        checked = cdf.keep_urls(docs, block_lists=lists)
        return plan_stream(lower(checked), FileSink(Folder("."), ParquetFormat("zstd"), 1), None, layout).held_bytes

    assert planned(20_000, "domains") - planned(10_000, "domains") == 8 * 10_000
    assert planned(20_000, "urls") - planned(10_000, "urls") == 16 * 10_000


def test_a_run_with_another_list_does_not_resume(tmp_path):
    docs = write_rows(tmp_path / "in", ["http://a.example", "http://b.example/x", None] * 30)
    adult = list_of(tmp_path / "adult", domains=["a.example"])

    def fails(block):
        raise ZeroDivisionError

    with inline_cluster("2GB", 1):
        checked = cdf.keep_urls(docs, block_lists=adult)
        with pytest.raises(errors.OperatorError):
            cdf.write_parquet(checked.pipe(cdf.keep_where, fails), tmp_path / "out")
        (adult / "domains").write_text("b.example\n")
        changed = cdf.keep_urls(docs, block_lists=adult)
        with pytest.raises(
            errors.ResumeError, match=r"\(keep_urls\), the file '.*/adult/domains' changed from content"
        ):
            cdf.write_parquet(changed.pipe(cdf.keep_where, fails), tmp_path / "out", on_existing="resume")
        with pytest.raises(errors.InputChangedError, match=r"adult/domains' has changed since keep_urls was called"):
            cdf.write_parquet(checked, tmp_path / "changed")
        receipt = cdf.write_parquet(cdf.keep_urls(docs, block_lists=adult), tmp_path / "all", rejects=tmp_path / "gone")
        assert receipt.rows_written == 60
        gone = cdf.read_parquet(tmp_path / "gone").compute()
    assert set(gone["reject_rule"]) == {"adult: b.example"} and len(gone) == 30


def test_the_blocked_pages_of_a_crawl_are_dropped(tmp_path, shared_data):
    names = ["casino-bonus.example", "free-prizes.example", "adult-pages.example"]
    blocked = list_of(tmp_path / "blocked", domains=names)
    pages = cdf.read_warc(shared_data / "crawl_sample.warc.gz")
    before = pages.compute(scheduler="synchronous")
    after = cdf.keep_urls(pages, block_lists=blocked).compute(scheduler="synchronous")
    gone = before[~before.index.isin(after.index)]
    assert len(gone) == 27
    assert gone["url"].str.contains("|".join(names)).all()
    assert not after["url"].str.contains("|".join(names)).any()
