"""The engine without a model."""

from dataclasses import replace
from typing import Any

import anyio
import pytest

from portico.adapters.engines.rehearsal.engine import RehearsalEngine
from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import PromptCall
from portico.capabilities.prompting.prompts.assessment import AnswerJudgementInput, AnswerJudgementOutput
from portico.capabilities.prompting.prompts.output_format import StructuredViolationsInput
from portico.capabilities.prompting.registry import default_registry
from portico.domain.contract.messages import Message, TextPart, ToolCall
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.ports.model import EngineError
from tests.adapters.engines.cases import IMAGE
from tests.support.engine_calls import RecordedProgress, definition, engine_call, profile, tool_round
from tests.support.virtual_time import VirtualClock

BUILTIN = [each.definition() for each in BUILTIN_TOOLS]


@pytest.fixture
def engine(clock: VirtualClock) -> RehearsalEngine:
    return RehearsalEngine(profile("rehearsal"), clock)


async def _reply(engine: RehearsalEngine, *messages: Message | str, tools: Any = BUILTIN, **hints: Any) -> Reply:
    return await engine.attempt(engine_call(*messages, tools=tools, hints=hints), RecordedProgress(), stream=False)


async def test_without_a_match_it_says_what_it_is_and_repeats_the_message(engine: RehearsalEngine) -> None:
    reply = await _reply(engine, "Tell me\n a story")
    assert reply.text == 'This is the rehearsal engine, no model was asked. You wrote: "Tell me a story"'
    assert (reply.tool_calls, reply.finish_reason, reply.model) == ((), "stop", "rehearsal")


async def test_a_long_message_is_cut_in_the_echo(engine: RehearsalEngine) -> None:
    assert len((await _reply(engine, "word " * 10_000)).text) < 400


async def test_a_message_in_parts_is_read_too(engine: RehearsalEngine) -> None:
    parts = Message(role="user", content=[TextPart(type="text", text="Roll"), TextPart(type="text", text="2d6")])
    assert (await _reply(engine, parts)).tool_calls[0].arguments == {"count": 2, "sides": 6}


async def test_the_same_call_gives_the_same_reply(engine: RehearsalEngine) -> None:
    assert await _reply(engine, "Roll 2d6") == await _reply(engine, "Roll 2d6")


async def test_without_any_user_message_it_answers_too(engine: RehearsalEngine) -> None:
    assert "rehearsal" in (await _reply(engine, Message(role="system", content="Be kind"))).text


async def test_it_calls_the_tool_that_is_meant(engine: RehearsalEngine) -> None:
    reply = await _reply(engine, "Please roll 2 dice with 6 sides")
    assert reply.tool_calls == (ToolCall(id="call_1", name="roll_dice", arguments={"count": 2, "sides": 6}),)
    assert (reply.text, reply.finish_reason) == ("", "tool")


async def test_it_tells_the_results_that_are_there_instead_of_calling_again(engine: RehearsalEngine) -> None:
    reply = await _reply(engine, "Roll 2d6", *tool_round("roll_dice", "Rolled 2d6: [3 5] (sum: 8)"))
    assert reply.tool_calls == ()
    assert "rehearsal engine" in reply.text
    assert "roll_dice answered: Rolled 2d6: [3 5] (sum: 8)" in reply.text


async def test_results_of_an_earlier_turn_do_not_answer_this_one(engine: RehearsalEngine) -> None:
    earlier = ("Roll 2d6", *tool_round("roll_dice", "Rolled 2d6: [3 5] (sum: 8)"))
    reply = await _reply(engine, *earlier, Message(role="assistant", content="8"), "Now roll 3d8")
    assert reply.tool_calls == (ToolCall(id="call_5", name="roll_dice", arguments={"count": 3, "sides": 8}),)


async def test_after_a_rejected_answer_it_returns_to_the_message_it_answered(
    engine: RehearsalEngine,
) -> None:
    found = StructuredViolationsInput.from_pairs([("$", "is too long: ask a person, roll 2 dice with 6 sides")])
    refusal = default_registry().get_prompt(PromptId.STRUCTURED_VIOLATIONS_USER, found)
    asked = Message(role="assistant", content="Once upon a time")
    reply = await _reply(engine, "Tell me a story", asked, refusal)
    assert (reply.tool_calls, "Tell me a story" in reply.text) == ((), True)
    rolled = ("Roll 2d6", *tool_round("roll_dice", "Rolled 2d6: [3 5] (sum: 8)"))
    again = await _reply(engine, *rolled, asked, refusal)
    assert (again.tool_calls, "sum: 8" in again.text) == ((), True)


