"""Requests of client APIs that wait for a person, as long as `ingress.approval_wait` allows.

An approval, or a call whose outcome is not known, is answered elsewhere: at `/v1/suspensions`, on a command line or a
console. Meanwhile the client's request stays open. A client that leaves means what `on_disconnect` says, so that one
which asks again leaves one approval open and not two.
"""

from asyncio import TimerHandle, get_running_loop
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from portico.domain.access.principal import Principal
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import RequestFailure
from portico.domain.value import replace, value
from portico.entrypoints.http.client_apis.stream import DENIED, PersonWait, TurnStream
from portico.entrypoints.http.protocol import DisconnectListener
from portico.entrypoints.http.sse import EventStreamResponse, PermissionCheck
from portico.entrypoints.person_waits import WaitingRequests
from portico.ports.events import Subscription


@value
class PersonWaiter:
    """Wait of one request: `read` opens the events after a number, and `on_leave` ends the execution, if its client
    wants that when it leaves. `is_permitted` tells whether the caller may still read; without it nothing changes that.
    """

    waiting: WaitingRequests
    principal: Principal
    seconds: float
    read: Callable[[int], Awaitable[Subscription]]
    on_leave: Callable[[], Awaitable[object]] | None
    is_permitted: Callable[[], Awaitable[bool]] | None = None

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Take a place among the waiting requests; False if there is none."""
        has_place = self.seconds > 0 and self.waiting.enter(self.principal)
        try:
            yield has_place
        finally:
            if has_place:
                self.waiting.leave(self.principal)

    async def wait(self, scope: Scope, receive: Receive, first: SystemResponse) -> SystemResponse:
        """Return the response that follows a suspension: that of the end, or of a suspension which lasts too long.

        Raises: ClientDisconnect; AccessFailure (ACCESS_UNAUTHENTICATED) if the caller may not read any more;
        StorageFailure.
        """
        with self.place() as has_place:
            if not has_place:
                return first
            listener, subscription = DisconnectListener(scope, receive), await self.read(0)
            subscription.notify(listener.wake)
            permission = None if self.is_permitted is None else PermissionCheck(self.is_permitted)
            if permission is not None:
                permission.start(listener.wake)
            try:
                return await self._next_response(listener, subscription, permission, first)
            finally:
                if permission is not None:
                    permission.stop()
                subscription.notify(None)
                subscription.close()

    async def _next_response(
        self,
        listener: DisconnectListener,
        subscription: Subscription,
        permission: PermissionCheck | None,
        first: SystemResponse,
    ) -> SystemResponse:
        loop, wait, deadline = get_running_loop(), PersonWait(), 0.0
        timer: TimerHandle | None = None
        try:
            while True:
                was_suspended = wait.suspended
                for item in subscription.take():
                    wait.take(item.event)
                if wait.ended is not None:
                    return wait.ended
                if wait.suspended is not was_suspended and wait.suspended is not None:
                    deadline = loop.time() + self.seconds
                    timer = loop.call_at(deadline, listener.wake)
                if wait.suspended is not None and (not wait.may_last or loop.time() >= deadline):
                    return wait.suspended
                if subscription.ended:
                    return wait.suspended or first
                await self._wake(listener, permission)
        finally:
            if timer is not None:
                timer.cancel()

    async def _wake(self, listener: DisconnectListener, permission: PermissionCheck | None) -> None:
        """Return when there may be more to read. Raises: ClientDisconnect; AccessFailure."""
        has_left = await listener.wait()
        if not has_left and (permission is None or not await permission.has_ended()):
            return
        if self.on_leave is not None:
            await self.on_leave()
        raise ClientDisconnect if has_left else replace(DENIED)


class ClientStreamResponse(EventStreamResponse):
    """A stream of a client API. At an approval it goes on with the events that follow the answer."""

    _turn: TurnStream
    _waiter: PersonWaiter | None = None
    _deadline = 0.0
    _timer: TimerHandle | None = None
    _stood_at: SystemResponse | None = None
    _has_left = False
    has_successor = False
    """True once a person was waited for; what was approved may have been done since."""

    def wait_with(self, turn: TurnStream, waiter: PersonWaiter) -> None:
        """Wait for persons as `waiter` does; `turn` is the encoder of the stream."""
        self._turn, self._waiter = turn, waiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        waiter = self._waiter
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self.has_successor and waiter is not None:
                waiter.waiting.leave(waiter.principal)
        if self._has_left and waiter is not None and waiter.on_leave is not None:
            with suppress(RequestFailure):  # it was never stored, or has ended and is gone
                await waiter.on_leave()

    def next_data(self) -> bytes | None:
        waiter = self._waiter
        if waiter is None or not (self.has_successor or self._source.ended) or self._is_stopping():
            return super().next_data()
        if self.has_successor:
            data = super().next_data()
            return data if self.ended or not self._is_waited_too_long() else self._give_up(data or b"")
        data = self._encoder.encode(self._source.take())
        if self._turn.wait.may_last and waiter.seconds > 0 and waiter.waiting.enter(waiter.principal):
            self.needs_successor = self.has_successor = True
            return data
        return self._give_up(data)

    def _is_waited_too_long(self) -> bool:
        """Return True if the suspension that the execution stands at may not last, or not any longer."""
        wait = self._turn.wait
        if wait.suspended is not self._stood_at:
            self._begin_wait()
        return wait.suspended is not None and (not wait.may_last or self._loop.time() >= self._deadline)

    def _begin_wait(self) -> None:
        assert self._waiter is not None  # noqa: S101 - only a stream with one waits
        self._stood_at = self._turn.wait.suspended
        self._deadline = self._loop.time() + self._waiter.seconds
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._wake)

    def _give_up(self, data: bytes) -> bytes:
        self.ended = True
        return data + self._encoder.end([], is_stopping=False)

    async def succeed(self, wake: Callable[[], None]) -> None:
        assert self._waiter is not None  # noqa: S101 - without one no subscription follows
        self.needs_successor, self._wake = False, wake
        self._begin_wait()
        self._source.notify(None)
        self._source.close()
        self._source = await self._waiter.read(self._turn.last_number)
        self._source.notify(wake)

    def left(self) -> None:
        """Cancel what runs here; what is suspended, or goes on elsewhere, is cancelled at the end of the response."""
        self._has_left = True
        super().left()
