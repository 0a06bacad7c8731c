"""Introspection routes, probes and the API description."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from portico.capabilities.prompting.definition import PromptId
from portico.domain.failures import TAXONOMY
from portico.domain.lifecycle import NEXT, Mode
from portico.entrypoints.http.app import create_app
from tests.support.fake_service import fake_app
from tests.support.http_server import running_server
from tests.support.portico import portico


def description() -> dict[str, Any]:
    """Return the API description of an application."""
    return fake_app()[0].openapi()


async def read(path: str) -> Any:
    """Return the JSON at that path."""
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.get(path)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    return answer.json


async def test_every_code_is_listed_with_every_fact() -> None:
    shown = (await read("/v1/errors"))["data"]
    assert [row["code"] for row in shown] == list(TAXONOMY)
    assert shown[0] == {
        "code": "INFERENCE_ENGINE_ERROR",
        "category": "InferenceFailure",
        "meaning": "The provider failed, or refused our credentials or request",
        "recovery": "Retry with backoff on a transport error; else fix the engine's configuration or the request",
        "variants": [
            {"condition": "transport", "status": 502, "retryable": True},
            {"condition": "refused", "status": 500, "retryable": False},
        ],
    }


async def test_every_machine_is_listed_as_table_and_as_diagram() -> None:
    shown = {machine["name"]: machine for machine in (await read("/v1/machines"))["data"]}
    assert set(shown) == {*(f"lifecycle.{mode}" for mode in Mode), "fallback"}
    assert set(shown["lifecycle.chat"]["table"]["EXECUTE"]) == NEXT[Mode.CHAT]["EXECUTE"]
    assert all(machine["mermaid"].startswith("stateDiagram-v2\n") for machine in shown.values())


@pytest.mark.parametrize("path", ["/v1/tools", "/v1/engines"])
async def test_a_collection_is_in_the_field_data(path: str) -> None:
    assert await read(path) == {"data": []}


async def test_every_prompt_is_listed_with_its_schemas_and_without_its_text(tmp_path: Path) -> None:
    (tmp_path / "SUPERVISOR_REPAIR_SYSTEM.txt").write_text("Our own secret words.")
    async with portico(prompts={"directory": str(tmp_path)}) as (served, _):
        answer = await served.get("/v1/prompts")
    shown = {prompt["id"]: prompt for prompt in answer.json["data"]}
    assert list(shown) == list(PromptId)
    assert "secret" not in str(answer.json)
    assert [name for name, prompt in shown.items() if prompt["is_changed"]] == ["SUPERVISOR_REPAIR_SYSTEM"]
    judge = shown["ANSWER_JUDGEMENT_USER"]
    assert (judge["system_prompt"], judge["places"]) == ("ANSWER_JUDGEMENT_SYSTEM", ["answer", "intent", "request"])
    assert set(judge["input_schema"]["properties"]) == {"request", "intent", "answer"}
    assert set(judge["output_schema"]["required"]) == {"valid", "score"}
    assert shown["REASONING_STEP_USER"]["output_schema"] is None
    assert shown["REASONING_STEP_SYSTEM"]["places"] == []


async def test_a_running_service_is_alive_and_ready() -> None:
    assert await read("/livez") == {"alive": True}
    assert (await read("/readyz"))["ready"] is True


async def test_a_stopping_service_is_alive_and_not_ready() -> None:
    app, service = fake_app()
    async with running_server(app) as served:
        await service.drain()
        answer = await served.get("/readyz")
        assert (answer.status, answer.json) == (503, {"ready": False, "reason": "draining"})
        assert (await served.get("/livez")).status == 200


async def test_metrics_have_their_own_content_type() -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4"
    assert answer.body == b"portico_up 1\n"


async def test_the_description_is_served_as_it_is_generated() -> None:
    assert await read("/openapi.json") == description()


async def test_the_docs_page_reads_the_description() -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.get("/docs")
    assert answer.status == 200
    assert b"/openapi.json" in answer.body


def test_the_description_is_the_same_every_time_and_sorted() -> None:
    text = json.dumps(description())
    assert text == json.dumps(description(), sort_keys=True)


def test_the_description_has_every_route_and_no_other() -> None:
    app, _ = fake_app()
    served = {re.sub(r":\w+}", "}", route.path) for route in app.routes if isinstance(route, Route)} - {
        "/openapi.json",
        "/docs",
    }
    assert set(description()["paths"]) == {path for path in served if not path.startswith("/console")}


def test_every_reference_of_the_description_resolves() -> None:
    document = description()
    text = json.dumps(document)
    names = {part.split('"')[0] for part in text.split("#/components/")[1:]}
    for name in names:
        kind, _, key = name.partition("/")
        assert key in document["components"][kind], name


def test_the_description_names_every_status_of_the_taxonomy() -> None:
    answers = description()["paths"]["/v1/execute"]["post"]["responses"]
    for row in TAXONOMY.values():
        for variant in row.variants:
            assert row.code in answers[str(variant.status)]["description"]


def test_fields_of_the_contract_are_described() -> None:
    schemas = description()["components"]["schemas"]
    for model in ("SystemRequest", "SystemResponse", "Problem", "ExecutionHints"):
        for name, field in schemas[model]["properties"].items():
            assert "description" in field or "$ref" in field, f"{model}.{name}"


def test_an_event_has_common_fields_and_its_own() -> None:
    schemas = description()["components"]["schemas"]
    assert {"sequence_number", "type", "timestamp", "from_state", "to_state"} <= set(
        schemas["LifecycleTransition"]["required"]
    )
    assert "sequence_number" not in schemas["InferenceDelta"]["properties"]
    assert len(schemas["ExecutionEvent"]["oneOf"]) == len(schemas["ExecutionEvent"]["discriminator"]["mapping"])


def test_schemas_have_unambiguous_names() -> None:
    schemas = description()["components"]["schemas"]
    assert not [name for name in schemas if "__" in name]
    fields = schemas["FallbackTransition"]["properties"]
    assert fields["fsm_event"] == {"$ref": "#/components/schemas/FallbackEvent"}
    assert "START" in schemas["FallbackEvent"]["enum"]
    assert "RETRYING" in schemas["FallbackState"]["enum"]
    assert "SUSPENDED" in schemas["LifecycleState"]["enum"]


def test_the_framework_records_no_spans_of_its_own() -> None:
    app, service = fake_app()
    assert not app._native_telemetry.enabled()
    assert create_app(service.settings).title == "Portico"
