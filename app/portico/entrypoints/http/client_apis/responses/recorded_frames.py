"""Frames of a recorded answer, as more of it is recorded.

They are made of what is recorded alone, so they have the same numbers on every replica, at every reading.
"""

from portico.domain.value import replace
from portico.entrypoints.http.client_apis.errors import ClientError, client_error
from portico.entrypoints.http.client_apis.responses.answer import ResponsesShown, extension_member
from portico.entrypoints.http.client_apis.responses.frames import AnswerFrames, failed_outcome, stream_error
from portico.entrypoints.http.client_apis.responses.recorded import RecordedAnswer
from portico.entrypoints.http.client_apis.turn import ReasoningItem, TextItem


class RecordedFrames:
    """Frames of one answer behind the number `after`."""

    def __init__(self, answer: RecordedAnswer, shown: ResponsesShown, after: int) -> None:
        self.is_over = False
        self._shown = shown
        self._written = 0
        self._frames = AnswerFrames(answer.request_id, shown, answer.ids(), number=answer.number, after=after)

    def encode(self, answer: RecordedAnswer) -> bytes:
        """Return the frames of what is new in the answer."""
        self._frames.begin()
        outcome, items = answer.outcome, self._frames.items
        for position, item in list(enumerate(answer.items))[self._written :]:
            items.begin(item)
            if isinstance(item, TextItem | ReasoningItem):
                items.add(position, item.text)
            items.end(position, item, is_cut=outcome.status == "incomplete" and item is answer.items[-1])
        self._written = len(answer.items)
        rest = answer.rest
        if rest is not None and not self.is_over:
            self.is_over = True
            if rest.response.error is None:
                self._frames.end(outcome, answer.output(), extension_member(rest.response, self._shown))
            else:
                failed = client_error(rest.response.error, answer.request_id, has_acted=answer.has_acted)
                self._frames.fail(stream_error(failed), replace(failed_outcome(failed), usage=outcome.usage))
        return self._frames.writer.take()

    def failed(self, failed: ClientError) -> bytes:
        """Return the last frames of a stream that ends before its answer."""
        self.is_over = True
        self._frames.fail(stream_error(failed), failed_outcome(failed))
        return self._frames.writer.take()
