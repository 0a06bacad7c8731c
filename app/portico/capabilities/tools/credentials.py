"""Values of credentials: where each is found, what a call may have of them, and what is masked behind it.

A value is looked up for each call and kept nowhere, so a change holds at once; only tokens that an issuer gave are kept
in memory. A value that was refused elsewhere is asked for again, never replaced by that of another owner.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import anyio
from pydantic import JsonValue

from portico.capabilities.tools.mask import mask, mask_json
from portico.domain.access.principal import LOCAL
from portico.domain.credentials import Credential, CredentialType, FoundValue, fault_of
from portico.domain.failures import StorageFailure
from portico.domain.ids import ExecutionId, TenantId, UserId
from portico.domain.value import value
from portico.ports.credentials import THE_TENANT, CredentialStore, IssuedToken, IssuerError, StoredValue, TokenIssuer
from portico.ports.runtime import Clock
from portico.ports.secrets import SecretSeal
from portico.ports.tool import CredentialNeeded, CredentialUnavailable, ToolError

RENEW_SECONDS: Final = 60.0
"""Time before the expiry of a token at which a new one is fetched."""
_REMEMBERED_TOKENS: Final = 4


class CredentialHolder(NamedTuple):
    """For whom a value is looked up: a user, and the execution whose request may have brought it."""

    tenant: TenantId
    user: UserId
    execution_id: ExecutionId | None = None


class TokenKeeper:
    """The token of one credential, which all calls share."""

    def __init__(self, issuer: TokenIssuer, clock: Clock) -> None:
        self.recent: list[str] = []
        """The last tokens, the current one included."""
        self._issuer = issuer
        self._clock = clock
        self._token: IssuedToken | None = None
        self._lock = anyio.Lock()

    @property
    def expires_at(self) -> float | None:
        """Return until when the token is valid, in Unix seconds; None if that is not known, or there is none."""
        return None if self._token is None else self._token.expires_at

    async def current(self) -> str:
        """Return the token, which is new if the last one expires soon. Raises: IssuerError."""
        async with self._lock:
            token = self._token
            if token is None or self._expires_soon(token):
                token = await self._fetch()
            return token.value

    async def renewed(self, refused: str) -> str:
        """Return another token than the refused one. Raises: IssuerError."""
        async with self._lock:
            token = self._token
            if token is None or token.value == refused:
                token = await self._fetch()
            return token.value

    async def _fetch(self) -> IssuedToken:
        token = await self._issuer.fetch()
        if (fault := fault_of(token.value)) is not None:
            raise IssuerError(f"the token {fault}")
        self._token = token
        self.recent = [*self.recent[1 - _REMEMBERED_TOKENS :], token.value]
        return token

    def _expires_soon(self, token: IssuedToken) -> bool:
        return token.expires_at is not None and self._clock.now() >= token.expires_at - RENEW_SECONDS


@value
class CredentialParts:
    """Everything that the values of credentials come from, by name; `seal` is None where nothing is stored.

    `service_values` read those of the configuration. `on_unavailable` logs why a credential has no value.
    """

    credentials: Mapping[str, Credential]
    store: CredentialStore
    seal: SecretSeal | None
    service_values: Mapping[str, Callable[[], str | None]]
    tokens: Mapping[str, TokenKeeper]
    clock: Clock
    on_unavailable: Callable[[str, str], None]


class CredentialSource:
    """The credentials of the configuration and their values."""

    def __init__(self, parts: CredentialParts) -> None:
        self.parts = parts
        self.credentials = parts.credentials
        self.arriving: dict[ExecutionId, Mapping[str, str]] = {}
        """Values of the requests whose executions are being opened."""
        self.in_memory: dict[ExecutionId, dict[str, str]] = {}
        """Values of the requests of which nothing is stored."""
        self.with_requests: set[ExecutionId] = set()
        """Executions that run here and for which the value of a request may be stored."""

    def for_call(self, declared: Sequence[str], holder: CredentialHolder | None, *, may_ask: bool) -> "CallCredentials":
        """Return the credentials of one attempt at a call of a tool that declares these.

        Without a holder it acts for the local user. Unless it `may_ask`, a missing value is no question.
        """
        return CallCredentials(self, declared, holder or CredentialHolder(LOCAL.tenant, LOCAL.user), may_ask=may_ask)

    async def find(self, credential: Credential, holder: CredentialHolder) -> FoundValue | None:
        """Return the value; None if there is none, or if it was rejected. Raises: IssuerError, StorageFailure."""
        match credential.type:
            case CredentialType.CLIENT_CREDENTIALS:
                return FoundValue(await self.parts.tokens[credential.name].current(), "service")
            case CredentialType.REQUEST:
                return await self._of_request(credential, holder)
            case CredentialType.SECRET:
                return await self._secret(credential, holder)

    async def hold(self, holder: CredentialHolder, given: Mapping[str, str], *, stored: bool) -> None:
        """Keep the values that a request brought, by name, until its execution ends. Raises: StorageFailure.

        Unless they are `stored` they are kept in memory alone.
        """
        execution_id = holder.execution_id
        assert execution_id is not None  # noqa: S101 - they belong to an execution
        if not stored or self.parts.seal is None:
            self.in_memory.setdefault(execution_id, {}).update(given)
            return
        self.with_requests.add(execution_id)
        for name, text in given.items():
            sealed = self.parts.seal.seal(holder.tenant, _seal_owner(holder.user, execution_id), name, text)
            now = self.parts.clock.now()
            await self.parts.store.put(
                StoredValue(holder.tenant, holder.user, name, sealed, now, execution_id=execution_id)
            )

    async def forget(self, execution_id: ExecutionId) -> None:
        """Forget what the request of an ended execution brought. Raises: StorageFailure."""
        self.in_memory.pop(execution_id, None)
        if execution_id in self.with_requests:
            self.with_requests.discard(execution_id)
            await self.parts.store.forget(execution_id)

    async def reject(self, credential: Credential, holder: CredentialHolder, found: FoundValue) -> bool:
        """Mark the value of a user or of a request as rejected; return False if it has been replaced meanwhile."""
        of_request = found.found_at == "request"
        if of_request and found.sealed is None:
            held = self.in_memory.get(holder.execution_id or ExecutionId(""), {})
            if held.get(credential.name) != found.value:
                return False
            del held[credential.name]
            return True
        execution_id = holder.execution_id if of_request else None
        sealed = found.sealed or b""
        stored = StoredValue(holder.tenant, holder.user, credential.name, sealed, 0.0, execution_id=execution_id)
        return await self.parts.store.reject(stored)

    async def is_personal(self, name: str, holder: CredentialHolder) -> bool:
        """Return True if a call would use a value of the user's own, or ask for one. Raises: StorageFailure."""
        credential = self.credentials[name]
        if not credential.is_askable:
            return False
        found = await self.find(credential, holder)
        return found is None or found.found_at in {"user", "request"}

    def opened(self, stored: StoredValue) -> str | None:
        """Return a stored value; None if no key opens it, or if it was another one's."""
        seal = self.parts.seal
        owner = _seal_owner(stored.user, stored.execution_id)
        return None if seal is None else seal.open(stored.tenant, owner, stored.name, stored.sealed)

    async def _of_request(self, credential: Credential, holder: CredentialHolder) -> FoundValue | None:
        execution_id = holder.execution_id
        if execution_id is None:
            return None
        held = self.in_memory.get(execution_id, {}).get(credential.name)
        if held is not None:
            return FoundValue(held, "request")
        for row in await self.parts.store.find(holder.tenant, holder.user, credential.name, execution_id):
            text = self.opened(row) if row.execution_id is not None and not row.rejected else None
            if text is not None:
                self.with_requests.add(execution_id)
                return FoundValue(text, "request", row.sealed)
        return None

    async def _secret(self, credential: Credential, holder: CredentialHolder) -> FoundValue | None:
        rows: dict[UserId, StoredValue] = {}
        if credential.is_askable:
            found = await self.parts.store.find(holder.tenant, holder.user, credential.name, None)
            rows = {row.user: row for row in found}
        for owner in credential.owners:
            if owner == "service":
                read = self.parts.service_values.get(credential.name)
                text = None if read is None else read()
                if text is not None:
                    return FoundValue(text, "service")
                continue
            row = rows.get(holder.user if owner == "user" else THE_TENANT)
            text = None if row is None else self.opened(row)
            if row is None or text is None:
                continue
            return None if owner == "user" and row.rejected else FoundValue(text, owner, row.sealed)
        return None


