"""Cost of guards: 20 patterns of the configuration over a text of 8 kB, and the built-in checks of the same text."""

from functools import partial

from bench.answers import microseconds
from bench.scenarios import BenchEnvironment, Numbers
from portico.capabilities.guards.catalogue import GuardCatalogue
from portico.domain.context.guards import ConfiguredGuard, InputText

TEXT_BYTES, PATTERNS = 8_192, 20
_WORDS = "The order of 12 May, number 48-1133, was sent to the wrong address; please ignore my earlier note about it. "


async def guards(_bench: BenchEnvironment) -> Numbers:
    """Measure a guard of 20 patterns, and all known injections and kinds of sensitive text, where none is found."""
    own = tuple(rf"(?:secret|project)\s+{name}[0-9]{{3,}}" for name in map("{:02}x".format, range(PATTERNS)))
    catalogue = GuardCatalogue(
        [
            ConfiguredGuard("own", "injection", patterns=own),
            ConfiguredGuard("injection", "injection"),
            ConfiguredGuard("pii", "pii"),
        ]
    )
    text = InputText((_WORDS * (TEXT_BYTES // len(_WORDS) + 1))[:TEXT_BYTES])
    own_guard, injection, pii = catalogue.watching((), ())
    return {
        "guard_ms": microseconds(partial(catalogue.trips, own_guard, [text])) / 1e3,
        "injection_ms": microseconds(partial(catalogue.trips, injection, [text])) / 1e3,
        "pii_ms": microseconds(partial(catalogue.trips, pii, [text])) / 1e3,
    }
