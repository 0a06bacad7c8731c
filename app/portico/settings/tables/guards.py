"""The tables `[guardrails.NAME]` of the configuration: checks of what clients send."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator

from portico.capabilities.guards.pattern_set import MAX_PATTERN_BYTES
from portico.domain.context.guards import RESERVED_NAMES, ConfiguredGuard, GuardAction, GuardType, SensitiveKind
from portico.domain.contract.rules import MAX_RULES, Rule, RuleName
from portico.settings.values import Table

GuardName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
Names = Annotated[tuple[GuardName, ...], Field(strict=False)]
OwnPattern = Annotated[str, StringConstraints(min_length=1, max_length=MAX_PATTERN_BYTES)]
MAX_OWN_PATTERNS: Final = 256
_KEYS_OF_TYPE: Mapping[GuardType, tuple[str, ...]] = {
    "rules": ("rules",),
    "pii": ("kinds", "patterns"),
    "injection": ("patterns",),
    "judge": ("intent", "model"),
}
_REQUIRED: Mapping[GuardType, str] = {"rules": "rules", "judge": "intent"}


class GuardSettings(Table):
    """Guard of what clients send."""

    type: GuardType = Field(description="Check: `rules`, `pii`, `injection` or `judge`")
    action: GuardAction = Field("refuse", description="What a guard that trips does: `refuse` or `flag`")
    routes: Names = Field((), description="Routes that the guard is limited to; with `agents`, either is enough")
    agents: Names = Field((), description="Agents that the guard is limited to")
    rules: Annotated[tuple[RuleName | Rule, ...], Field(strict=False, max_length=MAX_RULES)] = Field(
        (), description="Of type `rules`: rules that every text must satisfy, by name or inline"
    )
    kinds: Annotated[tuple[SensitiveKind, ...], Field(strict=False)] = Field(
        (), description="Of type `pii`: kinds of sensitive text to look for; all by default"
    )
    patterns: Annotated[tuple[OwnPattern, ...], Field(strict=False, max_length=MAX_OWN_PATTERNS)] = Field(
        (), description="Of types `pii` and `injection`: further regular expressions, in RE2's syntax"
    )
    intent: Annotated[str, StringConstraints(max_length=4096)] = Field(
        "", description="Of type `judge`: what the input must not do, in plain words"
    )
    model: GuardName | None = Field(
        None, description="Of type `judge`: the route or engine that judges; by default that of the request"
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        for key in ("rules", "kinds", "patterns", "intent", "model"):
            if getattr(self, key) and key not in _KEYS_OF_TYPE[self.type]:
                raise ValueError(f"{key} has no meaning for type {self.type}")
        required = _REQUIRED.get(self.type)
        if required is not None and not getattr(self, required):
            raise ValueError(f"{required} is needed by type {self.type}")
        return self

    def guard(self, name: str) -> ConfiguredGuard:
        """Return the guard under its name."""
        return ConfiguredGuard(name=name, **vars(self))


def guard_errors(
    guards: Mapping[str, GuardSettings], routes: Iterable[str], engines: Iterable[str], agents: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield the names of guards that mean something else, and the names in guards that do not exist."""
    known_routes, known_agents = frozenset(routes), frozenset(agents)
    models = known_routes.union(engines)
    for name, guard in guards.items():
        here = f"guardrails.{name}"
        if name in RESERVED_NAMES:
            yield here, "must have another name: this one has a meaning of its own among flags"
        unknown = [(index, route) for index, route in enumerate(guard.routes) if route not in known_routes]
        yield from ((f"{here}.routes.{index}", "must name a route") for index, _ in unknown)
        unknown = [(index, agent) for index, agent in enumerate(guard.agents) if agent not in known_agents]
        yield from ((f"{here}.agents.{index}", "must name an agent") for index, _ in unknown)
        if guard.model is not None and guard.model not in models:
            yield f"{here}.model", "must name a route or an engine"
