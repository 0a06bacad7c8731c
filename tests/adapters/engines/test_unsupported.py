"""Every part of a call that a request does not contain is named, and nothing else, in every dialect.

Whether a request holds a value is read off its body alone, wherever in it: no two things that are asked for here have
the same value, and no other member has it.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.adapters.engines.unsupported import HINT_NAMES
from portico.domain.contract.messages import Message, TextPart
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall
from portico.ports.model import EngineProfile
from tests.adapters.engines.cases import CASES, DICE, GRAMMAR, HELLO, IMAGE, ROLL_SIX, SCHEMA, assistant, result
from tests.adapters.engines.dialects import DIALECTS

MODELS = (
    "gpt-4.1-mini",
    "gpt-4o",
    "gpt-5",
    "gpt-5-chat-latest",
    "gpt-5-codex",
    "gpt-5.1",
    "gpt-5.2-pro",
    "gpt-oss-120b",
    "ft:o4-mini-2025-04-16:portico::1",
    "o1",
    "o3-mini",
    "qwen3-8b",
    "deepseek-reasoner",
    "claude-3-7-sonnet-20250219",
    "claude-haiku-4-5",
    "claude-opus-4-1-20250805",
    "claude-opus-4-7",
    "claude-opus-5-5",
    "gemini-2.5-pro",
    "gemini-3-flash-preview",
)
OPTIONS = {
    "reasoning_effort": st.sampled_from(["none", "high"]),
    "reasoning": st.sampled_from([{"effort": "none"}, {"effort": "low"}, "much"]),
    "thinking": st.sampled_from([{"type": "enabled", "budget_tokens": 2048}, {"type": "adaptive"}]),
    "top_k": st.just(41),
    "unlisted": st.just("anything"),
}
"""Options that may change sampling, a plain one, and one that is never sent."""
LISTED = frozenset(OPTIONS) - {"unlisted"}
HINTED = st.builds(
    ExecutionHints,
    max_tokens=st.sampled_from([None, 1, 15, 16, 777]),
    temperature=st.sampled_from([None, 0.0, 0.25, 1.75]),
    top_p=st.sampled_from([None, 0.125, 0.9, 0.96]),
    stop=st.sampled_from([None, "END", " ", ["END", "STOP"], ["END", "\n"], ["\n", "\t"]]),
    seed=st.sampled_from([None, 7, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1]),
    tool_choice=st.sampled_from([None, "auto", "required", NamedTool(name="roll_dice")]),
    options=st.fixed_dictionaries({}, optional=OPTIONS),
)
DIALECTS_AND_MODELS = [(name, model) for name in DIALECTS for model in MODELS]


def profile(model: str, options: frozenset[str] = LISTED) -> EngineProfile:
    return EngineProfile("primary", model, "any", 128_000, 4_096, options)


def leaves(value: Any) -> Iterator[Any]:
    """Yield all scalar values of a request under any name, with their types."""
    if isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from leaves(member)
    else:
        yield type(value), value


def asked_for(hints: ExecutionHints) -> dict[str, Any]:
    """Return the requested hints by the names that they have when they are left out."""
    asked = {f"hints.{name}": getattr(hints, name) for name in HINT_NAMES}
    asked |= {f"hints.options.{key}": value for key, value in hints.options.items()}
    return {name: value for name, value in asked.items() if value is not None}


@pytest.mark.parametrize(("name", "model"), DIALECTS_AND_MODELS)
@settings(max_examples=15)
@given(hints=HINTED, tools=st.sampled_from([(), (DICE,)]))
def test_a_hint_stands_in_the_request_or_is_named(name: str, model: str, hints: ExecutionHints, tools: Any):
    sent = DIALECTS[name].dialect.encode(EngineCall([HELLO], tools, hints), profile(model), stream=False)
    sent_values = set(leaves(sent.body))
    missing = {wanted for wanted, value in asked_for(hints).items() if not sent_values.issuperset(leaves(value))}
    demand = {"hints.tool_choice"} if hints.demands_call and (name == "ollama" or not tools) else set()
    assert sorted(sent.withheld) == sorted(missing | demand)


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=30)
@given(listed=st.sets(st.sampled_from(["top_k", "model", "messages", "stream", "max_tokens", "truncate", "tools"])))
def test_an_option_that_does_not_pass_or_is_replaced_is_named(name: str, listed: set[str]):
    options = {"top_k": 41, "model": "m-2", "messages": ["x"], "stream": "y", "max_tokens": 42, "truncate": "z"}
    asked = EngineCall([HELLO], (), ExecutionHints(max_tokens=777, options=options))
    sent = DIALECTS[name].dialect.encode(asked, profile("some-model", frozenset(listed)), stream=True)
    sent_values = set(leaves(sent.body))
    missing = {f"hints.options.{key}" for key, value in options.items() if not sent_values.issuperset(leaves(value))}
    assert set(sent.withheld) == missing
    assert {f"hints.options.{key}" for key in options.keys() - listed} <= missing


@pytest.mark.parametrize(
    ("name", "option", "value", "said"),
    [
        ("anthropic", "output_config", {"effort": "low"}, True),
        ("anthropic", "output_config", {"effort": "low", "format": {"type": "text"}}, False),
        ("anthropic", "output_config", "low", False),
        ("openai_responses", "text", {"verbosity": "low"}, True),
        ("openai_responses", "text", {"format": {"type": "text"}}, False),
        ("openai_responses", "include", ["message.output_text.logprobs"], False),
        ("gemini", "responseMimeType", "text/x.enum", False),
        ("ollama", "num_ctx", 512, True),
    ],
)
def test_an_option_that_is_joined_with_ours_is_said_as_far_as_all_of_it_stands(
    name: str, option: str, value: Any, said: bool
):
    row = DIALECTS[name]
    asked = EngineCall([HELLO], (), ExecutionHints(options={option: value}), schema=SCHEMA)
    sent = row.dialect.encode(asked, row.profile(frozenset({option})), stream=False)
    assert sent.withheld == (() if said else (f"hints.options.{option}",))


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("author", ["Ada", "Ada Lovelace"])
@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_an_image_and_an_authors_name_stand_in_the_request_or_are_named(name: str, author: str, role: Any):
    parts = [TextPart(type="text", text="See."), IMAGE]
    said: list[Message] = [HELLO, Message(role=role, content=parts, name=author)]
    if role == "tool":
        said = [HELLO, assistant("", ROLL_SIX), result(ROLL_SIX, "4").model_copy(update={"content": parts})]
    sent = DIALECTS[name].dialect.encode(EngineCall(said, (DICE,), ExecutionHints()), profile("m"), stream=False)
    sent_values = [value for _, value in leaves(sent.body) if isinstance(value, str)]
    missing = [] if any(IMAGE.data in text for text in sent_values) else ["messages.images"]
    missing += [] if role == "tool" or author in sent_values else ["messages.name"]
    assert list(sent.withheld) == missing


@pytest.mark.parametrize("name", DIALECTS)
def test_a_grammar_stands_in_the_request_or_is_named(name: str):
    asked = EngineCall([HELLO], (), ExecutionHints(), grammar=GRAMMAR)
    sent = DIALECTS[name].dialect.encode(asked, profile("m"), stream=False)
    assert sent.withheld == (() if (str, GRAMMAR) in set(leaves(sent.body)) else ("output.grammar",))


@pytest.mark.parametrize(
    ("name", "title"),
    [(name, title) for name, row in DIALECTS.items() for title in CASES if CASES[title].applies_to(row.capabilities)],
)
def test_of_a_call_without_hints_nothing_is_left_out(name: str, title: str):
    row, case = DIALECTS[name], CASES[title]
    asked = replace(case.call(row.kept), hints=ExecutionHints())
    assert row.dialect.encode(asked, row.profile(), stream=False).withheld == ()
