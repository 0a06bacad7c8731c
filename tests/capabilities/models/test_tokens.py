"""The estimate of tokens: factors by script, and the ratio that replies teach."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.models.tokens import (
    LEAST_TAUGHT_TOKENS,
    MAX_RATIO,
    MAX_RATIOS,
    MIN_RATIO,
    UNCORRECTED,
    LearningTokenEstimator,
    estimate_exchange,
)
from portico.domain.contract.messages import ImagePart, Message, TextPart
from portico.domain.contract.request import ExecutionHints
from portico.domain.contract.response import TokenUsage
from portico.domain.ids import TenantId
from portico.domain.model_call import EngineCall, Reply
from portico.domain.tools import ToolDefinition
from portico.ports.model import TokenRatio

OURS, THEIRS = TenantId("ours"), TenantId("theirs")
TOOL = ToolDefinition("weather", "Return the weather of a city", {"type": "object"})


def reply(text: str = "", *, reasoning: str = "", reasoning_tokens: int = 0) -> Reply:
    usage = TokenUsage(input_tokens=10, output_tokens=5, reasoning_tokens=reasoning_tokens, total_tokens=15)
    return Reply(text, (), "stop", "", usage, "m", reasoning=reasoning)


def call(*messages: Message) -> EngineCall:
    return EngineCall(messages, [TOOL], ExecutionHints())


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("four four", 3),
        ("12345", 3),
        ("{}[]", 2),
        ("中" * 100, 68),
        ("か" * 100, 68),
        ("각" * 100, 60),
        ("ж" * 100, 30),
        ("ש" * 100, 50),
        ("é" * 100, 100),
        ("🙂" * 100, 100),
        ("\ud800" * 3, 3),
        (" " * 3200, 100),
        ("if x:\n" + " " * 8 + "y", 3),
    ],
)
def test_characters_count_by_their_script(text: str, tokens: int) -> None:
    assert UNCORRECTED.text(text) == tokens


@given(st.text(), st.text())
def test_a_text_counts_no_more_than_its_characters_and_no_less_than_its_beginning(text: str, more: str) -> None:
    assert bool(text) <= UNCORRECTED.text(text) <= len(text)
    assert UNCORRECTED.text(text + more) >= UNCORRECTED.text(text) - 1


def test_a_reply_moves_the_ratio_a_fifth_of_the_way_for_its_tenant_and_model_only() -> None:
    estimator = LearningTokenEstimator()
    estimator.learn(OURS, "m", estimated=1000, reported=1500)
    counter = estimator.counter(OURS, "m")
    text, message = "word " * 401, Message(role="user", content="word " * 401)
    assert (counter.text(text), counter.message(message), counter.tools([TOOL])) == (553, 557, 27)
    estimator.learn(OURS, "m", estimated=1000, reported=1500)
    counter = estimator.counter(OURS, "m")
    assert counter.ratio == pytest.approx(1 + 0.1 + 0.08)
    assert estimator.counter(THEIRS, "m") is estimator.counter(OURS, "other") is UNCORRECTED


@pytest.mark.parametrize(("reported", "ratio"), [(10**9, MAX_RATIO), (1, MIN_RATIO)])
def test_the_ratio_stays_within_its_bounds_for_every_report(reported: int, ratio: float) -> None:
    estimator = LearningTokenEstimator()
    for _ in range(100):
        estimator.learn(OURS, "m", estimated=1000, reported=reported)
        assert MIN_RATIO <= estimator.counter(OURS, "m").ratio <= MAX_RATIO
    assert estimator.counter(OURS, "m").ratio == pytest.approx(ratio)


@pytest.mark.parametrize(("estimated", "reported"), [(LEAST_TAUGHT_TOKENS - 1, 500), (1000, 0)])
def test_a_short_exchange_and_a_missing_count_teach_nothing(estimated: int, reported: int) -> None:
    estimator = LearningTokenEstimator()
    estimator.learn(OURS, "m", estimated=estimated, reported=reported)
    assert estimator.counter(OURS, "m") is UNCORRECTED
    assert estimator.take_changed() == []


def test_ratios_are_taken_once_and_given_back_at_a_start() -> None:
    estimator = LearningTokenEstimator()
    estimator.learn(OURS, "m", estimated=1000, reported=2000)
    changed = estimator.take_changed()
    assert changed == [TokenRatio(OURS, "m", pytest.approx(1.2))]
    assert estimator.take_changed() == []
    again = LearningTokenEstimator([*changed, TokenRatio(THEIRS, "m", 99.0)])
    assert again.counter(OURS, "m").ratio == pytest.approx(1.2)
    assert again.counter(THEIRS, "m").ratio == MAX_RATIO
    assert again.take_changed() == []
    again.give_back_changed(changed)
    assert [each.model for each in again.take_changed()] == ["m"]


def test_the_ratios_in_memory_are_bounded() -> None:
    estimator = LearningTokenEstimator()
    for number in range(MAX_RATIOS + 1):
        estimator.learn(TenantId(str(number)), "m", estimated=1000, reported=2000)
    assert estimator.counter(TenantId("0"), "m") is UNCORRECTED
    assert estimator.counter(TenantId(str(MAX_RATIOS)), "m") is not UNCORRECTED
    assert len(estimator.take_changed()) == MAX_RATIOS


def test_an_exchange_is_estimated_by_what_was_read_and_written() -> None:
    asked = Message(role="user", content="word " * 400)
    assert estimate_exchange(call(asked), reply("abcd" * 10)) == 504 + UNCORRECTED.tools([TOOL]) + 10
    assert estimate_exchange(call(asked), reply("abcd" * 10), read=1) == 11


def test_images_and_thoughts_cannot_be_estimated() -> None:
    image = Message(role="user", content=[ImagePart(type="image", media_type="image/png", data="iVBORw==")])
    text = Message(role="user", content=[TextPart(type="text", text="word")])
    assert estimate_exchange(call(image), reply("ok")) is None
    assert estimate_exchange(call(text), reply("ok", reasoning="hm")) is None
    assert estimate_exchange(call(text), reply("ok", reasoning_tokens=3)) is None
