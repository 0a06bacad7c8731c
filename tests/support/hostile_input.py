"""Hostile requests, each with the most harmful answer of a model."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tests.support.hostile_grammars import HOSTILE as GRAMMARS
from tests.support.hostile_schemas import HOSTILE as SCHEMAS
from tests.support.portico import chat

MODEL = "$model"
_MIB = 1024 * 1024
_OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@dataclass(frozen=True, slots=True)
class Hostile:
    """A request and the answers of the model. `spelled` makes every copy different, so that no cache helps."""

    body: bytes
    answers: Sequence[str] = ()
    path: str = "/v1/execute"
    live: bool = False

    def spelled(self, number: int, model: str) -> bytes:
        """Return a copy of the body for this model."""
        return self.body.replace(b"$number", str(number).encode()).replace(MODEL.encode(), model.encode())


def _structured(output: Mapping[str, Any], **fields: Any) -> bytes:
    return chat("Go on", mode="structured", output=output, limits={"attempts": 1}, model=MODEL, **fields)


def _of_schemas() -> Iterator[tuple[str, Hostile]]:
    for name, (schema, value) in SCHEMAS.items():
        if name == "bottomless allOf":
            depth = 10_000
            text = _structured({"schema": "$schema"}).replace(
                b'"$schema"', b'{"allOf":[' * depth + b"{}" + b"]}" * depth
            )
            yield name, Hostile(text)
        else:
            yield name, Hostile(_structured({"schema": {**schema, "$comment": "$number"}}), [json.dumps(value)])


def _of_grammars() -> Iterator[tuple[str, Hostile]]:
    for name, (grammar, text) in GRAMMARS.items():
        yield name, Hostile(_structured({"grammar": f"{grammar}\n# $number"}), [text])


_ANSWERS = {
    "prose": "word " * 50_000,
    "two values, again and again": '{"a": 1} {"a": 2}' * 10_000,
    "20,000 brackets": "[" * 20_000,
    "20,000 pairs of brackets": "[" * 20_000 + "]" * 20_000,
    "200,000 brackets": "[" * 200_000,
    "40,000 objects in each other": '{"a":' * 40_000,
    "NaN in lists": "[NaN," * 20_000,
    "commas": "[" + "," * 200_000,
    "60,000 nulls": "[" + "null," * 60_000 + "null]",
    "numbers that are no floats": "[" + "1e999," * 30_000 + "1]",
    "expensive numbers": "[" + "1e308," * 30_000 + "1]",
    "20,000 keys": "{" + ",".join(f'"k{number}":{number}' for number in range(20_000)) + "}",
    "20,000 times the same key": "{" + ",".join(['"k":1'] * 20_000) + "}",
    "quotes": '"' * 250_000,
    "backslashes": '["' + "\\" * 250_000,
    "adjacent regions": "[1, " + "] [2," * 40_000,
    "fences": "```\n" * 60_000,
    "fences before objects": "~~~{" * 60_000,
    "fenced objects to repair": "```json\n{'a': 1,}\n```\n" * 10_000,
    "a million characters": "x" * 1_000_000,
    "single quotes": "{'a': '" + "x'" * 100_000,
    "comments": "{//\n" * 60_000,
    "comments that do not end": "{/*" * 60_000,
    "names without quotes": "{a:" * 60_000,
    "escapes": '["' + "\\u0041" * 40_000 + '"]',
    "lone surrogates": '["' + "\\ud800" * 40_000 + '"]',
    "a long integer": "[" + "9" * 250_000 + "]",
    "minus signs": "[" + "-" * 250_000,
    "blanks": " " * 250_000,
    "blanks in an object": "{" + " " * 250_000,
    "blanks between braces": "{ " * 120_000,
    "a long text": '{"a": "' + "é" * 100_000 + '"}',
    "all kinds of brackets": "{[(\"'" * 50_000,
}


def _of_answers() -> Iterator[tuple[str, Hostile]]:
    for name, answer in _ANSWERS.items():
        for asked, schema, live in (("a value", {}, False), ("an object", _OBJECT, False), ("any, live", {}, True)):
            yield f"{name} for {asked}", Hostile(_structured({"schema": schema}), [answer], live=live)


_MANY = 49_000
_WRONG: tuple[Any, ...] = (1, "x x", None, [], {}, {"type": "zork"})


def _of_faults() -> Iterator[tuple[str, Hostile]]:
    """Yield bodies in which every value is wrong."""
    for wrong in _WRONG:
        many = [wrong] * (_MANY // (2 if wrong == _WRONG[-1] else 1))
        all_fields: dict[str, dict[str, Any]] = {
            "messages": {"messages": many},
            "parts": {"messages": [{"role": "user", "content": many}]},
            "calls": {"messages": [{"role": "assistant", "content": "", "tool_calls": many}]},
            "tools": {"tools": many},
            "skills": {"context": {"skills": many}},
            "rules": {"output": {"rules": many}},
            "steps": {"mode": "plan", "plan": {"steps": many}},
            "steps before": {"mode": "plan", "plan": {"steps": [{"name": "a", "type": "infer", "depends_on": many}]}},
            "rules of a step": {"mode": "plan", "plan": {"steps": [{"name": "a", "type": "validate", "rules": many}]}},
            "step types": {"mode": "plan", "plan": {"policy": {"allowed_step_types": many}}},
            "models": {"mode": "redundant", "redundancy": {"models": many}},
            "stops": {"hints": {"stop": many}},
        }
        for place, fields in all_fields.items():
            yield f"{wrong!r} for all {place}", Hostile(chat("Go on", **fields))


def _of_bodies() -> Iterator[tuple[str, Hostile]]:
    whole, size = b'{"messages":[{"role":"user","content":"', 4 * _MIB - 100
    for name, text in {
        "letters": b"x" * size,
        "commas in a text": b"," * size,
        "escapes": b"\\n" * (size // 2),
        "letters of two bytes": "é".encode() * (size // 2),
    }.items():
        for path in ("/v1/execute", "/v1/quote"):
            yield f"4 MB of {name} to {path}", Hostile(whole + text + b'"}]}', path=path)
    yield "4 MB of brackets", Hostile(b"[" * size)
    yield "4 MB of commas", Hostile(b"[" + b"1," * (size // 2) + b"1]")
    yield "4 MB of keys", Hostile(b"{" + b",".join(b'"%d":0' % number for number in range(300_000)) + b"}")
    yield "49,000 entries of metadata", Hostile(chat("Go on", metadata={f"k{n}": "v" for n in range(_MANY)}))
    yield "49,000 unknown fields", Hostile(chat("Go on", **{f"k{number}": 1 for number in range(_MANY)}))
    yield (
        "1,000 messages of 4,000 characters",
        Hostile(orjson.dumps({"messages": [{"role": "user", "content": "x," * 2_000}] * 1_000})),
    )


def _of_rules() -> Iterator[tuple[str, Hostile]]:
    def ruled(rules: Sequence[Any], answer: str = "[1]") -> Hostile:
        return Hostile(_structured({"schema": {}, "rules": rules}), [answer])

    large = json.dumps([["x" * 10]] * 5_000)
    for name, pattern in {
        "expensive patterns": r"a.{60}",
        "patterns that are too large": r"\p{L}{60}",
        "patterns that explode": "(?:a{1000}){1000}",
        "ambiguous patterns": "(?:a?){100}a{100}$",
    }.items():
        rules = [{"type": "regex", "path": "$[*]", "pattern": f"{pattern}{number}$number"} for number in range(64)]
        yield f"64 {name}", ruled(rules, json.dumps(["a" * 2_000] * 100))
    one_of = {"type": "one_of", "path": "$[*]", "values": [[number + 0.5] for number in range(700)]}
    yield "many values to choose from", ruled([one_of] * 32, large)
    yield (
        "all compared with all",
        ruled([{"type": "compare", "path": "$[*]", "operator": "eq", "other": "$[*]"}] * 64, large),
    )
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    yield "long paths", ruled([{"type": "not_empty", "path": "$" + "[*]" * 60}] * 64, json.dumps([deep] * 1_000))


def _of_plans() -> Iterator[tuple[str, Hostile]]:
    def planned(*steps: Mapping[str, Any]) -> Hostile:
        return Hostile(chat("Go on", mode="plan", plan={"steps": steps}))

    names = [f"s{number}" for number in range(50)]
    yield "12,000 steps", planned(*[{"name": f"s{number}", "type": "infer"} for number in range(12_000)])
    yield (
        "every step after every other",
        planned(*[{"name": name, "type": "infer", "depends_on": names[:number]} for number, name in enumerate(names)]),
    )
    yield (
        "every step in a circle",
        planned(
            *[
                {"name": name, "type": "infer", "depends_on": [n for n in names if n != name]}
                for number, name in enumerate(names)
            ]
        ),
    )
    schema, value = SCHEMAS["everything refers to everything"]
    yield (
        "an expensive schema in each step",
        planned(
            *[
                {"name": name, "type": "validate", "input": value, "schema": {**schema, "$comment": f"{name} $number"}}
                for name in names[:20]
            ]
        ),
    )
    compare = {"type": "compare", "path": "$[*]", "operator": "ge", "value": 5}
    yield (
        "a large value to validate",
        planned({"name": "check", "type": "validate", "input": [1] * 40_000, "rules": [compare] * 64}),
    )
    ranking = {"query": "a b c d " * 2_000, "candidates": ["a b c d e f " * 300] * 1_000}
    yield "much to put in order", planned({"name": "rank", "type": "rerank", "input": ranking})
    power = {"name": "calculate", "arguments": {"expression": "9" + "**9" * 1_000}}
    yield "a large number to calculate", planned({"name": "sum", "type": "tool", "input": power})
    wrong: dict[str, Any] = {"messages": [{}] * 16_000}
    yield "a conversation of wrong messages", planned({"name": "ask", "type": "infer", "input": wrong})


def _of_votes() -> Iterator[tuple[str, Hostile]]:
    small = [json.dumps({f"k{key}": (key * 7 + number) % 5 for key in range(700)}) for number in range(16)]
    large = [json.dumps({f"k{key}": [(key * 7 + number) % 5] for key in range(3_500)}) for number in range(3)]
    for voting in ("majority", "unanimity", "field_majority"):
        for answers in (small, large):
            redundancy = {"n": len(answers), "voting": voting}
            body = chat("Go on", mode="redundant", output={"schema": {}}, redundancy=redundancy, model=MODEL)
            yield f"{voting} of {len(answers)} ballots", Hostile(body, answers)


GROUPS: Mapping[str, Mapping[str, Hostile]] = {
    "schemas": dict(_of_schemas()),
    "grammars": dict(_of_grammars()),
    "answers": dict(_of_answers()),
    "bodies": {**dict(_of_faults()), **dict(_of_bodies())},
    "rules, plans and votes": {**dict(_of_rules()), **dict(_of_plans()), **dict(_of_votes())},
}
