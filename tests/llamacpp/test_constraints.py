"""A model of random weights keeps every schema and every grammar, and refuses those that cannot be kept."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import jsonschema_rs
import orjson
import pytest
import pytest_asyncio

from portico.adapters.engines.llama_cpp.engine import LlamaCppEngine
from portico.adapters.engines.timeouts import Timeouts
from portico.capabilities.output.grammar import Grammar
from portico.domain.model_call import AttemptFailureReason
from portico.domain.strict_json import MAX_WRITABLE_DEPTH, loads
from portico.ports.model import EngineError
from tests.llamacpp.engine_calls import MISSING, ask, call, loaded, local
from tests.llamacpp.grammars import GRAMMARS
from tests.llamacpp.schemas import SCHEMAS, Schema
from tests.support.engine_calls import RecordedProgress

pytest.importorskip("llama_cpp", reason=MISSING)
pytest.importorskip("gguf", reason=MISSING)
Files = Callable[..., Path]
MOST = 8_000


@pytest_asyncio.fixture(params=["pieces", "bytes"])
async def engine(request: pytest.FixtureRequest, model_file: Files, tiny: ModuleType) -> AsyncIterator[LlamaCppEngine]:
    expression = "tekken" if request.param == "bytes" else None
    path = model_file(favour=tiny.TERSE, context=MOST, expression=expression)
    async with local(path, window=MOST, reserve=MOST) as made:
        yield made


def answer_to(schema: Schema) -> str:
    return json.dumps(schema)[:70]


def test_there_are_a_hundred_schemas_and_thirty_grammars():
    assert len({orjson.dumps(schema, option=orjson.OPT_SORT_KEYS) for schema in SCHEMAS}) == len(SCHEMAS) >= 100
    assert len(set(GRAMMARS.values())) == len(GRAMMARS) >= 30


async def test_every_answer_keeps_its_schema(engine: LlamaCppEngine):
    for schema in SCHEMAS:
        validator = jsonschema_rs.validator_for(schema, validate_formats=True)
        for seed in range(3):
            reply = await ask(engine, schema=schema, seed=seed)
            assert reply.finish_reason == "stop", (schema, reply.text[:500])
            validator.validate(json.loads(reply.text))


async def test_every_answer_keeps_its_grammar(engine: LlamaCppEngine):
    for name, text in GRAMMARS.items():
        grammar = Grammar(text)
        for seed in range(4):
            reply = await ask(engine, grammar=text, seed=seed)
            assert reply.finish_reason == "stop", (name, reply.text[:500])
            assert grammar.check(reply.text).accepted, (name, reply.text)


@pytest.mark.parametrize("temperature", [0, 1, 2])
async def test_a_format_is_kept_at_every_temperature_and_published_as_it_is_written(
    engine: LlamaCppEngine, temperature: float
):
    heard = RecordedProgress()
    what = call(temperature=temperature, schema=SCHEMAS[-1], max_tokens=400)
    reply = await engine.attempt(what, heard, stream=True)
    assert "".join(heard.texts) == reply.text
    assert jsonschema_rs.is_valid(SCHEMAS[-1], loads(reply.text.encode(), max_depth=MAX_WRITABLE_DEPTH))


async def test_answers_that_were_cut_are_the_beginning_of_what_is_allowed(engine: LlamaCppEngine):
    text = GRAMMARS["JSON"]
    for most in range(1, 30):
        reply = await ask(engine, grammar=text, seed=3, max_tokens=most)
        verdict = Grammar(text).check(reply.text)
        assert verdict.position == len(reply.text)
        assert reply.finish_reason == "length" or verdict.accepted


async def test_different_seeds_give_different_answers_of_one_form(engine: LlamaCppEngine):
    answers = {(await ask(engine, grammar="root ::= [a-z]{12}", seed=seed)).text for seed in range(10)}
    assert len(answers) == 10


async def test_a_stop_text_ends_an_answer_that_has_a_form(engine: LlamaCppEngine):
    reply = await ask(engine, grammar='root ::= "abc" "def"', stop="d")
    assert (reply.text, reply.finish_reason) == ("abc", "stop")


async def test_many_readings_do_not_hold_up_an_answer(model_file: Files, tiny: ModuleType):
    """Of sixty brackets llama.cpp's own sampler would keep 2 ** 60 stacks."""
    path = model_file(favour={**tiny.ENDLESS, "(": 50, "((((": 50, "x": -50})
    async with local(path, reserve=60) as engine:
        await engine.ping()
        with anyio.fail_after(10):
            reply = await ask(engine, grammar=GRAMMARS["brackets with many readings"])
    assert set(reply.text) == {"("}
    assert len(reply.text) >= 60


