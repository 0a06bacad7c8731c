"""The receivers of docs/webhooks.md, run as they stand: they take what Portico signs, and refuse anything else."""

import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from runpy import run_path
from typing import Any

import anyio
import httpx2
import pytest

from tests.support.http_server import running_server
from tests.support.portico import chat, portico
from tests.support.webhook_receiver import SECRET, Receiver, file_endpoint, webhook_receiver

pytestmark = pytest.mark.usefixtures("real_time")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "webhooks.md").read_text(encoding="utf-8")
SDKS, TYPESCRIPT = (ROOT / ".clients" / name / "node_modules" for name in ("sdks", "typescript"))
[PYTHON_RECEIVER] = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "standardwebhooks" in code]
[TS_RECEIVER] = re.findall(r"```ts\n(.*?)```", PAGE, re.DOTALL)
LISTENS = '.listen(0, "127.0.0.1", function () { console.log(this.address().port); });'
TRANSPILE = """
import ts from "typescript";
import { readFileSync, writeFileSync } from "node:fs";
const options = { target: "es2022", module: "esnext" };
const source = readFileSync("receiver.ts", "utf8");
writeFileSync("receiver.mjs", ts.transpileModule(source, { compilerOptions: options }).outputText);
"""


@asynccontextmanager
async def deliveries_to(folder: Path, url: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Send a message to the receiver, and yield what became of it."""
    storage = {"url": f"sqlite:///{folder}/portico.db"}
    async with portico(storage=storage, webhooks={"endpoints": {"orders": file_endpoint(folder, url)}}) as (served, _):
        await served.post(chat("Hello", request_id="q"))
        found: list[dict[str, Any]] = []
        with anyio.fail_after(20):
            while not found or found[0]["state"] == "waiting":
                await anyio.sleep(0.05)
                found = (await served.get("/v1/webhooks/deliveries")).json["data"]
        yield found


async def is_refused(url: str, folder: Path) -> bool:
    """Return whether a message with a changed body is refused."""
    async with webhook_receiver() as receiver:
        await send_once(folder, receiver)
        message = receiver.received[0]
    async with httpx2.AsyncClient() as client:
        answer = await client.post(url, content=message.body + b" ", headers=signature_of(message.headers))
    return answer.status_code == 400


async def send_once(folder: Path, receiver: Receiver) -> None:
    async with deliveries_to(folder, receiver.url):
        await receiver.wait_for(1)


def signature_of(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("webhook-")}


async def test_the_receiver_in_python_takes_what_is_signed_once_and_refuses_anything_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "receiver.py"
    file.write_text(re.sub(r'"whsec_\w+"', f'"{SECRET}"', PYTHON_RECEIVER))
    app = run_path(str(file))["app"]
    async with running_server(app) as served:
        async with deliveries_to(tmp_path, f"{served.url}/orders") as found:
            assert [(each["state"], each["attempts"]) for each in found] == [("delivered", 1)]
        assert "execution.completed q" in capsys.readouterr().out
        (tmp_path / "other").mkdir()
        assert await is_refused(f"{served.url}/orders", tmp_path / "other")


@pytest.mark.skipif(
    shutil.which("node") is None
    or not (SDKS / "standardwebhooks").exists()
    or not (TYPESCRIPT / "typescript").exists(),
    reason="no Node packages: make clients installs them",
)
async def test_the_receiver_in_typescript_verifies_with_the_package_of_npm(tmp_path: Path) -> None:
    tmp_path.joinpath("receiver.ts").write_text(TS_RECEIVER.replace(".listen(8000);", LISTENS))
    tmp_path.joinpath("transpile.mjs").write_text(TRANSPILE)
    modules = tmp_path / "node_modules"
    modules.mkdir()
    for package in (
        SDKS / "standardwebhooks",
        TYPESCRIPT / "typescript",
        *SDKS.glob("*stable*"),
        *SDKS.glob("fast-sha256"),
    ):
        modules.joinpath(package.name).symlink_to(package)
    await anyio.run_process(["node", "transpile.mjs"], cwd=tmp_path)
    environment = {**os.environ, "WEBHOOK_SECRET": SECRET}
    async with await anyio.open_process(
        ["node", "--preserve-symlinks", "receiver.mjs"], cwd=tmp_path, env=environment
    ) as receiver:
        assert receiver.stdout is not None
        url = f"http://127.0.0.1:{int(await receiver.stdout.receive())}/orders"
        async with deliveries_to(tmp_path, url) as found:
            assert [(each["state"], each["attempts"]) for each in found] == [("delivered", 1)]
        (tmp_path / "other").mkdir()
        assert await is_refused(url, tmp_path / "other")
        receiver.kill()
