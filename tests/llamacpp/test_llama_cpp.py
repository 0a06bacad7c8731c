"""A local model's answers: its prompt, its sampling, its endings and its token counts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from portico.adapters.engines.llama_cpp.sampling import SamplingOptions
from portico.domain.contract.messages import Message, TextPart
from portico.domain.contract.request import ExecutionHints
from portico.domain.contract.response import TokenUsage
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.ports.model import EngineError
from tests.adapters.engines.cases import DICE, GRAMMAR, IMAGE
from tests.llamacpp.engine_calls import HELLO, MISSING, ask, call, local
from tests.support.engine_calls import RecordedProgress

pytest.importorskip("llama_cpp", reason=MISSING)
pytest.importorskip("gguf", reason=MISSING)
Files = Callable[..., Path]


async def test_a_stream_brings_the_text_that_the_reply_holds(model_file: Files):
    async with local(model_file()) as engine:
        heard = RecordedProgress()
        reply = await engine.attempt(call(seed=1, max_tokens=60), heard, stream=True)
    assert reply.text
    assert "".join(heard.texts) == reply.text
    assert len(heard.texts) > 10


async def test_without_a_stream_the_text_comes_with_the_reply_alone(model_file: Files):
    async with local(model_file()) as engine:
        streamed, whole = RecordedProgress(), RecordedProgress()
        first = await engine.attempt(call(seed=1, max_tokens=60), streamed, stream=True)
        second = await engine.attempt(call(seed=1, max_tokens=60), whole, stream=False)
    assert whole.texts == []
    assert second == first
    assert whole.usages == streamed.usages == [first.usage]


async def test_tokens_are_counted_exactly(model_file: Files, tiny: ModuleType):
    async with local(model_file(favour=tiny.ENDLESS)) as engine:
        reply = await ask(engine, max_tokens=17)
    said = ["<s>", "<|im_start|>", *"user\n", *"Hello", "<|im_end|>", "\n", "<|im_start|>", *"assistant\n"]
    assert reply.usage == TokenUsage(input_tokens=len(said), output_tokens=17, total_tokens=len(said) + 17)


async def test_the_token_that_ends_an_answer_is_counted_and_not_said(model_file: Files, tiny: ModuleType):
    async with local(model_file(favour={"</s>": 100})) as engine:
        reply = await ask(engine)
    assert (reply.text, reply.finish_reason, reply.usage.output_tokens) == ("", "stop", 1)


async def test_the_reply_is_of_the_model_that_was_asked(model_file: Files):
    path = model_file()
    async with local(path) as engine:
        reply = await ask(engine, max_tokens=1)
    assert (reply.model, reply.tool_calls, reply.raw_finish, reply.reasoning) == (str(path), (), "", "")


async def test_a_seed_gives_the_same_answer_after_any_other_call(model_file: Files):
    async with local(model_file()) as engine:
        first = await ask(engine, seed=7)
        await ask(engine, Message(role="user", content="Hello? " * 50), seed=8)
        again = await ask(engine, seed=7)
        other = await ask(engine, seed=9)
    async with local(model_file()) as engine:
        elsewhere = await ask(engine, seed=7)
    assert first == again == elsewhere
    assert other.text != first.text


@pytest.mark.parametrize("seed", [-(2**63), -1, 0, 2**32 - 1, 2**32, 2**63 - 1])
async def test_every_seed_there_is_can_be_used(model_file: Files, seed: int):
    async with local(model_file()) as engine:
        assert await ask(engine, seed=seed, max_tokens=20) == await ask(engine, seed=seed, max_tokens=20)


async def test_without_a_seed_answers_differ(model_file: Files):
    async with local(model_file()) as engine:
        answers = {(await ask(engine, max_tokens=30)).text for _ in range(4)}
    assert len(answers) > 1


async def test_temperature_0_takes_the_likeliest_token(model_file: Files):
    async with local(model_file(), "top_k") as engine:
        greedy = await ask(engine, temperature=0, seed=1)
        again = await ask(engine, temperature=0, seed=2)
        only_one = await ask(engine, options={"top_k": 1}, seed=3)
        narrow = await ask(engine, top_p=0.000001, seed=4)
    assert greedy == again == only_one == narrow


@pytest.mark.parametrize("temperature", [5e-324, 1e-40, 1e-9, 0.0009])
async def test_temperatures_next_to_0_are_0(model_file: Files, temperature: float):
    async with local(model_file()) as engine:
        assert await ask(engine, temperature=temperature, seed=1) == await ask(engine, temperature=0)


@pytest.mark.parametrize(
    "hints",
    [
        {"temperature": 0.001},
        {"temperature": 2},
        {"top_p": 5e-324},
        {"options": {"top_k": 0, "min_p": 1}},
        {"options": {"top_k": 2**31 - 1, "min_p": 0}},
        {"options": {"repeat_penalty": 0.1, "repeat_last_n": 4096, "frequency_penalty": -2, "presence_penalty": -2}},
        {"options": {"repeat_penalty": 10, "repeat_last_n": 0, "frequency_penalty": 2, "presence_penalty": 2}},
    ],
)
async def test_hints_at_their_bounds_still_give_an_answer(model_file: Files, tiny: ModuleType, hints: dict[str, Any]):
    async with local(model_file(favour=tiny.ENDLESS), *SamplingOptions.model_fields) as engine:
        for form in ({}, {"grammar": "root ::= [a-z]{40}"}, {"schema": {"type": "string", "pattern": "^[a-z]{40}$"}}):
            reply = await ask(engine, seed=1, max_tokens=60, **hints, **form)
            assert len(reply.text) >= 40


async def test_what_it_does_not_heed_is_named(model_file: Files):
    said = Message(role="user", content=[TextPart(type="text", text="Hello"), IMAGE], name="Ada")
    hints = ExecutionHints(seed=2**32, temperature=0.5, top_p=0.5, stop="END", max_tokens=3, tool_choice="required")
    async with local(model_file()) as engine:
        heeded = await ask(engine, seed=2**31, temperature=0.5, top_p=0.5, stop=["END"], max_tokens=3)
        reply = await engine.attempt(
            EngineCall([said], [DICE], hints, grammar=GRAMMAR), RecordedProgress(), stream=False
        )
    assert heeded.withheld == ()
    assert reply.withheld == ("hints.seed", "hints.tool_choice", "messages.images", "messages.name", "tools")


async def test_only_listed_options_pass(model_file: Files):
    async with local(model_file(), "min_p") as engine:
        plain = await ask(engine, seed=1)
        with_unlisted = await ask(engine, seed=1, options={"top_k": 1, "nonsense": {}})
        with_listed = await ask(engine, seed=1, options={"min_p": 1})
    assert with_unlisted == replace(plain, withheld=("hints.options.top_k", "hints.options.nonsense"))
    assert with_listed.withheld == ()
    assert with_listed.text == (await _greedy(model_file())).text


async def _greedy(path: Path):
    async with local(path) as engine:
        return await ask(engine, temperature=0)


@pytest.mark.parametrize("name", ["repeat_penalty", "frequency_penalty", "presence_penalty"])
async def test_penalties_change_what_is_repeated(model_file: Files, tiny: ModuleType, name: str):
    async with local(model_file(favour=tiny.ENDLESS), name) as engine:
        plain = await ask(engine, temperature=0, max_tokens=60)
        penalised = await ask(engine, temperature=0, max_tokens=60, options={name: 2})
    assert len(set(penalised.text)) > len(set(plain.text))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", "many"),
        ("top_k", -1),
        ("top_k", 2**31),
        ("top_k", None),
        ("top_k", True),
        ("min_p", 1.5),
        ("min_p", [0.1]),
        ("repeat_penalty", 0),
        ("repeat_last_n", 10**9),
        ("presence_penalty", 10**400),
    ],
)
async def test_an_option_that_means_nothing_is_refused_by_name(model_file: Files, name: str, value: object):
    async with local(model_file(), name) as engine:
        with pytest.raises(EngineError, match=rf"hints\.options\.{name}") as caught:
            await ask(engine, options={name: value})
        assert caught.value.reason is AttemptFailureReason.REFUSED
        assert (await ask(engine, max_tokens=3)).text


async def test_max_tokens_cuts_an_answer_and_says_so(model_file: Files, tiny: ModuleType):
    async with local(model_file(favour=tiny.ENDLESS), reserve=50) as engine:
        short = await ask(engine, max_tokens=5)
        reserved = await ask(engine)
    assert (short.finish_reason, short.usage.output_tokens) == ("length", 5)
    assert (reserved.finish_reason, reserved.usage.output_tokens) == ("length", 50)


@pytest.mark.parametrize("reserve", [0, 5000])
async def test_an_answer_ends_where_the_context_does(model_file: Files, tiny: ModuleType, reserve: int):
    async with local(model_file(favour=tiny.ENDLESS), window=300, reserve=reserve) as engine:
        reply = await ask(engine)
    assert (reply.finish_reason, reply.usage.total_tokens) == ("length", 300)


async def test_the_context_is_no_larger_than_the_models_own(model_file: Files, tiny: ModuleType):
    async with local(model_file(favour=tiny.ENDLESS, context=256), window=128_000) as engine:
        assert await engine.ping() == "loaded, with a context of 256 tokens"
        assert (await ask(engine, max_tokens=1000)).usage.total_tokens == 256


@pytest.mark.parametrize("characters", [300, 3_000, 300_000, 4_000_000])
async def test_a_conversation_that_does_not_fit_exceeds_the_context(model_file: Files, characters: int):
    async with local(model_file(), window=300) as engine:
        with pytest.raises(EngineError) as caught:
            await ask(engine, Message(role="user", content="q" * characters))
        assert caught.value.reason is AttemptFailureReason.CONTEXT_EXCEEDED
        assert (await ask(engine, max_tokens=3)).text


async def test_a_prompt_that_leaves_room_for_one_token_fits(model_file: Files, tiny: ModuleType):
    async with local(model_file(favour=tiny.ENDLESS), window=300) as engine:
        frame = (await ask(engine, max_tokens=1)).usage.input_tokens - len(HELLO.text)
        fits = await ask(engine, Message(role="user", content="q" * (299 - frame)))
        assert fits.usage == TokenUsage(input_tokens=299, output_tokens=1, total_tokens=300)
        with pytest.raises(EngineError):
            await ask(engine, Message(role="user", content="q" * (300 - frame)))


async def test_a_stop_text_ends_the_answer_before_it(model_file: Files, tiny: ModuleType):
    async with local(model_file(favour=tiny.ENDLESS)) as engine:
        free = (await ask(engine, seed=5, max_tokens=80)).text
        for start, size in ((0, 3), (11, 1), (20, 7), (40, 12)):
            stop = free[start : start + size]
            heard = RecordedProgress()
            reply = await engine.attempt(call(seed=5, max_tokens=80, stop=stop), heard, stream=True)
            assert (reply.text, reply.finish_reason) == (free[: free.index(stop)], "stop")
            assert "".join(heard.texts) == reply.text


async def test_the_first_of_several_stop_texts_counts(model_file: Files, tiny: ModuleType):
    async with local(model_file(favour=tiny.ENDLESS)) as engine:
        free = (await ask(engine, seed=5, max_tokens=80)).text
        reply = await ask(engine, seed=5, max_tokens=80, stop=["not to be found", free[30:34], free[20:24]])
    assert reply.text == free[: min(free.index(free[30:34]), free.index(free[20:24]))]


async def test_what_only_looked_like_a_stop_text_is_said(model_file: Files, tiny: ModuleType):
    async with local(model_file(favour=tiny.ENDLESS)) as engine:
        free = await ask(engine, seed=5, max_tokens=80)
        held = await ask(engine, seed=5, max_tokens=80, stop=[free.text[20:40] + "\0", free.text[-3:] + "\0"])
    assert held == free


async def test_characters_of_several_tokens_arrive_whole(model_file: Files, tiny: ModuleType):
    likely = {f"<0x{byte:02X}>": 6 for byte in "日本語é😀".encode()}
    async with local(model_file(favour=tiny.ENDLESS | likely)) as engine:
        heard = RecordedProgress()
        reply = await engine.attempt(call(seed=1, max_tokens=500), heard, stream=True)
    assert any(len(character.encode()) > 1 and character != "\ufffd" for character in reply.text)
    assert "".join(heard.texts) == reply.text


async def test_weights_that_are_no_numbers_give_a_malformed_answer(model_file: Files):
    async with local(model_file(favour={"a": float("nan")})) as engine:
        with pytest.raises(EngineError) as caught:
            await ask(engine)
    assert caught.value.reason is AttemptFailureReason.MALFORMED


async def test_an_option_no_local_model_knows_is_a_configuration_error(model_file: Files):
    with pytest.raises(ConfigurationFailure, match=r"engines\.local\.options: mirostat, topk") as caught:
        local(model_file(), "topk", "top_k", "mirostat")
    assert caught.value.code is Code.CONFIG_INVALID
