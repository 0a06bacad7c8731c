"""Refused callers in the audit log: at most one line a second for each caller and code."""

from collections import Counter
from contextlib import suppress
from typing import Final

from portico.domain.failures import Code, Failure, StorageFailure
from portico.domain.ids import KeyId
from portico.ports.audit import Action, AuditEntry, AuditLog
from portico.ports.runtime import Clock

_INTERVAL_S: Final = 1.0
_NAMED: Final = Code.ACCESS_DENIED
_RECORDED: Final = frozenset({_NAMED, Code.ACCESS_UNAUTHENTICATED})


class RefusalLog:
    """Counts of refusals, written once a second. Callers that are not known are counted together."""

    def __init__(self, log: AuditLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._counts: Counter[tuple[str | None, Code]] = Counter()

    def add(self, failure: Failure, caller: str | None) -> None:
        """Count a refusal of a caller, by the public id of its key; nothing for another failure."""
        if failure.code in _RECORDED:
            self._counts[caller if failure.code is _NAMED else None, failure.code] += 1

    async def run(self) -> None:
        """Write what was counted, once a second, until cancelled."""
        while True:
            await self._clock.sleep(_INTERVAL_S)
            await self.flush()

    async def flush(self) -> None:
        """Write what was counted. What cannot be written is lost."""
        counts, self._counts = self._counts, Counter()
        for (caller, code), count in counts.items():
            detail = None if count == 1 else f"{count - 1} more"
            key = None if caller is None else KeyId(caller)
            with suppress(StorageFailure):  # the log counts its failures
                await self._log.write(
                    AuditEntry(Action.ACCESS_REFUSE, key=key, outcome="refused", code=code, detail=detail)
                )