class CallCredentials:
    """The credentials of one attempt at a call. Implements the `ToolCredentials` port."""

    def __init__(
        self, source: CredentialSource, declared: Sequence[str], holder: CredentialHolder, *, may_ask: bool
    ) -> None:
        self._source = source
        self._declared = declared
        self._holder = holder
        self._may_ask = may_ask
        self._used: list[tuple[str, FoundValue]] = []
        self._renewed: set[str] = set()

    async def value(self, name: str) -> str:
        credential = self._credential(name)
        try:
            found = await self._source.find(credential, self._holder)
        except (IssuerError, StorageFailure) as error:
            raise self._unavailable(name, str(error)) from None
        if found is None:
            raise self._missing(credential, "it has no value")
        self._used.append((name, found))
        return found.value

    async def header(self, name: str) -> tuple[str, str]:
        text = await self.value(name)
        if not (text.isascii() and text.isprintable()):
            raise ToolError(f"the credential {name} cannot be sent in a header: it has other than visible characters")
        return self._credential(name).header_with(text)

    async def renew(self, name: str) -> tuple[str, str]:
        credential = self._credential(name)
        used = [found for each, found in self._used if each == name][-1]
        is_first = name not in self._renewed
        self._renewed.add(name)
        if used.found_at in {"user", "request"}:
            if await self._source.reject(credential, self._holder, used) or not is_first:
                raise self._missing(credential, "it was refused with status 401")
        elif not is_first or not await self._has_changed(credential, used):
            raise self._unavailable(name, "it was refused with status 401")
        return await self.header(name)

    def masked(self, text: str) -> str:
        """Return the text without the values that the call used."""
        return mask(text, self._values())

    def masked_json(self, given: JsonValue) -> JsonValue:
        """Return the value without the values of credentials that the call used."""
        return mask_json(given, self._values())

    async def _has_changed(self, credential: Credential, used: FoundValue) -> bool:
        """Return True if there is another value than that of the tenant or the service that was used."""
        if credential.type is not CredentialType.CLIENT_CREDENTIALS:
            latest = await self._source.find(credential, self._holder)
            return latest is not None and latest.value != used.value
        try:
            return await self._source.parts.tokens[credential.name].renewed(used.value) != used.value
        except IssuerError as error:
            raise self._unavailable(credential.name, str(error)) from None

    def _values(self) -> Iterator[tuple[str, str]]:
        for name, found in self._used:
            yield name, found.value
            if (keeper := self._source.parts.tokens.get(name)) is not None:
                yield from ((name, token) for token in keeper.recent)

    def _credential(self, name: str) -> Credential:
        if name not in self._declared:
            raise ToolError(f"the tool does not declare the credential {name!a:.80}")
        return self._source.credentials[name]

    def _missing(self, credential: Credential, why: str) -> ToolError:
        if not self._may_ask or not credential.is_askable:
            return self._unavailable(credential.name, why)
        return CredentialNeeded(credential.name, credential.type, credential.description)

    def _unavailable(self, name: str, why: str) -> ToolError:
        self._source.parts.on_unavailable(name, why)
        return CredentialUnavailable(f"its credential {name} cannot be used")


def _seal_owner(user: UserId, execution_id: ExecutionId | None) -> str:
    """Return the owner that a sealed value names; that of a request is no user's name."""
    return user if execution_id is None else f"/executions/{execution_id}/{user}"
