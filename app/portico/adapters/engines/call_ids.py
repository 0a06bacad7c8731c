"""Ids of calls as an API takes them: of its characters, and unique within a conversation."""

import re
from hashlib import blake2b
from typing import Final

_LONGEST_PREFIX: Final = 48


class CallIds:
    """The ids of one conversation. `safe` is what the API takes; any other id is replaced by its hash."""

    def __init__(self, safe: re.Pattern[str]) -> None:
        self._safe = safe
        self._sent_ids: dict[str, str] = {}
        self._used_ids: set[str] = set()

    def new(self, call_id: str) -> str:
        """Return the id that is sent for a call. Its results get the same one, until another call has its id."""
        base = sent_id = self._replaced(call_id)
        while sent_id in self._used_ids:
            sent_id = f"{base[:_LONGEST_PREFIX]}_{len(self._used_ids)}"
        self._used_ids.add(sent_id)
        self._sent_ids[call_id] = sent_id
        return sent_id

    def known(self, call_id: str) -> str:
        """Return the id that was sent for the last call with that id."""
        return self._sent_ids.get(call_id) or self._replaced(call_id)

    def _replaced(self, call_id: str) -> str:
        if self._safe.fullmatch(call_id):
            return call_id
        return f"call_{blake2b(call_id.encode(), digest_size=12).hexdigest()}"
