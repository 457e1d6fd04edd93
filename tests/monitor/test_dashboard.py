# SPDX-License-Identifier: Apache-2.0
"""The dashboard and the configuration files say what Grafana and Prometheus take, and ask for what is served."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from curator_df.errors import ParameterError
from curator_df.monitor.series import DRIVER_METRICS, METRICS, WORKER_METRICS
from curator_df.monitor.stack import (
    DASHBOARD_FILE,
    DATASOURCE,
    RULES,
    Stack,
    grafana_command,
    prometheus_command,
    write_stack,
)
from docs.generate_dashboard import COLUMNS, ROWS, dashboard, dashboard_text
from tests.test_docs import rows_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "monitoring.md"
PANELS = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
QUERIES = [query for _, panels in ROWS for panel in panels for query in panel.queries]
SUFFIXES = re.compile(r"_(bucket|sum|count)$")


def named(expr):
    """Return the metrics of ours that an expression asks for; a histogram by the name without suffix."""
    found = re.findall(r"curator_df_\w+", expr)
    return {name if name in METRICS else SUFFIXES.sub("", name) for name in found}


def test_the_file_in_the_package_is_what_the_generator_writes():
    assert DASHBOARD_FILE.read_text(encoding="utf-8") == dashboard_text(), "run python -m docs.generate_dashboard"


def test_every_metric_is_on_the_dashboard_or_in_an_alert():
    asked = set().union(*(named(query.expr) for query in QUERIES), *(named(rule.expr) for rule in RULES))
    assert asked <= set(METRICS)
    said_by_grafana = {
        "curator_df_run_start_timestamp_seconds",
        "curator_df_run_input_bytes",
    }  # for queries of one's own
    assert set(METRICS) - asked == said_by_grafana


def test_legends_and_groups_name_labels_that_the_metric_has():
    of_targets = {"driver", "role", "worker", "le"}
    for query in QUERIES:
        if "dask_" in query.expr or "process_" in query.expr:
            continue
        labels = of_targets.union(*(METRICS[name].labels for name in named(query.expr)))
        labels |= set(re.findall(r'label_replace\(.+?, "(\w+)", "\$1"', query.expr))  # made of another one
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= labels, query
        for group in re.findall(r"by \(([^)]+)\)", query.expr):
            assert set(group.split(", ")) <= labels, query


def test_every_expression_asks_for_the_sessions_that_are_chosen():
    for query in QUERIES:
        asked = re.findall(r"(?:curator_df|dask|process)_\w+", query.expr)
        assert query.expr.count('driver=~"$driver"') == len(asked) > 0, query


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prometheus_port": 0}, "port=0 is not a valid port number. Use one from 1 to 65535"),
        ({"prometheus_port": 99_999_999}, "port=99999999 is not a valid port number"),
        ({"grafana_port": -1}, "grafana_port=-1 is not a valid port number"),
        ({"prometheus_port": 3000}, "port=3000 and grafana_port=3000 are the same"),
        ({"address": "no such host"}, "address='no such host' is not an address or name of this machine"),
        ({"address": "300.1.1.1.1"}, "is not an address or name of this machine"),
        ({"address": "a" * 70 + ".b"}, "is not an address or name of this machine"),
    ],
)
def test_addresses_at_which_no_server_can_listen_are_refused(tmp_path, options, said):
    with pytest.raises(ParameterError, match=re.escape(said)):
        write_stack(Stack(tmp_path / "watch", **options))
    assert not (tmp_path / "watch").exists()


def test_an_address_of_ipv6_has_brackets_before_a_port():
    assert Stack(Path("x"), address="::1").prometheus_url == "http://[::1]:9090"
    assert Stack(Path("x"), address="::").grafana_url == "http://[::1]:3000"


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").touch()
    said = re.escape(f"The folder '{tmp_path}/file' cannot be written to ('{tmp_path}/file/targets': Not a directory)")
    with pytest.raises(ParameterError, match=said):
        write_stack(Stack(tmp_path / "file"))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, of the package prometheus")
def test_prometheus_understands_every_expression(tmp_path):
    exprs = [query.expr.replace("$__rate_interval", "30s").replace("$__range", "10m") for query in QUERIES]
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(exprs)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    command = ["promtool", "check", "rules", tmp_path / "rules.yml"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {len(QUERIES)} rules found" in checked.stdout


def test_panels_have_their_own_numbers_and_places():
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [panel["gridPos"] for panel in panels]
    for one, two in itertools.combinations(taken, 2):
        apart = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"], (one, two)
    assert max(place["x"] + place["w"] for place in taken) == COLUMNS
    for panel in PANELS:
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert panel["datasource"] == DATASOURCE


def test_files_are_written_and_what_was_measured_stays(tmp_path):
    stack = Stack(tmp_path / "watch", prometheus_port=9191, grafana_port=3131)
    write_stack(stack)
    (stack.directory / "targets" / "one.json").write_text("[]")
    files = write_stack(stack)
    assert (stack.directory / "targets" / "one.json").exists()
    assert json.loads((stack.directory / "grafana/dashboards/curator-df.json").read_text()) == dashboard()
    read = {path.name: yaml.safe_load(path.read_text()) for path in files if path.parent.name == "datasources"}
    assert read["curator-df.yml"]["datasources"][0]["url"] == "http://127.0.0.1:9191"
    assert "http_addr = 127.0.0.1\nhttp_port = 3131" in (stack.directory / "grafana/grafana.ini").read_text()
    assert "[auth.anonymous]\nenabled = true" in (stack.directory / "grafana/grafana.ini").read_text()
    write_stack(Stack(tmp_path / "watch", address="0.0.0.0"))
    assert "[auth.anonymous]\nenabled = false" in (stack.directory / "grafana/grafana.ini").read_text()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, of the package prometheus")
def test_promtool_takes_the_configuration(tmp_path):
    write_stack(Stack(tmp_path))
    (tmp_path / "targets" / "one.json").write_text('[{"targets": ["127.0.0.1:1"], "labels": {"role": "driver"}}]')
    checked = subprocess.run(
        ["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {len(RULES)} rules found" in checked.stdout


def test_servers_are_found_on_the_path_and_listen_where_they_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    stack = Stack(tmp_path, address="10.0.0.1", prometheus_port=9191)
    assert (prometheus_command(stack), grafana_command(stack)) == (None, None)
    home = tmp_path / "grafana-v1"
    for path in (home / "bin" / "grafana-server", tmp_path / "prometheus"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    (home / "public").mkdir()
    (tmp_path / "grafana-server").symlink_to(home / "bin" / "grafana-server")
    assert "--web.listen-address=10.0.0.1:9191" in prometheus_command(stack)
    assert grafana_command(stack)[1] == f"--homepath={home}"
    (tmp_path / "grafana-server").rename(tmp_path / "grafana")
    assert grafana_command(stack)[:2] == [str(tmp_path / "grafana"), "server"]


def test_the_tables_of_the_page_are_the_metrics_and_the_rules():
    listed = rows_of(PAGE.read_text(), "metric", "labels")
    expected = [
        [
            f"`{metric.name}`" + (" (histogram)" if metric.kind == "histogram" else ""),
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.unit,
            metric.help,
        ]
        for metric in (*DRIVER_METRICS, *WORKER_METRICS)
    ]
    assert listed == expected
    rules = [[f"`{rule.name}`", rule.text, rule.holds, rule.severity, rule.why] for rule in RULES]
    assert rows_of(PAGE.read_text(), "rule", "fires when") == rules
