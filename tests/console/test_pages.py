"""Every page: nothing that axe-core finds in the dark or in the light, no scrolling sideways, no fault."""

import pytest
from playwright.sync_api import Browser

from tests.support.browser import Shop, console_page, with_axe

PLACES = (
    "now",
    "executions",
    "executions?q=nothing-begins-so",
    "executions/refund-7",
    "executions/failed?step=0%2F0",
    "executions/dice/conversation",
    "executions/failed/failover",
    "executions/order-7/context",
    "executions/offers/plan",
    "executions/votes/votes",
    "executions/invoice/graph",
    "executions/dice/forks",
    "executions/dice/events",
    "executions/nothing",
    "compare/dice/order-7",
    "questions",
    "sessions",
    "sessions/okafor",
    "try",
    "flows",
    "flows/invoices",
    "agents",
    "agents/refunds",
    "tools",
    "tools/refund",
    "engines",
    "engines/main",
    "memory",
    "memory/ulm",
    "usage",
    "keys",
    "errors",
    "errors/REQUEST_INVALID",
    "machines",
    "machines/lifecycle.chat",
)


@pytest.mark.parametrize(("theme", "width"), [("dark", 1280), ("light", 320)])
def test_no_page_has_a_violation_or_scrolls_sideways(browser: Browser, shop: Shop, theme: str, width: int) -> None:
    size = {"width": width, "height": 800}
    found = []
    with console_page(browser, shop.url, color_scheme=theme, viewport=size, reduced_motion="reduce") as console:
        with_axe(console.page)
        for place in PLACES:
            console.open(place)
            console.page.locator(".loading").wait_for(state="detached")
            assert console.page.locator("main").get_attribute("data-page") == place.split("/")[0].split("?")[0]
            found += [f"{place}: {each}" for each in console.violations()]
            if console.sideways() > 0:
                found.append(f"{place}: {console.sideways()} pixels sideways")
        assert found == [], "\n".join(found)
        assert console.faults == []
