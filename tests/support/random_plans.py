"""Random plans of random steps."""

from random import Random
from typing import Any

from portico.domain.contract.request import SystemRequest
from tests.support.chaos import TOOLS
from tests.support.plans import SCHEMA, plan_request

RANKING = {"query": "a b", "candidates": ["b", "a", "a b"]}


def random_plan_request(dice: Random) -> SystemRequest:
    """A request with a plan of up to seven steps, most of which can work on what they are given."""
    steps = [random_step(dice, number) for number in range(dice.randrange(1, 8))]
    seconds = dice.choice([None, None, 2.5])
    return plan_request(*steps, policy={"timeout_per_step": seconds}, tools=dice.choice([None, TOOLS]))


def random_step(dice: Random, number: int) -> dict[str, Any]:
    """A step without a name, which may depend on those of lower numbers."""
    step = dice.choice([_infer, _infer, _tool, _rerank, _validate, _redundant])(dice)
    if dice.random() < 0.3:
        step["timeout"] = dice.choice([0.4, 1.5, 4.0])
    if dice.random() < 0.7:
        earlier = [f"s{each}" for each in range(number)]
        step["depends_on"] = dice.sample(earlier, min(number, dice.randrange(3)))
    return step


def _infer(dice: Random) -> dict[str, Any]:
    step: dict[str, Any] = {"type": "infer", "attempts": dice.randrange(1, 3)}
    step |= dice.choice([{}, {"schema": SCHEMA}, {"rules": ["not_empty"]}, {"tools": TOOLS}])
    return step | dice.choice([{}, {"input": "a question"}])


def _tool(dice: Random) -> dict[str, Any]:
    mark = f"{dice.getrandbits(60):x}"
    return {"type": "tool", "input": {"name": dice.choice(TOOLS), "arguments": {"mark": mark}}}


def _rerank(dice: Random) -> dict[str, Any]:
    return {"type": "rerank", "input": RANKING, "top_k": dice.randrange(1, 4)}


def _validate(dice: Random) -> dict[str, Any]:
    return {"type": "validate", "schema": dice.choice([{}, SCHEMA, {"type": "string"}])}


def _redundant(dice: Random) -> dict[str, Any]:
    return {"type": "redundant", "schema": SCHEMA, "input": "a question", "n": dice.randrange(2, 4)}
