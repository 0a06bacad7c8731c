"""`portico explain`: the context of each inference of an execution as a budget table, read from a server."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel

from portico.domain.context.report import ContextChunk, ExcludedSkill, HistoryCut, UsedSkill
from portico.entrypoints.cli.clients.server_client import ServerClient
from portico.entrypoints.cli.display.table import write_table
from portico.entrypoints.cli.display.terminal import printable
from portico.settings import client_key

_TERMS = ("system", "skills", "history", "memory", "message", "tools", "used", "limit")
_COLUMNS = ("inference", "step", *_TERMS, "left", "results cut")


class _Inference(BaseModel):
    key: str
    step_name: str | None
    terms: Mapping[str, int]
    results_cut: int
    fits: bool


class _Context(BaseModel):
    cut: HistoryCut
    redacted: Mapping[str, int]
    skills: list[UsedSkill]
    excluded: list[ExcludedSkill]
    chunks: list[ContextChunk]


class _Trace(BaseModel):
    context: _Context | None
    inferences: list[_Inference]


def print_contexts(request_id: str, url: str, key_file: Path | None, *, as_json: bool) -> None:
    """Write the contexts of an execution to standard output, as a table or as one JSON object. Raises: Failure."""
    with ServerClient.open(url, client_key(key_file)) as client:
        answer = client.send("GET", f"/v1/executions/{quote(request_id, safe='')}/trace", {})
        trace = client.parsed(_Trace, answer, "a trace")
    if as_json:
        sys.stdout.write(trace.model_dump_json() + "\n")
        return
    write_table([_COLUMNS, *map(_row, trace.inferences)])
    if trace.context is not None:
        for line in _choices(trace.context):
            sys.stdout.write(printable(line) + "\n")


def _row(inference: _Inference) -> tuple[str, ...]:
    terms = [inference.terms.get(name, 0) for name in _TERMS]
    left = str(terms[-1] - terms[-2]) if inference.fits else "too large"
    return (inference.key, inference.step_name or "-", *map(str, terms), left, str(inference.results_cut))


def _choices(context: _Context) -> Iterator[str]:
    """Yield one line for each thing that PREPARE chose or left out."""
    cut = context.cut
    if cut.messages:
        summary = f", {cut.summarised} of them in the summary" if cut.summarised else ""
        yield f"cut: {cut.messages} messages{summary}"
    if cut.repaired:
        yield f"repaired: {cut.repaired} tool results"
    for kind, count in context.redacted.items():
        yield f"redacted: {count} {kind}"
    for skill in context.skills:
        yield f"skill: {skill.name}, {skill.tokens} tokens"
    for excluded in context.excluded:
        yield f"skill left out: {excluded.name}, {excluded.reason}"
    for chunk in context.chunks:
        outcome = f"{chunk.tokens} tokens" if chunk.used else "left out"
        yield f"chunk: {chunk.document_id}/{chunk.chunk}, score {chunk.score:.2f}, {outcome}"
