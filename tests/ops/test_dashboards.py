"""Dashboard and alert rules speak of metrics that exist, with labels and values that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from emelex_core.jobs.kinds import JobKind
from emelex_workers.observe import metrics
from stores import ROOT

RULES = ROOT / "ops" / "prometheus" / "emelex.rules.yml"
DASHBOARD = ROOT / "ops" / "grafana" / "emelex-memory.json"
SUFFIX = re.compile(r"_(bucket|sum|count)$")


def _expressions() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    rules = re.sub(
        r"expr: >-\n((?: {10}.*\n)+)", lambda match: f"expr: {' '.join(match[1].split())}\n", RULES.read_text("utf-8")
    )
    found = re.findall(r"^        expr: (.+)$", rules, re.MULTILINE)
    assert len(found) == rules.count("- alert:")
    yield from found


@pytest.mark.parametrize("expression", list(_expressions()))
def test_an_expression_names_what_is_told(expression: str) -> None:
    """A renamed metric or state would leave a silent panel, or an alert that never fires."""
    text = metrics.render(metrics.Counters(), None)
    known = set(metrics._HELP)
    assert known >= set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    for name in re.findall(r"emelex_\w+", expression):
        kind = metrics._HELP[SUFFIX.sub("", name)][0]
        assert (name in known) or kind == "histogram"
    values = {*metrics.STATES, *metrics.OUTCOMES, *JobKind}
    for label, value in re.findall(r'(\w+)=~?"([^"]+)"', expression):
        assert label in {"state", "outcome", "kind"}
        assert set(value.split("|")) <= values
    assert expression.count("(") == expression.count(")")


def test_the_dashboard_holds_together() -> None:
    """Unique ids, panels that do not overlap, one data source for all."""
    board = json.loads(DASHBOARD.read_text("utf-8"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert {panel["datasource"]["uid"] for panel in panels} == {"${source}"}
    shown = {
        SUFFIX.sub("", name)
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"emelex_\w+", target["expr"])
    }
    assert shown == set(metrics._HELP)


def test_rules_are_yaml_of_the_right_shape() -> None:
    """Read by the parser that is at hand, else by the shape of its lines."""
    yaml = pytest.importorskip("yaml", reason="PyYAML came with another package, and is gone")
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    for rule in group["rules"]:
        assert set(rule) >= {"alert", "expr", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "runbook"}
