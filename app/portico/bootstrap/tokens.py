"""Composition of authentication by tokens: their rules, and the key set of their issuer."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from anyio.abc import TaskGroup

from portico.adapters.access.key_set_client import open_key_set_client
from portico.adapters.access.key_sets import KeySets
from portico.adapters.access.tokens import TokenRules, Tokens
from portico.ports.runtime import Clock
from portico.settings import AuthSettings, Settings


@asynccontextmanager
async def open_tokens(
    settings: Settings, clock: Clock, on_failure: Callable[[str], None], group: TaskGroup
) -> AsyncIterator[Tokens]:
    """Yield the authentication by tokens of the configured issuer, whose key set is fetched in the group.

    `on_failure` gets the reason for which it cannot be fetched. Raises: ConfigurationFailure.
    """
    rules = _token_rules(settings.auth)
    url = settings.auth.jwks_url or ""
    async with open_key_set_client(url, settings.proxy_of_environment(url)) as fetch:
        key_sets = KeySets(fetch, rules.algorithms, clock, on_failure)
        group.start_soon(key_sets.run)
        yield Tokens(rules, key_sets, clock)


def _token_rules(auth: AuthSettings) -> TokenRules:
    """Return the rules of mode jwt, which requires the issuer and the audience."""
    return TokenRules(
        issuer=auth.issuer or "",
        audience=auth.audience or "",
        algorithms=auth.algorithms,
        tenant_claim=auth.tenant_claim,
        user_claim=auth.user_claim,
        scope_claim=auth.scope_claim,
        leeway=auth.leeway,
    )
