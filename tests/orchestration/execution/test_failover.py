"""Failover in whole executions: the events of a subscriber, the usage that is counted, and the record."""

from dataclasses import replace

import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain.failures import Code
from portico.domain.lifecycle import State
from tests.support.harness import (
    POLICY,
    Harness,
    chat_request,
    make_harness,
    replay_offline,
    response_of,
    scripted_engine,
)
from tests.support.virtual_time import VirtualClock

ROLL = {"tool_calls": [{"name": "roll_dice", "arguments": {"count": 2, "sides": 6}}]}


def moves(record) -> list[str]:
    return [
        f"{item.event.provider}:{item.event.fsm_event}>{item.event.to_state}"
        for item in record.events
        if item.event.type == "fallback.transition"
    ]


async def watched(here: Harness, request):
    """Run with a live subscriber and return the response, its events and the history."""
    execution = here.execution(request)
    reader = here.bus.subscribe(execution.header.execution_id)
    await here.drive(execution)
    return response_of(execution), await reader.next(), here.record(execution)


async def test_a_dead_engine_is_left_for_a_live_one_and_the_stream_shows_it(clock: VirtualClock) -> None:
    here = make_harness(
        clock, scripted_engine(clock, "dead", {"fault": "unreachable"}), scripted_engine(clock, "live", {"text": "hi"})
    )
    response, record = await here.run(chat_request())
    assert response.content == "hi"
    assert (response.metadata.provider, response.metadata.fallback_attempts) == ("live", 1)
    assert moves(record) == [
        "None:START>SELECTING",
        "dead:PROVIDER_SUCCESS>ATTEMPTING",
        "dead:RETRYABLE_ERROR>RETRYING",
        "dead:TIMEOUT>SELECTING",
        "live:PROVIDER_SUCCESS>ATTEMPTING",
        "live:PROVIDER_SUCCESS>SUCCEEDED",
    ]
    assert replay_offline(record) == len(record.steps)


async def test_a_stream_cut_after_deltas_is_retracted_and_two_texts_are_never_joined(clock: VirtualClock) -> None:
    here = make_harness(
        clock,
        scripted_engine(clock, "cut", {"fault": "unreachable", "after_chunks": 2}),
        scripted_engine(clock, "whole", {"chunks": ["he", "llo"]}),
    )
    response, seen, record = await watched(here, chat_request())
    assert response.content == "hello"
    shown = [
        (item.event.type.partition(".")[2], item.event.segment, getattr(item.event, "offset", None))
        for item in seen
        if item.event.type.startswith("inference")
    ]
    assert shown == [
        ("start", "0/0", None),
        ("delta", "0/0", 0),
        ("delta", "0/0", 8),
        ("end", "0/0", None),
        ("retracted", "0/0", None),
        ("start", "0/1", None),
        ("delta", "0/1", 0),
        ("delta", "0/1", 2),
        ("end", "0/1", None),
    ]
    assert replay_offline(record) == len(record.steps)


async def test_a_streamed_segment_is_retracted_only_when_another_attempt_follows(clock: VirtualClock) -> None:
    cut = {"fault": "broken", "after_chunks": 1}
    here = make_harness(clock, scripted_engine(clock, "a", cut, cut), scripted_engine(clock, "b", cut, cut))
    response, seen, record = await watched(here, chat_request())
    assert response.error is not None
    assert [item.event.segment for item in seen if item.event.type == "inference.retracted"] == ["0/0", "0/1", "0/2"]
    assert [item.event.segment for item in seen if item.event.type == "inference.end"] == ["0/0", "0/1", "0/2", "0/3"]
    assert replay_offline(record) == len(record.steps)


async def test_a_stream_cut_before_its_first_delta_fails_over_invisibly(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "cut", {"fault": "broken"}, {"text": "hi"}))
    _, seen, _ = await watched(here, chat_request())
    assert "inference.retracted" not in [item.event.type for item in seen]


async def test_without_a_reader_nothing_is_published_and_so_nothing_retracted(clock: VirtualClock) -> None:
    here = make_harness(
        clock,
        scripted_engine(clock, "cut", {"fault": "unreachable", "after_chunks": 2}),
        scripted_engine(clock, "b", {"text": "hi"}),
    )
    _, record = await here.run(chat_request())
    assert "inference.retracted" not in [item.event.type for item in record.events]


async def test_partial_text_stands_beside_the_error_that_ended_it(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "cut", {"fault": "unreachable", "after_chunks": 2}))
    response, seen, _ = await watched(here, chat_request())
    assert response.content == "piece 1 piece 2 "
    assert response.error is not None
    assert "inference.retracted" not in [item.event.type for item in seen]


async def test_a_later_inference_starts_with_the_provider_that_answered_last(clock: VirtualClock) -> None:
    here = make_harness(
        clock,
        scripted_engine(clock, "first", {"fault": "unreachable"}, {"text": "wrong one"}),
        scripted_engine(clock, "second", ROLL, {"text": "right one"}),
        tools=BUILTIN_TOOLS,
    )
    response, _ = await here.run(chat_request())
    assert response.content == "right one"


async def test_tool_calls_are_not_repeated_because_a_provider_changed(clock: VirtualClock) -> None:
    here = make_harness(
        clock,
        scripted_engine(clock, "first", ROLL, {"fault": "unreachable"}),
        scripted_engine(clock, "second", {"text": "finished here"}),
        tools=BUILTIN_TOOLS,
    )
    response, record = await here.run(chat_request())
    assert response.content == "finished here"
    assert [item.event.type for item in record.events].count("tool.start") == 1


