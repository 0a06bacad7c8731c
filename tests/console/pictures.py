"""Pictures of the documentation, made from the rehearsal engine: `python -m tests.console.pictures`."""

import tempfile
from pathlib import Path

from tests.console.conftest import fill
from tests.support.browser import ROOT, Shop, console_page, running_browser, running_shop

PICTURES = ROOT / "docs" / "pictures"
SIZE = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 720}
TEXTS = (
    "Summarise ticket 48213 for the night shift",
    "Which trains reach Vienna before nine?",
    "Draft an answer to Ms Okafor",
    "Translate the manual into Polish",
    "Minutes of the meeting of 20 November",
    "Rank these passages",
)
VIEWS = (
    ("executions-light", "executions", "light", SIZE),
    ("execution-light", "executions/refund-8?step=2%2F0", "light", SIZE),
    ("execution-dark", "executions/refund-8?step=2%2F0", "dark", SIZE),
    ("questions-light", "questions", "light", SIZE),
    ("compare-dark", "compare/dice/dice-2", "dark", SIZE),
    ("phone-dark", "executions/refund-8", "dark", PHONE),
)


def _prepare(shop: Shop) -> None:
    fill(shop)
    shop.chat("Roll 3d6", request_id="dice-2")
    for number, text in enumerate(TEXTS):
        shop.chat(text, request_id=f"ticket-{number}", session_id=f"customer-{number}")
    shop.chat("refund order 8", request_id="refund-8", agent="refunds", session_id="okafor-8")
    answer = {"tool_id": "refund", "payload": {"decision": "approve"}}
    shop.ask("POST", "/v1/executions/refund-8/resume", answer)
    shop.chat("refund order 5000", request_id="refund-5000", agent="refunds")
    changed = {"decision": "approve", "arguments": {"order": 4711}, "reason": "5000 was a slip of the pen"}
    shop.ask("POST", "/v1/executions/refund-5000/resume", {"tool_id": "refund", "payload": changed})


def main() -> None:
    """Write the pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, running_shop(Path(folder)) as shop, running_browser() as browser:
        _prepare(shop)
        for name, place, theme, size in VIEWS:
            with console_page(browser, shop.url, color_scheme=theme, viewport=size, reduced_motion="reduce") as console:
                console.open(place)
                console.page.wait_for_timeout(1200)
                console.page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
