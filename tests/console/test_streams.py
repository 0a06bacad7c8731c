"""Streams of the console: cut at every frame, in eight tabs at once, with 10,000 events, and with many executions."""

import json
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import Shop, console_page

FASTER = "const wait = setTimeout; window.setTimeout = (run, ms, ...rest) => wait(run, ms / 20, ...rest);"
EVENTS = 10_000
MOST_ROW_ELEMENTS = 400
MOST_SECONDS = 2.0
MOST_HEAP = 150 * 2**20
AT_ONCE, ONE_BY_ONE = 1_100, 100
"""Executions of a list: more than it keeps, and than 200 a minute are in five minutes."""
MOST_ROWS = 1_000
MOST_HEAP_OF_A_LIST = 20 * 2**20
MOST_SECONDS_OF_A_ROW = 0.1


def numbers(page: Page) -> Sequence[int]:
    """Return the numbers of the events that the page shows."""
    return [int(each) for each in page.eval_on_selector_all("[data-seq]", "all => all.map(each => each.dataset.seq)")]


@contextmanager
def cutting_proxy(port: int) -> Iterator[tuple[int, list[int]]]:
    """Yield the port of a proxy that cuts each event stream of an execution behind its first frame, and its cuts."""
    listener = socket.create_server(("127.0.0.1", 0))
    cuts: list[int] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=forward, args=(client,), daemon=True).start()

    def forward(client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", port)) as upstream:
            stream, passed = False, b""
            while True:
                for ready in select.select([client, upstream], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if ready is client:
                        upstream.sendall(data)
                        stream, passed = b"/events" in data and b"text/event-stream" in data, b""
                        continue
                    passed += data if stream else b""
                    end = passed.find(b"\n\n", passed.find(b"\nid: ")) if b"\nid: " in passed else -1
                    if end >= 0:
                        client.sendall(data[: len(data) - len(passed) + end + 7])
                        cuts.append(end)
                        return
                    client.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1], cuts
    finally:
        listener.close()


def test_a_stream_that_is_cut_behind_every_frame_loses_no_event_and_shows_none_twice(
    browser: Browser, shop: Shop
) -> None:
    shop.chat("Read order 7", request_id="cut", agent="refunds")
    count = shop.ask("GET", "/v1/executions/cut")["events"]
    with (
        cutting_proxy(shop.port) as (port, cuts),
        console_page(browser, f"http://127.0.0.1:{port}", viewport={"width": 1280, "height": 1600}) as console,
    ):
        console.page.add_init_script(FASTER)
        console.open("executions/cut/events")
        expect(console.page.locator("[data-seq]")).to_have_count(count, timeout=60_000)
        assert numbers(console.page) == list(range(1, count + 1))
        assert len(cuts) >= count - 1
        assert console.faults == []


def test_eight_tabs_follow_eight_unfinished_executions_though_a_browser_has_six_connections(
    browser: Browser, shop: Shop
) -> None:
    names = [f"tab-{number}" for number in range(8)]
    for number, name in enumerate(names):
        shop.chat(f"refund order {30 + number}", request_id=name, agent="refunds")
    with console_page(browser, shop.url) as console:
        pages = [console.page, *(console.page.context.new_page() for _ in names[1:])]
        for page, name in zip(pages, names, strict=True):
            page.goto(f"{shop.url}/console/#/executions/{name}/events")
        for page in pages:
            expect(page.locator("[data-machine-state=SUSPENDED]")).to_have_attribute("data-now", "")
            expect(page.locator("[data-seq]").first).to_be_visible()
        for name in names:
            shop.ask("POST", f"/v1/executions/{name}/resume", {"tool_id": "refund", "payload": {"decision": "deny"}})
        for page in pages:
            expect(page.locator(".pill")).to_have_text("COMPLETE")
            found = numbers(page)
            assert found == list(range(1, len(found) + 1))
        assert console.faults == []


@contextmanager
def listing_proxy(port: int, rows: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the port of a proxy whose live list brings these rows, the last ones one by one, and then stays open."""
    listener = socket.create_server(("127.0.0.1", 0))
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: ready\ndata: {}\n\n"

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=forward, args=(client,), daemon=True).start()

    def forward(client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", port)) as upstream:
            while True:
                for ready in select.select([client, upstream], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if data.startswith(b"GET /v1/events "):
                        client.sendall(head)
                        for at, row in enumerate(rows):
                            select.select([], [], [], 0.02 if at >= AT_ONCE else 0)
                            client.sendall(b"event: execution\ndata: %b\n\n" % json.dumps(row).encode())
                        client.recv(1)
                        return
                    (upstream if ready is client else client).sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def many_events(shop: Shop) -> Sequence[Mapping[str, Any]]:
    """Return the events of a real execution with its first round repeated."""
    url = f"{shop.url}/v1/executions/dice/events"
    with urlopen(Request(url, headers={"Accept": "application/json"})) as answer:  # noqa: S310 - on loopback
        events: list[dict[str, Any]] = json.load(answer)["data"]
    first = next(at for at, each in enumerate(events) if each["type"] == "fallback.transition")
    end = next(at for at, each in enumerate(events) if each["type"] == "tool.end") + 1
    rounds = (EVENTS - len(events)) // (end - first) + 1
    repeated = [
        {
            **each,
            **({"segment": f"{number + 10}/0"} if each.get("segment") else {}),
            **({"tool_call_id": f"call_{number}"} if "tool_call_id" in each else {}),
            **({"span_id": f"span-{number}"} if each["type"].startswith("inference") else {}),
            **({"caused_by": f"span-{number}"} if each["type"].startswith("tool") else {}),
        }
        for number in range(rounds)
        for each in events[first:end]
    ]
    return [
        {**each, "sequence_number": at} for at, each in enumerate([*events[:first], *repeated, *events[end:]], start=1)
    ]


def thread_seconds(page: Page) -> Callable[[], float]:
    """Return a function that says what the page's thread has spent since: no other program counts, as in waits."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    before = spent()
    return lambda: spent() - before


def test_ten_thousand_events_are_shown_within_two_seconds_by_few_elements(browser: Browser, shop: Shop) -> None:
    events = many_events(shop)
    frames = "".join(f"id: {each['sequence_number']}\ndata: {json.dumps(each)}\n\n" for each in events)

    def answer(route: Route) -> None:
        route.fulfill(body=frames, content_type="text/event-stream")

    with console_page(browser, shop.url) as console:
        page = console.page
        console.open("errors")
        page.route("**/v1/executions/dice/events", answer)
        spent = thread_seconds(page)
        page.evaluate("location.hash = '#/executions/dice'")
        page.locator("[data-step]").first.wait_for()
        page.wait_for_function(f"document.querySelector('.timeline')?.ariaRowCount > {EVENTS // 4}")
        page.locator("[data-step]").nth(3).click()
        page.locator(".line.chosen").wait_for()
        took = spent()
        assert page.locator(".rows *").count() <= MOST_ROW_ELEMENTS
        page.get_by_role("link", name="Events").click()
        expect(page.locator("[data-seq]").first).to_be_visible()
        assert page.locator(".rows *").count() <= MOST_ROW_ELEMENTS
        page.locator("[data-seq='9']").scroll_into_view_if_needed()
        page.mouse.wheel(0, 28 * EVENTS)
        expect(page.locator(f"[data-seq='{len(events)}']")).to_be_visible()
        heap = page.evaluate("performance.memory.usedJSHeapSize")
        assert took <= MOST_SECONDS, took
        assert heap <= MOST_HEAP, heap
        assert console.faults == []


def test_a_list_of_many_executions_keeps_the_latest_and_little_memory(browser: Browser, shop: Shop) -> None:
    shop.chat("Hi", request_id="listed")
    [row] = shop.ask("GET", "/v1/executions?q=listed&view=summary")["data"]
    rows = [{**row, "request_id": f"listed-{number}"} for number in range(AT_ONCE + ONE_BY_ONE)]
    with listing_proxy(shop.port, rows) as port, console_page(browser, f"http://127.0.0.1:{port}") as console:
        page, listed = console.page, console.page.locator("[data-request-id]")
        session = page.context.new_cdp_session(page)
        console.open("errors")
        session.send("HeapProfiler.collectGarbage")
        heap, spent = page.evaluate("performance.memory.usedJSHeapSize"), thread_seconds(page)
        console.open("executions?q=listed-")
        page.locator(f"[data-request-id={rows[-1]['request_id']}]").wait_for()
        took = spent()
        page.wait_for_function(
            "most => { scrollTo(0, 1e9); return document.querySelectorAll('[data-request-id]').length >= most; }",
            arg=MOST_ROWS,
        )
        assert listed.count() == MOST_ROWS
        session.send("HeapProfiler.collectGarbage")
        more = page.evaluate("performance.memory.usedJSHeapSize") - heap
        assert took <= MOST_SECONDS_OF_A_ROW * ONE_BY_ONE, took
        assert more <= MOST_HEAP_OF_A_LIST, more
        assert console.faults == []
