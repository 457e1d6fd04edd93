# SPDX-License-Identifier: Apache-2.0
"""A model of the hub is downloaded once for a machine, however many of its workers want it at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.hub_server import COMMIT, NAME, hub_server
from tests.models.tiny_models import write_bert

pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
WORKER = f"""
import os, sys
from curator_df.models.classifiers.lora import Place
from curator_df.models.files import local_folder

where, *files = sys.argv[1:]
found = local_folder(Place({NAME!r}, where, {COMMIT!r}, tuple(files)))
assert sorted(os.listdir(found)) == files, os.listdir(found)
print(found)
"""


@pytest.mark.parametrize(
    "where", ["the client's cache elsewhere", "a cache at the client's path", "an interrupted one"]
)
def test_workers_of_a_machine_download_each_file_once(where, tmp_path):
    """A folder that is there with some of the files is being filled by another worker, or a download was interrupted."""
    model = Path(write_bert(tmp_path / "model"))
    files = sorted(file.name for file in model.iterdir())
    snapshot = tmp_path / f"home/hub/models--{NAME.replace('/', '--')}/snapshots/{COMMIT}"
    if where == "an interrupted one":
        snapshot.mkdir(parents=True)
    path = "/not/here" if where == "the client's cache elsewhere" else str(snapshot)
    with hub_server(model) as hub:
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_OFFLINE": "0",
        }
        how = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        workers = [subprocess.Popen([sys.executable, "-c", WORKER, path, *files], **how) for _ in range(4)]
        ended = [(*worker.communicate(timeout=300), worker.returncode) for worker in workers]
        assert [code for *_, code in ended] == [0] * 4, ended
        assert hub.downloads == dict.fromkeys(files, 1)
    folders = {out.strip() for out, *_ in ended}
    assert len(folders) == 1
    (folder,) = map(Path, folders)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        file.name: file.read_bytes() for file in model.iterdir()
    }
