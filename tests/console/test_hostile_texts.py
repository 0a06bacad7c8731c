"""Texts of others are text: no script runs, no policy is violated, no request leaves the service."""

from playwright.sync_api import Browser, expect

from tests.support.browser import Shop, console_page

HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)> javascript:alert(4) {{7*7}} ${7*7} "
    "https://evil.example/ ![x](https://evil.example/x.png) \u202egnp.exe\u202c \u0007bell \u200bzero "
    "data:image/png;base64," + "A" * 400 + " `' \" $(touch x)"
)
DEEP = "[" * 60 + "1" + "]" * 60
LARGE = "<b>" + "word " * 800_000
FILE = {"name": "read_file", "parameters": {"type": "object", "properties": {"question": {"type": "string"}}}}


def test_hostile_texts_stay_texts_on_every_page_that_shows_them(browser: Browser, shop: Shop) -> None:
    shop.chat(HOSTILE, request_id="hostile", session_id="s", metadata={"k": HOSTILE[:200]})
    shop.chat(f'Use ask_person: "{HOSTILE.replace(chr(34), "")}"', request_id="asks")
    shop.chat(LARGE, request_id="vast", background=True)
    for name, is_error in (("result", False), ("error", True)):
        shop.chat(f'Use read_file: "{name}"', request_id=name, client_tools=[FILE], metadata={"<b>": HOSTILE[:100]})
        answer = {"result": {HOSTILE[:60]: [HOSTILE]}, "is_error": is_error}
        shop.ask("POST", f"/v1/executions/{name}/resume", {"tool_id": "read_file", "payload": answer})
    shop.chat(f"{DEEP} [[garble]]", request_id="deep", background=True)
    shop.ask("PUT", "/v1/memory/doc", {"text": HOSTILE, "metadata": {"x": HOSTILE[:100]}})
    places = (
        "executions",
        "executions/hostile",
        "executions/hostile/conversation",
        "executions/hostile/events",
        "executions/hostile?step=0%2F0",
        "executions/asks",
        "executions/vast/conversation",
        "executions/deep",
        "executions/result/conversation",
        "executions/result/events",
        "executions/error/conversation",
        "executions/error?step=0%2F0",
        "compare/result/error",
        "compare/hostile/asks",
        "questions",
        "sessions/s",
        "memory/doc",
        "now",
        "executions/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E",
    )
    with console_page(browser, shop.url) as console:
        for place in places:
            console.open(place)
            expect(console.page.locator(".loading")).to_have_count(0)
            assert console.page.locator("main img, main script, main iframe, main a[href^='javascript']").count() == 0
            assert "\u202e" not in console.page.inner_text("main")
        console.open("executions/hostile/conversation")
        expect(console.page.locator("[data-text]").first).to_contain_text("<img src=x onerror=alert(1)>")
        expect(console.page.locator("[data-text]").first).to_contain_text("\\u202egnp.exe")
        expect(console.page.locator("[data-text]").first).to_contain_text("[image/png, 300 B]")
        console.open("executions/vast/conversation")
        assert len(console.page.inner_text("main")) < 65_536
        assert console.faults == []
