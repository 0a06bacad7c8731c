"""A conversation that changes its provider between two tool rounds, for every pair of providers."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import permutations

import orjson
import pytest

from portico.adapters.engines.http.engine import Endpoint, HttpEngine
from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain.journal.outcomes import AttemptSucceeded
from portico.domain.model_call import Reply
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineProfile
from tests.adapters.engines.dialects import DIALECTS
from tests.support.emulators import anthropic, bedrock, gemini, ollama, openai_chat, openai_responses
from tests.support.emulators.answers import EmulatedAnswer, EmulatedCall, EmulatedResponse, json_response
from tests.support.emulators.server import KEY, EmulatedServer, Respond, http_engine
from tests.support.harness import POLICY, chat_request, make_harness, replay_offline
from tests.support.virtual_time import VirtualClock

RESPOND: Mapping[str, Respond] = {
    "openai": openai_chat.respond,
    "openai_compatible": openai_chat.respond,
    "openai_responses": openai_responses.respond,
    "anthropic": anthropic.respond,
    "anthropic_4_5": anthropic.respond,
    "bedrock": bedrock.respond,
    "gemini": gemini.respond,
    "ollama": ollama.respond,
}
ROLL = EmulatedAnswer(
    reasoning="A die is needed.", calls=(EmulatedCall("call_1", "roll_dice", {"count": 2, "sides": 6}),)
)
AGAIN = replace(ROLL, calls=(EmulatedCall("call_1", "roll_dice", {"count": 1, "sides": 20}),))
DONE = EmulatedAnswer("You rolled well.")
SILENT = frozenset({"openai"})
"""Dialects that never return their reasoning."""
LOST = json_response({"error": {"message": "unavailable", "type": "server_error"}}, status=500)


def playing(respond: Respond, *answers: EmulatedAnswer) -> Respond:
    """Return a responder that gives these answers in turn and fails afterwards."""
    waiting = list(answers)

    def play(path: str, headers: Mapping[str, str], body: bytes, _: EmulatedAnswer) -> EmulatedResponse:
        return respond(path, headers, body, waiting.pop(0)) if waiting else LOST

    return play


@asynccontextmanager
async def engine(name: str, dialect: str, url: str) -> AsyncIterator[HttpEngine]:
    row = DIALECTS[dialect]
    profile = EngineProfile(name, row.model, dialect, 128_000, 4_096, frozenset(), None, row.capabilities)
    async with http_engine(profile, row.dialect, Endpoint(url, lambda: KEY)) as built:
        yield built


def test_every_dialect_has_an_emulator() -> None:
    assert RESPOND.keys() == DIALECTS.keys()


@pytest.mark.parametrize(("first", "second"), list(permutations(RESPOND, 2)))
async def test_what_one_provider_began_another_ends_and_nothing_is_repeated(
    first: str, second: str, clock: VirtualClock
) -> None:
    rolls = [replace(roll, reasoning="") if first in SILENT else roll for roll in (ROLL, AGAIN)]
    lost, other = playing(RESPOND[first], *rolls), playing(RESPOND[second], DONE)
    async with EmulatedServer(lost, DONE) as here, EmulatedServer(other, DONE) as there:
        async with engine("first", first, here.url) as one, engine("second", second, there.url) as two:
            world = make_harness(clock, one, two, tools=BUILTIN_TOOLS, policy=replace(POLICY, max_retries=0))
            response, record = await world.run(chat_request("Roll, and roll again.", tools=["roll_dice"]))
        assert response.content == "You rolled well."
        assert response.metadata.provider == "second"
        assert [call.arguments for call in response.tool_calls_made] == [
            dict(ROLL.calls[0].arguments),
            dict(AGAIN.calls[0].arguments),
        ]
        assert len({call.id for call in response.tool_calls_made}) == 2
        assert not any(call.is_error for call in response.tool_calls_made)
        assert (len(here.requests), len(there.requests)) == (3, 1)
        assert (len(here.refusals), there.refusals) == (1, [])
        body = there.requests[0].body.decode()
        assert all(orjson.dumps(call.result).decode()[1:-1] in body for call in response.tool_calls_made)
    kept = any(reply.kept for reply in replies(record)[:-1])
    assert response.metadata.left_out == (["messages.kept.first"] if kept else [])
    assert replay_offline(record) == len(record.steps)


HINTS = {"temperature": 0.5, "top_p": 0.9, "stop": ["END", "\n"], "seed": 2**40, "max_tokens": 9}
LEFT_OUT: Mapping[str, Sequence[str]] = {
    "openai": [],
    "openai_compatible": [],
    "openai_responses": ["hints.max_tokens", "hints.seed", "hints.stop", "hints.temperature", "hints.top_p"],
    "anthropic": ["hints.seed", "hints.stop", "hints.temperature", "hints.top_p"],
    "anthropic_4_5": ["hints.seed", "hints.stop", "hints.top_p"],
    "bedrock": ["hints.seed", "hints.stop", "hints.top_p"],
    "gemini": ["hints.seed"],
    "ollama": [],
}


@pytest.mark.parametrize("name", RESPOND)
async def test_one_request_is_answered_in_every_dialect_and_the_answer_names_what_could_not_be_asked(
    name: str, clock: VirtualClock
) -> None:
    async with EmulatedServer(RESPOND[name], DONE) as upstream, engine("primary", name, upstream.url) as only:
        response, record = await make_harness(clock, only).run(chat_request("Hello", hints=HINTS))
        plain, _ = await make_harness(clock, only).run(chat_request("Hello"))
    assert (response.content, upstream.refusals) == ("You rolled well.", [])
    assert response.metadata.left_out == LEFT_OUT[name]
    assert plain.metadata.left_out == []
    assert replay_offline(record) == len(record.steps)


def replies(record: ExecutionHistory) -> list[Reply]:
    """Return the replies of the providers, in order."""
    return [row.outcome.reply for row in record.steps.values() if isinstance(row.outcome, AttemptSucceeded)]
