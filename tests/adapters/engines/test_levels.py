"""Every level of `hints.reasoning` is sent to every model as what it takes, and never as a higher one."""

from typing import Any

import orjson
import pytest
from anthropic.types import ThinkingConfigParam
from anthropic.types.output_config_param import OutputConfigParam
from google.genai import types as gemini_types
from openai.types.shared import ReasoningEffort
from pydantic import TypeAdapter

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.bedrock.dialect import BedrockDialect
from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.levels import LEVELS, OFF, TABLES, LevelRow
from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.adapters.engines.openai.vendors import VENDORS, ReasoningForm
from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import EngineCall
from portico.ports.model import EngineCapabilities, EngineProfile
from tests.adapters.engines.cases import HELLO, ROLL_SIX, assistant, result
from tests.support.emulators import anthropic, bedrock, gemini, ollama, openai_chat, openai_responses
from tests.support.emulators.answers import ANSWERS
from tests.support.emulators.server import KEY, Respond

EFFORTS: TypeAdapter[Any] = TypeAdapter(ReasoningEffort)
THINKING: TypeAdapter[Any] = TypeAdapter(ThinkingConfigParam)
OUTPUT_CONFIG: TypeAdapter[Any] = TypeAdapter(OutputConfigParam)
HEADERS = {"content-type": "application/json"}
ROWS = [(parameter, row) for parameter, rows in TABLES.items() for row in rows]


def profile(model: str, *options: str) -> EngineProfile:
    able = EngineCapabilities(reasoning=True)
    return EngineProfile("primary", model, "any", 128_000, 4_096, frozenset(options), capabilities=able)


def encoded(
    dialect: Dialect, model: str, level: str | None, *, messages: tuple[Message, ...] = (HELLO,), **asked: Any
) -> tuple[dict[str, Any], bool]:
    """Return the body of a request for a level, and whether it is exactly that level."""
    call = {name: asked.pop(name) for name in ("shows_reasoning", "is_limited") if name in asked}
    hints = ExecutionHints.model_validate({"reasoning": level, **asked})
    sent = dialect.encode(EngineCall(messages, (), hints, **call), profile(model, *hints.options), stream=False)
    assert set(sent.withheld) <= {"hints.reasoning"}
    return sent.body, not sent.withheld


@pytest.mark.parametrize(("parameter", "row"), ROWS, ids=[f"{name}:{row.models}" for name, row in ROWS])
def test_a_row_has_a_cell_for_each_level_in_rising_order(parameter: str, row: LevelRow):
    assert len(row.cells) == len(LEVELS)
    assert row.cells[0] is not None
    words = [None, False, True, "none", "MINIMAL", "minimal", "LOW", "low", "MEDIUM", "medium", "HIGH", "high"]
    ranks = [
        cell if isinstance(cell, int) and not isinstance(cell, bool) else [*words, "xhigh", "max"].index(cell)
        for cell in row.cells
        if cell is not None
    ]
    assert ranks[1:] == sorted(ranks[1:])
    assert row.cells[0] in OFF or ranks[0] <= ranks[1]


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("gpt-5-mini", "minimal! low medium high high!"),
        ("gpt-5-pro", "high! - - high high!"),
        ("gpt-5.1-2025-11-13", "none low medium high high!"),
        ("gpt-5.1-codex", "low! low medium high high!"),
        ("gpt-5.1-codex-max", "low! low medium high xhigh"),
        ("gpt-5.2-pro", "medium! - medium high xhigh"),
        ("gpt-5.5", "none low medium high xhigh"),
        ("gpt-5.6-sol", "none low medium high max"),
        ("ft:o4-mini-2025-04-16:portico::1", "low! low medium high high!"),
        ("openai/gpt-oss-120b", "low! low medium high high!"),
        ("glm-5.3", "none low medium high high!"),
        ("mistral-small-latest", "none none! none! high high!"),
    ],
)
def test_openai_is_sent_the_effort_that_the_model_has(model: str, sent: str):
    for level, word in zip(LEVELS, sent.split(), strict=True):
        body, is_exact = encoded(ChatCompletionsDialect(), model, level)
        assert body.get("reasoning_effort", "-") == word.removesuffix("!")
        assert is_exact is (word[-1] not in "!-")
        EFFORTS.validate_python(body.get("reasoning_effort"))
        responses, _ = encoded(ResponsesDialect(), model, level)
        assert responses.get("reasoning", {}).get("effort") == body.get("reasoning_effort")


