# SPDX-License-Identifier: Apache-2.0
"""The page of a receipt: whole, in one file, with every figure, and nothing in it that was text of the user's as HTML."""

import json
import re
import subprocess
import sys
import time
from html.parser import HTMLParser

import pytest

from curator_df import errors
from curator_df.core.runner.session import PeakSampler
from curator_df.memory import counted_memory
from curator_df.receipts.receipt import Receipt, RunEvent, StepReceipt
from curator_df.receipts.report import report_page
from curator_df.receipts.timeline import timeline_picture
from tests.receipts.receipts import EXCHANGE, receipt

VOID = {"meta", "br", "line", "polygon", "polyline"}


class Page(HTMLParser):
    """Collects text and attributes; fails on a tag that is not closed in order."""

    def __init__(self, content):
        super().__init__()
        self.open, self.tags, self.text, self.links = [], set(), [], []
        self.feed(content)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def sections(content):
    return re.findall("<h2>(.*?)</h2>", content)


def test_the_page_is_one_file_with_every_figure(tmp_path):
    full = receipt(
        rows_quarantined=3,
        rows_out_of_memory=1,
        exchanges=[EXCHANGE],
        retries={"memory": 2},
        events=[RunEvent(4.0, "range 3 again: memory, it had blocks of 16 MB", "retry")],
        rows_by_folder={"lang=en": 400, "lang=de": 200},
        advice=["Use a smaller blocksize= to avoid that"],
        rejects="removed",
    )
    full.save(tmp_path / "report.html")
    content = (tmp_path / "report.html").read_text()
    page = Page(content)
    text = " ".join(page.text)
    assert not page.links
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert "url(" not in content
    for said in (
        "out & more", "600 ", "rows written of 1,000 read (60.0%)", "700 MB", "with a budget of 1.00 GB", "2 MB/s", "20.0 s",
        "no <b>stop</b> words", "20.00%", "texts seen 1,000", "Use a smaller blocksize= to avoid that", "lang=en",
        "range 3 again: memory", "did not fit into the memory budget, even exclusively", "enough for 2 processes", "16,000,000",
        "quarantine (as an argument)",
        "They are in removed.", "800 MB (80%)",
    ):  # fmt: skip
        assert said.strip() in text, said
    assert len(sections(content)) == 10


def test_steps_have_rows_a_second_where_time_was_measured():
    one = receipt(steps=[StepReceipt("read", 1_000, 1_000, 2.0), StepReceipt("write", 1_000, 1_000, 0.0)])
    table = one.to_frame()
    assert table.columns.tolist() == ["step", "rows_in", "rows_out", "rows_dropped", "seconds", "rows_per_second"]
    assert table.rows_per_second.tolist()[0] == 500.0
    assert table.rows_per_second.isna().tolist() == [False, True]
    page = report_page(one)
    assert "<th class=number>rows per second</th>" in page
    assert "<td class=number>500</td><td class=number>2.0</td>" in page
    assert "<td class=number></td><td class=number>0.0</td>" in page
    for shown in (page, str(one), one._repr_html_()):
        assert "nan" not in shown.lower()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "the counted memory of all processes together, sampled every 50 ms"),
        ({"timeline": []}, "the peak resident memory (VmHWM) of any one worker process, as reported after its tasks"),
        ({"timeline": [], "measured_bytes": 0}, ""),
    ],
)
def test_the_foot_of_the_page_says_how_memory_was_measured(changes, said):
    (foot,) = re.findall("<footer>(.*)</footer>", report_page(receipt(**changes)))
    assert foot.endswith(f" Memory is {said}." if said else "bytes. ")


def test_sections_without_anything_to_say_are_left_out():
    bare = Receipt("out")
    assert sections(report_page(bare)) == ["Advice for the next run", "Steps"]
    Page(report_page(bare))


def test_a_resumed_run_says_so_instead_of_a_speed():
    text = " ".join(Page(report_page(receipt(ranges_resumed=30))).text)
    assert "30 of 40 input splits were finished by an earlier run" in text
    assert "MB/s" not in text


@pytest.mark.parametrize("scale", [1, 1_000, 10**6, 10**9, 10**12])
def test_the_picture_stays_inside_its_frame_at_any_scale(scale):
    timeline = [(0.07 * number * scale / 1_000, number * scale) for number in range(1, 60)]
    picture = timeline_picture(timeline, [1.0], allowed_bytes=50 * scale, projected_bytes=70 * scale)
    heights = [float(height) for height in re.findall(r"y[12]?='([-\d.]+)'", picture)]
    places = [float(place) for place in re.findall(r"x[12]?='([-\d.]+)'", picture)]
    points = [tuple(map(float, pair.split(","))) for pair in re.search("polyline points='(.*?)'", picture)[1].split()]
    assert all(0 <= height <= 280 for height in heights + [y for _, y in points])
    assert all(0 <= place <= 1000 for place in places + [x for x, _ in points])
    assert 3 <= picture.count("text-anchor='end'") <= 10
    assert picture.count("text-anchor='middle'") >= 3


