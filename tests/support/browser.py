"""Chromium with the console in it, and a service of its own as a process."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.cli_process import Process
from tests.support.forked_portico import ForkedPortico

ROOT = Path(__file__).parents[2]
MAX_SECONDS = 600.0
AXE = ROOT / "tests" / "console" / "axe" / "axe.min.js"
TOOLS = """
import asyncio
import os

from portico import SideEffects, tool


@tool(side_effects=SideEffects.READ, idempotent=True)
async def read_order(order: int) -> str:
    \"\"\"Read an order.\"\"\"
    return f"order {order}: 150 EUR, arrived broken"


@tool(side_effects=SideEffects.EXTERNAL, idempotent=False)
async def refund(order: int) -> str:
    \"\"\"Refund an order.\"\"\"
    with open("refunds.txt", "a") as file:
        file.write(f"{order}\\n")
    return f"refunded order {order}, receipt R-88121"


@tool(side_effects=SideEffects.EXTERNAL, idempotent=False)
async def send_letter(to: str, text: str) -> str:
    \"\"\"Send a letter.\"\"\"
    return f"sent to {to}"


@tool(side_effects=SideEffects.EXTERNAL, idempotent=False)
async def ship(order: int) -> str:
    \"\"\"Ship an order, which takes until the truck has come.\"\"\"
    open("loaded.txt", "w").close()
    while not os.path.exists("truck.txt"):
        await asyncio.sleep(0.05)
    return f"shipped order {order}"
"""
FLOWS = """
from pydantic import BaseModel

from portico import Context, FlowGraph, ToolError, flow


class Invoice(BaseModel):
    number: str


class Approved(BaseModel):
    by: str


class Payment(BaseModel):
    receipt: str


async def approve(invoice: Invoice, context: Context) -> Approved:
    raise ToolError.suspend({"question": "Pay this invoice?"})


async def pay(approved: Approved, context: Context) -> Payment:
    return Payment(receipt=f"paid, approved by {approved.by}")


@flow("invoices")
def invoices() -> FlowGraph[Invoice, Payment]:
    \"\"\"Pay an invoice.\"\"\"
    return FlowGraph.builder(Invoice, Payment).work(approve).work(pay, idempotent=False).build()
"""
CONFIGURATION = """
[tools]
modules = ["shop"]

[flows]
modules = ["bills"]

[engines.main]
model = "rehearsal://"

[engines.second]
model = "rehearsal://"

[agents.refunds]
description = "Refunds orders"
system_prompt = "You refund orders."
tools = ["read_order", "refund"]

[agents.warehouse]
description = "Ships orders"
system_prompt = "You ship orders."
tools = ["ship"]

[[policy.approve]]
tool = "refund"
arguments = { properties = { order = { minimum = 1000 } } }
approvers = 2

[[policy.approve]]
tool = "refund"

[credentials.tracker]
type = "secret"
description = "Your token of the tracker."

[tools.http.issues]
description = "List the issues."
url = "http://127.0.0.1:9/issues"
side_effects = "read"
idempotent = true
allow_private = true
credential = "tracker"
"""
LOCKED = """
[auth]
mode = "keys"
"""
RIGHTS = (
    "can_send_messages",
    "can_view_full_history",
    "can_view_tenant",
    "can_approve",
    "model:*",
    "agent:*",
    "tool:*",
)


def chromium() -> str:
    """Return the path of Chromium. Without one the test is skipped, and in CI it fails."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("PORTICO_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        message = "there is no Chromium: set PORTICO_CHROMIUM, or put chromium on the path"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


