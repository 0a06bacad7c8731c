"""Prompt caches of providers: whether a prefix will be read again, and the key by which it is found."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import orjson

from portico.domain.contract.messages import Message
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import InferenceSetup
from portico.orchestration.execution.branch_settings import BranchSettings

MIN_PREFIX_TOKENS: Final = 1_024
"""Estimated tokens below which providers cache nothing."""
_KEY_DIGITS: Final = 32


def prompt_cache_key(
    header: ExecutionHeader, settings: BranchSettings, setup: InferenceSetup, messages: Sequence[Message]
) -> str | None:
    """Return the key of the prompt in the provider's cache; None if it is too short or its prefix is not read again.

    With tools, in a session, in a replica or a plan another inference begins in the same way. The key is the same for
    all requests of a tenant to an agent with the same system prompt: 32 hex digits.
    """
    is_read_again = (
        setup.tools
        or header.request.session_id is not None
        or settings.replica is not None
        or settings.plan is not None
    )
    if not is_read_again or settings.is_side_question or setup.terms is None or setup.terms.used < MIN_PREFIX_TOKENS:
        return None
    first = messages[0]
    system = first.text if first.role == "system" else ""
    named = orjson.dumps([header.tenant, settings.caller.agent, system])
    return sha256(named).hexdigest()[:_KEY_DIGITS]