async def test_a_tool_that_is_not_offered_is_not_called(engine: RehearsalEngine) -> None:
    assert (await _reply(engine, "Roll 2d6", tools=[])).tool_calls == ()


async def test_no_tool_is_called_when_none_may_be(engine: RehearsalEngine) -> None:
    assert (await _reply(engine, "Roll 2d6", tool_choice="none")).tool_calls == ()


async def test_a_call_that_is_required_is_made_with_what_is_missing_made_up(engine: RehearsalEngine) -> None:
    [call] = (await _reply(engine, "Roll something", tool_choice="required")).tool_calls
    assert (call.name, call.arguments) == ("roll_dice", {"count": 1, "sides": 2})
    [call] = (await _reply(engine, "Roll 2d6", tool_choice="required")).tool_calls
    assert (call.name, call.arguments) == ("roll_dice", {"count": 2, "sides": 6})


async def test_a_required_call_ends_with_its_result(engine: RehearsalEngine) -> None:
    reply = await _reply(engine, "Roll", *tool_round("roll_dice", "8"), tool_choice="required")
    assert reply.tool_calls == ()


async def test_the_named_tool_is_called_and_no_other(engine: RehearsalEngine) -> None:
    [call] = (await _reply(engine, "Roll 2d6", tool_choice={"name": "current_time"})).tool_calls
    assert (call.name, call.arguments) == ("current_time", {})
    assert (await _reply(engine, "Roll 2d6", tool_choice={"name": "gone"})).tool_calls == ()


@pytest.mark.parametrize(("said", "valid"), [("Hello", True), ("Hello [[refuse]]", False)])
async def test_a_judge_finds_an_answer_good_unless_it_reads_that_it_shall_not(
    said: str, valid: bool, engine: RehearsalEngine
) -> None:
    judged = AnswerJudgementInput(request=said, answer="Hi")
    question = PromptCall(PromptId.ANSWER_JUDGEMENT_USER, judged, AnswerJudgementOutput)
    call = replace(engine_call(*question.messages), schema=question.response_format.schema)
    judgement = question.parse((await engine.attempt(call, RecordedProgress(), stream=False)).text)
    assert (judgement.valid, judgement.score, bool(judgement.issues)) == (valid, float(valid), not valid)


async def test_to_refuse_means_nothing_to_who_answers(engine: RehearsalEngine) -> None:
    assert (await _reply(engine, "Hello [[refuse]]")).text == (await _reply(engine, "Hello")).text


async def test_a_stream_publishes_the_text_word_by_word(engine: RehearsalEngine) -> None:
    published = RecordedProgress()
    reply = await engine.attempt(engine_call("Hello there"), published, stream=True)
    assert "".join(published.texts) == reply.text
    assert published.texts[:3] == ["This", " is", " the"]


async def test_a_whole_reply_publishes_no_text(engine: RehearsalEngine) -> None:
    published = RecordedProgress()
    await engine.attempt(engine_call("Hello there"), published, stream=False)
    assert published.texts == []


async def test_a_stream_can_be_cancelled_between_two_words(engine: RehearsalEngine) -> None:
    class Impatient(RecordedProgress):
        def text(self, piece: str) -> None:
            super().text(piece)
            if len(self.texts) == 2:
                scope.cancel()

    published = Impatient()
    with anyio.CancelScope() as scope:
        await engine.attempt(engine_call("Hello there"), published, stream=True)
    assert scope.cancelled_caught
    assert published.texts == ["This", " is"]


async def test_tokens_are_estimates_and_those_read_are_reported_first(engine: RehearsalEngine) -> None:
    published = RecordedProgress()
    reply = await engine.attempt(engine_call("Hello", tools=BUILTIN), published, stream=False)
    assert reply.usage.estimated
    assert reply.usage.output_tokens > 0
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    assert [each.input_tokens for each in published.usages] == [reply.usage.input_tokens]


async def test_an_answer_longer_than_max_tokens_ends_with_length(engine: RehearsalEngine) -> None:
    reply = await _reply(engine, "Hello", max_tokens=3)
    assert (reply.finish_reason, reply.usage.output_tokens) == ("length", 3)
    assert "This is the rehearsal engine".startswith(reply.text)
    assert (await _reply(engine, "Hello", max_tokens=1000)).finish_reason == "stop"


async def test_hints_and_images_that_it_takes_no_notice_of_are_named(engine: RehearsalEngine) -> None:
    heeded = await _reply(engine, "Roll 2d6", max_tokens=9, stop="END", tool_choice="required")
    pictured = Message(role="user", content=[TextPart(type="text", text="Hello"), IMAGE])
    unheeded = await _reply(engine, pictured, temperature=0, top_p=0.5, seed=1, options={"top_k": 3})
    assert heeded.withheld == ()
    assert unheeded.withheld == (
        "hints.temperature",
        "hints.top_p",
        "hints.seed",
        "hints.options.top_k",
        "messages.images",
    )


