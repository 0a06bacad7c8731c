"""Every page: nothing that axe-core finds in the dark or in the light, no scrolling sideways, no fault."""

from collections.abc import Mapping
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

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
    "engines/nothing",
    "memory",
    "memory/ulm",
    "usage",
    "keys",
    "errors",
    "errors/REQUEST_INVALID",
    "machines",
    "machines/lifecycle.chat",
)


WINDOW: Mapping[str, Any] = {"viewport": {"width": 1280, "height": 800}}
ZOOMED: Mapping[str, Any] = {"viewport": {"width": 320, "height": 256}, "device_scale_factor": 4}
"""A window of 1280 pixels at 400 %, which is as wide as a small phone."""


@pytest.mark.parametrize("size", [WINDOW, ZOOMED], ids=["window", "zoomed"])
def test_no_page_has_a_violation_or_scrolls_sideways_in_the_light_or_in_the_dark(
    browser: Browser, shop: Shop, size: Mapping[str, Any]
) -> None:
    found = []
    with console_page(browser, shop.url, color_scheme="light", reduced_motion="reduce", **size) as console:
        with_axe(console.page)
        for place in PLACES:
            console.open(place)
            expect(console.page.locator(".loading")).to_have_count(0)
            assert console.page.locator("main").get_attribute("data-page") == place.split("/")[0].split("?")[0]
            found += [f"{place}: {each}" for each in console.violations()]
            console.page.emulate_media(color_scheme="dark")
            found += [f"{place} in the dark: {each}" for each in console.violations("color-contrast")]
            console.page.emulate_media(color_scheme="light")
            if console.sideways() > 0:
                found.append(f"{place}: {console.sideways()} pixels sideways")
        moving = "document.getAnimations().filter(each => each.playState === 'running').length"
        assert console.page.evaluate(moving) == 0
        assert found == [], "\n".join(found)
        assert console.faults == []


def test_every_page_says_what_failed_and_offers_to_try_again(browser: Browser, shop: Shop) -> None:
    problem = {"status": 503, "code": "STORAGE_UNAVAILABLE", "detail": "the store is away"}
    with console_page(browser, shop.url) as console:
        console.page.route("**/v1/**", lambda route: route.fulfill(status=503, json=problem))
        for place in PLACES:
            if place != "try":
                console.open(place)
                expect(console.page.get_by_role("alert").first).to_contain_text("the store is away")
                expect(console.page.get_by_role("button", name="Try again").first).to_be_enabled()
        assert console.faults == []
