"""The stream of a client API: the events of an execution become changes of a turn, and these frames."""

from collections.abc import Callable, Sequence
from typing import Final

from portico.domain.contract.response import SystemError, SystemResponse
from portico.domain.failures import AccessFailure, Code, RequestFailure
from portico.domain.ids import RequestId, SuspensionId
from portico.domain.journal.events import (
    Event,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionResumed,
    ExecutionSuspended,
    LiveDelta,
    LiveEvent,
    StoredEvent,
)
from portico.domain.journal.suspensions import DECISION_KINDS
from portico.entrypoints.http.client_apis.api import Frames
from portico.entrypoints.http.client_apis.errors import client_error
from portico.entrypoints.http.client_apis.turn import TurnBroken, TurnChange, TurnEnded, TurnReader

DENIED: Final = AccessFailure(Code.ACCESS_UNAUTHENTICATED, "the key was revoked, or has expired")
STOPPING: Final = RequestFailure(
    Code.REQUEST_IN_PROGRESS, "this replica is stopping, and another one continues the execution; read its answer there"
)
DROPPED: Final = RequestFailure(Code.REQUEST_OVERLOADED, "the stream was read too slowly, and was given up")


def resume_required(response: SystemResponse) -> RequestFailure:
    """Return the refusal of a request whose execution waits for a person, with what it waits for."""
    details = {
        "request_id": response.request_id,
        "suspensions": [each.model_dump(mode="json") for each in response.suspensions],
    }
    message = "a person has to answer first: see details.suspensions and POST /v1/executions/{request_id}/resume"
    return RequestFailure(Code.REQUEST_RESUME_REQUIRED, message, details)


def waits_for_approval(response: SystemResponse) -> bool:
    """Return True if each open suspension is about a call: it is answered elsewhere, or by a credential's arrival."""
    return bool(response.suspensions) and all(each.kind in DECISION_KINDS for each in response.suspensions)


class PersonWait:
    """The wait of an execution for persons, as far as its events were read."""

    def __init__(self) -> None:
        self.suspended: SystemResponse | None = None
        """The response of the suspension that it stands at; None while it runs."""
        self.ended: SystemResponse | None = None
        """Its response once it has ended."""
        self._open: set[SuspensionId] = set()

    def take(self, event: Event | LiveEvent) -> None:
        """Take the next event."""
        match event:
            case ExecutionSuspended():
                self.suspended = event.response
                self._open = {each.suspension_id for each in event.suspensions}
            case ExecutionResumed():
                self._open.discard(event.suspension_id)
                self.suspended = self.suspended if self._open else None
            case ExecutionCompleted() | ExecutionFailed() | ExecutionCancelled():
                self.suspended, self.ended = None, event.response
            case _:
                pass

    @property
    def may_last(self) -> bool:
        """True if it stands at calls that another person may approve, and at nothing else."""
        return self.suspended is not None and waits_for_approval(self.suspended)


class TurnStream:
    """Implements `EventEncoder` for one answer. A stream that does not end well ends with an error, never bare."""

    def __init__(self, reader: TurnReader, frames: Frames, request_id: RequestId) -> None:
        self.is_over = False
        """True once a text was taken back that the client has; the execution goes on."""
        self.last_number = 0
        """Number of the last stored event that was read."""
        self.wait = PersonWait()
        self.has_acted: Callable[[], bool] = lambda: False
        """Tells whether a call has run that must not run twice."""
        self._reader = reader
        self._frames = frames
        self._request_id = request_id
        self._is_closed = False

    def encode(self, items: Sequence[StoredEvent | LiveDelta]) -> bytes:
        """Return the frames of these events."""
        for item in items:
            if isinstance(item, StoredEvent):
                self.last_number = item.sequence_number
                self.wait.take(item.event)
        return self._encode(self._reader.read(items))

    def end(self, items: Sequence[StoredEvent | LiveDelta], *, is_stopping: bool) -> bytes:
        """Return the frames of the last events, and an error if these do not end the turn."""
        data = self.encode(items)
        if self._is_closed:
            return data
        if self.wait.suspended is not None:
            return data + self._failed(SystemError.of(resume_required(self.wait.suspended)))
        return data + self._failed(SystemError.of(STOPPING if is_stopping else DROPPED))

    def denied(self) -> bytes:
        """Return the error for a reader who may not read any more."""
        return self._failed(SystemError.of(DENIED))

    def _encode(self, changes: Sequence[TurnChange]) -> bytes:
        data = self._frames.encode(changes)
        match changes[-1] if changes else None:
            case TurnBroken(error, was_retracted):
                data += self._failed(error)
                self.is_over = was_retracted
            case TurnEnded():
                self._is_closed = True
            case _:
                pass
        return data

    def _failed(self, error: SystemError) -> bytes:
        self._is_closed = True
        return self._frames.failed(client_error(error, self._request_id, has_acted=self.has_acted()))
