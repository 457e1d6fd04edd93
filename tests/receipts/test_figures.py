# SPDX-License-Identifier: Apache-2.0
"""Plots are pictures in a notebook, once, and figures that a script can save."""

import copy
import io
import os
from pathlib import Path

import nbclient
import nbformat
import pytest

from curator_df.receipts.figures import new_figure, png_of
from tests.receipts.receipts import receipt

CHECKOUT = Path(__file__).resolve().parents[3]
pytest.importorskip("matplotlib", reason="matplotlib is in the monitor extra")
CELLS = """
import sys
sys.path.insert(0, {checkout!r})
from tests.receipts.receipts import receipt
receipt().plot()
%matplotlib inline
receipt().plot()
"""


def test_a_figure_is_saved_and_copied_like_any_other():
    figure = receipt().plot()
    assert type(figure).__module__ == "matplotlib.figure"
    assert figure._repr_png_().startswith(b"\x89PNG")
    stream = io.BytesIO()
    figure.savefig(stream, format="svg")
    assert b"<svg" in stream.getvalue()
    assert png_of(copy.deepcopy(new_figure(2, 1))).startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client")
def test_a_notebook_shows_one_picture(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    setup, *lines = CELLS.format(checkout=str(CHECKOUT)).strip().rsplit("\n", 3)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in (setup, *lines)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    _, first, _, second = notebook.cells
    for cell in (first, second):  # before and after pyplot is there
        pictures = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        assert len(pictures) == len(cell.outputs) == 1
