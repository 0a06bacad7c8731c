"""Session store of a test: every turn is acquired at once, and every session has the same history."""

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from pydantic import JsonValue

from portico.domain.contract.messages import Message
from portico.ports.storage import ResultPage, SessionHistory, StoredSession


class FixedConversations:
    """Implements `ports.storage.SessionStore` for executions alone."""

    def __init__(self, *messages: Message) -> None:
        self.history_value = SessionHistory(len(messages), messages)
        self.released: list[tuple[str, str]] = []

    async def transcript(self, tenant: str, session_id: str, execution_id: str) -> tuple[Message, ...]:
        return ()

    async def history(self, tenant: str, session_id: str, *, limit: int) -> SessionHistory:
        return self.history_value

    async def acquire_turn(
        self, tenant: str, session_id: str, execution_id: str, *, limit: int, on_wait: Callable[[], None]
    ) -> SessionHistory:
        return self.history_value

    def release_turn(self, tenant: str, session_id: str) -> None:
        self.released.append((tenant, session_id))

    async def session(self, tenant: str, session_id: str) -> StoredSession | None:
        return None

    async def sessions(self, tenant: str, *, after: str | None = None, limit: int) -> ResultPage[StoredSession]:
        return ResultPage([], None)

    async def update(self, tenant: str, session_id: str, changes: Mapping[str, JsonValue]) -> NoReturn:
        raise NotImplementedError

    async def messages(self, tenant: str, session_id: str, *, after: int = 0, limit: int) -> Sequence[Message]:
        return self.history_value.recent_messages

    async def delete(self, tenant: str, session_id: str) -> NoReturn:
        raise NotImplementedError
