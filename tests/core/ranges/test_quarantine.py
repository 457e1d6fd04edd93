# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from curator_df.core.ranges.quarantine import QuarantineFile
from curator_df.core.ranges.source import BadRow
from curator_df.files.storage import Folder


@pytest.mark.parametrize(
    "path", ["/corpus/plain.jsonl", "/corpus/\u00e4.jsonl", b"/corpus/\xff.jsonl".decode("utf-8", "surrogateescape")]
)
def test_rows_of_files_with_any_name_are_set_aside(tmp_path, path):
    file = QuarantineFile(Folder(str(tmp_path)), 0)
    file.add(BadRow(path, 3, 20, "not JSON", b"{oops"))
    (record,) = file.commit()
    line = (tmp_path / record.name).read_text()
    assert json.loads(line) == {"file": path, "offset": 20, "reason": "not JSON", "line": 3, "raw": "{oops"}