async def test_a_grammar_that_takes_long_does_not_hold_up_the_next(model_file: Files, tiny: ModuleType):
    """No token that the model prefers is allowed, so that its whole vocabulary is searched, at great length."""
    rules = "".join(f"r{number} ::= [a-y] r{number + 1} | r{number + 1} | [b-y]\n" for number in range(900))
    grammar = f'root ::= (r0 | r1 | r2){{500}}\n{rules}r900 ::= "a"'
    words = tuple("".join(letters) for letters in product("abcdefghijklmnopqrst", repeat=3))
    path = model_file(favour={**tiny.ENDLESS, **{chr(code): 20 for code in range(65, 91)}}, words=words)
    async with local(path, timeouts=Timeouts(attempt_seconds=2)) as engine:
        await loaded(engine)
        with pytest.raises(EngineError) as caught:
            await ask(engine, grammar=grammar)
        assert caught.value.reason in {AttemptFailureReason.TIMED_OUT, AttemptFailureReason.REFUSED}
        with anyio.fail_after(5):
            await ask(engine, max_tokens=3)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


HOSTILE_SCHEMAS: Mapping[str, Schema] = {
    "a remote reference": {"$ref": "http://169.254.169.254/latest"},
    "a reference to a file": {"$ref": "file:///etc/passwd"},
    "a reference to nothing": {"$ref": "#/$defs/none"},
    "a reference to itself": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "no such type": {"type": "strang"},
    "a pattern that is none": {"type": "string", "pattern": "(a"},
    "a pattern that looks around": {"type": "string", "pattern": "^(?=a)b$"},
    "no value": {"type": "integer", "minimum": 5, "maximum": 3},
    "no choice": {"enum": []},
    "nested too deeply": nested(200),
    "nested bottomlessly": nested(5_000),
    "numbers beyond 64 bits": {"const": 10**30},
    "combinations beyond number": {
        "allOf": [
            {"anyOf": [{"properties": {f"p{row}_{column}": {"type": "integer"}}} for column in range(4)]}
            for row in range(12)
        ]
    },
    "halves of characters": {"const": "\ud800"},
}


@pytest.mark.parametrize("name", HOSTILE_SCHEMAS)
async def test_a_schema_that_cannot_be_kept_is_refused(engine: LlamaCppEngine, name: str):
    with anyio.fail_after(30), pytest.raises(EngineError) as caught:
        await ask(engine, schema=HOSTILE_SCHEMAS[name])
    assert (caught.value.reason, caught.value.message) == (
        AttemptFailureReason.REFUSED,
        "the schema cannot be kept while the answer is written",
    )
    assert (await ask(engine, max_tokens=3)).usage.output_tokens > 0


HOSTILE_GRAMMARS: Mapping[str, str] = {
    "nothing": "",
    "prose": "Please answer in JSON.",
    "no root": 'answer ::= "yes"',
    "a rule that is missing": "root ::= answer",
    "left recursion": 'root ::= root "a" | "b"',
    "left recursion behind nothing": 'root ::= nothing root "a" | "b"\nnothing ::= ""',
    "empty for ever": 'root ::= ("a"*)*',
    "no end": 'root ::= "a" root',
    "brackets left open": 'root ::= ("a"',
    "sixty thousand brackets": "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000,
    "too many repetitions": 'root ::= "a"{1,1000000}',
    "repetitions of repetitions": 'root ::= ((("a"{1,1000}){1,1000}){1,1000}){1,1000}',
    "the most before the least": 'root ::= "a"{5,0}',
    "a class left open": "root ::= [a-z",
    "a literal left open": 'root ::= "a',
    "a token": "root ::= <think>",
    "a zero": 'root ::= "a\0"',
    "a million rules": "\n".join(f'r{number} ::= "a"' for number in range(1_000_000)),
    "half of a character": 'root ::= "\ud800"',
}


@pytest.mark.parametrize("name", HOSTILE_GRAMMARS)
async def test_a_grammar_that_cannot_be_kept_is_refused(engine: LlamaCppEngine, name: str):
    with anyio.fail_after(30), pytest.raises(EngineError) as caught:
        await ask(engine, grammar=HOSTILE_GRAMMARS[name])
    assert (caught.value.reason, caught.value.message) == (
        AttemptFailureReason.REFUSED,
        "the grammar cannot be kept while the answer is written",
    )
    assert (await ask(engine, max_tokens=3)).usage.output_tokens > 0


async def test_keywords_without_a_mask_are_left_to_validation(engine: LlamaCppEngine):
    schema = {"type": "array", "items": {"type": "boolean"}, "maxItems": 3, "uniqueItems": True, "not": {"const": []}}
    value = loads((await ask(engine, schema=schema, seed=1)).text.encode())
    assert isinstance(value, list)
    assert all(isinstance(item, bool) for item in value)


async def test_a_schema_says_nothing_about_how_it_is_kept(engine: LlamaCppEngine):
    how = {"whitespace_pattern": "JUNK", "item_separator": ";", "key_separator": "=", "lenient": False}
    schema = {**SCHEMAS[-1], "x-guidance": how}
    assert jsonschema_rs.is_valid(SCHEMAS[-1], loads((await ask(engine, schema=schema, seed=1)).text.encode()))