def test_every_vendor_is_sent_its_own_form():
    for name, vendor in VENDORS.items():
        for level, switch in zip(LEVELS, (False, True, True, True, True), strict=True):
            body, is_exact = encoded(ChatCompletionsDialect(vendor), "some-model", level)
            effort = "high" if level == "max" else level
            expected: dict[ReasoningForm, dict[str, Any]] = {
                ReasoningForm.EFFORT: {"reasoning_effort": effort},
                ReasoningForm.NESTED_EFFORT: {"reasoning": {"effort": effort}},
                ReasoningForm.THINKING_TYPE: {"thinking": {"type": "enabled" if switch else "disabled"}},
                ReasoningForm.ENABLE_THINKING: {"chat_template_kwargs": {"enable_thinking": switch}},
            }
            assert body.items() >= expected[vendor.reasoning].items(), name
            has_efforts = vendor.reasoning in {ReasoningForm.EFFORT, ReasoningForm.NESTED_EFFORT}
            assert is_exact is (level != "max" if has_efforts else level == "none"), name


@pytest.mark.parametrize(
    ("model", "level", "thinking", "effort", "max_tokens"),
    [
        ("claude-opus-4-7", "none", {"type": "disabled"}, None, 4_096),
        ("claude-opus-4-7", "low", {"type": "adaptive"}, "low", 4_096),
        ("claude-unheard-of", "max", {"type": "adaptive"}, "max", 4_096),
        ("claude-haiku-4-5", "none", {"type": "disabled"}, None, 4_096),
        ("claude-haiku-4-5", "low", {"type": "enabled", "budget_tokens": 2_048}, None, 6_144),
        ("claude-haiku-4-5", "max", {"type": "enabled", "budget_tokens": 49_152}, None, 53_248),
        ("claude-3-7-sonnet-latest", "high", {"type": "enabled", "budget_tokens": 24_576}, None, 28_672),
        ("claude-opus-4-1-20250805", "high", {"type": "enabled", "budget_tokens": 24_576}, None, 28_672),
    ],
)
def test_claude_is_sent_an_effort_or_a_budget_besides_the_answer(
    model: str, level: str, thinking: dict[str, Any], effort: str | None, max_tokens: int
):
    body, is_exact = encoded(AnthropicDialect(), model, level)
    sent = body["thinking"], body.get("output_config", {}).get("effort"), body["max_tokens"]
    assert sent == (thinking, effort, max_tokens)
    assert is_exact
    THINKING.validate_python(body["thinking"])
    OUTPUT_CONFIG.validate_python(body.get("output_config", {}))


def test_a_budget_that_the_model_cannot_write_besides_the_answer_is_cut_and_named():
    body, is_exact = encoded(AnthropicDialect(), "claude-opus-4-1", "max", max_tokens=8_000)
    assert (body["thinking"]["budget_tokens"], body["max_tokens"], is_exact) == (24_000, 32_000, False)
    body, is_exact = encoded(AnthropicDialect(), "claude-opus-4-1", "low", max_tokens=31_900)
    assert ("thinking" in body, body["max_tokens"], is_exact) == (False, 31_900, False)
    body, is_exact = encoded(AnthropicDialect(), "claude-haiku-4-5", "low", max_tokens=3_000, is_limited=True)
    assert (body["thinking"]["budget_tokens"], body["max_tokens"], is_exact) == (1_500, 3_000, False)


def test_claude_does_not_think_in_an_answer_that_began_without_a_thought():
    rolled = (HELLO, assistant("", ROLL_SIX), result(ROLL_SIX, "4"))
    body, is_exact = encoded(AnthropicDialect(), "claude-haiku-4-5", "low", messages=rolled)
    assert ("thinking" in body, body["max_tokens"], is_exact) == (False, 4_096, False)


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("gemini-2.5-pro", "128! 2048 8192 24576 32768"),
        ("models/gemini-2.5-flash-lite", "0 2048 8192 24576 24576!"),
        ("gemini-3-pro-preview", "LOW! LOW LOW! HIGH HIGH!"),
        ("gemini-3-flash-preview", "MINIMAL! LOW MEDIUM HIGH HIGH!"),
        ("gemini-3.5-pro", "LOW! LOW MEDIUM HIGH HIGH!"),
    ],
)
def test_gemini_is_sent_a_budget_or_a_level(model: str, sent: str):
    for level, word in zip(LEVELS, sent.split(), strict=True):
        body, is_exact = encoded(GeminiDialect(), model, level)
        (value,) = body["generationConfig"]["thinkingConfig"].values()
        assert (str(value), is_exact) == (word.removesuffix("!"), word[-1] != "!")
        gemini_types.ThinkingConfig.model_validate(body["generationConfig"]["thinkingConfig"])


