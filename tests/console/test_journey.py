"""A person's ways through the console: watch, approve, replay, try, sign in and out, by mouse and by keyboard."""

import re
from collections.abc import Sequence

from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.browser import RIGHTS, Shop, console_page, with_axe

PHONE = {"width": 320, "height": 700}
SLOW = "Draft an answer [[slow:4]]"


def numbers(page: Page) -> Sequence[int]:
    """Return the numbers of the events that the page shows."""
    return [int(each) for each in page.eval_on_selector_all("[data-seq]", "all => all.map(each => each.dataset.seq)")]


def distance(first: Locator, second: Locator) -> float:
    """Return by how many pixels the second card stands below the first."""
    boxes = first.bounding_box(), second.bounding_box()
    assert boxes[0] is not None
    assert boxes[1] is not None
    return boxes[1]["y"] - boxes[0]["y"]


def refunds(shop: Shop) -> Sequence[str]:
    """Return the orders that were refunded."""
    file = shop.folder / "refunds.txt"
    return file.read_text().split() if file.exists() else ()


def restart(shop: Shop, page: Page) -> None:
    """Kill the service, and start it again once the page says that the connection is cut."""
    shop.stop()
    expect(page.locator("[data-live]")).to_have_attribute("data-live", "offline")
    expect(page.get_by_text("The connection is cut.")).to_be_visible()
    shop.start()


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until this has the focus."""
    wanted.wait_for()
    for _ in range(80):
        if wanted.evaluate("each => each === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {wanted}")


def test_a_person_watches_an_execution_and_approves_its_call(browser: Browser, shop: Shop) -> None:
    shop.chat("refund order 9", request_id="refund-9", agent="refunds")
    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("executions")
        page.locator("[data-request-id=refund-9][data-state=SUSPENDED] a").click()
        expect(page.locator("[data-machine-state=SUSPENDED]")).to_have_attribute("data-now", "")
        expect(page.locator("[data-suspension-id] table")).to_contain_text("9")
        page.get_by_role("button", name="Approve").click()
        expect(page.locator("[data-machine-state=COMPLETE]")).to_have_attribute("data-now", "")
        assert refunds(shop).count("9") == 1
        steps = shop.ask("GET", "/v1/executions/refund-9/steps?view=summary")["data"]
        call = next(step["key"] for step in steps if step["kind"] == "tool_call")
        page.locator(f'[data-step="{call}"]').click()
        expect(page.locator("aside")).to_contain_text("receipt R-88121")
        page.get_by_role("button", name="Replay").click()
        expect(page.get_by_text("Replayed: identical")).to_be_visible()
        assert console.faults == []


def test_a_result_is_edited_in_a_fork_and_nothing_runs_again(browser: Browser, shop: Shop) -> None:
    shop.chat("refund order 11", request_id="refund-11", agent="refunds")
    shop.ask("POST", "/v1/executions/refund-11/resume", {"tool_id": "refund", "payload": {"decision": "approve"}})
    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("executions/refund-11?step=2%2F0")
        page.get_by_label("Result of refund").fill("refused: order 11 was refunded before")
        page.get_by_label("Model").select_option("second")
        expect(page.get_by_text(re.compile(r"at most \d+ inferences, \d+ calls"))).to_be_visible()
        page.get_by_role("button", name="Fork and compare").click()
        expect(page.locator("main")).to_have_attribute("data-page", "compare")
        expect(page.get_by_role("heading", name="First difference at step")).to_be_visible()
        edited = page.locator('.pair[data-step="1/0/0/0"]')
        expect(edited).to_contain_text("edited, did not run")
        expect(page.locator("[data-first-difference]")).to_have_attribute("data-step", "1/0/0/0")
        console.open(f"executions/{page.url.rpartition('/')[2]}")
        page.locator('[data-step="1/0/0/0"]').click()
        expect(page.locator("aside")).to_contain_text("edited, did not run")
        assert refunds(shop).count("11") == 1
        assert console.faults == []


def test_a_failed_and_a_cancelled_execution_are_continued_and_a_suspended_one_is_forked(
    browser: Browser, shop: Shop
) -> None:
    shop.chat(SLOW, request_id="stopped", background=True)
    shop.ask("POST", "/v1/executions/stopped/cancel")
    shop.chat("refund order 13", request_id="refund-13", agent="refunds")
    with console_page(browser, shop.url) as console:
        page = console.page
        for request_id, state in (("failed", "ERROR"), ("stopped", "CANCELLED")):
            console.open(f"executions/{request_id}")
            expect(page.locator(".pill")).to_have_text(state)
            page.get_by_label("Message").fill("Roll 1d6")
            expect(page.get_by_text(re.compile(r"at most \d+ inferences"))).to_be_visible()
            page.get_by_role("button", name="Fork and compare").click()
            expect(page.locator("main")).to_have_attribute("data-page", "compare")
            console.open(f"executions/{page.url.rpartition('/')[2]}")
            expect(page.locator(".crumbs")).to_contain_text(f"fork of {request_id} from its end")
            expect(page.locator(".details")).to_contain_text("roll_dice answered")
        console.open("executions/refund-13?step=0%2F0")
        page.get_by_label("Message").fill("Roll 1d6")
        page.get_by_role("button", name="Fork and compare").click()
        expect(page.locator("main")).to_have_attribute("data-page", "compare")
        assert refunds(shop).count("13") == 0
        assert console.faults == []


def test_a_question_that_is_settled_keeps_its_place(browser: Browser, shop: Shop) -> None:
    for number in (1, 2):
        shop.chat(f"refund order {number}", request_id=f"refund-{number}", agent="refunds")
    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("questions")
        first = page.locator("[data-request-id=refund-1]")
        second = page.locator("[data-request-id=refund-2]")
        expect(second).to_be_visible()
        before = distance(first, second)
        first.get_by_placeholder("Reason, for the model").fill("not today")
        first.get_by_role("button", name="Deny").click()
        expect(first).to_contain_text("Denied.")
        expect(first.get_by_role("button", name="Approve")).to_be_disabled()
        assert distance(first, second) == before
        assert "1" not in refunds(shop)


def test_a_call_is_shown_beside_the_one_before_it_and_not_approved_while_an_argument_is_folded(
    browser: Browser, shop: Shop
) -> None:
    steps = [
        {"name": name, "type": "tool", "input": {"name": "send_letter", "arguments": arguments}, "depends_on": after}
        for name, arguments, after in (
            ("first", {"to": "Ada", "text": "Dear friend, " * 100}, []),
            ("second", {"to": "Ben", "text": "Dear friend, " * 100}, ["first"]),
        )
    ]
    shop.chat("Write to both", request_id="letters", mode="plan", plan={"steps": steps})
    with console_page(browser, shop.url) as console:
        question = console.page.locator("[data-request-id=letters][data-suspension-id]").first
        approve = question.get_by_role("button", name="Approve")
        console.open("questions")
        expect(question).to_contain_text("Ada")
        expect(approve).to_be_disabled()
        expect(approve).to_have_attribute("aria-description", "Show all arguments first")
        question.get_by_role("button", name="Show all of text").click()
        approve.click()
        expect(question).to_contain_text("Approved.")
        console.page.reload()
        expect(question.locator("tr.changed")).to_have_text("toBenAda")
        expect(question.locator("tr", has_text="Dear friend")).not_to_have_class(re.compile("changed"))
        assert console.faults == []


def test_the_result_of_a_client_tool_is_given_on_the_questions_page(browser: Browser, shop: Shop) -> None:
    parameters = {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}
    shop.chat(
        'Use read_file: "notes.txt"', request_id="file", client_tools=[{"name": "read_file", "parameters": parameters}]
    )
    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("questions")
        call = page.locator("[data-request-id=file]")
        expect(call.get_by_role("heading")).to_have_text("Client tool · read_file")
        expect(call.get_by_text('"question": "notes.txt"')).to_be_visible()
        call.get_by_label("Its result").fill("no such file")
        call.get_by_label("as an error").check()
        call.get_by_role("button", name="Answer").click()
        expect(call).to_contain_text("It goes on with that result.")
        console.open("executions/file")
        expect(page.locator(".pill")).to_have_text("COMPLETE")
    made = shop.ask("GET", "/v1/executions/file")["response"]["tool_calls_made"]
    assert [(each["result"], each["is_error"]) for each in made] == [("no such file", True)]


def test_a_call_without_its_credential_is_denied_on_the_questions_page(browser: Browser, shop: Shop) -> None:
    shop.chat("Please use issues", request_id="mine", tools=["issues"])
    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("questions")
        call = page.locator("[data-request-id=mine]")
        expect(call.get_by_role("heading")).to_have_text("Credential · issues")
        expect(call).to_contain_text("portico credentials set tracker")
        expect(call).to_contain_text("Your token of the tracker.")
        call.get_by_placeholder("Reason, for the model").fill("not today")
        call.get_by_role("button", name="Deny").click()
        expect(call).to_contain_text("Denied.")
        console.open("executions/mine")
        expect(page.locator(".pill")).to_have_text("COMPLETE")
        assert console.faults == []


def test_a_timeline_goes_on_without_a_gap_after_the_service_was_killed(browser: Browser, shop: Shop) -> None:
    body = {"request_id": "slow", "messages": [{"role": "user", "content": SLOW}], "background": True}
    shop.execute(**body)
    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("executions/slow/events")
        expect(page.locator("[data-live]")).to_have_attribute("data-live", "live")
        expect(page.locator("[data-seq]").first).to_be_visible()
        restart(shop, page)
        expect(page.locator(".pill")).to_have_text("COMPLETE", timeout=30_000)
        found = numbers(page)
        assert found == list(range(1, len(found) + 1))
        assert len(found) == shop.ask("GET", "/v1/executions/slow")["events"]


def open_the_list_of_keys_and_the_other_pages(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    tab_to(page, page.get_by_role("button", name="More"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("dialog").get_by_role("link", name="Sessions"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Sessions")).to_be_focused()


def test_the_whole_way_by_keyboard_on_a_phone_in_the_dark_while_the_service_is_killed(
    browser: Browser, shop: Shop
) -> None:
    """Dice are rolled, a refund is approved, its result is edited in a fork, and the fork is compared."""
    with console_page(browser, shop.url, viewport=PHONE, color_scheme="dark") as console:
        page, keyboard = console.page, console.page.keyboard
        console.open("executions")
        page.locator("[data-row]").first.wait_for()
        open_the_list_of_keys_and_the_other_pages(page)
        keyboard.press("g")
        keyboard.press("t")
        tab_to(page, page.get_by_label("Message", exact=True))
        keyboard.press("Control+a")
        keyboard.type("Roll 1d6")
        tab_to(page, page.get_by_label("Session"))
        keyboard.press("Shift+Tab")
        expect(page.get_by_text("inferences at most")).to_be_visible()
        page.get_by_role("heading", name="Try").focus()
        tab_to(page, page.get_by_role("button", name="Run"))
        keyboard.press("Enter")
        expect(page.locator("section[aria-live]")).to_contain_text("roll_dice answered")
        shop.chat("refund order 3", request_id="refund-3", agent="refunds")
        restart(shop, page)
        keyboard.press("g")
        keyboard.press("q")
        expect(page.locator("main")).to_have_attribute("data-page", "questions")
        expect(page.get_by_role("heading", name="Questions")).to_be_focused()
        mine = page.locator("[data-request-id=refund-3]")
        tab_to(page, mine.get_by_role("button", name="Approve"))
        keyboard.press("Enter")
        expect(mine).to_contain_text("Approved.")
        keyboard.press("g")
        keyboard.press("e")
        page.locator("[data-request-id=refund-3][data-state=COMPLETE]").wait_for()
        tab_to(page, page.locator("[data-request-id=refund-3] a"))
        keyboard.press("Enter")
        tab_to(page, page.locator("[data-step='2/0']"))
        keyboard.press("Enter")
        tab_to(page, page.get_by_label("Result of refund"))
        keyboard.press("Control+a")
        keyboard.type("refused: order 3 was refunded before")
        assert console.sideways() <= 0
        expect(page.get_by_text(re.compile(r"at most \d+ inferences"))).to_be_visible()
        tab_to(page, page.get_by_role("button", name="Fork and compare"))
        keyboard.press("Enter")
        expect(page.locator("main")).to_have_attribute("data-page", "compare")
        expect(page.get_by_role("heading", name="First difference at step")).to_be_focused()
        expect(page.locator("[data-first-difference]")).to_have_attribute("data-step", "1/0/0/0")
        assert console.sideways() <= 0
        assert refunds(shop).count("3") == 1
        assert console.faults == []


def test_a_request_is_tried_after_its_quote(browser: Browser, shop: Shop) -> None:
    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("try")
        page.get_by_label("Message", exact=True).fill("Roll 1d6")
        expect(page.get_by_text("inferences at most")).to_be_visible()
        page.get_by_role("button", name="Run").click()
        expect(page.locator("section[aria-live]")).to_contain_text("roll_dice answered")
        page.locator("section[aria-live] a").click()
        expect(page.locator(".bound")).to_contain_text("of at most")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("go to Now")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert console.faults == []


SENDS = ("can_send_messages", "model:*", "agent:*", "tool:*")


def signed_in(page: Page, url: str, key: str, place: str) -> None:
    """Open a place and give the key that it asks for."""
    page.goto(f"{url}/console/#/{place}")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.locator("main h1").first.wait_for()


def test_the_key_is_asked_for_and_forgotten_and_a_missing_right_is_named(browser: Browser, locked_shop: Shop) -> None:
    ann, ben = locked_shop.key_of("ann", *SENDS), locked_shop.key_of("ben")
    locked_shop.chat("refund order 5", key=ann, request_id="secret-1", agent="refunds")
    with console_page(browser, locked_shop.url) as console:
        page = console.page
        page.goto(f"{locked_shop.url}/console/#/executions")
        page.get_by_label("API key").fill(ann)
        page.get_by_label("Keep for this tab").check()
        page.get_by_role("button", name="Sign in").click()
        page.locator("[data-request-id=secret-1]").wait_for()
        page.reload()
        page.locator("[data-request-id=secret-1] a").click()
        approve = page.get_by_role("button", name="Approve")
        expect(approve).to_be_disabled()
        expect(approve).to_have_attribute("aria-description", "needs can_approve")
        assert ann not in page.url
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        assert page.evaluate("sessionStorage.getItem('portico.key')") is None
        page.get_by_label("API key").fill(ben)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("Deleted, or never yours")).to_be_visible()
        assert console.faults == []


def test_two_users_approve_other_arguments_and_none_alone(browser: Browser, locked_shop: Shop) -> None:
    ann, eve = locked_shop.key_of("ann", *RIGHTS), locked_shop.key_of("eve", *RIGHTS)
    locked_shop.chat("refund order 5000", key=ann, request_id="large", agent="refunds")
    with console_page(browser, locked_shop.url) as first, console_page(browser, locked_shop.url) as second:
        signed_in(first.page, locked_shop.url, ann, "questions")
        question = first.page.locator("[data-request-id=large]")
        expect(question).to_contain_text("5000")
        question.get_by_text("Change arguments").click()
        question.get_by_label("Arguments", exact=True).fill("[1]")
        expect(question.get_by_role("button", name="Approve")).to_be_disabled()
        question.get_by_label("Arguments", exact=True).fill('{"order": "many"}')
        question.get_by_role("button", name="Approve").click()
        expect(question.get_by_role("alert")).to_contain_text("payload.arguments")
        question.get_by_label("Arguments", exact=True).fill('{"order": 4000}')
        question.get_by_label("Reason").fill("4000 it is")
        question.get_by_role("button", name="Approve").click()
        expect(question).to_contain_text("1 of 2 approvals, with changed arguments")
        expect(question.get_by_role("button", name="Approve")).to_be_disabled()
        signed_in(second.page, locked_shop.url, eve, "executions/large")
        details = second.page.locator("aside")
        expect(details).to_contain_text("ann")
        expect(details).to_contain_text("4000 it is")
        expect(details.locator("tr.changed")).to_contain_text("4000")
        details.get_by_role("button", name="Approve").click()
        expect(second.page.locator(".pill")).to_have_text("COMPLETE")
        second.page.locator(".line.call").click()
        expect(details).to_contain_text("approved by ann (4000 it is), eve, with changed arguments")
        expect(details).to_contain_text("refunded order 4000")
        expect(question).to_contain_text("It was settled.")
        assert refunds(locked_shop) == ["4000"]
        assert first.faults == second.faults == []


def test_a_grant_lets_later_calls_run_until_it_is_revoked(browser: Browser, shop: Shop) -> None:
    def ask(name: str) -> str:
        answer = shop.chat("refund order 21", request_id=name, agent="refunds", session_id="granted")
        return str(answer["state"])

    assert ask("first") == "SUSPENDED"
    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("questions")
        question = page.locator("[data-request-id=first]")
        question.get_by_text("Change arguments").click()
        question.get_by_label("Later calls").select_option("in this session")
        question.get_by_role("combobox", name="For", exact=True).select_option("10 minutes")
        question.get_by_role("button", name="Approve").click()
        grant = page.locator("[data-grant-id]")
        expect(grant).to_contain_text("session granted")
        expect(grant).to_contain_text("0 of 20")
        assert ask("second") == "COMPLETE"
        console.open("executions/second")
        page.locator(".line.call").click()
        expect(page.locator("aside")).to_contain_text("granted by")
        console.open("questions")
        expect(grant).to_contain_text("1 of 20")
        grant.get_by_role("button", name="Revoke").click()
        expect(grant).to_have_count(0)
        assert console.faults == []
    assert ask("third") == "SUSPENDED"


PAGES_OF_A_STRANGER = (
    "now",
    "executions",
    "questions",
    "sessions",
    "try",
    "flows",
    "agents",
    "tools",
    "engines",
    "memory",
    "usage",
    "keys",
    "errors",
    "machines",
    "executions/large",
    "executions/large/conversation",
    "compare/large/secret-1",
    "sessions/granted",
)


def test_a_key_of_another_tenant_with_few_rights_sees_nothing_and_reads_what_it_lacks(
    browser: Browser, locked_shop: Shop
) -> None:
    ann = locked_shop.key_of("ann", *RIGHTS)
    locked_shop.chat("refund order 77", key=ann, request_id="theirs", agent="refunds", session_id="granted")
    few = locked_shop.first_key("globex", "tool:roll_dice")
    with console_page(browser, locked_shop.url) as console:
        page = console.page
        with_axe(page)
        page.goto(f"{locked_shop.url}/console/#/now")
        page.get_by_label("API key").fill(few)
        page.get_by_label("Keep for this tab").check()
        page.get_by_role("button", name="Sign in").click()
        for place in PAGES_OF_A_STRANGER:
            console.open(place)
            expect(page.locator(".loading")).to_have_count(0)
            text = page.inner_text("main")
            assert not re.search(r"order (77|5000|5)\b|acme|\bann\b|\beve\b", text), (place, text)
            for button in page.locator("main button:disabled").all():
                assert button.get_attribute("aria-description"), (place, button)
            assert console.violations() == []
        console.open("try")
        run = page.get_by_role("button", name="Run")
        expect(run).to_have_attribute("aria-description", "needs can_send_messages")
        console.open("keys")
        expect(page.locator("main")).to_contain_text("can_manage_keys")
        console.open("engines")
        expect(page.locator("main")).to_contain_text("Health needs can_read_metrics")
        assert console.faults == []


def test_a_key_is_made_shown_once_and_revoked(browser: Browser, locked_shop: Shop) -> None:
    with console_page(browser, locked_shop.url, viewport=PHONE) as console:
        page = console.page
        with_axe(page)
        signed_in(page, locked_shop.url, locked_shop.manager, "keys")
        page.get_by_role("button", name="New key").click()
        page.get_by_label("User").fill("zoe")
        page.get_by_label("Permissions").fill("can_send_messages, can_fly")
        page.get_by_role("button", name="Make the key").click()
        expect(page.get_by_role("alert")).to_contain_text("permissions.1: must be one of")
        page.get_by_label("Permissions").fill("can_send_messages")
        page.get_by_role("button", name="Make the key").click()
        expect(page.get_by_text("It is shown once.")).to_be_visible()
        secret = page.get_by_role("region", name="New key").inner_text()
        assert locked_shop.ask("GET", "/v1/me", key=secret)["user"] == "zoe"
        assert console.violations() == []
        assert console.sideways() <= 0
        page.get_by_role("button", name=f"Revoke {secret.split('_')[1]}").click()
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(page.locator("tr", has_text="zoe")).to_contain_text("revoked")
        page.reload()
        assert secret not in page.content()
        assert console.faults == []
