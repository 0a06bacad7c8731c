"""Texts of the deployment: every prompt that a model gets has them, and a suspended execution goes on with its own."""

from typing import Any

import pytest

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.registry import PromptRegistry, default_registry
from portico.domain.contract.request import SystemRequest
from portico.domain.journal.outcomes import AttemptSucceeded
from portico.domain.lifecycle import State
from portico.domain.model_call import EngineCall, Reply
from portico.orchestration.patterns.specialized_loop import specialized_loop
from portico.ports.model import Engine, EngineCapabilities, Progress
from tests.support.harness import make_harness, replay_offline, scripted_engine, watch_commits
from tests.support.stored_journal import CommittingJournal
from tests.support.virtual_time import VirtualClock

SIZE = {"type": "object", "required": ["size"], "properties": {"size": {"enum": ["small", "large"]}}}
WRONG, FINE = {"text": '{"size": "grey"}'}, {"text": '{"size": "large"}'}
PRAISE = {"text": '{"valid": true, "score": 1}'}
FORBIDDEN = EngineCapabilities(schema=False, tools=False)


class Listener:
    """An engine that remembers what it was sent."""

    def __init__(self, engine: Engine) -> None:
        self.profile = engine.profile
        self.texts: list[str] = []
        self._engine = engine

    async def ping(self) -> str:
        return await self._engine.ping()

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        self.texts += [message.text for message in call.messages]
        return await self._engine.attempt(call, progress, stream=stream)


def listener(clock: VirtualClock, *replies: dict[str, Any], **changes: Any) -> Listener:
    return Listener(scripted_engine(clock, "a", *replies, **changes))


def marked(*prompt_ids: PromptId) -> PromptRegistry:
    """Return the shipped prompts with a mark at the end of these texts."""
    shipped = default_registry()
    definitions = [shipped.definition(each) for each in prompt_ids]
    changed = {each.prompt_id: f"{each.template} [{each.prompt_id}]" for each in definitions}
    return shipped.with_texts(changed)


def structured(**output: Any) -> SystemRequest:
    messages = [{"role": "user", "content": "How large is Ulm?"}]
    return SystemRequest.model_validate(
        {"mode": "structured", "messages": messages, "output": {"schema": SIZE, "repair_allowed": False, **output}}
    )


async def test_each_prompt_of_an_execution_has_its_text(clock: VirtualClock) -> None:
    used = (
        PromptId.STRUCTURED_CONTRACT_SYSTEM,
        PromptId.STRUCTURED_VIOLATIONS_USER,
        PromptId.ANSWER_JUDGEMENT_SYSTEM,
        PromptId.ANSWER_JUDGEMENT_USER,
        PromptId.SUPERVISOR_REPAIR_SYSTEM,
        PromptId.SUPERVISOR_REPAIR_JSON_USER,
    )
    engine = listener(clock, WRONG, FINE, {"text": "Well."}, PRAISE, capabilities=FORBIDDEN)
    here = make_harness(clock, engine, attempts=3, prompts=marked(*used))
    response, record = await here.run(structured(semantic=True), specialized_loop)
    assert response.state is State.COMPLETE
    for prompt_id in used:
        assert any(text.endswith(f"[{prompt_id}]") for text in engine.texts), prompt_id
    assert replay_offline(record, specialized_loop) == len(record.steps)


@pytest.mark.parametrize("changed", [PromptId.STRUCTURED_VIOLATIONS_USER, PromptId.SUPERVISOR_REPAIR_JSON_USER])
async def test_a_text_that_changes_between_any_two_commits_only_changes_what_is_asked_later(
    clock: VirtualClock, changed: PromptId
) -> None:
    replies = [WRONG, FINE, {"text": "Well."}, PRAISE]
    before = watch_commits(make_harness(clock, listener(clock, *replies), attempts=3, max_retries=0))
    _, whole = await before.run(structured(semantic=True), specialized_loop)
    assert isinstance(before.journal, CommittingJournal)
    for record, _ in before.journal.commits:
        done = sum(isinstance(step.outcome, AttemptSucceeded) for step in record.steps.values())
        engine = listener(clock, *replies[done:])
        after = make_harness(clock, engine, attempts=3, max_retries=0, prompts=marked(changed))
        response, continued = await after.recover(record, specialized_loop)
        assert (response.state, response.structured_output) == (State.COMPLETE, {"size": "large"})
        assert {key: step.fingerprint for key, step in continued.steps.items()} == {
            key: step.fingerprint for key, step in whole.steps.items()
        }
        assert replay_offline(continued, specialized_loop) == len(continued.steps)
