"""Events: exactly the fields of section 5 of the contract."""

import typing
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime

import pytest

from portico.domain.journal import events
from portico.domain.journal.events import (
    EVENT_FIELDS,
    EVENT_TYPES,
    WIRE_NAMES,
    CorrelationContext,
    format_timestamp,
)

AT = 1795262400.25

CONTRACT = {
    "lifecycle.transition": "from_state to_state attempt reason",
    "fallback.transition": "from_state to_state fsm_event provider model retry_count reason segment deployment",
    "stage.end": "stage duration_ms outcome",
    "context.assembled": "terms cut redacted skills excluded chunks",
    "guard.end": "guard action tripped",
    "inference.start": "segment message_count tool_defs_count schema_present grammar_present "
    "temperature provider model replica deployment",
    "inference.delta": "segment offset text reasoning value",
    "inference.retracted": "segment",
    "inference.end": "segment duration_ms tokens_in tokens_out finish_reason tool_call_count tool_call_ids "
    "tokens_cached tokens_cache_written tokens_reasoning cost",
    "tool.start": "tool_name tool_call_id args_hash replica client",
    "tool.content": "tool_call_id arguments result client",
    "tool.progress": "tool_name tool_call_id progress message",
    "tool.end": "tool_name tool_call_id duration_ms success error_code",
    "constraint.repaired": "attempt repairs replica",
    "validation.end": "attempt valid errors warnings replica",
    "plan.created": "planner_id steps",
    "vote.cast": "replica status error_code",
    "vote.decided": "replicas voted failed stopped_early votes confidence replica error_code",
    "step.start": "step_type attempt pass",
    "step.end": "step_type attempt status duration_ms error_code pass",
    "pass.end": "pass converged completeness coherence consistent reasons ttl_remaining",
    "node.start": "node",
    "flow.step": "node outcome",
    "retrieval.start": "top_k",
    "retrieval.end": "top_k found lexical vector duration_ms",
    "execution.suspended": "suspensions response",
    "execution.resumed": "suspension_id kind tool_id resumed_by",
    "approval.given": "suspension_id user given needed",
    "execution.completed": "response",
    "execution.failed": "response",
    "execution.cancelled": "response",
}


def test_every_event_has_the_fields_of_the_contract() -> None:
    shown = {kind.type: [WIRE_NAMES.get(name, name) for name in EVENT_FIELDS[kind]] for kind in EVENT_TYPES}
    assert {kind: " ".join(names) for kind, names in shown.items()} == CONTRACT


def test_the_event_union_equals_the_list_of_event_types() -> None:
    union = set(typing.get_args(events.Event)) | set(typing.get_args(events.LiveEvent))
    defined = {kind for kind in vars(events).values() if is_dataclass(kind) and hasattr(kind, "type")}
    assert set(EVENT_TYPES) == union == defined


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_no_event_repeats_a_field_of_the_correlation(kind: type) -> None:
    taken = {field.name for field in fields(CorrelationContext)} | {"sequence_number", "type", "timestamp"}
    assert not taken & set(EVENT_FIELDS[kind])


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (AT, "2026-11-21T12:00:00.250000Z"),
        (1.000001, "1970-01-01T00:00:01.000001Z"),
    ],
)
def test_times_are_rfc_3339_in_utc(at: float, text: str) -> None:
    assert format_timestamp(at) == text


@pytest.mark.parametrize("at", [1795470728.3673506, 1795470556.9999998, 1795470556.0000005, 1795470556.4999995])
def test_a_time_is_the_same_text_in_an_event_and_in_a_step(at: float) -> None:
    assert format_timestamp(at) == datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
