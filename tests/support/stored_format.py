"""The stored format: the fields and values of every record, and the bytes of an example of each.

`tests/golden/format-N` belongs to format N: `fields.json` lists it, `stored_bytes.json` has the examples, and
`journals` has whole executions. `make golden` writes them anew. Until the first release the format changes in place.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from inspect import isclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import orjson
from pydantic import BaseModel, JsonValue

from portico.adapters.stores import codec
from portico.adapters.stores.schema import metadata
from portico.domain.contract.messages import Message, ModelMessage
from portico.domain.contract.request import ExecutionHints
from portico.domain.contract.response import Suspension, SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import CorrelationContext, Event, StoredEvent
from portico.domain.journal.fork import Fork, ResultEdit
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import Outcome, RecordedStep
from portico.domain.lifecycle import State
from tests.support.examples import EVENTS, OUTCOMES, SUSPENSION, correlation, header, response
from tests.support.virtual_time import EPOCH

GOLDEN = Path(__file__).parents[1] / "golden" / f"format-{codec.FORMAT}"
REMEDY = "Run `make golden` and review what it changed."
MODEL_MESSAGE = ModelMessage(
    role="assistant", content="hm", provider="primary", kept=[{"signature": "µ\u2028", "n": 1.5}]
)
RECORDS: Sequence[type[Any]] = (
    ExecutionHeader, SystemResponse, Message, ModelMessage, Suspension, CorrelationContext,
)  # fmt: skip
"""Kinds that are stored without a tag."""

CODECS: Mapping[str, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]] = MappingProxyType(
    {
        "headers": (lambda value: codec.encode_header(*value), codec.decode_header),
        "outcomes": (codec.encode_outcome, codec.decode_outcome),
        "events": (codec.encode_events, codec.decode_events),
        "responses": (codec.encode_response, codec.decode_response),
        "messages": (codec.encode_message, lambda data: codec.decode_messages([data])[0]),
        "suspensions": (codec.encode_suspension, codec.decode_suspension),
        "values": (codec.encode_value, codec.decode_value),
    }
)
"""How each kind of `stored_bytes.json` is written and read."""

Listing = dict[str, dict[str, dict[str, str]]]
"""Field names with their types, by section and kind. The type of a field that has a default ends with ` = …`."""


def stored_fields() -> Listing:
    """Return the names, types and permitted values of everything that is stored."""
    nested: dict[str, dict[str, str]] = {}
    listing: Listing = {
        "outcomes": {kind.__name__: _fields(kind, nested) for kind in get_args(Outcome)},
        "events": {kind.type: _fields(kind, nested) for kind in get_args(Event)},
        "records": {_name(kind): _fields(kind, nested) for kind in RECORDS},
        "columns": {
            str(table.name): {
                str(
                    column.name
                ): f"{column.type}{' = …' if column.nullable or column.server_default is not None else ''}"
                for column in table.columns
            }
            for table in metadata.sorted_tables
        },
    }
    return {**listing, "values": dict(sorted(nested.items()))}


def _fields(kind: type[Any], nested: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the stored fields of a dataclass or a model, and add the kinds that occur in it to `nested`."""
    if issubclass(kind, BaseModel):
        return {
            field.alias or name: _described(field.annotation, nested) + ("" if field.is_required() else " = …")
            for name, field in kind.model_fields.items()
        }
    hints = get_type_hints(kind)
    return {
        each.name: _described(hints[each.name], nested)
        + ("" if each.default is MISSING and each.default_factory is MISSING else " = …")
        for each in fields(kind)
    }


def _described(annotation: Any, nested: dict[str, dict[str, str]]) -> str:
    annotation = getattr(annotation, "__supertype__", annotation)
    if annotation in {JsonValue, Ellipsis, None}:
        return {JsonValue: "JSON", Ellipsis: "...", None: "null"}[annotation]
    if get_origin(annotation) is Literal:
        return "|".join(map(str, get_args(annotation)))
    if get_args(annotation):
        parts = [_described(each, nested) for each in get_args(annotation) if not _is_constraint(each)]
        origin = get_origin(annotation)
        name = getattr(origin, "__name__", str(origin))
        return "|".join(parts) if name in {"Union", "UnionType", "Annotated"} else f"{name}[{', '.join(parts)}]"
    if isclass(annotation) and (is_dataclass(annotation) or issubclass(annotation, BaseModel | Enum)):
        _add(annotation, nested)
        return _name(annotation)
    return getattr(annotation, "__name__", str(annotation)).replace("NoneType", "null")


def _is_constraint(argument: Any) -> bool:
    """Return True for metadata of an annotation, which is no type."""
    is_type = isclass(argument) or argument in {JsonValue, Any, None, Ellipsis}
    return not (is_type or get_origin(argument) or hasattr(argument, "__supertype__"))


def _add(kind: type[Any], nested: dict[str, dict[str, str]]) -> None:
    name = _name(kind)
    if name not in nested and kind not in RECORDS:
        nested[name] = {}
        nested[name] = {str(each.value): "" for each in kind} if issubclass(kind, Enum) else _fields(kind, nested)


def _name(kind: type[Any]) -> str:
    """Return the name of a kind with its module, since some kinds have equal names."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def committed(*events: Event, first: int = 1) -> list[StoredEvent]:
    """Return the events as one commit stores them: numbered without gaps, at one time."""
    return [StoredEvent(number, EPOCH, "0/1", correlation(), event) for number, event in enumerate(events, first)]


def stored_examples() -> Mapping[str, list[str]]:
    """Return the stored bytes of every outcome, every event and every other record, as text."""
    fork = Fork(
        "r-0",
        2,
        "backup",
        ExecutionHints(max_tokens=5),
        ("roll_dice",),
        (Message(role="user", content="again"),),
        edits=(ResultEdit("1/0/0/0", "no", is_error=True),),
    )
    steps = [RecordedStep(f"{number}/0", "f" * 32, outcome, EPOCH + number) for number, outcome in enumerate(OUTCOMES)]
    failed = response(State.ERROR, Code.INFERENCE_MODEL_UNAVAILABLE)
    answered = response().model_copy(update={"messages": [MODEL_MESSAGE]})
    examples = {
        "headers": [codec.encode_header(header("a")), codec.encode_header(replace(header("a"), fork=fork), steps)],
        "outcomes": [codec.encode_outcome(each) for each in OUTCOMES],
        "events": [codec.encode_events(committed(each, first=7)) for each in EVENTS],
        "responses": [codec.encode_response(each) for each in (response(), failed, answered)],
        "messages": [codec.encode_message(each) for each in (MODEL_MESSAGE, Message(role="user", content="hello"))],
        "suspensions": [codec.encode_suspension(SUSPENSION)],
        "values": [codec.encode_value({"a": [1, 2.5, None]})],
    }
    return {kind: [each.decode() for each in encoded] for kind, encoded in examples.items()}


def write_files(report: Callable[[str], object]) -> None:
    """Write the listing and the examples of the current format."""
    for name, content in (("fields", stored_fields()), ("stored_bytes", stored_examples())):
        GOLDEN.mkdir(parents=True, exist_ok=True)
        path = GOLDEN / f"{name}.json"
        path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
        report(f"{path}\n")


if __name__ == "__main__":
    write_files(sys.stdout.write)
