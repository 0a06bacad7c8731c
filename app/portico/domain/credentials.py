"""Credentials: what tools present elsewhere on behalf of a caller."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from portico.domain.value import value

MIN_CHARACTERS: Final = 8
"""Characters of a value at least: other text could have a shorter one by chance where it is masked."""
MAX_CHARACTERS: Final = 8_192
VALUE_PLACE: Final = "{value}"
NO_CREDENTIALS: Final[Mapping[str, str]] = MappingProxyType({})
"""No values, by the name of the credential."""
Owner: TypeAlias = Literal["user", "tenant", "service"]
FoundAt: TypeAlias = Literal["request", "user", "tenant", "service"]
"""Place in which a value was found: a header of the request, or one of the owners."""


class CredentialType(StrEnum):
    """Origin of the value of a credential."""

    SECRET = "secret"  # noqa: S105 - the name of a type
    REQUEST = "request"
    CLIENT_CREDENTIALS = "client_credentials"


@value
class Credential:
    """A credential of the configuration.

    It is sent in the `header`, in the place `{value}` of the `format`. A secret has the value of the first of its
    `owners` that has one, in this order. That of a request comes in its `request_header`.
    """

    name: str
    type: CredentialType
    description: str = ""
    header: str = "Authorization"
    format: str = "Bearer {value}"
    owners: tuple[Owner, ...] = ()
    request_header: str | None = None

    def header_with(self, text: str) -> tuple[str, str]:
        """Return the name and the text of the header that presents this value."""
        return self.header, self.format.replace(VALUE_PLACE, text)

    @property
    def is_askable(self) -> bool:
        """True if a person can give a value, so that a call may wait for one."""
        return self.type is CredentialType.REQUEST or not {"user", "tenant"}.isdisjoint(self.owners)


@value
class FoundValue:
    """A value of a credential, and where it was found; `sealed` is how it is stored, None where it is not."""

    value: str = field(repr=False)
    found_at: FoundAt
    sealed: bytes | None = field(default=None, repr=False)


def fault_of(text: str) -> str | None:
    """Return why the text cannot be the value of a credential; None if it can."""
    if not MIN_CHARACTERS <= len(text) <= MAX_CHARACTERS:
        return f"must have {MIN_CHARACTERS} to {MAX_CHARACTERS} characters"
    if "\0" in text:
        return "must not contain NUL"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "must be valid Unicode"
    return None
