"""Code that calls tools, in tests: the interpreter, executions with the tool `run_code`, and random programs."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.adapters.tools.code.interpreter import MontyInterpreter
from portico.adapters.tools.sandbox.box import Box
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.capabilities.tools.code_tool import CodeTool
from portico.capabilities.tools.registry import ToolList
from portico.domain.journal.outcomes import CodeRound
from portico.domain.tools import IsolationLevel, SideEffects
from portico.ports.journal import ExecutionHistory
from portico.ports.runtime import Clock
from portico.ports.tool import Tool, ToolContext, ToolError
from tests.support.harness import Harness, make_harness, scripted_engine
from tests.support.sandbox import opened_sandbox
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualTimeLoop

DONE = {"text": "done"}


@cache
def interpreter(level: IsolationLevel | None = IsolationLevel.LIMITS, workers: int = 4) -> MontyInterpreter:
    """Return the interpreter at that level; at the strongest one if it is None."""
    return MontyInterpreter(IsolatedProgram(opened_sandbox(), Box(), 0, level), workers)


def runs(*codes: str) -> Mapping[str, Any]:
    """Return a reply that asks for a call of `run_code` with each of these codes."""
    calls = [{"id": f"c{index}", "name": "run_code", "arguments": {"code": code}} for index, code in enumerate(codes)]
    return {"tool_calls": calls}


def code_harness(
    clock: Clock,
    *replies: Mapping[str, Any],
    tools: Sequence[Tool] = (),
    replaces_tools: bool = False,
    **options: Any,
) -> Harness:
    """Return a harness with `run_code`, the built-in tools and these, and a model that replies so."""
    source = ToolList("sandbox", [CodeTool(replaces_tools=replaces_tools)])
    engine = scripted_engine(clock, "model", *(replies or (DONE,)))
    here = make_harness(clock, engine, tools=(*BUILTIN_TOOLS, *tools), sources=[source], **options)
    here.environment = replace(here.environment, code=interpreter())
    return here


def rounds_of(record: ExecutionHistory) -> list[list[tuple[str, Mapping[str, Any]]]]:
    """Return the calls of each round of code, in order."""
    rounds = [(key.numbers, step.outcome) for key, step in record.steps.items() if isinstance(step.outcome, CodeRound)]
    return [
        [(call.name, call.arguments) for call in each.calls] for _, each in sorted(rounds, key=lambda pair: pair[0])
    ]


def in_real_time() -> AbstractContextManager[None]:
    """Let the time of the test's loop run at its real speed, since interpreters are processes of their own."""
    loop = asyncio.get_running_loop()
    return loop.in_real_time() if isinstance(loop, VirtualTimeLoop) else nullcontext()


class Ledger:
    """Tools of random programs, with the unsafe calls that they have run."""

    def __init__(self, sent: Sequence[int] = ()) -> None:
        self.sent = list(sent)

    def tools(self) -> list[FakeTool]:
        return [
            FakeTool("read", self._read),
            FakeTool("send", self._send, idempotent=False, side_effects=SideEffects.WRITE),
            FakeTool("fail", self._fail),
        ]

    async def _read(self, arguments: Mapping[str, Any], _context: ToolContext) -> str:
        number = arguments["n"]
        return f'{{"n": {number * 3 % 17}}}'

    async def _send(self, arguments: Mapping[str, Any], _context: ToolContext) -> str:
        self.sent.append(arguments["n"])
        return sent_text(arguments["n"])

    async def _fail(self, arguments: Mapping[str, Any], _context: ToolContext) -> str:
        raise ToolError(f"no {arguments['n']}")


def sent_text(number: int) -> str:
    """Return what the tool `send` returns."""
    return f"sent {number}"


_HEAD = """import asyncio, random, time, datetime
seen = []
"""
_BLOCKS = (
    "for i in range({a}):\n    r = await read(n=i + {b})\n    seen.append(r['n'])",
    "rs = await asyncio.gather(*[read(n=i * {b}) for i in range({a} + 1)])\nseen.extend([r['n'] for r in rs])",
    "try:\n    await fail(n={b})\nexcept RuntimeError as error:\n    seen.append(str(error))",
    "pick = random.randint(0, 100)\nr = await read(n=pick)\nseen.append([pick, r['n'], random.random()])",
    "seen.append(await send(n={unique}))",
    "rs = await asyncio.gather(read(n={a}), send(n={unique}), read(n={b}))\nseen.append([str(r) for r in rs])",
    "time.sleep({a})\nawait asyncio.sleep({b})\nseen.append([time.time(), str(datetime.datetime.now())])\n"
    "await read(n={b})",
    "async def part(n):\n    r = await read(n=n)\n    s = await read(n=r['n'])\n    return s['n']\n"
    "seen.extend(await asyncio.gather(part({a}), part({b}), part({unique})))",
    "names = {{'x{a}', 'y{b}', 'z', 'w', 'v'}}\nfor name in names:\n    r = await read(n=len(name))\n"
    "    seen.append(name)",
    "total = 0\nwhile total < {b}:\n    r = await read(n=total)\n    total += r['n'] % 3 + 1\nseen.append(total)",
    "print('so far', len(seen))",
)


def random_program(seed: int) -> str:
    """Return a program of up to five blocks: loops, gathered calls, exceptions, random numbers, time, unsafe calls."""
    chance, blocks = Random(seed), []
    for index in range(chance.randint(2, 5)):
        block = chance.choice(_BLOCKS)
        blocks.append(block.format(a=chance.randint(1, 3), b=chance.randint(2, 6), unique=seed * 100 + index))
    return _HEAD + "\n".join(blocks) + "\nseen"
