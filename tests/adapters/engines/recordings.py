"""Real exchanges with real providers, and what holds for every one of them: nothing of an answer is lost.

They are not part of the repository: RECORDED_TRAFFIC names the directory where they are. What was done with each is
noted among the properties of the test that did it, and summed up at the end of the run.
"""

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.http.engine import ReplyLimits
from portico.adapters.engines.wire.event_stream import EventStreamParser
from portico.adapters.engines.wire.reply_builder import ReplyBuilder
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.ports.model import EngineError
from tests.adapters.engines.engine_calls import call
from tests.adapters.engines.recorded_report import CUTS, DECODED, OPENED, Recording
from tests.support.emulators.server import engine_at
from tests.support.engine_calls import RecordedProgress
from tests.support.upstream import ScriptedUpstream, event_stream, reply

DIRECTORY = os.environ.get("RECORDED_TRAFFIC")
ENDS, SAMPLE = 300, 200


def recordings(*patterns: str) -> list[Path]:
    """The recordings whose names match one of the patterns, in order; none where there is no directory."""
    return sorted({path for pattern in patterns for path in Path(DIRECTORY).glob(pattern)}) if DIRECTORY else []


def sampled(places: Sequence[int]) -> Sequence[int]:
    """All of the places where they are few, else those near both ends and some by chance between them."""
    if len(places) <= 2 * ENDS + SAMPLE:
        return places
    middle = Random(len(places)).sample(places[ENDS:-ENDS], SAMPLE)
    return [*places[:ENDS], *sorted(middle), *places[-ENDS:]]


class RecordedExchange:
    """One recording, opened by a test. A chunk is decoded once, however often it is cut: that is a pure function."""

    def __init__(self, test: pytest.FixtureRequest, dialect: Dialect) -> None:
        path: Path = test.param
        recorded = json.loads(path.read_text())
        body, self.request = recorded["response"]["body"], recorded["request"]["body"]
        self.path: str = recorded["request"]["path"]
        self.status: int = recorded["response"]["status"]
        self.content_type: str = recorded["response"]["content_type"]
        self.body = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.dialect = dialect
        self.streamed = self.content_type.startswith("text/event-stream")
        self._decode_chunk = cache(dialect.decode_chunk)
        self._noted = test.node.user_properties
        self.note(OPENED, tuple(Recording(path.stem.partition("-")[0], self._kind, path.stem, len(self._cuts))))

    @property
    def _kind(self) -> str:
        return "refusals" if self.status != 200 else "streams" if self.streamed else "replies"

    @property
    def _cuts(self) -> Sequence[int]:
        """The places at which it is cut: all of a short stream, both ends and a sample of a long one."""
        if self.status != 200 or not self.streamed:
            return ()
        return sampled(range(1, len(self.body)))

    def note(self, what: str, value: object) -> None:
        """Remembers that this was done; it counts when the test passes."""
        self._noted.append((what, value))

    def chunks(self) -> list[dict[str, Any]]:
        """The whole answer as a list of chunks, read naively; a JSON body is one."""
        if not self.streamed:
            return [json.loads(self.body)]
        lines = [line.removeprefix("data: ") for line in self.body.decode().splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    def read(self, *pieces: bytes) -> Reply:
        """The answer as it is read when it arrives in these pieces; all of it where none are given."""
        answer = ReplyBuilder(self.dialect.finish_reasons)
        if not self.streamed:
            answer.add(self.dialect.decode(b"".join(pieces or (self.body,))))
            return answer.build("")
        parser = EventStreamParser(ReplyLimits().line_bytes)
        for piece in pieces or (self.body,):
            for event in parser.feed(piece):
                answer.add(self._decode_chunk(event))
        return answer.build("")

    def read_byte_by_byte(self) -> Reply:
        answer = self.read(*(self.body[index : index + 1] for index in range(len(self.body))))
        self.note(DECODED, True)
        return answer

    def check_cuts(self) -> None:
        """Wherever the body is cut in two, the answer is the same."""
        expected = self.read()
        for cut in self._cuts:
            assert self.read(self.body[:cut], self.body[cut:]) == expected
        self.note(CUTS, len(self._cuts))

    def check_early_ends(self) -> None:
        """A body that ends early is whole already or malformed, and never another answer."""
        expected = self.read()
        reasons: set[AttemptFailureReason] = set()
        for end in sampled(range(0, len(self.body), 1 if self.streamed else 7)):
            try:
                answer = self.read(self.body[:end])
            except EngineError as fault:
                reasons.add(fault.reason)
            else:
                assert (answer.text, answer.tool_calls) == (expected.text, expected.tool_calls)
        assert reasons == {AttemptFailureReason.MALFORMED}

    async def over_a_socket(self, *, stream: bool | None = None) -> Reply:
        """The answer as our engine reads it from a server that sends it. Raises: EngineFault."""
        streamed = self.streamed if stream is None else stream
        half = len(self.body) // 2
        script = reply(self.body, status=self.status, content_type=self.content_type)
        if self.streamed:
            script = event_stream(self.body[:half], self.body[half:], content_type=self.content_type)
        async with ScriptedUpstream(script) as upstream, engine_at(upstream.url, self.dialect) as engine:
            return await engine.attempt(call(), RecordedProgress(), stream=streamed)


async def reason_over_a_socket(exchange: RecordedExchange) -> AttemptFailureReason:
    """Return the reason for which our engine refuses the exchange."""
    with pytest.raises(EngineError) as caught:
        await exchange.over_a_socket()
    exchange.note(DECODED, True)
    return caught.value.reason


def without(members: Mapping[str, Any], keys: set[str] | frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if key not in keys}


def shape(value: Any, unsent: set[str] | frozenset[str] = frozenset()) -> Any:
    """Keys and nesting, without what means nothing: nulls, empty lists, the keys in `unsent`."""
    match value:
        case dict():
            kept = {key: shape(member, unsent) for key, member in value.items() if key not in unsent}
            return {key: member for key, member in kept.items() if member not in (None, [])}
        case list():
            return [shape(member, unsent) for member in value]
        case None:
            return None
        case _:
            return type(value).__name__
