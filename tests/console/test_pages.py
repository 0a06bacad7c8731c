"""Every page: nothing that axe-core finds in the dark or in the light, no scrolling sideways, no fault; its frame."""

import re
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
        failed: Mapping[str, Any] = {"status": 503, "json": problem, "headers": {"X-Request-Id": "of-the-failure"}}
        console.page.route("**/v1/**", lambda route: route.fulfill(**failed))
        for place in PLACES:
            if place != "try":
                console.open(place)
                expect(console.page.get_by_role("alert").first).to_contain_text("the store is away")
                expect(console.page.get_by_role("alert").first).to_contain_text("X-Request-Id of-the-failure")
                expect(console.page.get_by_role("button", name="Try again").first).to_be_enabled()
        assert console.faults == []


def test_a_page_that_throws_says_so(browser: Browser, shop: Shop) -> None:
    with console_page(browser, shop.url) as console:
        console.page.route("**/v1/machines", lambda route: route.fulfill(json={"data": None}))
        console.open("machines")
        expect(console.page.get_by_role("alert")).to_contain_text("This page has failed")
        console.page.unroute("**/v1/machines")
        console.page.get_by_role("button", name="Reload page").click()
        expect(console.page.get_by_role("heading", name="Machines")).to_be_visible()
        assert console.faults == []


def test_the_title_counts_questions_and_the_switches_of_theme_and_keys_outlive_a_reload(
    browser: Browser, shop: Shop
) -> None:
    with console_page(browser, shop.url, color_scheme="light", viewport=WINDOW["viewport"]) as console:
        page, root = console.page, console.page.locator("html")
        console.open("sessions")
        expect(page).to_have_title(re.compile(r"^\(\d+\) Portico$"))
        page.get_by_role("button", name="Dark").click()
        page.get_by_role("button", name="Keys on").click()
        page.reload()
        expect(root).to_have_attribute("data-theme", "dark")
        page.get_by_role("button", name="Keys off").wait_for()
        page.keyboard.press("?")
        page.get_by_role("button", name="Keys off").click()
        assert page.get_by_role("dialog").count() == 0
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Keys").wait_for()
        assert console.faults == []


def test_rows_and_steps_are_gone_through_by_keys(browser: Browser, shop: Shop) -> None:
    shop.chat("Roll 2d6", request_id="keyed", metadata={"by": "keyboard"})
    with console_page(browser, shop.url) as console:
        page, rows = console.page, console.page.locator("[data-row]")
        console.open("executions?q=metadata.by%3Dkeyboard")
        expect(rows).to_have_count(1)
        console.open("executions")
        rows.nth(1).wait_for()
        page.keyboard.press("j")
        page.keyboard.press("j")
        expect(rows.nth(1)).to_be_focused()
        page.keyboard.press("k")
        expect(rows.nth(0)).to_be_focused()
        page.keyboard.press("Enter")
        page.locator("[data-step]").nth(1).wait_for()
        for key, at in (("]", 0), ("]", 1), ("[", 0)):
            page.keyboard.press(key)
            expect(page.locator("[data-step]").nth(at)).to_have_class(re.compile("chosen"))
        assert console.faults == []


def test_a_path_prefix_of_a_gateway_needs_no_setting(browser: Browser, shop: Shop) -> None:
    """A request that leaves the prefix would be a fault."""
    prefix = "/team/portico"
    with console_page(browser, f"{shop.url}{prefix}") as console:
        console.page.route(
            f"**{prefix}/**", lambda route: route.continue_(url=route.request.url.replace(prefix, "", 1))
        )
        console.open("executions")
        expect(console.page.locator("[data-live]")).to_have_attribute("data-live", "live")
        console.page.locator("[data-request-id=dice] a").click()
        console.page.locator("[data-step]").first.wait_for()
        assert console.faults == []
