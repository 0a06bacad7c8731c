"""One browser, and one service with executions in all five modes, for the tests of the console."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import LOCKED, Shop, running_browser, running_shop

expect.set_options(timeout=20_000)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a browser, so that a run can leave them out."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run a browser for one module only: its client holds the thread's event loop, which other tests need."""
    with running_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with running_shop(tmp_path_factory.mktemp("shop")) as served:
        fill(served)
        yield served


@pytest.fixture(scope="session")
def locked_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Run a service whose routes need a key."""
    with running_shop(tmp_path_factory.mktemp("locked"), LOCKED) as served:
        yield served


def fill(shop: Shop) -> None:
    """Make executions in all five modes, two of which wait for a person and one of which failed."""
    shop.chat("Roll 2d6", request_id="dice")
    shop.chat("Read order 7", request_id="order-7", agent="refunds", session_id="okafor")
    shop.chat("refund order 7", request_id="refund-7", agent="refunds")
    shop.chat("How large is Ulm?", request_id="ulm", mode="structured", output={"schema": SCHEMA})
    shop.chat("Compare offers [[again:1]]", request_id="offers", mode="plan", plan={"passes": 3})
    shop.chat("Name a city", request_id="votes", mode="redundant", redundancy={"n": 3}, output={"schema": SCHEMA})
    shop.execute(request_id="invoice", mode="flow", flow={"name": "invoices", "input": {"number": "7"}})
    assert shop.process is not None
    status, _ = shop.process.ask(
        "POST", "/v1/execute", {"request_id": "failed", "messages": [{"role": "user", "content": "[[fail:429]]"}]}
    )
    assert status >= 400
    shop.ask("PUT", "/v1/memory/ulm", {"text": "The minster of Ulm is 161 metres tall."})
