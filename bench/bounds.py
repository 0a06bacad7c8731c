"""What must be reached, one row a number."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that a number may be; None for one that is only shown."""

    metric: str
    meaning: str
    unit: str
    maximum: float | None


BOUNDS = (
    Bound("chat_ratio", "Plain chat, 32 connections: CPU against the bare proxy", "×", 2.5),
    Bound("chat_cpu_ms", "Plain chat: CPU a request", "ms", 0.9),
    Bound("proxy_cpu_ms", "Bare FastAPI and aiohttp proxy: CPU a request", "ms", None),
    Bound("chat_latency_p50_ms", "Plain chat: latency p50", "ms", None),
    Bound("chat_latency_p99_ms", "Plain chat: latency p99", "ms", None),
    Bound("chat_alone_p50_ms", "Plain chat, 1 connection: latency p50", "ms", None),
    Bound("tool_round_cpu_ms", "One tool round, two inferences: CPU a request", "ms", 1.8),
    Bound("redundant_ratio", "Redundant, 5 replicas and all their votes: CPU against one structured request", "×", 5.5),
    Bound("structured_cpu_ms", "Structured: CPU a request", "ms", None),
    Bound("plan_ratio", "Plan of 20 steps, each an inference: CPU against one plain chat", "×", 20),
    Bound("plan_cpu_ms", "Plan of 20 steps: CPU a request", "ms", None),
    Bound("stream_cpu_us", "SSE, 100 streams of 50 chunks: CPU a chunk", "µs", 140),
    Bound("stream_proxy_us", "Bare ASGI and aiohttp stream: CPU a chunk", "µs", None),
    Bound("stream_ratio", "SSE: CPU against the bare stream", "×", None),
    Bound("stream_memory_kb", "SSE: memory a stream", "kB", 60),
    Bound("stream_first_ms", "SSE: first chunk after the upstream's, p50", "ms", 5),
    Bound("stream_first_p99_ms", "SSE: first chunk after the upstream's, p99", "ms", None),
    Bound("stream_piece_p99_ms", "SSE: any chunk after the upstream's, p99", "ms", None),
    Bound("decode_ratio", "Reading a stream of 50 chunks, the dearest dialect: CPU against parsing alone", "×", 2),
    Bound("decode_us", "Reading a stream of 50 chunks", "µs", None),
    Bound("decode_bare_us", "Splitting and parsing it with msgspec", "µs", None),
    Bound("constraint_us", "All constraint stages on a valid answer of 2 kB", "µs", 60),
    Bound("journaled_more_ms", "Journaled on SQLite, 32 connections: CPU beyond the same one in memory", "ms", 0.4),
    Bound("journaled_step_ms", "Journaled: CPU for each further step", "ms", 0.15),
    Bound("shared_more_ms", "Journaled on PostgreSQL, 32 connections: CPU beyond the same one in memory", "ms", 0.4),
    Bound("shared_step_ms", "Journaled on PostgreSQL: CPU for each further step", "ms", 0.15),
    Bound("suspended_mb", "1,000 suspended executions: memory", "MB", 20),
    Bound("log_event_us", "A reader that joins a log of 10,000 events, 50,000 a second: time an event", "µs", 20),
    Bound("queued_more_ms", "In the background on PostgreSQL: CPU beyond the same one journaled there", "ms", 15),
    Bound("idle_shared_mb", "Idle resident memory on PostgreSQL", "MB", 190),
    Bound("close_p50_ms", "Client close to upstream close, p50", "ms", None),
    Bound("close_p99_ms", "Client close to upstream close, p99", "ms", 50),
    Bound("start_seconds", "Start to ready", "s", 1.5),
    Bound("idle_mb", "Idle resident memory", "MB", 110),
)
