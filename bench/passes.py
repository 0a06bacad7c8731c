"""The cost of a pass of reasoning beside its inferences, with a scripted engine and without HTTP.

One more pass has four inferences: its step, the assessment, the refinement and the update of the profile. As many steps
of a plan in one pass are subtracted.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.bootstrap.service import Service, open_service
from portico.domain.access.principal import LOCAL
from portico.domain.contract.request import SystemRequest
from portico.domain.lifecycle import State
from portico.orchestration.runtime.handle import ExecutionHandle
from portico.settings import load_settings

FEW, MANY = 2, 10
INFERENCES = 4
"""Inferences of a pass that another one follows."""
WARM_UP, ROUNDS, EXECUTIONS = 5, 7, 10
TEXT = "The answer is 42."
_STEP: Final[Mapping[str, Any]] = MappingProxyType({"type": "infer", "input": "What is the answer?", "depends_on": []})
_PROFILE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "reasoning_depth": 5,
        "information_sufficiency": 0,
        "expected_tool_usage": "extensive",
        "output_breadth": "broad",
        "confidence_requirement": "high",
    }
)
_NOT_DONE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "converged": False,
        "completeness_score": 0.5,
        "coherence_score": 1,
        "consistency_status": {"plan": True, "step": True, "answer": True, "memory": True},
    }
)


async def measure_passes() -> Mapping[str, float]:
    """Return the CPU time of one more pass, with its inferences and beside them."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        settings = load_settings({}, _write_configuration(Path(directory)), local_model=lambda: None)
        async with open_service(settings) as service:
            plain = {count: _plain(count) for count in (FEW, MANY)}
            passes = {count: reasoning(count) for count in (FEW, MANY)}
            for request in (*plain.values(), *passes.values()):
                await _run(service, request, WARM_UP)
            costs = [(await _more_ms(service, passes), await _more_ms(service, plain)) for _ in range(ROUNDS)]
    return {
        "pass_ms": statistics.median(each for each, _ in costs),
        "pass_more_ms": statistics.median(each - INFERENCES * one for each, one in costs),
    }


def _write_configuration(directory: Path) -> Path:
    path = directory / "portico.toml"
    script, texts = directory / "script.json", directory / "texts.json"
    executions = [*[FEW] * WARM_UP, *[MANY] * WARM_UP, *([*[MANY] * EXECUTIONS, *[FEW] * EXECUTIONS] * ROUNDS)]
    script.write_bytes(orjson.dumps([entry for passes in executions for entry in replies(passes)]))
    texts.write_bytes(orjson.dumps([{"text": TEXT}] * sum(executions)))
    path.write_text(
        f'[engines.script]\nmodel = "scripted://{script}"\ncontext_window = 1000000\n'
        f'[engines.texts]\nmodel = "scripted://{texts}"\n'
        f'[storage]\nurl = "sqlite:///{directory}/portico.db"\n'
        '[telemetry]\nlog_level = "error"\n',
        encoding="utf-8",
    )
    return path


def replies(passes: int) -> Iterator[dict[str, str]]:
    """Yield the replies of an execution whose passes never converge and always add a step."""
    yield _reply(_PROFILE)
    yield _reply({"issues": [], "overall_severity": "LOW"})
    for number in range(passes):
        yield {"text": TEXT}
        yield _reply(_NOT_DONE)
        if number < passes - 1:
            step = {"name": f"step-{number}", **_STEP}
            yield _reply({"refinements": [{"action": "ADD", "new_step": step}]})
            yield _reply(_PROFILE)
    yield _reply({"answer_text": "It is 42."})


def _reply(value: Mapping[str, Any]) -> dict[str, str]:
    return {"text": orjson.dumps(dict(value)).decode()}


def _plain(steps: int) -> SystemRequest:
    plan = {"steps": [{"name": f"step-{number}", **_STEP} for number in range(steps)]}
    return _request({"plan": plan, "model": "texts"})


def reasoning(passes: int) -> SystemRequest:
    """Return a request for so many passes."""
    return _request({"plan": {"passes": passes, "steps": [{"name": "first", **_STEP}]}, "model": "script"})


def _request(fields: Mapping[str, Any]) -> SystemRequest:
    messages = [{"role": "user", "content": "What is the answer?"}]
    return SystemRequest.model_validate({"mode": "plan", "messages": messages, **fields})


async def _more_ms(service: Service, requests: Mapping[int, SystemRequest]) -> float:
    """Return the CPU time of one more of what the requests have, in the thread of the event loop."""
    most = await _cpu_ms(service, requests[MANY])
    return (most - await _cpu_ms(service, requests[FEW])) / (MANY - FEW)


async def _cpu_ms(service: Service, request: SystemRequest) -> float:
    began = time.thread_time()
    await _run(service, request, EXECUTIONS)
    return (time.thread_time() - began) / EXECUTIONS * 1000


async def _run(service: Service, request: SystemRequest, count: int) -> None:
    for _ in range(count):
        handle = await service.facade.execute(request, LOCAL)
        assert isinstance(handle, ExecutionHandle)
        ended = asyncio.Event()
        handle.add_done_callback(ended.set)
        await ended.wait()
        assert handle.response is not None
        assert handle.response.state is State.COMPLETE
