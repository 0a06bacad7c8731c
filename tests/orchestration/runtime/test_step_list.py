"""The step list: every kind of recorded step, with what was asked and what was answered."""

from dataclasses import replace
from typing import get_args

import pytest

from portico.bootstrap.service import PATTERNS
from portico.domain.journal.outcomes import Outcome
from portico.orchestration.runtime.step_list import OUTCOMES, StepView, step_page
from portico.ports.journal import ExecutionHistory
from tests.support.examples import OUTCOMES as EXAMPLES
from tests.support.harness import chat_request, make_harness, scripted_engine, watch_commits
from tests.support.virtual_time import VirtualClock


def views(record: ExecutionHistory) -> dict[str, StepView]:
    return {each.key: each for each in step_page(record, PATTERNS).steps if isinstance(each, StepView)}


async def failed_over(clock: VirtualClock) -> ExecutionHistory:
    """Return the record of a chat whose first provider fails twice, and whose second one answers after 3 s."""
    fault = {"fault": "rate_limited", "retry_after": 2}
    usage = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}
    here = make_harness(
        clock,
        scripted_engine(clock, "a", fault, fault),
        scripted_engine(clock, "b", {"text": "ok", "delay": 3, "usage": usage}, price=(1_000_000, 2_000_000)),
    )
    _, record = await here.run(chat_request(hints={"seed": 7}))
    return record


def test_every_kind_of_outcome_is_shown() -> None:
    assert set(OUTCOMES) == set(get_args(Outcome))
    for outcome in EXAMPLES:
        kind, show = OUTCOMES[type(outcome)]
        assert kind
        assert "signature" not in str(show(outcome))


async def test_attempts_and_waits_are_shown_with_what_they_took(clock: VirtualClock) -> None:
    began = clock.now()
    found = views(await failed_over(clock))
    assert [(each.key, each.kind, each.from_step) for each in found.values()] == [
        ("prepare", "prepare", None),
        ("0", "inference", 0),
        ("0/0", "attempt", 0),
        ("0/0/0", "wait", 0),
        ("0/1", "attempt", 0),
        ("0/2", "attempt", 0),
    ]
    waited, answered = found["0/0/0"], found["0/2"]
    assert waited.duration_ms == pytest.approx(waited.request["seconds"] * 1000)
    assert waited.started_at.timestamp() == pytest.approx(began)
    assert (answered.provider, answered.duration_ms) == ("b", pytest.approx(3_000))
    assert answered.started_at.timestamp() == pytest.approx(began + waited.request["seconds"])
    assert answered.usage is not None
    assert (answered.usage.total_tokens, answered.cost and answered.cost.amount) == (11, 13.0)
    assert found["0/0"].outcome["error"]["code"] == "INFERENCE_MODEL_UNAVAILABLE"
    assert answered.outcome["content"] == "ok"


async def test_what_was_asked_is_found_by_a_replay(clock: VirtualClock) -> None:
    record = await failed_over(clock)
    asked = {"messages": [{"role": "user", "content": "hello"}], "model": None, "hints": {"seed": 7}}
    assert [views(record)[key].request for key in ("0", "0/0", "0/2")] == [asked] * 3


async def test_a_record_of_another_version_is_shown_without_what_was_asked(clock: VirtualClock) -> None:
    record = await failed_over(clock)
    found = views(replace(record, header=replace(record.header, pattern_version=99)))
    assert (found["0/2"].request, found["0/2"].outcome["content"]) == (None, "ok")


async def test_every_prefix_of_a_record_is_shown(clock: VirtualClock) -> None:
    here = watch_commits(make_harness(clock, scripted_engine(clock, "a", {"fault": "broken"}, {"text": "ok"})))
    await here.run(chat_request())
    for record, _ in here.journal.commits:
        found = views(record)
        assert list(found) == list(record.steps)
        assert all(each.request for key, each in found.items() if key != "prepare")