@contextmanager
def running_browser() -> Iterator[Browser]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Shop:
    """A service that refunds orders, with its files in a folder, at a port that stays the same."""

    folder: Path
    extra: str = ""
    port: int = 0
    process: Process | None = None
    _manager: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the service, and return once it accepts connections."""
        self.folder.joinpath("shop.py").write_text(TOOLS)
        self.folder.joinpath("bills.py").write_text(FLOWS)
        self.folder.joinpath("portico.toml").write_text(CONFIGURATION + self.extra)
        names = (name for name in os.environ if not name.startswith("PORTICO") and name != "OPENAI_API_KEY")
        environ = {name: os.environ[name] for name in names} | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        command = ("serve", "--port", str(self.port))
        forked = ForkedPortico(*command, directory=self.folder, environ=environ, errors=subprocess.DEVNULL)
        self.process = Process(forked, MAX_SECONDS)
        line = self.process.line()
        assert ", with its console at /console and " in line, line
        self.port = self.process.port = int(line.split(",")[0].rpartition(":")[2])

    def stop(self) -> None:
        """Kill the service."""
        assert self.process is not None
        self.process.close()

    def ask(self, method: str, path: str, body: object = None, *, key: str = "") -> Any:
        """Return the JSON of a request."""
        assert self.process is not None
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        status, answer = self.process.ask(method, path, body, **headers)
        assert status < 300, answer
        return json.loads(answer) if answer else None

    def execute(self, *, key: str = "", **request: Any) -> Any:
        return self.ask("POST", "/v1/execute", request, key=key)

    def chat(self, text: str, *, key: str = "", **request: Any) -> Any:
        return self.execute(key=key, messages=[{"role": "user", "content": text}], **request)

    @property
    def manager(self) -> str:
        """A key that makes others, of a shop whose routes need one."""
        self._manager = self._manager or self.first_key("acme", *RIGHTS, "can_manage_keys")
        return self._manager

    def key_of(self, user: str, *permissions: str) -> str:
        """Make a key of the same tenant, and return it."""
        given = {"permissions": permissions} if permissions else {}
        return str(self.ask("POST", "/v1/keys", {"user": user, **given}, key=self.manager)["secret"])

    def first_key(self, tenant: str, *permissions: str) -> str:
        """Make a key at the command line, and return it."""
        rights = [f"--permission={name}" for name in permissions]
        command = ("keys", "create", "--tenant", tenant, "--user", "root", *rights)
        environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        made, errors = ForkedPortico(*command, directory=self.folder, environ=environ).communicate()
        found = re.search(r"ptk_[A-Za-z0-9]{8}_[A-Za-z0-9_-]{43}", made)
        assert found is not None, errors
        return found[0]


@contextmanager
def running_shop(folder: Path, extra: str = "") -> Iterator[Shop]:
    shop = Shop(folder, extra)
    shop.start()
    try:
        yield shop
    finally:
        shop.stop()


@dataclass
class ConsolePage:
    """A page of the console, and what went wrong in it."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)

    def open(self, place: str) -> None:
        """Open a place, and return once its page has a heading."""
        self.page.goto(f"{self.url}/console/#/{place}")
        self.page.locator("main h1").first.wait_for()

    def violations(self, rule: str = "") -> list[str]:
        """Return what axe-core finds on the page as it is shown, by one rule if it is given."""
        options = {"resultTypes": ["violations"], **({"runOnly": [rule]} if rule else {})}
        found = self.page.evaluate("async (options) => (await axe.run(document, options)).violations", options)
        return [
            f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0].get('failureSummary', '')}"
            for each in found
        ]

    def sideways(self) -> int:
        """Return by how many pixels the page scrolls sideways."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@contextmanager
def console_page(browser: Browser, url: str, **context: Any) -> Iterator[ConsolePage]:
    """Open a tab. A violation of the content security policy, an uncaught error and a foreign request are faults."""
    opened = browser.new_context(**context)
    page = opened.new_page()
    page.set_default_timeout(20_000)
    console = ConsolePage(page, url)
    page.on("pageerror", lambda error: console.faults.append(f"error: {error}"))
    page.on("dialog", lambda dialog: console.faults.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: _note_foreign(console, request.url))
    page.on("console", lambda message: _note_violation(console, message.text))
    try:
        yield console
    finally:
        opened.close()


def with_axe(page: Page) -> None:
    """Load axe-core into every document of the page, without the page's policy."""
    page.add_init_script(path=AXE)


def _note_foreign(console: ConsolePage, url: str) -> None:
    if not url.startswith((console.url, "data:", "blob:")):
        console.faults.append(f"request: {url}")


def _note_violation(console: ConsolePage, text: str) -> None:
    if "Content Security Policy" in text or "TrustedHTML" in text or "TrustedScript" in text:
        console.faults.append(f"policy: {text}")