async def test_an_answer_ends_before_a_stop_text(engine: RehearsalEngine) -> None:
    assert (await _reply(engine, "Hello", stop=["model", "engine"])).text == "This is the rehearsal "


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, AttemptFailureReason.REFUSED),
        (401, AttemptFailureReason.CREDENTIALS),
        (402, AttemptFailureReason.QUOTA),
        (404, AttemptFailureReason.MODEL_MISSING),
        (408, AttemptFailureReason.TIMED_OUT),
        (413, AttemptFailureReason.CONTEXT_EXCEEDED),
        (422, AttemptFailureReason.REFUSED),
        (429, AttemptFailureReason.RATE_LIMITED),
        (500, AttemptFailureReason.SERVER_ERROR),
        (503, AttemptFailureReason.SERVER_ERROR),
        (529, AttemptFailureReason.OVERLOADED),
        (302, AttemptFailureReason.UNREACHABLE),
        (200, AttemptFailureReason.MALFORMED),
    ],
)
async def test_it_fails_as_that_status_would_at_every_attempt(
    engine: RehearsalEngine, status: int, reason: AttemptFailureReason
) -> None:
    for _ in range(2):
        with pytest.raises(EngineError, match=str(status)) as fault:
            await _reply(engine, f"Hello [[fail:{status}]]")
        assert fault.value.reason is reason


async def test_a_failure_goes_on_after_tool_results(engine: RehearsalEngine) -> None:
    with pytest.raises(EngineError):
        await _reply(engine, "Roll 2d6 [[fail:500]]", *tool_round("roll_dice", "8"))


async def test_only_the_last_user_message_gives_orders(engine: RehearsalEngine) -> None:
    reply = await _reply(engine, "[[fail:500]]", Message(role="assistant", content="[[garble]]"), "Hello")
    assert "Hello" in reply.text


async def test_orders_are_no_part_of_what_is_read(engine: RehearsalEngine, clock: VirtualClock) -> None:
    began = clock.monotonic()
    [call] = (await _reply(engine, "[[slow:2.5]] Roll 2 dice with 6 sides")).tool_calls
    assert call.arguments == {"count": 2, "sides": 6}
    assert clock.monotonic() - began == pytest.approx(2.5)


async def test_waiting_and_failing_go_together(engine: RehearsalEngine, clock: VirtualClock) -> None:
    began = clock.monotonic()
    with pytest.raises(EngineError):
        await _reply(engine, "[[fail:429]] [[slow:30]]")
    assert clock.monotonic() - began == pytest.approx(30)


async def test_what_is_no_order_is_just_text(engine: RehearsalEngine) -> None:
    assert "[[fail:soon]] [[explode]]" in (await _reply(engine, "[[fail:soon]] [[explode]]")).text


@pytest.mark.parametrize(("stream", "pieces"), [(True, ["This", " is", " the"]), (False, [])])
async def test_a_garbled_reply_is_malformed_in_a_stream_after_some_words(
    engine: RehearsalEngine, stream: bool, pieces: list[str]
) -> None:
    published = RecordedProgress()
    with pytest.raises(EngineError) as fault:
        await engine.attempt(engine_call("Hello [[garble]]"), published, stream=stream)
    assert fault.value.reason is AttemptFailureReason.MALFORMED
    assert published.texts == pieces


async def test_it_can_always_be_reached(engine: RehearsalEngine) -> None:
    assert "rehearsal" in await engine.ping()
    assert engine.profile.name == "primary"


async def test_an_unknown_tool_is_called_from_its_schema_alone(engine: RehearsalEngine) -> None:
    mix = definition(
        "mix_paint",
        "Mixes paint in a bucket.",
        {
            "colour": {"$ref": "#/$defs/Colour"},
            "litres": {"type": "number", "description": "Amount of paint in litres"},
            "label": {"type": "string"},
        },
        ["colour", "litres", "label"],
    )
    colours = {"Colour": {"type": "string", "enum": ["red", "blue"]}}
    mix = replace(mix, parameters={**mix.parameters, "$defs": colours})
    [call] = (await _reply(engine, 'Mix 2.5 litres of Blue paint labelled "Hall"', tools=[*BUILTIN, mix])).tool_calls
    assert (call.name, call.arguments) == ("mix_paint", {"colour": "blue", "litres": 2.5, "label": "Hall"})


TRIP = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "class": {"enum": ["second", "first"]}},
    "required": ["city", "days", "class"],
}
GRAMMAR = 'root ::= "yes" | "no" | "per" "haps"'


