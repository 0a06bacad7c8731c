"""A session whose turn it always is, and what was said in it."""

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from pydantic import JsonValue

from app.domain.messages import Message
from app.keeping import Page, Past, Session


class Said:
    """Implements `keeping.Conversations` for executions alone: every session holds the same, and nothing else."""

    def __init__(self, *said: Message) -> None:
        self.said = Past(len(said), said)
        self.over: list[tuple[str, str]] = []

    async def past(self, tenant: str, session_id: str, *, limit: int) -> Past:
        return self.said

    async def turn(
        self, tenant: str, session_id: str, execution_id: str, *, limit: int, waits: Callable[[], None]
    ) -> Past:
        return self.said

    def turn_over(self, tenant: str, session_id: str) -> None:
        self.over.append((tenant, session_id))

    async def session(self, tenant: str, session_id: str) -> Session | None:
        return None

    async def sessions(self, tenant: str, *, after: str | None = None, limit: int) -> Page[Session]:
        return Page([], None)

    async def describe(self, tenant: str, session_id: str, changes: Mapping[str, JsonValue]) -> NoReturn:
        raise NotImplementedError

    async def messages(self, tenant: str, session_id: str, *, after: int = 0, limit: int) -> Sequence[Message]:
        return self.said.last

    async def delete(self, tenant: str, session_id: str) -> NoReturn:
        raise NotImplementedError
