# SPDX-License-Identifier: Apache-2.0
"""The dashboard's packages are imported at the first visit, in memory that the cluster has reserved for them."""

import subprocess
import sys

import pytest

from curator_df.cluster.dashboard import dashboard_at

STARTS = """
import sys
import urllib.request
import curator_df as cdf
from curator_df.cluster import local
early = {"bokeh", "dask.dataframe", "numba", "pandas", "pyarrow"} & set(sys.modules)
if __name__ == "__main__":
    from curator_df.cluster.beside_start import started_with
    from curator_df.memory.system import status_bytes
    start = lambda: cdf.start_cluster(memory=sys.argv[1], cpus=1)
    with started_with(start, lambda: "curator_df.models.model" in sys.modules) as (cluster, is_late):
        missing = [place for place in cdf._PLACES.values() if f"curator_df.{place.partition(':')[0]}" not in sys.modules]
        print(sorted(early), "bokeh" in sys.modules, missing, is_late)
        before = status_bytes("RssAnon")
        with urllib.request.urlopen(cluster.dashboard_link, timeout=100) as page:
            print(page.status, page.url == cluster.dashboard_link, "bokeh" in sys.modules)
        print(status_bytes("RssAnon") - before, cluster._later_bytes)
"""


@pytest.mark.parametrize("memory", ["2GB", "500MB"])
def test_a_client_is_measured_with_all_that_it_imports_and_with_room_for_the_dashboard(tmp_path, memory):
    script = tmp_path / "script.py"
    script.write_text(STARTS)
    done = subprocess.run([sys.executable, script, memory], capture_output=True, text=True, timeout=280, check=True)
    first, visited, sizes = done.stdout.splitlines()
    assert first == "[] False [] False"
    assert visited == "200 True True"
    grown_bytes, reserved_bytes = map(int, sizes.split())
    assert 10_000_000 < grown_bytes < reserved_bytes + 5_000_000  # a page takes some, too


def test_an_address_for_pages_is_as_dask_takes_it():
    assert dashboard_at("127.0.0.1", 5) == "127.0.0.1:5"
    assert dashboard_at("::1", 5) == [("::1", 5)]
