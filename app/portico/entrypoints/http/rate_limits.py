"""RateLimit-Policy and RateLimit: the limits of a caller as structured fields [draft-ietf-httpapi-ratelimit-headers],
and for client APIs the headers that OpenAI's clients read.

The effective window `t` of a limit is the time after which all of it is back. Of a limit that refused the request it is
that of Retry-After, so that the two agree.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil
from types import MappingProxyType

from portico.domain.access.limits import LimitKind
from portico.domain.failures import Failure
from portico.entrypoints.http.correlation import Header
from portico.orchestration.facade import PolicyStatus

_UNITS: Mapping[LimitKind, str] = MappingProxyType(
    {LimitKind.TOKENS: "tokens", LimitKind.COST: "cost", LimitKind.CONCURRENCY: "concurrent-requests"}
)


def rate_limit_headers(limits: Sequence[PolicyStatus], refusal: Failure | None = None) -> tuple[Header, Header]:
    """Return both headers of a caller with limits. The `refusal` may be by some of them."""
    violated = () if refusal is None else refusal.details.get("violated_policies", ())
    retry_after = 0.0 if refusal is None else refusal.retry_after or 0.0
    policies = _policies(tuple([each[:4] for each in limits]))
    states = (_state(each, retry_after if each.name in violated else each.full_in) for each in limits)
    return (b"ratelimit-policy", policies), (b"ratelimit", ", ".join(states).encode())


def client_rate_limit_headers(limits: Sequence[PolicyStatus], refusal: Failure | None = None) -> tuple[Header, ...]:
    """Return the headers that OpenAI's clients read, for requests and for tokens: of the limit with the least left."""
    violated = () if refusal is None else refusal.details.get("violated_policies", ())
    retry_after = 0.0 if refusal is None else refusal.retry_after or 0.0
    headers: list[Header] = []
    for kind in (LimitKind.REQUESTS, LimitKind.TOKENS):
        tightest = min((each for each in limits if each.kind is kind), key=lambda each: each.remaining, default=None)
        if tightest is not None:
            seconds = retry_after if tightest.name in violated else tightest.full_in
            shown = {"limit": tightest.quota, "remaining": tightest.remaining, "reset": f"{ceil(seconds)}s"}
            headers += [(f"x-ratelimit-{name}-{kind}".encode(), str(value).encode()) for name, value in shown.items()]
    return tuple(headers)


@lru_cache(maxsize=1_024)
def _policies(limits: tuple[tuple[str, LimitKind, int, int | None], ...]) -> bytes:
    return ", ".join(_policy(*each) for each in limits).encode()


def _policy(name: str, kind: LimitKind, quota: int, seconds: int | None) -> str:
    window = "" if seconds is None else f";w={seconds}"
    unit = f';qu="{_UNITS[kind]}"' if kind in _UNITS else ""
    return f'"{name}";q={quota}{window}{unit}'


def _state(limit: PolicyStatus, seconds: float) -> str:
    window = "" if limit.seconds is None else f";t={ceil(seconds)}"
    return f'"{limit.name}";r={limit.remaining}{window}'