@pytest.mark.parametrize("projected", [300, 670, 679, 700, 990])
def test_labels_of_limits_do_not_cover_each_other(projected):
    picture = timeline_picture([(1.0, 100), (2.0, 300)], [], allowed_bytes=700, projected_bytes=projected)
    (above, first), (below, second) = re.findall(r"y='([\d.]+)' text-anchor='end'>(budget|estimated peak)", picture)
    assert {first, second} == {"budget", "estimated peak"}
    assert float(below) - float(above) >= 13  # a label is 12 high
    assert float(above) >= 12
    lines = [
        float(y) for y in re.findall(r"y1='([\d.]+)' y2='[\d.]+' stroke='var\(--(?:bad|soft)\)' stroke-width", picture)
    ]
    assert all(not label - 9 < line < label for line in lines for label in (float(above), float(below)))


def test_a_receipt_comes_back_from_its_json_with_its_timeline():
    first = receipt(events=[RunEvent(1.0, "range 3 again", "retry")])
    assert Receipt.from_json(first.to_json()) == first
    older = {name: value for name, value in first.to_json().items() if name not in ("timeline", "events", "arguments")}
    assert Receipt.from_json(older).timeline == []


def test_points_of_a_trace_grow_so_that_there_are_never_many():
    trace = counted_memory.Trace()
    for number in range(10_000):
        trace.add(number)
    seconds, *points = trace.line().split()
    assert 200 <= len(points) <= 400
    assert int(points[-1]) == 9_999
    assert float(seconds) >= 0
    assert [int(point) for point in points] == sorted(int(point) for point in points)


def trace_when(sampler, is_so):
    """Return what was held once it is so: how soon that is depends on what else the machine does."""
    give_up = time.monotonic() + 30
    while not ((trace := sampler.trace()) and is_so(trace)):
        assert time.monotonic() < give_up, trace
        time.sleep(0.05)
    return trace


def test_an_answer_that_nobody_read_is_not_taken_for_the_next_one():
    sampler = PeakSampler()
    try:
        # As Ctrl-C leaves it between a question and its answer; read together with the next, whose end comes later.
        sampler._process.stdin.write("trace 0\nreset 0\nno")
        sampler._process.stdin.flush()
        time.sleep(0.3)
        sampler._process.stdin.write("w 0\n")
        sampler._process.stdin.flush()
        assert sampler.now() > 1_000_000
        assert sampler.take() > 1_000_000
        assert sampler.trace()
    finally:
        sampler.close()


def test_the_sampler_keeps_what_was_held_over_time(take_pages):
    sampler = PeakSampler()
    try:
        sampler.take()
        started = time.monotonic()
        before = max(held for _, held in trace_when(sampler, lambda trace: len(trace) > 1))
        kept = take_pages(200_000_000)  # much, for what else this process frees meanwhile
        trace = trace_when(sampler, lambda trace: trace[-1][1] - before > 50_000_000)
        seconds = time.monotonic() - started
        kept.close()
        assert 0 <= trace[0][0] < trace[-1][0] <= seconds + 0.001  # rounded
        assert [moment for moment, _ in trace] == sorted(moment for moment, _ in trace)
        # It samples on: what is asked for next may already have another sample in it.
        trace_when(sampler, lambda trace: max(held for _, held in trace) == sampler.seen())
        assert sampler.take() > 0
        assert len(sampler.trace()) < len(trace)
    finally:
        sampler.close()


def test_a_process_that_has_ended_does_not_count_for_the_next_run():
    script = "import time; held = bytearray(150_000_000); print('held', flush=True); time.sleep(60)"
    sampler = PeakSampler()
    try:
        before = sampler.take()
        for _ in range(3):  # the last sample is up to 50 ms old
            with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
                child.stdout.readline()
                trace_when(sampler, lambda trace: trace[-1][1] - before > 100_000_000)
                child.kill()
            assert sampler.take() - before > 100_000_000
            assert sampler.seen() - before < 100_000_000
    finally:
        sampler.close()


def test_a_receipt_draws_its_memory_and_marks_what_ran_again():
    events = [
        RunEvent(6.0, "range 3 again: memory, it had blocks of 16 MB", "retry"),
        RunEvent(7.0, "worker a:1 is restarted after 9 tasks", "recycle"),
    ]
    (axes,) = receipt(events=events).plot().axes
    held, allowed, projected = (line.get_ydata() for line in axes.lines)
    assert max(held) == 700_000_000
    assert (allowed[0], projected[0]) == (1_000_000_000, 800_000_000)
    (marks,) = [one for one in axes.collections if one.get_label() == "retry"]
    assert [segment[0][0] for segment in marks.get_segments()] == [6.0]
    with pytest.raises(errors.ParameterError, match="no timeline"):
        receipt(timeline=[]).plot()