def test_ollama_is_sent_a_switch_or_for_gpt_oss_a_level():
    assert [encoded(OllamaDialect(), "qwen3:8b", level)[0]["think"] for level in LEVELS] == [False, *[True] * 4]
    words = [encoded(OllamaDialect(), "gpt-oss:20b", level)[0]["think"] for level in LEVELS]
    assert words == ["low", "low", "medium", "high", "high"]


@pytest.mark.parametrize(
    ("dialect", "model", "options", "path"),
    [
        (ChatCompletionsDialect(), "gpt-5", {"reasoning_effort": "low"}, "reasoning_effort"),
        (ResponsesDialect(), "gpt-5", {"reasoning": {"effort": "low"}}, "reasoning.effort"),
        (AnthropicDialect(), "claude-opus-4-8", {"output_config": {"effort": "low"}}, "output_config.effort"),
        (AnthropicDialect(), "claude-haiku-4-5", {"thinking": {"type": "disabled"}}, "thinking.type"),
        (
            GeminiDialect(),
            "gemini-2.5-pro",
            {"thinkingConfig": {"thinkingBudget": 200}},
            "generationConfig.thinkingConfig.thinkingBudget",
        ),
        (OllamaDialect(), "gpt-oss:20b", {"think": "low"}, "think"),
    ],
)
def test_an_option_for_the_same_parameter_wins(dialect: Dialect, model: str, options: dict[str, Any], path: str):
    body, is_exact = encoded(dialect, model, "high", options=options)
    sent: Any = body
    wanted: Any = {"generationConfig": options}
    for name in path.split("."):
        sent, wanted = sent[name], wanted.get(name, options.get(name)) if wanted is not None else None
    assert sent == wanted
    assert not is_exact


@pytest.mark.parametrize("limit", [None, 64, 9_000, 40_000])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("respond", "dialect", "models"),
    [
        (
            anthropic.respond,
            AnthropicDialect(),
            "claude-3-7-sonnet-latest claude-opus-4-1-20250805 claude-sonnet-4-5 claude-opus-4-8 claude-opus-5-5",
        ),
        (
            bedrock.respond,
            BedrockDialect(),
            "us.anthropic.claude-3-7-sonnet-20250219-v1:0 anthropic.claude-opus-4-1-20250805-v1:0 "
            "eu.anthropic.claude-sonnet-4-5-20250929-v1:0 anthropic.claude-opus-4-8-v1:0 amazon.nova-pro-v1:0",
        ),
        (gemini.respond, GeminiDialect(), "gemini-2.5-pro gemini-2.5-flash gemini-2.5-flash-lite gemini-3-pro-preview"),
        (openai_chat.respond, ChatCompletionsDialect(), "o3 gpt-5 gpt-5-pro gpt-5.1 gpt-5.2 gpt-5.4-pro gpt-5.6"),
        (openai_responses.respond, ResponsesDialect(), "o3 gpt-5 gpt-5-pro gpt-5.1 gpt-5.2-codex gpt-5.6"),
        (ollama.respond, OllamaDialect(), "qwen3:8b gpt-oss:20b"),
    ],
    ids=["anthropic", "bedrock", "gemini", "openai", "responses", "ollama"],
)
def test_no_wire_refuses_a_level(respond: Respond, dialect: Dialect, models: str, level: str, limit: int | None):
    for model in models.split():
        most = 32_000 if "opus-4-1" in model else limit
        hints = ExecutionHints(reasoning=level, max_tokens=limit and most and min(limit, most), temperature=0.3)
        sent = dialect.encode(EngineCall((HELLO,), (), hints), profile(model), stream=False)
        headers = HEADERS | dialect.headers(KEY)
        response = respond(
            sent.path, {name.lower(): each for name, each in headers.items()}, orjson.dumps(sent.body), ANSWERS["text"]
        )
        assert response.status == 200, (model, level, sent.body, response)


def test_reasoning_is_asked_for_where_it_is_shown():
    shown, _ = encoded(ResponsesDialect(), "gpt-5", "low", shows_reasoning=True)
    assert shown["reasoning"] == {"summary": "auto", "effort": "low"}
    shown, _ = encoded(AnthropicDialect(), "claude-opus-5-5", "low", shows_reasoning=True)
    assert shown["thinking"] == {"type": "adaptive", "display": "summarized"}
    shown, _ = encoded(AnthropicDialect(), "claude-opus-5-5", None, shows_reasoning=True)
    assert "thinking" not in shown
    shown, _ = encoded(GeminiDialect(), "gemini-2.5-pro", None, shows_reasoning=True)
    assert shown["generationConfig"]["thinkingConfig"] == {"includeThoughts": True}
