"""Counters: exact lines of the text format, and labels that clients cannot multiply."""

from __future__ import annotations

import asyncio
import contextlib

from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Message, Receive, Scope, Send

from apps.serve.metrics import ServerMetrics
from apps.serve.request_metrics import RequestMetrics
from apps.serve.schema.request_models import skipped_fields


def _lines(metrics: ServerMetrics) -> list[str]:
    return metrics.text().decode().splitlines()


def test_a_turn_in_numbers() -> None:
    metrics = ServerMetrics()
    metrics.prefilled("disk-text", 30, 70, queued=0.01, seconds=3.0)
    metrics.decoded("chat", 9, 4, 1.5)
    metrics.turn_ended("chat", "stop")
    metrics.decoded("messages", 3, 3, 0.5)
    metrics.turn_ended("messages", "cancelled")
    lines = _lines(metrics)
    for line in (
        'ds4_prompts_total{source="disk-text"} 1.0',
        'ds4_prefilled_tokens_total{source="disk-text"} 30.0',
        'ds4_reused_tokens_total{source="disk-text"} 70.0',
        'ds4_generated_tokens_total{kind="chat"} 9.0',
        'ds4_reasoning_tokens_total{kind="chat"} 4.0',
        'ds4_generated_tokens_total{kind="messages"} 3.0',
        'ds4_reasoning_tokens_total{kind="messages"} 3.0',
        'ds4_turns_total{finish="stop",kind="chat"} 1.0',
        'ds4_turns_total{finish="cancelled",kind="messages"} 1.0',
        "ds4_prefill_seconds_sum 3.0",
        "ds4_decode_seconds_sum 2.0",
        'ds4_queue_seconds_bucket{le="0.005"} 0.0',
        'ds4_queue_seconds_bucket{le="0.02"} 1.0',
    ):
        assert line in lines, line


def test_names_of_ignored_fields_do_not_grow_without_end() -> None:
    metrics = ServerMetrics()
    metrics.ignored("/v1/messages", ["metadata", "metadata", "no name", "x" * 41, "\u00e9"])
    metrics.ignored("/v1/messages", [f"made_up_{number}" for number in range(1000)])
    metrics.ignored("/v1/responses", ["metadata", "later"])
    fields = [line for line in _lines(metrics) if line.startswith("ds4_ignored_fields_total{")]
    assert 'ds4_ignored_fields_total{endpoint="/v1/messages",field="metadata"} 2.0' in fields
    assert 'ds4_ignored_fields_total{endpoint="/v1/responses",field="metadata"} 1.0' in fields
    assert 'ds4_ignored_fields_total{endpoint="/v1/responses",field="other"} 1.0' in fields
    assert f'ds4_ignored_fields_total{{endpoint="/v1/messages",field="other"}} {3 + 1000 - 99}.0' in fields
    assert len(fields) == 100 + 3


def test_two_servers_in_one_process_count_for_themselves() -> None:
    first, second = ServerMetrics(), ServerMetrics()
    first.request("/health", 200, 0.1)
    assert not any(line.startswith("ds4_requests_total{") for line in _lines(second))


def test_the_text_is_what_prometheus_reads() -> None:
    metrics = ServerMetrics()
    metrics.request("/health", 200, 0.1)
    families = {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}
    (sample,) = [sample for sample in families["ds4_requests"].samples if sample.name.endswith("_total")]
    assert (sample.labels, sample.value) == ({"endpoint": "/health", "status": "200"}, 1.0)


def _requests(paths: dict[str, int | None]) -> list[str]:
    """What is counted for requests to `paths` that are answered with these statuses, None: not at all."""
    metrics = ServerMetrics()
    times = iter(range(1000))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        status = paths[scope["path"]]
        if status is None:
            raise ConnectionError
        await send({"type": "http.response.start", "status": status})

    async def nowhere(message: Message) -> None:
        assert message["type"] == "http.response.start"

    async def nothing() -> Message:
        raise AssertionError

    counting = RequestMetrics(
        app, metrics=metrics, endpoints=["/health", "/v1/models/{model:path}"], clock=lambda: next(times)
    )

    async def run() -> None:
        for path in paths:
            with contextlib.suppress(ConnectionError):
                await counting({"type": "http", "path": path}, nothing, nowhere)

    asyncio.run(run())
    return [
        line for line in _lines(metrics) if line.startswith(("ds4_requests_total", "ds4_request_seconds_sum"))
    ]


def test_requests_count_by_endpoint_and_status() -> None:
    assert set(_requests({"/health": 200, "/v1/models/x": 404, "/v1/models/y/z": 404, "/wp-admin": 404})) == {
        'ds4_requests_total{endpoint="/health",status="200"} 1.0',
        'ds4_requests_total{endpoint="/v1/models/{model:path}",status="404"} 2.0',
        'ds4_requests_total{endpoint="other",status="404"} 1.0',
        'ds4_request_seconds_sum{endpoint="/health"} 1.0',
        'ds4_request_seconds_sum{endpoint="/v1/models/{model:path}"} 2.0',
        'ds4_request_seconds_sum{endpoint="other"} 1.0',
    }


def test_a_client_that_left_counts_too() -> None:
    assert 'ds4_requests_total{endpoint="/health",status="499"} 1.0' in _requests({"/health": None})


def test_fields_that_no_model_reads_are_skipped() -> None:
    body = ["model", "messages", "metadata", "max_tokens", "top_k"]
    assert skipped_fields("/v1/messages", body) == ["metadata"]
    assert skipped_fields("/v1/completions", body) == ["messages", "metadata"]
    assert skipped_fields("/v1/tokenize", ["content", "messages", "add_special"]) == ["add_special"]
