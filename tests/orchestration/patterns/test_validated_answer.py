"""Validated answers: format, rules and a judge; the model learns what is wrong and tries again."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import Event, InferenceStart, LifecycleTransition, ValidationEnd, VoteCast
from portico.domain.journal.outcomes import InferenceSetup
from portico.domain.lifecycle import Mode, State
from portico.ports.journal import ExecutionHistory
from tests.support.harness import Harness, chat_request, make_harness, scripted_engine
from tests.support.judges import SteadyEngine, is_judge_question, judgement
from tests.support.validated_modes import CITY, NATIVE, NO, ROLL, SHORT, YES, chat, city, run, structured
from tests.support.virtual_time import VirtualClock

LONG, GOOD = {"text": "far too long"}, {"text": "good"}


def here(clock: VirtualClock, *replies: Mapping[str, Any], attempts: int = 3, **bounds: Any) -> Harness:
    engine = scripted_engine(clock, "primary", *replies, capabilities=NATIVE)
    return make_harness(clock, engine, tools=BUILTIN_TOOLS, attempts=attempts, **bounds)


def events(record: ExecutionHistory, kind: type[Event]) -> list[Any]:
    return [item.event for item in record.events if isinstance(item.event, kind)]


def states(record: ExecutionHistory) -> list[tuple[State, int]]:
    return [(event.to_state, event.attempt) for event in events(record, LifecycleTransition)][3:]


def failure_of(response: SystemResponse) -> tuple[Code, list[str]]:
    """Return the error code of the response and the messages of its violations."""
    assert response.error is not None
    return response.error.code, [each["message"] for each in response.error.details.get("violations", ())]


class TestChat:
    async def test_a_text_that_breaks_a_rule_is_asked_for_again(self, clock: VirtualClock) -> None:
        response, record = await run(here(clock, LONG, GOOD), chat({"rules": [SHORT]}))
        assert (response.state, response.content, response.structured_output) == (State.COMPLETE, "good", None)
        assert (response.confidence, response.confidence_source) == (1.0, "validation")
        assert response.validation_result is not None
        assert (response.validation_result.valid, response.validation_result.attempts) == (True, 2)
        assert states(record) == [
            (State.VALIDATE, 1),
            (State.EXECUTE, 2),
            (State.VALIDATE, 2),
            (State.COMPLETE, 2),
        ]
        assert [(event.attempt, event.valid) for event in events(record, ValidationEnd)] == [(1, False), (2, True)]
        assert [event.message_count for event in events(record, InferenceStart)] == [1, 3]

    async def test_json_is_a_text_like_any_other_and_left_as_it_is(self, clock: VirtualClock) -> None:
        text = "```json\n{'a': 1,}\n```"
        response, _ = await run(here(clock, {"text": text}), chat({"rules": ["not_empty"]}))
        assert (response.content, response.structured_output) == (text, None)
        assert response.validation_result is not None
        assert response.validation_result.repairs == []

    async def test_at_the_last_attempt_it_fails_and_is_not_shown(self, clock: VirtualClock) -> None:
        response, record = await run(here(clock, LONG, LONG, attempts=2), chat({"rules": [SHORT]}))
        assert failure_of(response) == (Code.VALIDATION_RULE_FAILED, ["has more than 5 characters"])
        assert (response.state, response.content, response.confidence) == (State.ERROR, None, 0.0)
        assert response.validation_result is not None
        assert (response.validation_result.valid, response.validation_result.attempts) == (False, 2)
        assert states(record)[-2:] == [(State.VALIDATE, 2), (State.ERROR, 2)]

    async def test_if_validation_is_not_strict_it_completes_with_its_errors_after_the_last_attempt(
        self, clock: VirtualClock
    ) -> None:
        lenient = chat({"rules": [SHORT], "strict_validation": False})
        response, record = await run(here(clock, LONG, LONG, attempts=2), lenient)
        assert (response.state, response.content, response.error) == (State.COMPLETE, "far too long", None)
        assert (response.confidence, response.confidence_source) == (0.0, "validation")
        assert response.validation_result is not None
        assert [each["message"] for each in response.validation_result.errors] == ["has more than 5 characters"]
        assert (response.validation_result.valid, response.validation_result.attempts) == (False, 2)
        assert states(record)[-2:] == [(State.VALIDATE, 2), (State.COMPLETE, 2)]

    async def test_warnings_leave_it_valid(self, clock: VirtualClock) -> None:
        rules = [SHORT | {"severity": "warning"}, "not_empty"]
        response, _ = await run(here(clock, LONG), chat({"rules": rules}))
        assert response.state is State.COMPLETE
        assert response.validation_result is not None
        assert [each["rule"] for each in response.validation_result.warnings] == ["length"]

    async def test_each_attempt_may_call_tools(self, clock: VirtualClock) -> None:
        response, record = await run(here(clock, ROLL, LONG, ROLL, GOOD), chat({"rules": [SHORT]}))
        assert (response.content, response.metadata.tool_rounds) == ("good", 2)
        assert [call.name for call in response.tool_calls_made] == ["roll_dice"] * 2
        assert [event.tool_defs_count > 0 for event in events(record, InferenceStart)] == [True] * 4

    async def test_tool_rounds_are_counted_over_all_attempts(self, clock: VirtualClock) -> None:
        world = here(clock, ROLL, LONG, ROLL, tool_rounds=1)
        response, record = await run(world, chat({"rules": [SHORT]}))
        assert failure_of(response)[0] is Code.ORCHESTRATION_ITERATION_LIMIT
        assert (response.content, response.metadata.tool_rounds) == (None, 1)
        assert states(record)[-2:] == [(State.EXECUTE, 2), (State.ERROR, 2)]

    async def test_a_judge_says_no_and_then_yes(self, clock: VirtualClock) -> None:
        response, record = await run(here(clock, LONG, NO, GOOD, YES), chat({"semantic": True}))
        assert (response.state, response.content, response.confidence) == (State.COMPLETE, "good", 0.9)
        first, second = events(record, ValidationEnd)
        assert [error["message"] for error in first.errors] == ["It is no city.", "It is rude."]
        assert {(error["rule"], error["path"]) for error in first.errors} == {("semantic", "$")}
        assert (second.attempt, second.valid, second.errors) == (2, True, ())
        assert states(record)[1] == (State.EXECUTE, 2)
        assert events(record, LifecycleTransition)[4].reason == "validation_semantic_failed"

    async def test_events_have_this_order(self, clock: VirtualClock) -> None:
        _, record = await run(here(clock, LONG, NO, GOOD, YES), chat({"semantic": True}))
        order = [
            (item.event.type, item.anchor)
            for item in record.events
            if not item.event.type.startswith(("fallback", "stage"))
        ]
        assert order == [
            ("lifecycle.transition", "init"),
            ("lifecycle.transition", "init"),
            ("lifecycle.transition", "prepare"),
            ("inference.start", "0/0"),
            ("inference.end", "0/0"),
            ("lifecycle.transition", "0/0"),
            ("inference.start", "1/0/0/0"),
            ("inference.end", "1/0/0/0"),
            ("validation.end", "1/0/0/0"),
            ("lifecycle.transition", "1/0/0/0"),
            ("inference.start", "2/0"),
            ("inference.end", "2/0"),
            ("lifecycle.transition", "2/0"),
            ("inference.start", "3/0/0/0"),
            ("inference.end", "3/0/0/0"),
            ("validation.end", "3/0/0/0"),
            ("lifecycle.transition", "end"),
            ("execution.completed", "end"),
        ]


class TestJudge:
    async def test_it_is_asked_of_what_keeps_form_and_rules_only(self, clock: VirtualClock) -> None:
        replies = [{"text": "prose"}, city("Köln am Rhein"), city("Ulm"), YES]
        request = structured({"rules": [{"type": "length", "path": "$.city", "max": 5}], "semantic": True})
        response, record = await run(here(clock, *replies), request)
        assert (response.structured_output, response.confidence) == ({"city": "Ulm"}, 0.9)
        assert len(events(record, InferenceStart)) == 4
        assert [event.valid for event in events(record, ValidationEnd)] == [False, False, True]

    @pytest.mark.parametrize(
        ("semantic", "intent"), [(True, "Answer the request, all of it"), ("Names a German city.", "Names a German ")]
    )
    async def test_it_reads_the_request_the_intent_and_the_answer(
        self, semantic: bool | str, intent: str, clock: VirtualClock
    ) -> None:
        engine = SteadyEngine(clock, "a", answer=lambda _: city("Ulm #0"), judge=lambda _: YES, capabilities=NATIVE)
        messages = [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "Which city, then?"},
        ]
        request = structured({"semantic": semantic}).model_copy(
            update={
                "messages": chat_request(messages=messages).messages,
                "hints": chat_request(hints={"temperature": 1}).hints,
            }
        )
        response, _ = await run(make_harness(clock, engine), request)
        assert response.state is State.COMPLETE
        [question] = [call for call in engine.calls if is_judge_question(call)]
        system, user = question.messages
        assert (system.role, user.role) == ("system", "user")
        assert "You judge whether an answer" in system.text
        assert all(each in user.text for each in ("Which city, then?", intent, '{"city": "Ulm #0"}'))
        assert "Hello" not in user.text
        assert (question.hints.temperature, list(question.tools)) == (0, [])

    async def test_without_issues_it_still_says_why(self, clock: VirtualClock) -> None:
        no = judgement(" ", valid=False, score=0.1)
        response, _ = await run(here(clock, city("Ulm"), no, attempts=1), structured({"semantic": True}))
        assert failure_of(response) == (Code.VALIDATION_SEMANTIC_FAILED, ["does not serve its intent"])
        assert (response.structured_output, response.confidence) == (None, 0.1)
        assert (response.confidence_source, response.metadata.kept_by) == ("validation", "schema")

    async def test_one_that_says_no_leaves_the_answer_with_confidence_0_if_validation_is_not_strict(
        self, clock: VirtualClock
    ) -> None:
        no = judgement("It is rude.", valid=False, score=0.4)
        lenient = structured({"semantic": True, "strict_validation": False})
        response, _ = await run(here(clock, city("Ulm"), no, attempts=1), lenient)
        assert (response.state, response.structured_output) == (State.COMPLETE, {"city": "Ulm"})
        assert response.confidence == 0.0
        assert response.validation_result is not None
        assert [each["message"] for each in response.validation_result.errors] == ["It is rude."]

    async def test_issues_of_a_valid_answer_are_warnings(self, clock: VirtualClock) -> None:
        doubts = judgement("It may be another Ulm.", score=0.7)
        response, _ = await run(here(clock, city("Ulm"), doubts), structured({"semantic": True}))
        assert (response.state, response.confidence) == (State.COMPLETE, 0.7)
        assert response.validation_result is not None
        assert [each["message"] for each in response.validation_result.warnings] == ["It may be another Ulm."]

    async def test_its_warnings_stand_beside_those_of_the_rules(self, clock: VirtualClock) -> None:
        rules = [{"type": "length", "path": "$.city", "min": 9, "severity": "warning"}]
        world = here(clock, city("Ulm"), judgement("Perhaps.", score=0.5))
        response, _ = await run(world, structured({"semantic": True, "rules": rules}))
        assert response.validation_result is not None
        assert [each["rule"] for each in response.validation_result.warnings] == ["length", "semantic"]

    async def test_a_judgement_that_cannot_be_read_is_asked_for_again(self, clock: VirtualClock) -> None:
        world = here(clock, city("Ulm"), {"text": "Well."}, judgement(score=7), YES)
        response, record = await run(world, structured({"semantic": True}))
        assert (response.state, response.confidence) == (State.COMPLETE, 0.9)
        assert [event.message_count for event in events(record, InferenceStart)] == [1, 2, 2, 2]

    @pytest.mark.parametrize("mode", [Mode.CHAT, Mode.STRUCTURED])
    async def test_one_that_never_can_be_ends_it_and_is_not_the_answering_models_fault(
        self, mode: Mode, clock: VirtualClock
    ) -> None:
        request = (chat if mode is Mode.CHAT else structured)({"semantic": True})
        world = here(clock, city("Ulm"), {"text": "Well."}, {"text": "Hm."}, city("never asked"), attempts=2)
        response, record = await run(world, request)
        assert failure_of(response) == (Code.VALIDATION_SEMANTIC_FAILED, ["was not judged"])
        assert response.error is not None
        assert (response.error.message, response.error.caused_by) == (
            "the answer could not be judged",
            Code.CONSTRAINT_JSON_INVALID,
        )
        assert (response.content, response.structured_output, response.confidence) == (None, None, 0.0)
        assert len(events(record, InferenceStart)) == 3
        assert [(event.attempt, event.valid) for event in events(record, ValidationEnd)] == [(1, False)]
        assert states(record) == [(State.VALIDATE, 1), (State.ERROR, 1)]

    async def test_one_that_never_can_be_leaves_the_answer_invalid_if_validation_is_not_strict(
        self, clock: VirtualClock
    ) -> None:
        world = here(clock, city("Ulm"), {"text": "Well."}, {"text": "Hm."}, city("never asked"), attempts=2)
        response, record = await run(world, structured({"semantic": True, "strict_validation": False}))
        assert (response.state, response.structured_output) == (State.COMPLETE, {"city": "Ulm"})
        assert response.validation_result is not None
        assert [each["message"] for each in response.validation_result.errors] == ["was not judged"]
        assert len(events(record, InferenceStart)) == 3

    async def test_if_no_judge_can_be_asked_the_failure_shows_the_answer(self, clock: VirtualClock) -> None:
        world = here(clock, city("Ulm"), {"fault": "unreachable"})
        response, record = await run(world, structured({"semantic": True}))
        assert failure_of(response) == (Code.INFERENCE_MODEL_UNAVAILABLE, [])
        assert (response.structured_output, response.confidence) == ({"city": "Ulm"}, 0.0)
        assert response.validation_result is not None
        assert not response.validation_result.valid
        assert events(record, ValidationEnd) == []
        assert states(record) == [(State.VALIDATE, 1), (State.ERROR, 1)]

    async def test_at_the_deadline_the_answer_that_waits_for_it_is_shown(self, clock: VirtualClock) -> None:
        world = here(clock, {"text": "good"}, YES | {"delay": 50}, timeout=5)
        response, _ = await run(world, chat({"semantic": True}))
        assert (response.state, response.content, response.confidence) == (State.CANCELLED, "good", 0.0)

    async def test_what_it_said_is_paid_for_and_not_shown(self, clock: VirtualClock) -> None:
        used = {"usage": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}}
        primary = scripted_engine(clock, "primary", GOOD | used, {"fault": "unreachable"}, capabilities=NATIVE)
        backup = scripted_engine(clock, "backup", YES | used | {"finish_reason": "length"}, capabilities=NATIVE)
        response, record = await run(make_harness(clock, primary, backup), chat({"semantic": True}))
        assert response.token_usage.total_tokens == 24
        assert (response.metadata.provider, response.metadata.model) == ("primary", "primary-model")
        assert (response.metadata.finish_reason, response.metadata.kept_by) == ("stop", None)
        assert response.content == "good"
        assert [event.provider for event in events(record, InferenceStart)] == ["primary", "primary", "backup"]

    async def test_its_words_are_not_streamed(self, clock: VirtualClock) -> None:
        world = here(clock, GOOD, YES)
        execution = world.execution(chat({"semantic": True}))
        world.bus.subscribe(execution.header.execution_id)
        await world.drive(execution)
        deltas = [item.event for item in world.log.items if item.event.type == "inference.delta"]
        assert [delta.text for delta in deltas] == ["good"]


class TestReplicas:
    def asking(self, n: int, **redundancy: Any) -> SystemRequest:
        options = {"n": n, "models": [f"e{number}" for number in range(n)], "early_stop": False} | redundancy
        return chat_request(
            "Which?", mode=Mode.REDUNDANT, output={"schema": CITY, "semantic": True}, redundancy=options
        )

    def world(self, clock: VirtualClock, *replies: Sequence[dict[str, Any]], **bounds: Any) -> Harness:
        engines = [
            scripted_engine(clock, f"e{number}", *each, capabilities=NATIVE) for number, each in enumerate(replies)
        ]
        return make_harness(clock, *engines, max_retries=0, **bounds)

    async def test_each_is_judged_and_one_that_is_refused_has_no_vote(self, clock: VirtualClock) -> None:
        world = self.world(clock, [city("Bonn"), NO], [city("Bonn"), NO], [city("Ulm"), YES])
        response, record = await run(world, self.asking(3))
        assert (response.structured_output, response.confidence) == ({"city": "Ulm"}, 1 / 3)
        assert {(event.replica, event.error_code) for event in events(record, VoteCast)} == {
            (0, Code.VALIDATION_SEMANTIC_FAILED),
            (1, Code.VALIDATION_SEMANTIC_FAILED),
            (2, None),
        }
        assert sorted((event.replica, event.valid) for event in events(record, ValidationEnd)) == [
            *((0, False), (1, False), (2, True))
        ]
        assert sorted(event.replica for event in events(record, InferenceStart)) == [0, 0, 1, 1, 2, 2]

    async def test_if_validation_is_not_strict_a_rejected_answer_wins_only_if_all_are_rejected(
        self, clock: VirtualClock
    ) -> None:
        output = chat_request(output={"schema": CITY, "semantic": True, "strict_validation": False}).output
        request = self.asking(3).model_copy(update={"output": output})
        world = self.world(clock, [city("Bonn"), NO], [city("Bonn"), NO], [city("Ulm"), YES])
        response, _ = await run(world, request)
        assert (response.structured_output, response.confidence) == ({"city": "Ulm"}, 1 / 3)
        world = self.world(clock, [city("Bonn"), NO], [city("Bonn"), NO], [city("Ulm"), NO])
        response, record = await run(world, request)
        assert (response.state, response.structured_output) == (State.COMPLETE, {"city": "Bonn"})
        assert response.validation_result is not None
        assert (response.validation_result.valid, response.confidence) == (False, 0.0)
        assert {event.error_code for event in events(record, VoteCast)} == {Code.VALIDATION_SEMANTIC_FAILED}

    async def test_one_whose_judge_cannot_be_read_has_no_vote_either(self, clock: VirtualClock) -> None:
        world = self.world(clock, [city("Bonn"), {"text": "Hm."}], [city("Ulm"), YES], attempts=1)
        response, _ = await run(world, self.asking(2))
        assert response.structured_output == {"city": "Ulm"}

    @pytest.mark.parametrize("says", [YES, NO], ids=["yes", "no"])
    async def test_an_answer_that_is_put_together_is_judged_too(
        self, says: dict[str, Any], clock: VirtualClock
    ) -> None:
        schema = {"type": "object", "properties": {name: {"type": "integer"} for name in "abc"}}
        given = [{"a": 1, "b": 1, "c": 2}, {"a": 1, "b": 2, "c": 1}, {"a": 2, "b": 1, "c": 1}]
        replies = [[{"text": json.dumps(each)}, YES] for each in given]
        replies[0].append(says)
        request = self.asking(3, voting="field_majority")
        request = request.model_copy(
            update={"output": chat_request(output={"schema": schema, "semantic": True}).output}
        )
        response, record = await run(self.world(clock, *replies), request)
        assert response.structured_output == ({"a": 1, "b": 1, "c": 1} if says is YES else None)
        assert response.vote is not None
        assert [event.replica for event in events(record, ValidationEnd)][-1] is None
        if says is YES:
            assert (response.state, response.confidence) == (State.COMPLETE, 2 / 3)
        else:
            assert failure_of(response) == (Code.VALIDATION_SEMANTIC_FAILED, ["It is no city.", "It is rude."])


class TestMovingOn:
    def world(self, clock: VirtualClock, *replies: Sequence[Mapping[str, Any]], moving: bool = True) -> Harness:
        engines = [
            scripted_engine(clock, name, *each, capabilities=NATIVE) for name, each in zip("abc", replies, strict=False)
        ]
        return make_harness(clock, *engines, tools=BUILTIN_TOOLS, moving=moving, attempts=4)

    def asked(self, record: ExecutionHistory) -> list[str]:
        return [event.provider for event in events(record, InferenceStart)]

    def offered(self, record: ExecutionHistory) -> list[str]:
        rows = (row.outcome for row in record.steps.values() if isinstance(row.outcome, InferenceSetup))
        return ["".join(each.provider for each in outcome.candidates) for outcome in rows]

    async def test_after_a_refused_answer_the_next_provider_is_asked_round_about(self, clock: VirtualClock) -> None:
        world = self.world(clock, [LONG, GOOD], [LONG], [LONG])
        response, record = await run(world, chat({"rules": [SHORT]}))
        assert (response.content, response.metadata.provider) == ("good", "a")
        assert self.asked(record) == ["a", "b", "c", "a"]
        assert self.offered(record) == ["abc", "bca", "cab", "abc"]
        assert response.metadata.fallback_attempts == 0

    async def test_otherwise_who_answered_is_asked_again(self, clock: VirtualClock) -> None:
        response, record = await run(self.world(clock, [LONG, GOOD], [LONG], moving=False), chat({"rules": [SHORT]}))
        assert (response.content, self.offered(record)) == ("good", ["ab", "ab"])

    async def test_the_next_provider_stays_the_first_between_tool_rounds(self, clock: VirtualClock) -> None:
        world = self.world(clock, [ROLL, LONG], [ROLL, ROLL, GOOD])
        response, record = await run(world, chat({"rules": [SHORT]}))
        assert (response.content, self.asked(record)) == ("good", ["a", "a", "b", "b", "b"])

    async def test_one_that_is_down_is_passed_over(self, clock: VirtualClock) -> None:
        world = self.world(clock, [LONG, GOOD], [{"fault": "unreachable"}], [])
        breaker = world.environment.health.breakers["c"]
        breaker.record_failure(breaker.try_begin(), trip=True)
        response, record = await run(world, chat({"rules": [SHORT]}))
        assert (response.content, self.asked(record)) == ("good", ["a", "b", "a"])
        assert response.metadata.fallback_attempts == 1

    async def test_a_form_that_was_not_kept_moves_on_and_so_does_an_unreadable_judge(self, clock: VirtualClock) -> None:
        world = self.world(clock, [{"text": "prose"}, {"text": "Hm."}], [city("Ulm"), YES])
        response, record = await run(world, structured({"semantic": True}))
        assert (response.structured_output, response.metadata.provider) == ({"city": "Ulm"}, "b")
        assert self.asked(record) == ["a", "b", "a", "b"]

    async def test_an_engine_that_was_named_is_no_route(self, clock: VirtualClock) -> None:
        response, record = await run(self.world(clock, [LONG, GOOD], [GOOD]), chat({"rules": [SHORT]}, model="a"))
        assert (response.content, self.asked(record)) == ("good", ["a", "a"])
