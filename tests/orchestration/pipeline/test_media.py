"""Media by URL in executions: a crash amid the fetches asks no server again for what is recorded."""

from dataclasses import replace

import anyio
import pytest

from portico.domain.contract.messages import ImagePart
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Code
from portico.domain.journal.outcomes import MediaFetched, Refused
from portico.ports.journal import ExecutionHistory
from portico.ports.media import FetchedMedia, MediaError, MediaLimits
from tests.support.harness import Harness, chat_request, make_harness, profile, replay_offline, scripted_engine
from tests.support.usage import quote_of
from tests.support.virtual_time import VirtualClock

PNG = b"\x89PNG\r\n\x1a\n"


class Files:
    """A fetcher whose files take a while, by URL. What is asked is noted."""

    limits = MediaLimits(max_parts=8, max_bytes=1_000, timeout=10.0)

    def __init__(self, clock: VirtualClock, **seconds: float) -> None:
        self.asked: list[str] = []
        self._clock = clock
        self._seconds = seconds

    def refusal(self, url: str) -> str | None:
        return None

    async def fetch(self, url: str, *, max_bytes: int, seconds: float) -> FetchedMedia:
        self.asked.append(url)
        await self._clock.sleep(min(seconds, self._seconds.get(url, 0.0)))
        if self._seconds.get(url, 0.0) > seconds:
            raise MediaError("it took too long")
        return FetchedMedia(PNG + url.encode(), "image/png")


def here(clock: VirtualClock, files: Files) -> Harness:
    world = make_harness(clock, scripted_engine(clock, "main", {"text": "Seen."}, {"text": "Seen."}))
    world.environment = replace(world.environment, media=files)
    return world


def with_images(*urls: str) -> SystemRequest:
    content = [{"type": "image", "url": url} for url in urls]
    return chat_request(messages=[{"role": "user", "content": content}])


async def crashed(world: Harness, request: SystemRequest, after: float) -> ExecutionHistory:
    """Return what is recorded of an execution whose process was killed after so many seconds."""
    execution = world.execution(request)
    with anyio.move_on_after(after):
        await world.drive(execution)
    return world.record(execution)


async def test_a_recovery_amid_the_fetches_asks_only_for_what_is_not_recorded(clock: VirtualClock) -> None:
    before = Files(clock, b=5.0)
    record = await crashed(here(clock, before), with_images("a", "b", "c"), after=2.0)
    assert before.asked == ["a", "b"]
    assert [step.outcome.__class__ for key, step in record.steps.items() if key.startswith("media/")] == [MediaFetched]

    after = Files(clock)
    world = here(clock, after)
    response, ended = await world.recover(record)
    assert (response.content, after.asked) == ("Seen.", ["b", "c"])
    assert [key for key in ended.steps if key.startswith("media/")] == ["media/0", "media/1", "media/2"]
    assert replay_offline(ended) == len(ended.steps)
    assert after.asked == ["b", "c"]


async def test_what_the_parts_of_a_request_may_take_holds_across_a_crash(clock: VirtualClock) -> None:
    record = await crashed(here(clock, Files(clock, a=9.0, b=5.0)), with_images("a", "b"), after=12.0)
    response, ended = await here(clock, Files(clock, b=5.0)).recover(record)
    assert response.error is not None
    assert response.error.code is Code.REQUEST_INVALID
    assert response.error.details["errors"][0]["field"] == "messages.0.content.1.url"
    assert isinstance(ended.steps["media/1"].outcome, Refused)
    assert replay_offline(ended) == len(ended.steps)


async def test_the_deadline_of_an_execution_ends_a_fetch(clock: VirtualClock) -> None:
    world, began = here(clock, Files(clock, a=9.0)), clock.monotonic()
    world.limits = replace(world.limits, timeout=3.0)
    response, record = await world.run(with_images("a"))
    assert response.error is not None
    assert response.error.code is Code.CANCELLED_TIMEOUT
    assert clock.monotonic() - began == pytest.approx(3.0)
    assert replay_offline(record) == len(record.steps)


async def test_a_quote_holds_for_a_part_by_url_however_large_it_turns_out(clock: VirtualClock) -> None:
    world = here(clock, Files(clock))
    by_url = with_images("a")
    sent = ImagePart(type="image", media_type="image/png", data="iVBORw0KGgo=")
    by_data = chat_request(messages=[{"role": "user", "content": [sent]}])
    assert quote_of(world, by_url) == quote_of(world, by_data)
    response, _ = await world.run(by_url)
    assert response.token_usage.total_tokens <= quote_of(world, by_url).tokens
    assert profile("main").context_window * 42 == quote_of(world, by_url).tokens
