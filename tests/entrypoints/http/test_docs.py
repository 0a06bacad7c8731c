"""Page of the API description, and the examples that it shows."""

import re
import shlex
from typing import Any

from portico.entrypoints.http.docs.examples import EXAMPLES
from portico.entrypoints.http.docs.page import SERVER, curl
from tests.support.fake_service import fake_app
from tests.support.http_server import request_bytes, running_server
from tests.support.portico import portico


def operations() -> dict[str, tuple[dict[str, Any], str, str]]:
    """Return operation, method and path of every operation by its id."""
    return {
        operation["operationId"]: (operation, method.upper(), path)
        for path, described in fake_app()[0].openapi()["paths"].items()
        for method, operation in described.items()
    }


def test_every_operation_has_an_example() -> None:
    assert set(EXAMPLES) == set(operations())


async def test_every_example_is_answered_with_its_status() -> None:
    described = operations()
    async with portico() as (served, _):
        for name, examples in EXAMPLES.items():
            operation, method, path = described[name]
            for example in examples:
                words = shlex.split(curl(example, operation, method, path))
                url = next(word for word in words if word.startswith(SERVER)).removeprefix(SERVER)
                headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
                body = words[words.index("-d") + 1].encode() if "-d" in words else None
                if name == "streamChanges":
                    # The live list has no end; its head has come once its status is known.
                    async with served.connect() as client:
                        await client.send(request_bytes(method, url, headers, body))
                        assert (await client.head())[0] == example.status
                    continue
                answer = await served.ask(request_bytes(method, url, headers, body))
                assert answer.status == example.status, (name, example.summary, answer.body)
                assert str(answer.status) in operation["responses"]


def test_the_examples_stand_in_the_description() -> None:
    execute, _, _ = operations()["execute"]
    shown = execute["requestBody"]["content"]["application/json"]["examples"]
    assert {each["summary"]: each["value"] for each in shown.values()} == {
        each.summary: each.body for each in EXAMPLES["execute"]
    }
    prefer = next(each for each in execute["parameters"] if each["name"] == "Prefer")
    assert prefer["example"] == "respond-async"


async def test_the_page_needs_no_script_and_no_other_host() -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.get("/docs")
    page = answer.body.decode()
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.findall(r"<(script|link|img|iframe)\b|\bsrc=|url\(|@import", page)
    assert set(re.findall(r"https?://[^/\s'<&]+", page)) <= {SERVER, "https://hooks.example"}
    for name, (_, method, path) in operations().items():
        assert f'<h2 id="{name}"><code>{method} {path}</code>' in page
    missing = set(re.findall(r'href="#([^"]+)"', page)) - set(re.findall(r'id="([^"]+)"', page))
    assert not missing
