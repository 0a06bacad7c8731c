"""Bedrock's Converse API: what is asked, as botocore's model of the API has it."""

import base64
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from botocore.validate import ParamValidator

from portico.adapters.engines.bedrock.dialect import BedrockDialect
from portico.domain.contract.messages import Message, ModelMessage
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall
from portico.ports.model import EngineProfile
from tests.adapters.engines.cases import (
    CASES,
    DICE,
    HELLO,
    IMAGE,
    OPEN_SCHEMA,
    ROLL_SIX,
    assistant,
    result,
    system,
    user,
)
from tests.adapters.engines.engine_calls import call
from tests.support.emulators.bedrock import converse, with_bytes

CLAUDE, NOVA = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon.nova-pro-v1:0"
POINT = {"cachePoint": {"type": "default"}}
ANSWER = assistant("", ROLL_SIX)
SIGNED = {"reasoningText": "hm", "signature": "c2ln"}


def encoded(asked: EngineCall, model: str = CLAUDE, options: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The body, once botocore has found that it fits the API."""
    profile = EngineProfile("a", model, "bedrock", 128_000, 4_096, options)
    body: dict[str, Any] = orjson.loads(orjson.dumps(BedrockDialect().encode(asked, profile, stream=False).body))
    report = ParamValidator().validate({**with_bytes(body), "modelId": model}, converse().input_shape)
    assert not report.has_errors(), report.generate_report()
    return body


def turns(*messages: Message, tools: Sequence[Any] = (DICE,)) -> list[tuple[str, list[Any]]]:
    return [(turn["role"], turn["content"]) for turn in encoded(call(messages, tools))["messages"]]


@pytest.mark.parametrize("title", CASES)
def test_botocore_takes_every_case(title: str) -> None:
    case = CASES[title]
    encoded(case.call((SIGNED, {"redactedContent": "c2VhbA==", "index": 1})), options=case.options)


def test_a_model_is_one_segment_of_the_path() -> None:
    profile = EngineProfile("a", "arn:aws:bedrock:eu-west-1:1:inference-profile/a", "bedrock", 1, 0, frozenset())
    sent = BedrockDialect().encode(call(), profile, stream=True)
    assert sent.path == "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Fa/converse-stream"


def test_results_of_a_round_are_one_turn_and_images_stand_in_it() -> None:
    question, answer, results = turns(user("Roll."), ANSWER, result(ROLL_SIX, "4"))
    assert question == ("user", [{"text": "Roll."}])
    use = {"toolUseId": "call_1", "name": "roll_dice", "input": {"sides": 6}}
    assert answer[1][-1] == {"toolUse": use}
    assert results == ("user", [{"toolResult": {"toolUseId": "call_1", "content": [{"text": "4"}]}}])
    [(_, blocks)] = turns(user([IMAGE]))
    assert blocks == [{"image": {"format": "png", "source": {"bytes": IMAGE.data}}}]


def test_calls_are_text_where_no_tools_are_offered_since_they_are_refused_there() -> None:
    talk = (user("Roll."), ANSWER, result(ROLL_SIX, "4"), user("Again?"))
    asked = turns(*talk, tools=())
    assert asked[1][1][-1] == {"text": '[called roll_dice with {"sides":6}]'}
    assert asked[2][1] == [{"text": "[result of roll_dice]"}, {"text": "4"}, {"text": "Again?"}]
    none = encoded(call(talk, [DICE], ExecutionHints(tool_choice="none")))
    assert "toolConfig" not in none


def test_ids_and_names_that_the_api_refuses_are_replaced_and_fit_each_other() -> None:
    odd = ROLL_SIX.model_copy(update={"id": "ü" * 70, "name": "a.b"})
    _, answer, results = turns(HELLO, assistant("", odd), result(odd, "4"))
    use = answer[1][0]["toolUse"]
    assert (use["name"], len(use["toolUseId"]) <= 64) == ("a_b", True)
    assert results[1][0]["toolResult"]["toolUseId"] == use["toolUseId"]


def test_system_prompts_open_the_request_and_later_ones_are_marked() -> None:
    body = encoded(call([system("Be brief."), HELLO, assistant("Hi"), system("Be long."), user("Go on.")]))
    assert body["system"] == [{"text": "Be brief."}]
    assert body["messages"][-1]["content"] == [{"text": "<system>\nBe long.\n</system>"}, {"text": "Go on."}]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"auto": {}}),
        ("required", {"any": {}}),
        (NamedTool(name="roll_dice"), {"tool": {"name": "roll_dice"}}),
    ],
)
def test_a_choice_of_tools_is_sent(choice: Any, sent: dict[str, Any]) -> None:
    body = encoded(call(tools=[DICE], hints=ExecutionHints(tool_choice=choice)))
    assert body["toolConfig"]["toolChoice"] == sent


def test_a_schema_is_sent_as_text() -> None:
    body = encoded(replace(call(), schema=OPEN_SCHEMA))
    described = body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert orjson.loads(described["schema"]) == OPEN_SCHEMA


def test_sampling_that_the_model_refuses_is_left_out_and_named() -> None:
    hints = ExecutionHints(temperature=0.5, top_p=0.9, seed=7, stop=["END"], max_tokens=9)
    profile = EngineProfile("a", CLAUDE, "bedrock", 128_000, 4_096, frozenset())
    sent = BedrockDialect().encode(call(hints=hints), profile, stream=False)
    assert sent.body["inferenceConfig"] == {"maxTokens": 9, "temperature": 0.5, "stopSequences": ["END"]}
    assert set(sent.withheld) == {"hints.top_p", "hints.seed"}
    other = encoded(call(hints=hints), NOVA)
    assert other["inferenceConfig"]["topP"] == 0.9


def test_only_claude_gets_a_limit_of_its_answer_without_a_hint() -> None:
    assert encoded(call())["inferenceConfig"] == {"maxTokens": 4096}
    assert "inferenceConfig" not in encoded(call(), NOVA)


def test_options_go_to_the_model_and_thinking_has_tokens_of_its_own() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2048}
    options = {"thinking": thinking, "performanceConfig": {"latency": "optimized"}}
    asked = call(hints=ExecutionHints(options=options, temperature=0.5))
    body = encoded(asked, options=frozenset(options))
    assert body["additionalModelRequestFields"] == {"thinking": thinking}
    assert body["performanceConfig"] == {"latency": "optimized"}
    assert body["inferenceConfig"] == {"maxTokens": 4096 + 2048}
    forced = ExecutionHints(options={"thinking": thinking}, tool_choice="required")
    assert "additionalModelRequestFields" not in encoded(call(tools=[DICE], hints=forced), options=frozenset(options))


def test_reasoning_is_sent_back_in_the_answer_in_progress_alone_and_only_if_it_is_signed() -> None:
    kept = [SIGNED, {"redactedContent": "c2VhbA==", "index": 1}, {"reasoningText": "unsigned", "index": 2}]
    answer = ModelMessage(role="assistant", content="", tool_calls=[ROLL_SIX], provider="a", kept=kept)
    sent = turns(HELLO, answer, result(ROLL_SIX, "4"))[1][1]
    assert [next(iter(block)) for block in sent] == ["reasoningContent", "reasoningContent", "toolUse"]
    assert sent[0] == {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
    assert sent[1] == {"reasoningContent": {"redactedContent": "c2VhbA=="}}
    later = turns(HELLO, answer, result(ROLL_SIX, "4"), user("Again"))[1][1]
    assert [next(iter(block)) for block in later] == ["toolUse"]


def test_caches_end_behind_the_system_prompt_and_behind_the_conversation() -> None:
    asked = replace(call([system("Be brief."), HELLO], tools=[DICE]), cache_key="0" * 32)
    body = encoded(asked)
    assert body["system"] == [{"text": "Be brief."}, POINT]
    assert body["messages"][-1]["content"] == [{"text": "Hello"}, POINT]
    assert POINT not in encoded(replace(asked, cache_key=None))["system"]


def levelled(model: str, level: str, **asked: Any) -> tuple[dict[str, Any], bool]:
    """The body for a level of reasoning, once botocore has taken it, and whether it is exactly that level."""
    changes = {name: asked.pop(name) for name in ("is_limited", "shows_reasoning") if name in asked}
    tools, messages = asked.pop("tools", ()), asked.pop("messages", (HELLO,))
    hints = ExecutionHints.model_validate({"reasoning": level, **asked})
    made = replace(call(messages, tools, hints=hints), **changes)
    profile = EngineProfile("a", model, "bedrock", 128_000, 4_096, frozenset(hints.options))
    sent = BedrockDialect().encode(made, profile, stream=False)
    return encoded(made, model, frozenset(hints.options)), "hints.reasoning" not in sent.withheld


OLD, NEW = "us.anthropic.claude-opus-4-1-20250805-v1:0", "global.anthropic.claude-opus-4-8"


@pytest.mark.parametrize("limit", [None, 1_500, 30_000])
@pytest.mark.parametrize("level", ["none", "low", "medium", "high", "max"])
@pytest.mark.parametrize("model", [CLAUDE, OLD, NEW, "anthropic.claude-fable-6", "us.anthropic.claude-3-7-sonnet-v1:0"])
def test_a_wire_that_refuses_budgets_beyond_the_model_takes_every_level(
    model: str, level: str, limit: int | None
) -> None:
    body, _ = levelled(model, level, **({} if limit is None else {"max_tokens": limit}))
    extra, most = body["additionalModelRequestFields"], 32_000 if model == OLD else 64_000
    config = body["inferenceConfig"]
    assert config["maxTokens"] <= most
    budget = extra["thinking"].get("budget_tokens")
    if extra["thinking"]["type"] == "enabled":
        assert 1_024 <= budget < config["maxTokens"]
    else:
        assert budget is None


@pytest.mark.parametrize(
    ("model", "level", "fields", "is_exact"),
    [
        (CLAUDE, "none", {"thinking": {"type": "disabled"}}, True),
        (CLAUDE, "low", {"thinking": {"type": "enabled", "budget_tokens": 2_048}}, True),
        (CLAUDE, "max", {"thinking": {"type": "enabled", "budget_tokens": 49_152}}, True),
        (OLD, "max", {"thinking": {"type": "enabled", "budget_tokens": 27_904}}, False),
        (NEW, "high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, True),
        (NOVA, "high", None, False),
    ],
)
def test_a_level_goes_to_claude_as_a_field_of_its_own_and_to_no_other_model(
    model: str, level: str, fields: Any, is_exact: bool
) -> None:
    body, exact = levelled(model, level)
    assert (body.get("additionalModelRequestFields"), exact) == (fields, is_exact)


def test_an_option_wins_over_a_level_and_none_is_sent_where_a_call_is_forced() -> None:
    own = {"thinking": {"type": "enabled", "budget_tokens": 5_000}}
    body, is_exact = levelled(CLAUDE, "low", options=own)
    assert (body["additionalModelRequestFields"], is_exact) == (own, False)
    body, is_exact = levelled(CLAUDE, "low", tools=[DICE], tool_choice="required")
    assert ("additionalModelRequestFields" in body, is_exact) == (False, False)


def test_a_limited_call_has_its_budget_within_its_tokens_and_thoughts_are_shown_on_request() -> None:
    body, is_exact = levelled(CLAUDE, "high", max_tokens=3_000, is_limited=True, shows_reasoning=True)
    thinking = body["additionalModelRequestFields"]["thinking"]
    assert thinking == {"type": "enabled", "budget_tokens": 1_500, "display": "summarized"}
    assert (body["inferenceConfig"]["maxTokens"], is_exact) == (3_000, False)


def test_a_document_is_sent_under_a_name_that_the_api_takes_and_a_text_as_text() -> None:
    pdf = base64.b64encode(b"%PDF-1.7").decode()
    note = base64.b64encode(b"Hello").decode()
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "document", "media_type": "application/pdf", "data": pdf, "name": "a_b/c.pdf" * 28},
        {"type": "document", "media_type": "text/plain", "data": note},
    ]
    [turn] = encoded(call([Message.model_validate({"role": "user", "content": parts})]))["messages"]
    _, document, text = turn["content"]
    assert document["document"]["source"] == {"bytes": pdf}
    assert document["document"]["format"] == "pdf"
    assert re.fullmatch(r"[a-zA-Z0-9 ()\[\]-]{1,200}", document["document"]["name"])
    assert text == {"text": "Hello"}


def test_audio_is_not_sent_and_is_named() -> None:
    wav = base64.b64encode(b"RIFF\0\0\0\0WAVE").decode()
    part = {"type": "audio", "media_type": "audio/wav", "data": wav}
    asked = call([Message.model_validate({"role": "user", "content": [{"type": "text", "text": "Hi"}, part]})])
    profile = EngineProfile("a", NOVA, "bedrock", 1, 0, frozenset())
    assert BedrockDialect().encode(asked, profile, stream=False).withheld == ("messages.audio",)
