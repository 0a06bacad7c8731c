"""Span queue: the bounded buffer between the event loop and the collector, emptied by a thread in batches.

A collector that is dead, slow or answers nonsense costs spans and nothing else: a full queue and a failed batch drop
spans, which are counted. The thread never holds up the event loop or the end of the process.
"""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from portico.domain.value import value


@value
class ExportLimits:
    """Bounds of the queue: the spans that may wait, those of one batch, and the seconds after which a batch is sent."""

    capacity: int = 16_384
    batch: int = 512
    seconds: float = 1.0


DEFAULT_LIMITS = ExportLimits()
_ABORT_SECONDS = 0.5


@value
class ExportReports:
    """Callbacks: the number of spans that were dropped, and True once batches fail or False once they arrive again."""

    on_drop: Callable[[int], None]
    on_failing: Callable[[bool], None]


class SpanQueue:
    """Queue of finished spans. The thread calls `exporter` for each batch; it returns the one to send it with."""

    def __init__(self, exporter: Callable[[], SpanExporter], reports: ExportReports, limits: ExportLimits) -> None:
        self._exporter = exporter
        self._reports = reports
        self._limits = limits
        self._spans: deque[ReadableSpan] = deque()
        self._wake = Event()
        self._lock = Lock()
        self._is_closing = False
        self._is_failing = False
        self._thread = Thread(target=self._run, name="span-export", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, spans: Sequence[ReadableSpan]) -> None:
        """Queue the spans, or drop those for which there is no room. Never waits."""
        room = max(0, self._limits.capacity - len(self._spans))
        self._spans.extend(spans[:room])
        if len(spans) > room:
            self._drop(len(spans) - room)
        if len(self._spans) >= self._limits.batch:
            self._wake.set()

    def flush(self) -> None:
        """Let the thread send at once what is queued."""
        self._wake.set()

    def close(self, seconds: float, abort: Callable[[], None]) -> None:
        """Send what is queued within that time; then `abort` what is being sent, and drop the rest. Blocks."""
        self._is_closing = True
        self._wake.set()
        self._thread.join(seconds - _ABORT_SECONDS)
        with self._lock:
            dropped = len(self._spans)
            self._spans.clear()
        if dropped:
            self._drop(dropped)
        abort()
        self._thread.join(_ABORT_SECONDS)

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.wait(self._limits.seconds)
            self._wake.clear()
            self._send_all()
        self._send_all()

    def _send_all(self) -> None:
        while batch := self._next_batch():
            self._send(batch)

    def _next_batch(self) -> list[ReadableSpan]:
        with self._lock:
            return [self._spans.popleft() for _ in range(min(self._limits.batch, len(self._spans)))]

    def _send(self, batch: Sequence[ReadableSpan]) -> None:
        try:
            has_arrived = self._exporter().export(batch) is SpanExportResult.SUCCESS
        except Exception:  # noqa: BLE001 - no answer of a collector may end the thread
            has_arrived = False
        if not has_arrived:
            self._drop(len(batch))
        if has_arrived is self._is_failing:
            self._is_failing = not has_arrived
            self._reports.on_failing(self._is_failing)

    def _drop(self, count: int) -> None:
        with self._lock:
            self._reports.on_drop(count)
