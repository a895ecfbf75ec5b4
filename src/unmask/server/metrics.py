"""Prometheus metrics: the engine's counters read at scrape time, and what the HTTP side saw of each request."""

from collections.abc import Iterable
from enum import StrEnum

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from unmask.core.errors import EngineError
from unmask.core.request import Backend
from unmask.server.errors import ApiError

_LATENCY_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_TOKENS_PER_FORWARD_BUCKETS = (0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 32)


class Outcome(StrEnum):
    """How a chat request ended; the value is the metric's label."""

    COMPLETED = "completed"
    REFUSED = "refused"  # the request's own fault (4xx)
    OVER_CAPACITY = "over_capacity"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    DISCONNECTED = "disconnected"  # aborted because the client went away


def outcome_of(error: ApiError) -> Outcome:
    """The outcome that an error answer stands for."""
    if error.status == 429:
        return Outcome.OVER_CAPACITY
    if error.status == 504:
        return Outcome.TIMED_OUT
    return Outcome.FAILED if error.status >= 500 else Outcome.REFUSED


class ServerMetrics:
    """All metrics of one app, in a registry of their own.

    Args:
        backend: whose counters are shown.
    """

    def __init__(self, backend: Backend) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_EngineCollector(backend))
        self._requests = Counter("unmask_requests", "Chat requests by outcome", ["outcome"], registry=self.registry)
        for outcome in Outcome:
            self._requests.labels(outcome.value)  # every series exists from the start, at 0
        self._latency_s = Histogram(
            "unmask_request_seconds",
            "Completed chat requests: seconds from the request's first byte to the answer's last",
            buckets=_LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self._first_token_s = Histogram(
            "unmask_first_token_seconds",
            "Seconds from the request's first byte to its first final token",
            buckets=_LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self._tokens_per_forward = Histogram(
            "unmask_request_tokens_per_forward",
            "Completed chat requests: final tokens per model forward",
            buckets=_TOKENS_PER_FORWARD_BUCKETS,
            registry=self.registry,
        )

    def count(self, outcome: Outcome) -> None:
        """Counts one request."""
        self._requests.labels(outcome.value).inc()

    def observe(self, *, latency_s: float, first_token_s: float | None, tokens_per_forward: float) -> None:
        """Counts one completed request with its measurements."""
        self.count(Outcome.COMPLETED)
        self._latency_s.observe(latency_s)
        self._tokens_per_forward.observe(tokens_per_forward)
        if first_token_s is not None:
            self._first_token_s.observe(first_token_s)


class _EngineCollector(Collector):
    """Reads the backend's counters when a scrape asks for them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def describe(self) -> Iterable[Metric]:
        """Keeps registration from calling `collect`."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yields the engine's metrics; only `unmask_engine_up` 0 when the engine has died."""
        try:
            stats = self._backend.stats()
        except EngineError:
            yield GaugeMetricFamily("unmask_engine_up", "Whether the engine runs", value=0)
            return
        yield GaugeMetricFamily("unmask_engine_up", "Whether the engine runs", value=1)
        yield GaugeMetricFamily("unmask_requests_running", "Sequences in the batch", value=stats.num_running)
        yield GaugeMetricFamily("unmask_requests_waiting", "Sequences in the queue", value=stats.num_waiting)
        yield CounterMetricFamily("unmask_tokens", "Final answer tokens", value=stats.num_tokens)
        yield CounterMetricFamily("unmask_forwards", "Model forwards", value=stats.num_forwards)
        yield CounterMetricFamily(
            "unmask_sequence_forwards", "Forwards summed over the sequences in them", value=stats.num_sequence_forwards
        )
        yield GaugeMetricFamily(
            "unmask_tokens_per_forward",
            "Final tokens per forward and sequence since start",
            value=stats.num_tokens / stats.num_sequence_forwards if stats.num_sequence_forwards else 0.0,
        )


def router(metrics: ServerMetrics) -> APIRouter:
    """GET /metrics, in Prometheus' text format; no API key, as scrapers expect."""

    async def show() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    routes = APIRouter()
    routes.add_api_route("/metrics", show, methods=["GET"], response_class=Response)
    return routes
