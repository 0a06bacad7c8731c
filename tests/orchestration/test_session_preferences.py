"""Hints and instructions among a session's preferences reach its requests."""

from typing import Any

import pytest

from portico.bootstrap.service import Service
from portico.domain.access.principal import LOCAL
from portico.domain.failures import Code, RequestFailure
from portico.domain.journal.outcomes import Prepared
from portico.orchestration.sessions import SessionChanges, with_session
from portico.ports.storage import StoredSession
from tests.orchestration.test_rights import finished, request, service


async def prefer(here: Service, preferences: Any) -> Any:
    return (await here.facade.sessions.update(LOCAL, "s", SessionChanges(preferences=preferences))).preferences


async def begin(here: Service) -> None:
    await finished(await here.facade.execute(request("My name is Ada.", session_id="s"), LOCAL))


async def prepared_messages(here: Service, request_id: str) -> list[tuple[str, str]]:
    history = await here.facade.executions.load_at_rest(LOCAL.own, request_id)
    [prepared] = [step.outcome for step in history.steps.values() if isinstance(step.outcome, Prepared)]
    return [(message.role, message.text) for message in prepared.messages]


async def test_hints_fill_absent_ones_and_instructions_follow_the_system_prompt() -> None:
    async with service() as here:
        await begin(here)
        preferences = {"hints": {"max_tokens": 50, "seed": 7}, "instructions": "Rhyme.", "colour": "blue"}
        assert await prefer(here, preferences) == preferences
        asked = request("Hello", session_id="s", request_id="q", hints={"max_tokens": 9})
        system = {"role": "system", "content": "Be brief."}
        asked = asked.model_copy(update={"messages": [*request("x", messages=[system]).messages, *asked.messages]})
        await finished(await here.facade.execute(asked, LOCAL))
        hints = (await here.facade.records.input(LOCAL, "q")).hints
        assert (hints.max_tokens, hints.seed) == (9, 7)
        messages = await prepared_messages(here, "q")
        assert messages[:2] == [("system", "Be brief."), ("system", "Rhyme.")]
        assert messages[-1] == ("user", "Hello")
        stored = await here.facade.sessions.messages(LOCAL, "s", after=0, limit=100)
        assert "Rhyme." not in [message.text for message in stored.messages]
        assert (await here.facade.executions.replay(LOCAL, "q")).identical


@pytest.mark.parametrize(
    ("preferences", "field"),
    [
        ({"hints": {"temperature": 9}}, "preferences.hints.temperature"),
        ({"hints": {"warmth": 1}}, "preferences.hints"),
        ({"hints": []}, "preferences.hints"),
        ({"instructions": "x" * 2_001}, "preferences.instructions"),
        ({"instructions": ""}, "preferences.instructions"),
        ({"instructions": 5}, "preferences.instructions"),
    ],
)
async def test_malformed_preferences_are_refused_and_change_nothing(preferences: Any, field: str) -> None:
    async with service() as here:
        await begin(here)
        with pytest.raises(RequestFailure) as refused:
            await prefer(here, preferences)
        assert refused.value.code is Code.REQUEST_INVALID
        assert str(refused.value.details["errors"][0]["field"]).startswith(field)
        assert (await here.facade.sessions.show(LOCAL, "s")).preferences is None


@pytest.mark.parametrize("stored", [[True], "blue", {"colour": "blue"}, {}, None])
def test_preferences_of_another_form_reach_nothing(stored: Any) -> None:
    asked = request()
    session = StoredSession("s", 0.0, 0.0, 0, {"preferences": stored}, busy=False)
    assert with_session(asked, session) == (asked, None)
