# SPDX-License-Identifier: Apache-2.0
import pytest

from curator_df.files.storage import Folder
from curator_df.io.output.files import SpooledFile


@pytest.fixture
def folder(tmp_path):
    return Folder(f"memory://{tmp_path.name}/out")


def test_a_file_is_in_the_store_when_it_is_sealed(folder):
    with folder.create("part.bin") as target:
        file = SpooledFile(target)
        file.write(b"hello ")
        file.write(b"world")
        assert file.size_bytes == 11
        file.seal()
        target.commit()
    assert folder.read("part.bin") == b"hello world"


def test_what_is_written_to_a_file_that_nobody_wants_is_dropped(folder):
    with folder.create("part.bin") as target:
        file = SpooledFile(target)
        file.write(b"hello")
        file.discard()
        assert file.write(b"PAR1") == 4  # as pyarrow does when it collects a writer
    assert folder.names() == []
