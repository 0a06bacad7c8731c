"""Side questions: the answer is parsed, asked for again, paid for, and no part of the response."""

import json
from dataclasses import replace
from typing import Any

import pytest

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import PromptCall
from portico.capabilities.prompting.prompts.assessment import AnswerJudgementInput, AnswerJudgementOutput
from portico.domain.failures import Code, Failure, ValidationFailure
from portico.orchestration.execution.context import RunContext
from tests.support.harness import Harness, chat_request, make_harness, replay_offline, scripted_engine
from tests.support.virtual_time import VirtualClock

USAGE = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
FINE = {"text": json.dumps({"valid": True, "score": 0.5}), "usage": USAGE}
PROSE = {"text": "it is fine", "usage": USAGE}
ANSWER = {"text": "the answer", "usage": USAGE}


def question(check: Any = lambda _: None) -> PromptCall[AnswerJudgementOutput]:
    prompt = AnswerJudgementInput(request="why?", answer="because")
    return PromptCall(PromptId.ANSWER_JUDGEMENT_USER, prompt, AnswerJudgementOutput, check)


async def aside(context: RunContext) -> str:
    """Ask a side question between two inferences."""
    first = await context.infer(context.settings.messages)
    try:
        score = str((await context.ask(question())).score)
    except Failure as failure:
        score = failure.code
    last = await context.infer([])
    return f"{first.text} {score} {last.text}"


def asking(clock: VirtualClock, *replies: dict[str, Any], attempts: int = 3) -> Harness:
    return make_harness(clock, scripted_engine(clock, "a", *replies), attempts=attempts, max_retries=0)


async def test_an_answer_is_read_and_the_conversation_goes_on_without_it(clock: VirtualClock) -> None:
    response, record = await asking(clock, ANSWER, FINE, ANSWER).run(chat_request(), aside)
    assert response.content == "the answer 0.5 the answer"
    assert list(record.steps) == ["prepare", "0", "0/0", "1/0/0", "1/0/0/0", "2", "2/0"]
    counts = [item.event.message_count for item in record.events if item.event.type == "inference.start"]
    assert counts == [1, 2, 2]
    assert response.token_usage.total_tokens == 36
    assert replay_offline(record, aside) == len(record.steps)


async def test_the_model_learns_what_is_unreadable_and_is_asked_again(clock: VirtualClock) -> None:
    response, record = await asking(clock, ANSWER, PROSE, FINE, ANSWER).run(chat_request(), aside)
    assert response.content == "the answer 0.5 the answer"
    counts = [item.event.message_count for item in record.events if item.event.type == "inference.start"]
    assert counts == [1, 2, 2, 2]
    assert replay_offline(record, aside) == len(record.steps)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (PROSE, Code.CONSTRAINT_JSON_INVALID),
        ({"text": '{"valid": true}'}, Code.CONSTRAINT_SCHEMA_INVALID),
        ({"text": '{"valid": true, "score": 7}'}, Code.CONSTRAINT_SCHEMA_INVALID),
    ],
)
async def test_after_the_last_attempt_it_is_the_answers_failure(
    clock: VirtualClock, reply: dict[str, Any], code: Code
) -> None:
    response, record = await asking(clock, ANSWER, reply, reply, ANSWER, attempts=2).run(chat_request(), aside)
    assert response.content == f"the answer {code} the answer"
    assert replay_offline(record, aside) == len(record.steps)


async def test_what_is_checked_is_asked_for_again_and_fails_as_it_was_checked(clock: VirtualClock) -> None:
    def strict(answer: AnswerJudgementOutput) -> None:
        if answer.score < 1:
            raise ValidationFailure(Code.VALIDATION_RULE_FAILED, "too low")

    async def checking(context: RunContext) -> str:
        try:
            return str((await context.ask(question(strict))).score)
        except ValidationFailure as failure:
            return failure.code

    sure = {"text": json.dumps({"valid": True, "score": 1})}
    response, record = await asking(clock, FINE, sure, attempts=2).run(chat_request(), checking)
    assert response.content == "1.0"
    assert replay_offline(record, checking) == len(record.steps)
    response, _ = await asking(clock, FINE, FINE, attempts=2).run(chat_request(), checking)
    assert response.content == Code.VALIDATION_RULE_FAILED


async def test_a_model_that_cannot_be_asked_is_that_failure(clock: VirtualClock) -> None:
    response, record = await asking(clock, ANSWER, {"fault": "refused"}, ANSWER).run(chat_request(), aside)
    assert response.content == "the answer INFERENCE_ENGINE_ERROR the answer"
    assert replay_offline(record, aside) == len(record.steps)


async def test_a_side_question_is_no_part_of_the_response_but_its_cost_is(clock: VirtualClock) -> None:
    """The last provider is asked aside, and the execution is cancelled meanwhile."""
    elsewhere = scripted_engine(clock, "b", {**FINE, "delay": 60}, price=(1.0, 1.0))
    engine = scripted_engine(clock, "a", {**ANSWER, "finish_reason": "length"}, price=(1.0, 1.0))

    async def asking_elsewhere(context: RunContext) -> str:
        await context.infer(context.settings.messages)
        elsewhere = context.with_settings(replace(context.settings, model="b"))
        return str(await elsewhere.ask(question()))

    here = make_harness(clock, engine, elsewhere, timeout=5)
    response, record = await here.run(chat_request(model="a"), asking_elsewhere)
    assert response.error is not None
    assert response.error.code is Code.CANCELLED_TIMEOUT
    assert (response.metadata.provider, response.content) == ("a", None)
    assert response.token_usage.total_tokens > USAGE["total_tokens"]
    assert response.cost is not None
    assert response.cost.amount > 12 / 1_000_000
    assert replay_offline(record, asking_elsewhere) == len(record.steps)


async def test_it_is_asked_greedily_for_all_hints_of_the_request(clock: VirtualClock) -> None:
    request = chat_request(hints={"temperature": 1.5, "stop": "x", "max_tokens": 7})
    _, record = await asking(clock, ANSWER, FINE, ANSWER).run(request, aside)
    temperatures = [item.event.temperature for item in record.events if item.event.type == "inference.start"]
    assert temperatures == [1.5, 0, 1.5]


async def test_what_was_wrong_and_which_repairs_were_tried_is_in_the_failure(clock: VirtualClock) -> None:
    async def asking_once(context: RunContext) -> str:
        try:
            return str((await context.ask(question())).score)
        except Failure as failure:
            return f"{failure.details['repairs']} {failure.details['methods'][-1]}"

    response, record = await asking(clock, *[PROSE] * 9).run(chat_request(), asking_once)
    assert response.content == "['SUPERVISOR_REPAIR_JSON_USER', 'SUPERVISOR_REPAIR_JSON_USER'] direct_parsing"
    assert replay_offline(record, asking_once) == len(record.steps)
