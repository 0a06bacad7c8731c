"""The API description as a contract: names, tags, schemas that generators of clients read, and what is answered."""

import json
import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import jsonschema_rs
import orjson
from openapi_spec_validator import validate

from portico.entrypoints.http.docs.examples import EXAMPLES
from portico.entrypoints.http.docs.page import SERVER, curl
from tests.support.fake_service import fake_app
from tests.support.http_server import request_bytes
from tests.support.portico import events, portico

VERBS = (
    *("get", "list", "put", "update", "create", "delete", "cancel", "stream", "search", "count", "revoke"),
    *("fork", "replay", "resume", "quote", "run", "retry", "rotate", "test"),
)
BARE = frozenset({"execute", "quote"})
"""Operations whose verb needs no noun."""


def description() -> dict[str, Any]:
    return fake_app()[0].openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield method, path and operation."""
    for path, described in document["paths"].items():
        for method, operation in described.items():
            yield method.upper(), path, operation


def test_every_operation_has_a_verb_a_noun_a_text_and_one_of_the_described_tags() -> None:
    document = description()
    tags = {tag["name"]: tag["description"] for tag in document["tags"]}
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for _, _, operation in operations(document):
        name = operation["operationId"]
        assert name in BARE or re.fullmatch(rf"({'|'.join(VERBS)})([A-Z][A-Za-z0-9]*)", name), name
        assert operation["summary"], name
        assert operation["description"], name
        assert len(operation["tags"]) == 1, name
        assert operation["tags"][0] in tags, name
    assert {operation["tags"][0] for _, _, operation in operations(document)} == set(tags)
    assert all(tags.values())


def test_the_description_is_valid_openapi() -> None:
    validate(description())


def test_the_version_is_that_of_the_package_and_the_text_says_how_to_begin() -> None:
    info = description()["info"]
    assert info["version"] == version("portico")
    assert all(word in info["description"] for word in ("Authorization", "x-should-retry", "text/event-stream"))


def test_schemas_are_called_by_their_titles_and_have_no_default() -> None:
    schemas = description()["components"]["schemas"]
    for name, schema in schemas.items():
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]*", name)
        assert schema["title"] == name
        assert not [*_defaults(schema)], name
    assert {"FormatEnforcement", "OpenSuspension", "ReplayReport", "TracedToolCall", "AgentList"} <= set(schemas)
    assert {"MessagePage", "ExecutionPage", "SuspensionPage"} <= set(schemas)
    assert "HTTPValidationError" not in json.dumps(description())
    assert schemas["RedundancyOptions"]["properties"]["n"]["description"].endswith("Default: 3.")


def _defaults(schema: Any) -> Iterator[Any]:
    """Yield the defaults of a schema, but not a property of that name."""
    if isinstance(schema, list):
        for each in schema:
            yield from _defaults(each)
    elif isinstance(schema, dict):
        for word, each in schema.items():
            if word == "default":
                yield each
            yield from _defaults(list(each.values()) if word == "properties" else each)


def test_a_request_needs_only_its_messages_and_parameters_are_never_null() -> None:
    document = description()
    assert "required" not in document["components"]["schemas"]["SystemRequest"]
    for _, path, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            assert "null" not in json.dumps(parameter["schema"]), (path, parameter["name"])
            if "example" in parameter:
                kinds = jsonschema_rs.validator_for({**parameter["schema"], "components": document["components"]})
                assert kinds.is_valid(parameter["example"]), (path, parameter["name"])


def test_an_event_stream_is_text_with_the_type_of_its_events() -> None:
    document = description()
    stream = {"type": "string", "contentMediaType": "text/event-stream"}
    found = [
        (operation["operationId"], response["content"]["text/event-stream"]["schema"])
        for _, _, operation in operations(document)
        for response in operation["responses"].values()
        if "text/event-stream" in response.get("content", {})
    ]
    assert {"execute", "streamExecutionEvents", "streamChanges", "createResponse"} <= {name for name, _ in found}
    assert all(stream.items() <= schema.items() for _, schema in found)
    assert dict(found)["execute"]["x-event"] == {"$ref": "#/components/schemas/ExecutionEvent"}


async def test_every_answer_of_the_examples_fits_its_schema() -> None:
    document = description()
    described = {each["operationId"]: (each, method, path) for method, path, each in operations(document)}
    checked = 0
    async with portico() as (served, _):
        for name, examples in EXAMPLES.items():
            operation, method, path = described[name]
            if name == "streamChanges":
                continue  # It has no end.
            for example in examples:
                words = shlex.split(curl(example, operation, method, path))
                url = next(word for word in words if word.startswith(SERVER)).removeprefix(SERVER)
                headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
                body = words[words.index("-d") + 1].encode() if "-d" in words else None
                answer = await served.ask(request_bytes(method, url, headers, body))
                kind = answer.headers.get("content-type", "").partition(";")[0]
                content = operation["responses"][str(answer.status)].get("content", {})
                if kind == "text/event-stream":
                    for event in events(answer) if "x-event" in content[kind]["schema"] else ():
                        _fits(document, content[kind]["schema"]["x-event"], event, name)
                elif kind.endswith("json") and "schema" in content.get(kind, {}):
                    _fits(document, content[kind]["schema"], orjson.loads(answer.body), name)
                checked += 1
        whole = await served.get("/v1/executions/dice/events", {"Accept": "text/event-stream"})
        for event in events(whole):
            _fits(document, {"$ref": "#/components/schemas/ExecutionEvent"}, event, "events")
    assert checked >= len(EXAMPLES) - 1


def _fits(document: dict[str, Any], schema: dict[str, Any], value: Any, name: str) -> None:
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "components": document["components"]}
    wrong = [(list(each.instance_path), each.message) for each in jsonschema_rs.validator_for(whole).iter_errors(value)]
    assert not wrong, (name, wrong[:3])
