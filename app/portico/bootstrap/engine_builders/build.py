"""Facts and resources that an engine is built from."""

from collections.abc import Callable
from contextlib import AsyncExitStack

from portico.adapters.engines.http.aiohttp_transport import HttpSession
from portico.adapters.engines.timeouts import Timeouts
from portico.capabilities.models.deployments import ReportedLimits
from portico.domain.value import value
from portico.ports.model import EngineProfile
from portico.ports.runtime import Clock
from portico.settings import EngineSettings, Settings


@value
class EngineResources:
    """Everything that the engines of a service share.

    Resources that an engine opens are closed with the `stack`. `on_unknown_frames` counts the frames of an engine's
    streams that its dialect does not know.
    """

    clock: Clock
    session: HttpSession
    stack: AsyncExitStack
    on_unknown_frames: Callable[[str, int], None]


@value
class EngineBuild:
    """Everything that an engine is built from."""

    engine: EngineSettings
    profile: EngineProfile
    settings: Settings
    resources: EngineResources
    limits: ReportedLimits | None = None
    """Receives what the provider reports about its limits; None for an engine without deployments."""

    @property
    def timeouts(self) -> Timeouts:
        """Return the timeouts of its attempts."""
        failover = self.settings.failover
        return Timeouts(
            connect_seconds=failover.connect_timeout,
            attempt_seconds=failover.attempt_timeout,
            first_token_seconds=failover.first_token_timeout,
            idle_seconds=failover.idle_timeout,
        )
