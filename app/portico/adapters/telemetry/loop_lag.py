"""Monitor of the event loop's delay."""

from collections.abc import Callable

from portico.ports.runtime import Clock

_INTERVAL = 0.5


async def watch_loop_lag(
    clock: Clock, observe: Callable[[float], None], warn: Callable[[float], None], *, threshold: float
) -> None:
    """Measure the delay of the event loop twice a second until cancelled.

    `observe` is called with every delay in seconds, `warn` with those of at least `threshold` seconds.
    """
    while True:
        due = clock.monotonic() + _INTERVAL
        await clock.sleep(_INTERVAL)
        lag = max(0.0, clock.monotonic() - due)
        observe(lag)
        if lag >= threshold:
            warn(lag)
