"""Watches how late the event loop runs what is due."""

from collections.abc import Callable

from app.ports.runtime import Clock

_INTERVAL = 0.5


async def watch_loop_lag(
    clock: Clock, observe: Callable[[float], None], warn: Callable[[float], None], *, threshold: float
) -> None:
    """Tells `observe` twice a second by how many seconds the loop was late, and `warn` when it was `threshold` or more.

    Runs until it is cancelled.
    """
    while True:
        due = clock.monotonic() + _INTERVAL
        await clock.sleep(_INTERVAL)
        lag = max(0.0, clock.monotonic() - due)
        observe(lag)
        if lag >= threshold:
            warn(lag)
