"""Credential of an MCP server: once more after a 401, and each call knows of its own refusal only."""

import anyio
import httpx2

from portico.adapters.tools.mcp.credential_auth import CredentialAuth, noted_refusal
from portico.adapters.tools.mcp.server_config import McpCredential
from portico.domain.credentials import Credential

URL = "http://mcp.example/mcp"


def credential(*values: str) -> McpCredential:
    """A secret of the service, that is another one each time it is read; the last one stays."""
    left = list(values)
    return McpCredential(Credential("clock", "secret"), None, lambda: left.pop(0) if len(left) > 1 else left[0])


async def test_a_401_is_sent_once_more_with_another_value_and_not_with_the_same() -> None:
    for values, expected in ((("old", "new"), ["Bearer old", "Bearer new"]), (("old",), ["Bearer old"])):
        seen: list[str] = []

        def answer(request: httpx2.Request, seen: list[str] = seen) -> httpx2.Response:
            seen.append(request.headers["Authorization"])
            return httpx2.Response(200 if seen[-1] == "Bearer new" else 401)

        transport = httpx2.MockTransport(answer)
        async with httpx2.AsyncClient(transport=transport, auth=CredentialAuth(credential(*values))) as client:
            with noted_refusal() as note:
                await client.post(URL)
        assert (seen, note.is_refused) == (expected, len(expected) == 1)


async def test_a_call_that_fails_beside_a_refused_one_is_not_refused() -> None:
    """The refusal of one arrives while the other is on its way, and the other way around."""
    notes: dict[str, bool] = {}
    refused, arrived = anyio.Event(), anyio.Event()

    async def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/refused":
            await arrived.wait()
            return httpx2.Response(401)
        arrived.set()
        await refused.wait()
        return httpx2.Response(500)

    async def call(client: httpx2.AsyncClient, name: str) -> None:
        with noted_refusal() as note:
            await client.post(f"http://mcp.example/{name}")
        notes[name] = note.is_refused
        refused.set()

    async with (
        httpx2.AsyncClient(transport=httpx2.MockTransport(answer), auth=CredentialAuth(credential("old"))) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(call, client, "failed")
        group.start_soon(call, client, "refused")
    assert notes == {"refused": True, "failed": False}
