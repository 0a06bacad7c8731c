"""The live list of executions and suspensions as server-sent events."""

from collections.abc import Awaitable, Callable, Sequence

from portico.entrypoints.http.correlation import Header
from portico.entrypoints.http.sse import RETRY, FrameStreamResponse
from portico.orchestration.facade import ChangeReader

_FRAME = b"event: %b\ndata: %b\n\n"


class ChangeStreamResponse(FrameStreamResponse[ChangeReader]):
    """The response to one reader of a live list. It closes the reader.

    A list that ends while its reader may still read ends with a `retry:` line: the service is stopping, or the reader
    fell behind.
    """

    def __init__(
        self,
        reader: ChangeReader,
        *,
        headers: Sequence[Header],
        is_permitted: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Prepare the response. `is_permitted` tells whether the client may still read; without it nothing changes."""
        super().__init__(reader, headers, is_permitted)

    def next_data(self) -> bytes | None:
        changes = self._source.take()
        self.ended = self._source.ended
        if not changes and not self.ended:
            return self.due_keep_alive()
        frames = b"".join([_FRAME % (change.name.encode(), change.data) for change in changes])
        return frames + RETRY if self.ended else frames
