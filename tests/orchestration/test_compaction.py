"""Compaction of sessions: turns that do not fit are summed up once, recorded, stored, reused and deleted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from portico.bootstrap.service import Service, open_service
from portico.capabilities.models.tokens import UNCORRECTED
from portico.domain.access.principal import LOCAL
from portico.domain.context.summary import SUMMARY_DETAIL, SessionSummary
from portico.domain.contract.messages import Origin, origin_of
from portico.domain.contract.request import SystemRequest
from portico.domain.journal.outcomes import CompactionStarted, Prepared
from portico.orchestration.facade import ExecutionHandle
from portico.settings import Settings

SECRET = "ada@canary.example"


@asynccontextmanager
async def service(*, compact: bool = True, **engine: Any) -> AsyncIterator[Service]:
    tables = {
        "storage": {"url": "sqlite://"},
        "telemetry": {"log_level": "error"},
        "engines": {"rehearsal": {"model": "rehearsal://", **engine}},
        "limits": {"history_messages": 4, "history_tokens": 2_000},
        "sessions": {"compact": compact},
    }
    async with open_service(Settings.model_validate(tables)) as opened:
        yield opened


async def turn(here: Service, text: str, request_id: str | None = None, **fields: Any) -> ExecutionHandle:
    asked = {"messages": [{"role": "user", "content": text}], "session_id": "s", "tools": [], "request_id": request_id}
    handle = await here.facade.execute(SystemRequest.model_validate({**asked, **fields}), LOCAL)
    assert isinstance(handle, ExecutionHandle)
    with anyio.fail_after(60):
        await handle.wait()
    return handle


async def turns(here: Service, count: int) -> None:
    for number in range(count):
        await turn(here, f"Turn {number} of {SECRET}", request_id=f"t{number}")


async def outcomes(here: Service, request_id: str) -> dict[str, Any]:
    """Return the outcomes of the recorded steps by key."""
    history = await here.facade.executions.load_at_rest(LOCAL.own, request_id)
    return {key: step.outcome for key, step in history.steps.items()}


async def summary_of(here: Service) -> SessionSummary | None:
    stored = await here.facade._environment.conversations.session(LOCAL.own, "s")
    return None if stored is None else SessionSummary.read(stored.details.get(SUMMARY_DETAIL))


def summaries(prepared: Prepared) -> list[Any]:
    return [each for each in prepared.messages if origin_of(each) in {Origin.SUMMARY, Origin.UNTRUSTED_SUMMARY}]


async def test_eight_turns_that_were_cut_are_summed_up_once_and_the_summary_is_used_again() -> None:
    async with service() as here:
        await turns(here, 10)
        assert await summary_of(here) is None
        await turn(here, "Go on", request_id="made")
        made = await outcomes(here, "made")
        started = made["prepare/c"]
        assert isinstance(started, CompactionStarted)
        assert (len(started.turns), started.covered, started.earlier) == (16, 16, "")
        assert SECRET not in str(started.turns)
        assert "[redacted:email]" in started.turns[0]
        [summary] = summaries(made["prepare"])
        assert made["prepare"].messages.index(summary) == 0
        assert made["prepare"].context.cut.summarised == made["prepare"].context.cut.messages == 16
        stored = await summary_of(here)
        assert stored is not None
        assert stored.text in summary.content
        assert UNCORRECTED.message(summary) <= 2_000 // 10
        await turn(here, "And on", request_id="reused")
        reused = await outcomes(here, "reused")
        assert not any(key.startswith("prepare/c") for key in reused)
        assert stored.text in summaries(reused["prepare"])[0].content
        for request_id in ("made", "reused"):
            report = await here.facade.executions.replay(LOCAL, request_id)
            assert report.identical, report
        view = await here.facade.sessions.show(LOCAL, "s")
        assert (view.preferences, view.state) == (None, None)


async def test_the_next_summary_covers_the_earlier_one() -> None:
    async with service() as here:
        await turns(here, 19)
        first = await summary_of(here)
        assert first is not None
        assert first.covered == 32
        assert (await outcomes(here, "t18"))["prepare/c"].earlier != ""


async def test_without_the_setting_nothing_is_summed_up() -> None:
    async with service(compact=False) as here:
        await turns(here, 12)
        assert not any(key.startswith("prepare/c") for key in await outcomes(here, "t11"))


async def test_a_summary_is_deleted_with_a_turn_that_it_may_quote_and_with_its_session() -> None:
    async with service() as here:
        await turns(here, 11)
        assert await summary_of(here) is not None
        await here.facade.erasure.delete_execution(LOCAL, "t0", with_forks=False)
        assert await summary_of(here) is None
        await here.facade.erasure.delete_session(LOCAL, "s", with_forks=False)
        assert await summary_of(here) is None


async def test_a_question_that_fails_leaves_the_execution_without_a_summary() -> None:
    async with service() as here:
        failing = [("user", "[[fail:400]]"), ("assistant", "Well."), ("user", "Hello")]
        await turn(here, "", messages=[{"role": role, "content": text} for role, text in failing])
        await turns(here, 9)
        answered = await turn(here, "Hello", request_id="q")
        assert answered.response is not None
        assert answered.response.error is None
        found = await outcomes(here, "q")
        assert isinstance(found["prepare/c"], CompactionStarted)
        assert summaries(found["prepare"]) == []
        assert await summary_of(here) is None
        assert (await here.facade.executions.replay(LOCAL, "q")).identical


async def test_a_summary_of_untrusted_turns_is_untrusted() -> None:
    async with service() as here:
        record = [("user", "Hi"), ("assistant", "Well."), ("user", "Hello")]
        await turn(here, "", messages=[{"role": role, "content": text} for role, text in record])
        await turns(here, 10)
        found = await summary_of(here)
        assert found is not None
        assert found.is_untrusted
        await turn(here, "Hello", request_id="q")
        [summary] = summaries((await outcomes(here, "q"))["prepare"])
        assert origin_of(summary) is Origin.UNTRUSTED_SUMMARY


@pytest.mark.parametrize("compact", [True, False])
async def test_a_quote_counts_the_question(compact: bool) -> None:
    async with service(compact=compact) as here:
        quotes = [
            await here.facade.quote(
                SystemRequest.model_validate(
                    {"messages": [{"role": "user", "content": "Hi"}], "session_id": session_id, "tools": []}
                ),
                LOCAL,
            )
            for session_id in (None, "s")
        ]
        assert (quotes[1].inferences > quotes[0].inferences) is compact