async def _formed(engine: RehearsalEngine, *messages: Message | str, stream: bool = False, **form: Any) -> Reply:
    return await engine.attempt(replace(engine_call(*messages), **form), RecordedProgress(), stream=stream)


async def test_a_schema_is_filled_with_what_the_message_says(engine: RehearsalEngine) -> None:
    reply = await _formed(engine, 'To "Bonn" for 3 days, first class', schema=TRIP)
    assert reply.text == '{"city":"Bonn","days":3,"class":"first"}'
    assert (reply.tool_calls, reply.finish_reason) == ((), "stop")
    assert reply.usage.output_tokens > 0


async def test_orders_are_no_part_of_what_a_schema_is_filled_with(engine: RehearsalEngine, clock: VirtualClock) -> None:
    began = clock.monotonic()
    reply = await _formed(engine, "[[slow:2.5]] take 4", schema={"type": "number"})
    assert (reply.text, clock.monotonic() - began) == ("4", pytest.approx(2.5))


async def test_a_schema_is_filled_without_any_message_too(engine: RehearsalEngine) -> None:
    reply = await _formed(engine, Message(role="system", content="Be kind"), schema=TRIP)
    assert reply.text == '{"city":"rehearsal","days":1,"class":"second"}'


async def test_with_tools_beside_a_schema_the_results_are_answered_in_its_form(engine: RehearsalEngine) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    asked = replace(engine_call("Roll 2d6", tools=BUILTIN), schema=schema)
    assert (await engine.attempt(asked, RecordedProgress(), stream=False)).tool_calls[0].name == "roll_dice"
    answered = replace(
        engine_call("Roll 2d6", *tool_round("roll_dice", "Rolled 2d6: [3 5] (sum: 8)"), tools=BUILTIN), schema=schema
    )
    assert (await engine.attempt(answered, RecordedProgress(), stream=False)).text == '{"sum":8}'


async def test_a_grammar_is_answered_with_its_shortest_text(engine: RehearsalEngine) -> None:
    assert (await _formed(engine, "Really?", grammar=GRAMMAR)).text == "no"


@pytest.mark.parametrize("grammar", ["root ::= missing", 'root ::= "a"{70000}', 'root ::= ("a"{1000}){1000}'])
async def test_a_grammar_whose_texts_it_cannot_write_is_answered_in_words(
    engine: RehearsalEngine, grammar: str
) -> None:
    assert "rehearsal engine" in (await _formed(engine, "Really?", grammar=grammar)).text


@pytest.mark.parametrize(
    "form", [{"schema": TRIP}, {"schema": {"const": "a b\n" * 30}}, {"grammar": 'root ::= "line\\n"{9}'}]
)
async def test_what_has_a_form_is_streamed_in_small_pieces(engine: RehearsalEngine, form: dict[str, Any]) -> None:
    published = RecordedProgress()
    reply = await engine.attempt(replace(engine_call("Bonn"), **form), published, stream=True)
    assert "".join(published.texts) == reply.text
    assert len(published.texts) > 3
    assert max(map(len, published.texts)) <= 8


@pytest.mark.parametrize("form", [{"schema": TRIP}, {"grammar": 'root ::= "a"{40}'}])
async def test_what_has_a_form_fails_and_is_garbled_too(engine: RehearsalEngine, form: dict[str, Any]) -> None:
    with pytest.raises(EngineError) as fault:
        await _formed(engine, "[[fail:503]]", **form)
    assert fault.value.reason is AttemptFailureReason.SERVER_ERROR
    published = RecordedProgress()
    with pytest.raises(EngineError) as fault:
        await engine.attempt(replace(engine_call("[[garble]]"), **form), published, stream=True)
    assert fault.value.reason is AttemptFailureReason.MALFORMED
    assert len("".join(published.texts)) == 24


async def test_a_formatted_answer_ends_at_the_token_limit(engine: RehearsalEngine) -> None:
    call = replace(engine_call("Hello", hints={"max_tokens": 2}), schema=TRIP)
    reply = await engine.attempt(call, RecordedProgress(), stream=False)
    assert (reply.finish_reason, reply.usage.output_tokens) == ("length", 2)


async def test_a_required_call_has_all_that_its_schema_asks_for(engine: RehearsalEngine) -> None:
    send = definition("send", "Sends.", {"to": {"type": "string", "format": "email"}, "trip": TRIP}, ["to", "trip"])
    [call] = (await _reply(engine, "Go", tools=[send], tool_choice="required")).tool_calls
    assert call.arguments == {
        "to": "rehearsal",
        "trip": {"city": "rehearsal", "days": 1, "class": "second"},
    }
