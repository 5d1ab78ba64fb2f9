"""How the server stands at the moment somebody reads its metrics. Asks; keeps nothing."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from apps.serve.middleware import InFlight
from apps.serve.worker import InferenceWorker


class ServerGauges(Collector):
    """Queue, slots, requests and the disk store of a running server."""

    def __init__(self, worker: InferenceWorker, in_flight: InFlight) -> None:
        self._worker = worker
        self._in_flight = in_flight

    def collect(self) -> Iterator[Metric]:
        worker = self._worker
        yield GaugeMetricFamily("ds4_queue_depth", "Turns that wait.", value=worker.queued)
        yield GaugeMetricFamily("ds4_turns_running", "Turns in work.", value=worker.running)
        yield GaugeMetricFamily("ds4_slots", "Conversations kept live.", value=worker.settings.sessions)
        yield GaugeMetricFamily(
            "ds4_requests_in_flight", "Requests being answered.", value=len(self._in_flight)
        )
        yield GaugeMetricFamily("ds4_context_tokens", "Size of the context.", value=worker.model.context)
        if worker.store is not None:
            yield CounterMetricFamily(
                "ds4_store_written_bytes", "Bytes of states saved to disk.", value=worker.store.bytes_written
            )

    def describe(self) -> Iterator[Metric]:
        """Nothing to check at registration, when the model may not be loaded."""
        return iter(())
