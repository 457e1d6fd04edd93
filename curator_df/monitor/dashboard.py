# SPDX-License-Identifier: Apache-2.0
"""Grafana dashboard in Grafana's JSON format, made from `curator_df.monitor.panels`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from curator_df.monitor.panel import Panel
from curator_df.monitor.panels import ROWS

DATASOURCE = {"type": "prometheus", "uid": "curator-df"}
"""Data source, with the identifier that `curator_df.monitor.stack` provisions."""
UID = "curator-df-run"
SCHEMA_VERSION = 39
"""Version of the dashboard format, that of Grafana 11; later versions read it."""
COLUMNS = 24
"""Number of columns of Grafana's grid."""
HEIGHTS = {"stat": 4, "timeseries": 8, "bargauge": 8}


def dashboard() -> dict[str, Any]:
    """Return the dashboard in the format of a dashboard file."""
    return {
        "uid": UID,
        "title": "curator_df",
        "tags": ["curator-df"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "5s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_driver_variable()]},
        "panels": list(_placed()),
    }


def _driver_variable() -> dict[str, Any]:
    query = "label_values(curator_df_memory_allowed_bytes, driver)"
    return {
        "name": "driver",
        "label": "session",
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "driver"},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _placed() -> Iterator[dict[str, Any]]:
    """Yield the panels with their positions: left to right, wrapped into lines, below a heading for each row."""
    number = top = 0
    for title, panels in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": _at(0, top, COLUMNS, 1),
        }
        top, left, line = top + 1, 0, 0
        for panel in panels:
            if left + panel.width > COLUMNS:
                top, left, line = top + line, 0, 0
            number += 1
            height = HEIGHTS[panel.kind]
            yield {"id": number, "gridPos": _at(left, top, panel.width, height), **_drawn(panel)}
            left, line = left + panel.width, max(line, height)
        top += line


def _at(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _drawn(panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "instant": panel.kind != "timeseries",
            "range": panel.kind == "timeseries",
        }
        for place, query in enumerate(panel.queries)
    ]
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    if panel.kind != "timeseries":
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    if panel.kind == "bargauge":
        options |= {"orientation": "horizontal", "displayMode": "basic"}
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": options,
        "targets": targets,
    }
