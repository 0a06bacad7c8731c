"""The cost of what a model gets to see: the stages of PREPARE over a session of 50 messages
with 20 skills to choose from.

The scenario runs `python -m bench.context`, which prints its numbers, in a process of its own on the measured core. The
messages are decoded already, so the database and its driver are not measured.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import orjson

from bench.processes import run_measured_module
from bench.scenarios import BenchEnvironment, Numbers
from portico.bootstrap.service import PATTERNS, open_service
from portico.domain.access.principal import LOCAL, Permissions, Principal
from portico.domain.contract.messages import Message, Origin, ToolCall, TracedMessage
from portico.domain.contract.request import SystemRequest
from portico.domain.journal.header import EffectiveLimits
from portico.domain.lifecycle import Mode
from portico.orchestration.execution.environment import Environment
from portico.orchestration.pipeline.stages import PREPARE_STAGES, Preparation
from portico.ports.storage import SessionHistory
from portico.settings import load_settings

WARM_UP, ROUNDS, RUNS = 50, 15, 40
TURNS: Final = 10
SKILLS: Final = 20
WORDS: Final = "The ferry to Ven leaves at 9.15 and at 17.40, and a return ticket for two costs 220 crowns. " * 2
NARROW: Final = replace(LOCAL, permissions=Permissions.of(("can_send_messages", "model:*", "tool:*")))
LIMITS: Final = EffectiveLimits(timeout=60.0, tool_rounds=8, calls_per_reply=8, max_retries=1, history_tokens=100_000)


async def context(bench: BenchEnvironment) -> Numbers:
    """Measure the stages before the first inference, with and without redaction."""
    return await run_measured_module("bench.context", bench.cores)


async def measure() -> Mapping[str, float]:
    """Return the CPU time of the stages in this process."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        settings = load_settings({}, _write_configuration(Path(directory)), local_model=lambda: None)
        async with open_service(settings) as service:
            environment = service.facade._environment
            return {
                "context_ms": await _cost(environment, LOCAL) * 1e3,
                "context_redacted_ms": await _cost(environment, NARROW) * 1e3,
            }


def _write_configuration(directory: Path) -> Path:
    path, skills = directory / "portico.toml", directory / "skills"
    skills.mkdir()
    for number in range(SKILLS):
        requires = f"requires: [skill-{number - 1}]\n" if number % 4 == 1 else ""
        front = (
            f"name: skill-{number}\ndescription: Timetables.\ntriggers: [sunday]\nvalue: {1 + number % 5}\n{requires}"
        )
        (skills / f"skill-{number}.md").write_text(f"---\n{front}---\n{WORDS * (1 + number % 3)}\n", encoding="utf-8")
    path.write_text(
        f'[storage]\nurl = "sqlite://"\n[telemetry]\nlog_level = "error"\n[skills]\ndirectory = "{skills}"\n',
        encoding="utf-8",
    )
    return path


async def _cost(environment: Environment, principal: Principal) -> float:
    """Return the CPU seconds of one run of the stages."""
    request = SystemRequest.model_validate(
        {
            "messages": [{"role": "user", "content": "Which of them is the first on Sunday?"}],
            "tools": [],
            "context": {"skills": "auto"},
        }
    )
    begun = Preparation(
        request,
        LIMITS,
        PATTERNS[Mode.CHAT],
        environment,
        SessionHistory(5 * TURNS, _history()),
        principal.tenant,
        permissions=principal.permissions,
    )
    await _run(begun, WARM_UP)
    costs = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        await _run(begun, RUNS)
        costs.append((time.thread_time() - began) / RUNS)
    return statistics.median(costs)


async def _run(begun: Preparation, count: int) -> None:
    for _ in range(count):
        preparation = begun
        for stage in PREPARE_STAGES:
            preparation = await stage.apply(preparation)
        assert preparation.cut.messages == 0
        assert len(preparation.skills.skills) + len(preparation.skills.excluded) == SKILLS
        assert len(preparation.messages) == 5 * TURNS + len(preparation.skills.skills) + 1


def _history() -> Sequence[Message]:
    """Return turns of five messages, with a call, its result, and an e-mail address in each."""
    found: list[Message] = []
    for number in range(TURNS):
        call = ToolCall(id=f"call_{number}", name="timetable", arguments={"island": "Ven", "day": number})
        found += [
            Message(role="user", content=f"{WORDS} Write to ada{number}@example.org."),
            TracedMessage(role="assistant", content="", tool_calls=[call], origin=Origin.MODEL),
            TracedMessage(role="tool", content=WORDS, tool_call_id=call.id, name=call.name, origin=Origin.TRUSTED),
            TracedMessage(role="assistant", content=WORDS, origin=Origin.MODEL),
            Message(role="user", content="Thank you."),
        ]
    return found


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(asyncio.run(measure())))
