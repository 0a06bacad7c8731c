"""How much running time an execution has left."""

from collections.abc import Callable
from types import TracebackType

from app.ports import Clock


class Deadline:
    """So many seconds from when it is entered, or begun again. Left before they have passed, nothing is called."""

    def __init__(self, clock: Clock, seconds: float, passed: Callable[[], None]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._passed = passed

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._at - self._clock.monotonic())

    def begin_again(self) -> None:
        """What has passed until now does not count."""
        self._call_off()
        self._begin()

    def __enter__(self) -> None:
        self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call_off()
        # What is called is the execution's own: the circle would keep both until garbage is collected.
        del self._passed, self._call_off

    def _begin(self) -> None:
        self._at = self._clock.monotonic() + self._seconds
        self._call_off = self._clock.call_later(self._seconds, self._passed)
