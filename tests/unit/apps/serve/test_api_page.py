"""docs/api.md names every endpoint, every field that an endpoint reads and every metric, and no others."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import Route

from apps.serve.app import create_app
from apps.serve.log import ServerLog
from apps.serve.schema.chat import ChatRequest
from apps.serve.schema.request_models import REQUEST_MODELS
from apps.serve.settings import ServerSettings
from apps.serve.worker import InferenceWorker
from shared.session import Engine

_PAGE = Path(__file__).parents[4] / "docs" / "api.md"
# Where a section says in words that it takes another one's body.
_BORROWED = {"/v1/messages/count_tokens": "/v1/messages"}


def _sections() -> dict[str, str]:
    """What stands under each heading of the page."""
    parts = re.split(r"^## (.*)\n", _PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _section(path: str) -> str:
    return next(text for heading, text in _sections().items() if heading == f"`POST {path}`")


def _first_cells(text: str) -> list[str]:
    """The names in the first column of the tables."""
    cells = re.findall(r"^\| (`[^|]*) \|", text, flags=re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def _worker() -> InferenceWorker:
    def open_nothing() -> Engine:
        raise AssertionError

    return InferenceWorker(open_nothing, 4096, ServerSettings(), ServerLog(io.StringIO()))


def test_every_endpoint_has_a_section() -> None:
    routes = create_app(_worker(), ServerSettings()).routes
    there = set()
    for route in routes:
        assert isinstance(route, Route)
        assert route.methods is not None
        method = "POST" if "POST" in route.methods else "GET"
        there.add(f"{method} {route.path.replace('{model:path}', '{id}')}")
    named = {name for heading in _sections() for name in re.findall(r"`((?:GET|POST) [^`]+)`", heading)}
    assert named == there


@pytest.mark.parametrize("path", sorted(REQUEST_MODELS.keys() - _BORROWED.keys()))
def test_its_fields_are_those_that_the_endpoint_reads(path: str) -> None:
    own = [model for model in REQUEST_MODELS[path] if path != "/v1/tokenize" or model is not ChatRequest]
    read = {name for model in own for name in model.model_fields}
    named = _first_cells(_section(path))
    assert len(named) == len(set(named))
    assert set(named) == read
    skipped = re.search(r"^Skipped, among others: (.*)\.$", _section(path), flags=re.MULTILINE)
    if skipped is not None:
        assert read.isdisjoint(re.findall(r"`([^`]+)`", skipped[1]))


@pytest.mark.parametrize(("path", "lender"), _BORROWED.items())
def test_a_borrowed_body_is_the_same(path: str, lender: str) -> None:
    assert f"The body of `{lender}`" in _section(path)
    assert REQUEST_MODELS[path] == REQUEST_MODELS[lender]


def test_every_metric_is_named() -> None:
    metrics = _worker().metrics
    metrics.request("/", 200, 0.1)
    metrics.prefilled("miss", 1, 0, queued=0.1, seconds=0.1)
    metrics.decoded("chat", 1, 0, 0.1)
    metrics.turn_ended("chat", "stop")
    metrics.ignored("/", ["a"])
    families = text_string_to_metric_families(metrics.text().decode())
    counted = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in families
        if family.name.startswith("ds4_")
    }
    named = set(_first_cells(_sections()["`GET /metrics`"]))
    gauges = {name for name in named if name.startswith("ds4_")} - counted
    assert counted <= named
    source = (_PAGE.parents[1] / "apps" / "serve" / "gauges.py").read_text(encoding="utf-8")
    assert gauges == {
        name if name != "ds4_store_written_bytes" else f"{name}_total"
        for name in re.findall(r'"(ds4_\w+)"', source)
    }
