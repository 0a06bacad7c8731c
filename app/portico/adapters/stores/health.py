"""Health of a database, by the results of its last accesses."""

from portico.domain.failures import Code, StorageFailure

_UNHEALTHY = frozenset({Code.STORAGE_UNAVAILABLE, Code.STORAGE_FULL})


class StorageHealth:
    """Record of the accesses that failed and were not followed by a success.

    A failed write is made good by a write only, because a full disk can still be read. Damage stays.
    """

    def __init__(self) -> None:
        self._failed_read: StorageFailure | None = None
        self._failed_write: StorageFailure | None = None
        self._damage: StorageFailure | None = None

    @property
    def failure(self) -> StorageFailure | None:
        """Return the failure because of which the database cannot be used now."""
        return self._damage or self._failed_write or self._failed_read

    @property
    def needs_write(self) -> bool:
        """Return True if only a write can show that the database can be used again."""
        return self._failed_write is not None

    def succeeded(self, *, writing: bool) -> None:
        """Record that the database answered."""
        self._failed_read = None
        if writing:
            self._failed_write = None

    def failed(self, failure: StorageFailure, *, writing: bool, is_damage: bool = False) -> None:
        """Record a failure of the database; a record that cannot be read by this version is none."""
        if failure.code not in _UNHEALTHY:
            self.succeeded(writing=writing)
        elif is_damage:
            self._damage = failure
        elif writing:
            self._failed_write = failure
        else:
            self._failed_read = failure