BATCHES = {"documents": 300, "tokens": 9_000, "padding_tokens": 1_000, "batches": 12, "batches_halved": 2}
BATCHES |= {"batches_in_bfloat16": 12}
TRIALS = {"tokens_in_batches_of_512": 600, "microseconds_in_batches_of_512": 200_000, "settled_on_batches_of_1024": 2}
TRIALS |= {"tokens_in_batches_of_1024": 900, "microseconds_in_batches_of_1024": 100_000, "settled_on_batches_of_512": 1}


def test_what_a_model_did_is_a_table_of_its_own():
    step = StepReceipt("add_class", 300, 300, 5.0, {}, BATCHES | TRIALS, {"process_peak_bytes": 700_000_000})
    one = receipt(steps=[StepReceipt("read", 300, 300, 2.0), step])
    [figures] = one.models().to_dict("records")
    assert figures == {
        "step": "add_class",
        "dtype": "bfloat16",
        "documents": 300,
        "documents_per_second": 60.0,
        "tokens": 9_000,
        "tokens_per_second": 1_800.0,
        "padding_share": 0.1,
        "documents_per_batch": 25.0,
        "batches_halved": 2,
        "batch_tokens_tried": {512: 3_000.0, 1_024: 9_000.0},
        "batch_tokens": 1_024,
        "device_allocated_bytes": None,
        "device_reserved_bytes": None,
        "process_peak_bytes": 700_000_000,
    }
    assert "Models and GPUs" in sections(report_page(one))
    text = " ".join(Page(report_page(one)).text)
    assert all(
        said in text for said in ("bfloat16", "10.0%", "512: 3,000, 1,024: 9,000", "no device", "padding tokens 1,000")
    )
    assert "tokens_in_batches" not in text
    assert "batches_in_" not in text


def test_the_time_in_which_a_task_waited_for_the_model_does_not_make_it_slower():
    step = StepReceipt("add_class", 300, 300, 5.0, {}, BATCHES | {"waited_milliseconds": 2_000})
    [figures] = receipt(steps=[step]).models().to_dict("records")
    assert (figures["documents_per_second"], figures["tokens_per_second"]) == (100.0, 3_000.0)


def test_a_model_that_computes_as_it_does_has_no_numbers_in_the_table():
    counters = {name: number for name, number in BATCHES.items() if "batches_in_" not in name}
    one = receipt(steps=[StepReceipt("add_class", 300, 300, 5.0, {}, counters)])
    assert one.models()["dtype"].isna().all()
    assert "None" not in " ".join(Page(report_page(one)).text)


def test_a_model_behind_a_server_has_documents_and_tokens_a_second():
    counted = {"requests": 12, "retries": 2, "cached": 4, "documents": 10, "tokens": 500}
    one = receipt(steps=[StepReceipt("add_completion", 14, 14, 5.0, {}, counted)])
    [figures] = one.models().to_dict("records")
    assert [figures[name] for name in ("documents", "documents_per_second", "tokens_per_second")] == [10, 2.0, 100.0]
    assert one.models()[["dtype", "padding_share", "documents_per_batch", "batch_tokens"]].isna().all(axis=None)
    text = " ".join(Page(report_page(one)).text)
    assert "nan" not in text
    assert "add_completion" in text


def test_what_a_model_held_on_a_gpu_is_there():
    held = {"device_allocated_bytes": 3_000_000_000, "device_reserved_bytes": 4_000_000_000}
    one = receipt(steps=[StepReceipt("add_class", 300, 300, 5.0, {}, BATCHES, held)])
    [figures] = one.models().to_dict("records")
    assert held.items() <= figures.items()
    assert "4.00 GB" in Page(report_page(one)).text
    assert one.from_json(json.loads(json.dumps(one.to_json()))).models().equals(one.models())


def test_how_much_gpus_were_at_work_is_said():
    one = receipt(gpu_use={"GPU 0": 0.37, "GPU 1": 1.0})
    assert "Fraction of the last pass in which a kernel ran: GPU 0 37%, GPU 1 100%." in Page(report_page(one)).text
    assert ("GPU 0", "busy 37% of the last pass") in one.summary()


def test_a_run_without_models_has_no_such_table():
    assert receipt().models().empty
    assert "Models and GPUs" not in sections(report_page(receipt()))


def test_a_receipt_is_kept_as_a_page_or_as_json(tmp_path):
    one = receipt()
    one.save(tmp_path / "receipt.json")
    assert Receipt.from_json(json.loads((tmp_path / "receipt.json").read_text())) == one
    with pytest.raises(errors.ParameterError, match=r"receipt\.xyz' must end in \.html .* or \.json"):
        one.save(tmp_path / "receipt.xyz")
