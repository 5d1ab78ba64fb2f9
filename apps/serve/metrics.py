"""What the server did, in numbers for Prometheus: counters that turns and requests add to.

Owns the names and labels; no label holds what a client wrote, but for names of ignored fields, which are few.
Knows no endpoint and no engine. Safe to call from any thread.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS: Final = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800)
_FIELD_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_MOST_FIELDS: Final = 100

# A series beside each counter, for when it began: twice the text, and nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]


class ServerMetrics:
    """All counters of one server. Times are in seconds."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "ds4_requests", "Requests answered.", ["endpoint", "status"], registry=registry
        )
        self._request_seconds = Histogram(
            "ds4_request_seconds",
            "From a request's arrival to the end of its answer.",
            ["endpoint"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._turns = Counter(
            "ds4_turns", "Turns that ended, by how they did.", ["kind", "finish"], registry=registry
        )
        self._prompts = Counter(
            "ds4_prompts", "Prompts, by what they went on from.", ["source"], registry=registry
        )
        self._prefilled = Counter(
            "ds4_prefilled_tokens", "Prompt tokens computed.", ["source"], registry=registry
        )
        self._reused = Counter(
            "ds4_reused_tokens", "Prompt tokens not computed again.", ["source"], registry=registry
        )
        self._generated = Counter("ds4_generated_tokens", "Tokens sampled.", ["kind"], registry=registry)
        self._reasoning = Counter(
            "ds4_reasoning_tokens", "Of the tokens sampled, those of reasoning.", ["kind"], registry=registry
        )
        self._queue_seconds = self._phase("queue", "Time that turns waited.")
        self._prefill_seconds = self._phase("prefill", "Time that turns spent on their prompts.")
        self._decode_seconds = self._phase("decode", "Time that turns spent on their answers.")
        self._ignored = Counter(
            "ds4_ignored_fields",
            "Fields of requests that mean nothing to this server.",
            ["endpoint", "field"],
            registry=registry,
        )
        self._known_fields: set[str] = set()
        self._lock = threading.Lock()
        ProcessCollector(registry=registry)

    def watch(self, collector: Collector) -> None:
        """Have `collector` asked whenever somebody reads."""
        self._registry.register(collector)

    def text(self) -> bytes:
        """Everything, in the text format."""
        return generate_latest(self._registry)

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """A request was answered, or its client left (status 499)."""
        self._requests.labels(endpoint, str(status)).inc()
        self._request_seconds.labels(endpoint).observe(seconds)

    def prefilled(self, source: str, computed: int, reused: int, *, queued: float, seconds: float) -> None:
        """A turn's prompt is in the state; `source` is where its beginning came from."""
        self._prompts.labels(source).inc()
        self._prefilled.labels(source).inc(computed)
        self._reused.labels(source).inc(reused)
        self._queue_seconds.observe(queued)
        self._prefill_seconds.observe(seconds)

    def decoded(self, kind: str, tokens: int, reasoning: int, seconds: float) -> None:
        """So many `tokens` were sampled in an attempt at an answer; `reasoning` are part of them."""
        self._generated.labels(kind).inc(tokens)
        self._reasoning.labels(kind).inc(reasoning)
        self._decode_seconds.observe(seconds)

    def turn_ended(self, kind: str, finish: str) -> None:
        """A turn is over, well or not."""
        self._turns.labels(kind, finish).inc()

    def ignored(self, endpoint: str, fields: Iterable[str]) -> None:
        """A request had `fields` that were skipped. Clients cannot make up names without end: behind the
        first hundred all are one."""
        for field in fields:
            self._ignored.labels(endpoint, self._field_label(field)).inc()

    def _field_label(self, name: str) -> str:
        with self._lock:
            if name not in self._known_fields:
                if len(self._known_fields) >= _MOST_FIELDS or not _FIELD_NAME.fullmatch(name):
                    return "other"
                self._known_fields.add(name)
        return name

    def _phase(self, name: str, meaning: str) -> Histogram:
        return Histogram(f"ds4_{name}_seconds", meaning, buckets=_SECONDS, registry=self._registry)