async def test_usage_of_all_attempts_is_counted_and_priced(clock: VirtualClock) -> None:
    usage = {"input_tokens": 1_000_000, "output_tokens": 500_000, "total_tokens": 1_500_000}
    cut = {"fault": "unreachable", "after_chunks": 3, "usage": usage}
    here = make_harness(
        clock,
        scripted_engine(clock, "cut", cut, price=(1.0, 2.0)),
        scripted_engine(clock, "whole", {"text": "hi", "usage": usage}, price=(3.0, 4.0)),
    )
    response, _, record = await watched(here, chat_request())
    assert response.token_usage.input_tokens == 2_000_000
    assert response.cost is not None
    assert (response.cost.amount, response.cost.currency) == (pytest.approx(7.0), "USD")
    assert replay_offline(record) == len(record.steps)


async def test_an_empty_answer_is_malformed_after_one_retry(clock: VirtualClock) -> None:
    response, record = await make_harness(clock, scripted_engine(clock, "mute", {"text": ""}, {"text": ""})).run(
        chat_request()
    )
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_MALFORMED_RESPONSE
    assert [item.event.type for item in record.events].count("inference.start") == 2


async def test_finish_reason_length_is_an_answer_and_says_so(clock: VirtualClock) -> None:
    response, _ = await make_harness(
        clock, scripted_engine(clock, "a", {"text": "cut sho", "finish_reason": "length"})
    ).run(chat_request())
    assert (response.content, response.metadata.finish_reason) == ("cut sho", "length")


async def test_two_calls_under_one_id_are_refused_before_anything_runs(clock: VirtualClock) -> None:
    twins = {"tool_calls": [{**ROLL["tool_calls"][0], "id": "same"}, {**ROLL["tool_calls"][0], "id": "same"}]}
    here = make_harness(clock, scripted_engine(clock, "a", twins, twins), tools=BUILTIN_TOOLS)
    response, record = await here.run(chat_request())
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_MALFORMED_RESPONSE
    assert "tool.start" not in [item.event.type for item in record.events]


async def test_the_wait_is_one_step_on_the_record_and_fits_the_reply(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", {"fault": "rate_limited", "retry_after": 2}, {"text": "hi"}))
    began = clock.monotonic()
    response, record = await here.run(chat_request())
    assert response.content == "hi"
    assert 2 <= clock.monotonic() - began < 3
    assert list(record.steps) == ["prepare", "0", "0/0", "0/0/0", "0/1"]
    assert replay_offline(record) == len(record.steps)


async def test_a_wait_above_the_cap_leaves_the_provider_at_once(clock: VirtualClock) -> None:
    here = make_harness(
        clock,
        scripted_engine(clock, "a", {"fault": "rate_limited", "retry_after": 31}),
        scripted_engine(clock, "b", {"text": "hi"}),
    )
    began = clock.monotonic()
    response, _ = await here.run(chat_request())
    assert response.metadata.provider == "b"
    assert clock.monotonic() - began < 1


async def test_an_open_breaker_leaves_the_candidate_out_and_alone_it_is_unavailable(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", {"fault": "quota"}, {"text": "hi"}))
    await here.run(chat_request())
    response, record = await here.run(chat_request())
    assert response.state is State.ERROR
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_MODEL_UNAVAILABLE
    assert "inference.start" not in [item.event.type for item in record.events]
    assert moves(record) == ["None:START>SELECTING", "None:PROVIDER_SUCCESS>EXHAUSTED"]
    assert replay_offline(record) == len(record.steps)


async def test_text_that_was_retracted_is_no_content(clock: VirtualClock) -> None:
    cut, down = {"fault": "unreachable", "after_chunks": 2}, {"fault": "unreachable"}
    here = make_harness(clock, scripted_engine(clock, "cut", cut), scripted_engine(clock, "down", down))
    response, seen, record = await watched(here, chat_request())
    assert "inference.retracted" in [item.event.type for item in seen]
    assert response.content is None
    assert replay_offline(record) == len(record.steps)


async def test_partial_text_names_who_said_it(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "cut", {"fault": "unreachable", "after_chunks": 2}))
    response, _, _ = await watched(here, chat_request())
    assert (response.metadata.provider, response.metadata.model) == ("cut", "cut-model")


async def test_a_provider_whose_breaker_its_own_failure_opened_is_left_at_once(clock: VirtualClock) -> None:
    policy = replace(POLICY, breaker_failures=1)
    limited = {"fault": "rate_limited", "retry_after": 3}
    here = make_harness(
        clock, scripted_engine(clock, "a", limited), scripted_engine(clock, "b", {"text": "hi"}), policy=policy
    )
    began = clock.monotonic()
    response, record = await here.run(chat_request())
    assert response.metadata.fallback_attempts == 1
    assert clock.monotonic() - began < 1
    assert [item.event.type for item in record.events].count("inference.start") == 2


async def test_an_open_breaker_alone_says_when_to_come_back(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", {"fault": "quota"}))
    await here.run(chat_request())
    await clock.sleep(5)
    response, record = await here.run(chat_request())
    assert response.error is not None
    assert response.error.details["retry_after"] == pytest.approx(10)
    assert replay_offline(record) == len(record.steps)
