"""Bounds of the benchmarks, one row for each number."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """The maximum of a metric; without one the metric is only reported."""

    metric: str
    meaning: str
    unit: str
    maximum: float | None


BOUNDS = (
    Bound("chat_ratio", "Plain chat, 32 connections: CPU relative to the bare proxy", "×", 3.6),
    Bound("chat_cpu_ms", "Plain chat: CPU per request", "ms", None),
    Bound("proxy_cpu_ms", "Bare FastAPI and aiohttp proxy: CPU per request", "ms", None),
    Bound("chat_latency_p50_ms", "Plain chat: latency, p50", "ms", None),
    Bound("chat_latency_p99_ms", "Plain chat: latency, p99", "ms", None),
    Bound("chat_alone_p50_ms", "Plain chat, 1 connection: latency, p50", "ms", None),
    Bound("limited_more_ms", "Plain chat with a key and four limits: CPU beyond the same chat without", "ms", 0.08),
    Bound("traces_some_more_ms", "Plain chat with traces at 1 %: CPU beyond the same chat without", "ms", 0.03),
    Bound("traces_all_more_ms", "Plain chat with all traces: CPU beyond the same chat without", "ms", 0.35),
    Bound("key_check_us", "Checking an API key after the first time: CPU", "µs", 20),
    Bound("orchestration_calls", "Orchestration alone, facade to answer: Python calls per chat", "calls", 700),
    Bound("orchestration_core_calls", "Of these in orchestration, capabilities and domain", "calls", None),
    Bound("orchestration_cpu_us", "Orchestration alone: CPU per chat", "µs", None),
    Bound("context_ms", "The stages before the first inference, 50 messages and 20 skills: CPU", "ms", 0.3),
    Bound("context_redacted_ms", "The same with redaction", "ms", 0.6),
    Bound("tool_round_cpu_ms", "One tool round with two inferences: CPU per request", "ms", None),
    Bound("tool_call_ms", "One more call of a tool in the process, journaled on SQLite: CPU", "ms", 0.15),
    Bound("program_more_ms", "Program as a tool: time beyond starting it bare", "ms", 5),
    Bound("many_tools_more_ms", "Chat that is offered 10 tools: CPU beyond the same with 1,000 fewer", "ms", 0.05),
    Bound("redundant_ratio", "Redundant, 5 replicas that all vote: CPU relative to one structured request", "×", 5.5),
    Bound("structured_cpu_ms", "Structured: CPU per request", "ms", None),
    Bound("plan_ratio", "Plan of 20 inference steps: CPU relative to one plain chat", "×", 20),
    Bound("plan_cpu_ms", "Plan of 20 inference steps: CPU per request", "ms", None),
    Bound("pass_ms", "One more pass of reasoning with its four inferences: CPU", "ms", None),
    Bound("pass_more_ms", "One more pass of reasoning: CPU beyond four steps of a plan", "ms", 2),
    Bound("flow_cpu_ms", "Flow of 20 work nodes in memory: CPU per request", "ms", 3),
    Bound("flow_next_us", "Flow alone: `next` on a work node", "µs", 50),
    Bound("flow_build_ms", "Flow of 1,000 nodes: building it", "ms", 100),
    Bound("flow_fingerprint_ms", "Flow of 1,000 nodes: its fingerprint", "ms", 1_000),
    Bound("flow_snapshot_ms", "Flow alone: snapshot of 100 keys", "ms", 1),
    Bound("stream_cpu_us", "SSE, 100 streams of 50 chunks: CPU per chunk", "µs", None),
    Bound("stream_proxy_us", "Bare ASGI and aiohttp stream: CPU per chunk", "µs", None),
    Bound("stream_ratio", "SSE: CPU relative to the bare stream", "×", 3),
    Bound("stream_memory_kb", "SSE: memory per stream", "kB", 80),
    Bound("stream_first_ms", "SSE: delay of the first chunk behind the upstream, p50", "ms", 5),
    Bound("stream_first_p99_ms", "SSE: delay of the first chunk behind the upstream, p99", "ms", None),
    Bound("stream_chunk_p99_ms", "SSE: delay of any chunk behind the upstream, p99", "ms", None),
    Bound("decode_ratio", "Decoding a stream of 50 chunks, slowest dialect: CPU relative to parsing only", "×", 4.5),
    Bound("decode_us", "Decoding a stream of 50 chunks", "µs", None),
    Bound("decode_bare_us", "Splitting and parsing the same stream with msgspec", "µs", None),
    Bound("constraint_us", "All constraint stages on a valid answer of 2 kB", "µs", 60),
    Bound("prompt_lookup_us", "Look-up of a prompt", "µs", 10),
    Bound("prompt_render_us", "Rendering of a prompt with 4 kB of data", "µs", 100),
    Bound("extraction_ms", "Extraction of JSON from a reply of 20 kB, slowest", "ms", 2),
    Bound("guard_ms", "Guard of 20 patterns over a text of 8 kB", "ms", 0.2),
    Bound("injection_ms", "Guard of type injection over a text of 8 kB", "ms", None),
    Bound("pii_ms", "Guard of type pii over a text of 8 kB", "ms", None),
    Bound("memory_search_ms", "Memory: search of 20,000 chunks of 256 dimensions", "ms", 15),
    Bound("memory_chunks_ms", "Memory: cutting a document of 1 MB into indexed chunks", "ms", None),
    Bound("hostile_cpu_ms", "Hostile requests: CPU of the slowest", "ms", 250),
    Bound("hostile_delay_ms", "Hostile requests: longest latency of another client beside any of them", "ms", 50),
    Bound("hostile_memory_mb", "Hostile requests: growth of resident memory, largest", "MB", 50),
    Bound("hostile_grammar_ms", "Hostile grammars: slowest step", "ms", 250),
    Bound("hostile_plain_ms", "Hostile contracts and answers that are small and plain: slowest validation", "ms", 50),
    Bound("hostile_text_ms", "Hostile answers: extraction and repair, slowest", "ms", 500),
    Bound("hostile_partial_ms", "Partial values of an answer that arrives by character, slowest", "ms", 3_000),
    Bound("hostile_gemini_schema_ms", "Hostile schemas for Gemini: slowest", "ms", 1_000),
    Bound("grammar_kb_ms", "Checking JSON with a grammar of JSON: time per kB", "ms", 25),
    Bound("journaled_more_ms", "Journaled on SQLite, 32 connections: CPU beyond the same chat in memory", "ms", 0.4),
    Bound("journaled_step_ms", "Journaled on SQLite: CPU for each further step", "ms", 0.15),
    Bound("shared_more_ms", "Journaled on PostgreSQL, 32 connections: CPU beyond the same chat in memory", "ms", 0.4),
    Bound("shared_step_ms", "Journaled on PostgreSQL: CPU for each further step", "ms", 0.15),
    Bound("suspended_mb", "1,000 suspended executions: memory", "MB", 20),
    Bound("log_event_us", "Reading a log of 10,000 events from its start: time per event", "µs", 20),
    Bound("queued_more_ms", "In the background on PostgreSQL: CPU beyond the same chat journaled there", "ms", 15),
    Bound("idle_shared_mb", "Idle on PostgreSQL: resident memory", "MB", 190),
    Bound("close_p50_ms", "Client close to upstream close, p50", "ms", None),
    Bound("close_p99_ms", "Client close to upstream close, p99", "ms", 50),
    Bound("start_seconds", "Start to ready", "s", 1.5),
    Bound("idle_mb", "Idle: resident memory", "MB", 120),
)
