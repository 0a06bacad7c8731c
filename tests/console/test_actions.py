"""Actions of a person: cancel, delete, replay several, settle an unknown outcome, read a list while it grows."""

import re
from collections.abc import Callable

from playwright.sync_api import Browser, expect

from tests.support.browser import Shop, console_page

SLOW = "Draft an answer [[slow:60]]"
HIDE = """(hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def wait_for(condition: Callable[[], bool], shop: Shop) -> None:
    """Ask the service again and again until the condition holds."""
    while not condition():
        shop.ask("GET", "/v1/me")


def test_an_execution_is_cancelled_and_deleted_once_a_dialog_was_answered(browser: Browser, shop: Shop) -> None:
    shop.chat(SLOW, request_id="unwanted", background=True)
    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("executions/unwanted")
        page.get_by_role("button", name="Cancel", exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text("Cancel this execution?")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert shop.ask("GET", "/v1/executions/unwanted")["state"] != "CANCELLED"
        page.get_by_role("button", name="Cancel", exact=True).click()
        page.get_by_role("button", name="Cancel execution").click()
        expect(page.locator("[data-machine-state=CANCELLED]")).to_have_attribute("data-now", "")
        page.get_by_role("button", name="Delete", exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text("Delete this execution?")
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.locator("main")).to_have_attribute("data-page", "executions")
        expect(page.locator("[data-request-id=dice]")).to_be_visible()
        expect(page.locator("[data-request-id=unwanted]")).to_have_count(0)
        console.open("executions/unwanted")
        expect(page.get_by_text("Deleted, or never yours")).to_be_visible()
        assert console.faults == []


def test_selected_executions_are_replayed_and_two_are_compared(browser: Browser, shop: Shop) -> None:
    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("executions")
        for name in ("dice", "ulm"):
            page.locator(f"[data-request-id={name}] input[type=checkbox]").check()
        page.get_by_role("button", name="Replay 2").click()
        for name in ("dice", "ulm"):
            expect(page.locator(f"[data-request-id={name}]")).to_contain_text("identical")
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("main")).to_have_attribute("data-page", "compare")
        expect(page.get_by_role("heading", name="First difference at step")).to_be_visible()
        assert console.faults == []


def test_a_call_during_which_the_service_was_killed_is_settled_by_its_result(browser: Browser, shop: Shop) -> None:
    shop.chat("ship order 21", request_id="parcel", agent="warehouse", background=True)
    wait_for(lambda: bool(shop.ask("GET", "/v1/suspensions?request_id=parcel")["data"]), shop)
    assert shop.process is not None
    approval = {"tool_id": "ship", "payload": {"decision": "approve"}}
    shop.process.ask("POST", "/v1/executions/parcel/resume", approval, Prefer="respond-async")
    wait_for((shop.folder / "loaded.txt").exists, shop)
    shop.stop()
    shop.start()
    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("questions")
        question = page.locator("[data-suspension-id][data-request-id=parcel]")
        expect(question).to_contain_text("It is not known whether it happened.")
        question.get_by_label("Its result").fill("shipped by hand")
        question.get_by_role("button", name="It happened").click()
        expect(question).to_contain_text("It goes on with that result.")
        console.open("executions/parcel")
        expect(page.locator("[data-machine-state=COMPLETE]")).to_have_attribute("data-now", "")
        expect(page.locator("main")).to_contain_text("shipped by hand")
        assert console.faults == []


def test_a_hidden_tab_has_no_stream_and_new_rows_wait_while_a_list_is_read(browser: Browser, shop: Shop) -> None:
    for number in range(30):
        shop.chat("Hi", request_id=f"filler-{number}")
    with console_page(browser, shop.url, viewport={"width": 1280, "height": 400}) as console:
        page = console.page
        console.open("executions?q=filler")
        live = page.locator("[data-live]")
        expect(live).to_have_attribute("data-live", "live")
        page.evaluate(HIDE, True)
        expect(live).to_have_attribute("data-live", "off")
        shop.chat("Hi", request_id="filler-hidden")
        page.evaluate(HIDE, False)
        expect(page.locator("[data-request-id=filler-hidden]")).to_be_visible()
        expect(live).to_have_attribute("data-live", "live")
        page.locator("[data-request-id=filler-0]").scroll_into_view_if_needed()
        page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")
        shop.chat("Hi", request_id="filler-new")
        expect(page.get_by_role("button", name=re.compile(r"^\s*1 new\s*$"))).to_be_visible()
        assert page.locator("[data-request-id=filler-new]").count() == 0
        page.get_by_role("button", name="1 new").click()
        expect(page.locator("[data-request-id=filler-new]")).to_be_visible()
        assert console.faults == []
