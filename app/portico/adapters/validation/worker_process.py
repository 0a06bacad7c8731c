"""The program of a worker process: it reads jobs from standard input and writes their results to standard output.

The kernel ends the process when a job takes more CPU time than it may, also within a library that does not return to
the interpreter. Memory beyond the limit ends it, too. When the service is gone, however it ended, so is the standard
input, and the worker ends after the job that it is doing, if any.

A frame is four bytes with the length, then JSON. The worker writes an empty frame when it is ready.
"""

import importlib
import os
import resource
import signal
import sys
from functools import partial
from traceback import format_tb
from types import TracebackType
from typing import Any, BinaryIO, Final

import orjson

from portico.capabilities.answer_contract import AnswerContract, ValidatedAnswer
from portico.capabilities.output.rules.custom import BUILT_IN_RULES
from portico.capabilities.output.rules.rule_set import RuleRegistry, rules_of
from portico.domain.contract.request import OutputContract
from portico.domain.contract.rules import AnswerContent
from portico.domain.failures import Failure
from portico.domain.journal.outcomes import Refused
from portico.domain.tools import Caller
from portico.ports.current_caller import acting_for

OUT_OF_MEMORY: Final = 70
"""Exit status of a worker whose job needs too much memory."""
LENGTH_BYTES: Final = 4
_NICENESS: Final = 5
"""Where processors are few, the service goes first."""


def frame(data: bytes) -> bytes:
    """Return the data behind its length."""
    return len(data).to_bytes(LENGTH_BYTES) + data


def run(job: bytes, rules: RuleRegistry = BUILT_IN_RULES) -> bytes:
    """Return the result of a job: the refusal of the contract, the outcome of the answer, what its rules raised."""
    try:
        given = orjson.loads(job)
        with acting_for(None if given["caller"] is None else Caller(**given["caller"])):
            validated = _validated(given, rules)
        outcome, exceptions = (None, ()) if validated is None else (validated.outcome(), validated.exceptions)
        return orjson.dumps([None, outcome, exceptions], default=_model_json)
    except Failure as refusal:
        return orjson.dumps([Refused.by(refusal), None, []])
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


def _validated(job: Any, rules: RuleRegistry) -> ValidatedAnswer | None:
    """Return the answer of the job validated; None for a job without one, which checks the contract."""
    contract = AnswerContract(OutputContract.model_validate(job["output"]), rules)
    contract.compile()
    match job["answer"]:
        case None:
            contract.probe()
            return None
        case {"text": text, "value": value}:
            return contract.validate(AnswerContent(text, value), job["attempt"])
        case text:
            return contract.validate(text, job["attempt"])


def _model_json(value: Any) -> orjson.Fragment:
    return orjson.Fragment(value.model_dump_json())


def serve(jobs: BinaryIO, results: BinaryIO, cpu_seconds: float, rules: RuleRegistry) -> None:
    """Do jobs, each within its CPU time, until there are no more."""
    _write(results, b"")
    while length := jobs.read(LENGTH_BYTES):
        job = jobs.read(int.from_bytes(length))
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        result = run(job, rules)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(results, result)


def _write(results: BinaryIO, data: bytes) -> None:
    results.write(frame(data))
    results.flush()


def _report_bug(errors: int, kind: type[BaseException], _bug: BaseException, place: TracebackType | None) -> None:
    """Write what went wrong and where, without the message, which may have content of a request."""
    os.write(errors, f"{''.join(format_tb(place))}{kind.__name__}\n".encode())


def main() -> None:
    """Serve with the limits that the command line names, seconds of CPU time and bytes of memory, and its modules."""
    cpu_seconds, memory_bytes, modules = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)
    results = os.fdopen(os.dup(1), "wb")
    sys.excepthook = partial(_report_bug, os.dup(2))
    with open(os.devnull, "wb") as nowhere:
        for printed in (1, 2):
            os.dup2(nowhere.fileno(), printed)
    rules = BUILT_IN_RULES.with_rules(each for name in modules for each in rules_of(importlib.import_module(name)))
    serve(sys.stdin.buffer, results, cpu_seconds, rules)


if __name__ == "__main__":
    main()
