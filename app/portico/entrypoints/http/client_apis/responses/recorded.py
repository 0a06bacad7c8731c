"""Answers of an execution as far as it is recorded: what is read later, and what runs in the background.

An execution has one answer, or one more behind each approval that its client gives. An answer never takes back what a
reader has seen of it: its items are those of an earlier read, and further ones.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from portico.domain.contract.response import Suspension, SystemResponse
from portico.domain.failures import Code
from portico.domain.ids import RequestId
from portico.domain.journal.header import ClientView
from portico.domain.journal.suspensions import DECISION_KINDS
from portico.domain.lifecycle import Mode, State
from portico.domain.value import value
from portico.entrypoints.http.client_apis.errors import client_code
from portico.entrypoints.http.client_apis.ids import client_call_id
from portico.entrypoints.http.client_apis.responses.answer import (
    IN_PROGRESS,
    QUEUED,
    ItemIds,
    Outcome,
    Status,
    outcome_of,
    output_of,
)
from portico.entrypoints.http.client_apis.turn import (
    ApprovalItem,
    ClientCallItem,
    Item,
    ReasoningItem,
    ServerCallItem,
    TextItem,
    finish_of,
)
from portico.orchestration.facade import RecordedTurns, Rest


@value
class RecordedAnswer:
    """One answer so far: its items, the ids of those, and the rest with which it ended; None while it goes on."""

    request_id: RequestId
    number: int
    items: Sequence[Item]
    earlier: Sequence[Item]
    """The items of the answers before it."""
    rest: Rest | None
    is_queued: bool
    has_acted: bool
    """Whether the execution has begun something that may not be safe to run twice."""

    def ids(self) -> ItemIds:
        """Return the ids of its items, from the first one on."""
        return ItemIds(self.request_id, self.earlier)

    @property
    def outcome(self) -> Outcome:
        """The status by now."""
        if self.rest is None:
            return QUEUED if self.is_queued else IN_PROGRESS
        response, at = self.rest.response, self.rest.at
        if response.error is None:
            return outcome_of(finish_of(response), response.token_usage, at)
        status: Status = "cancelled" if response.error.code is Code.CANCELLED_SIGNAL else "failed"
        error = {"code": client_code(response.error), "message": response.error.message}
        return Outcome(status, usage=response.token_usage, error=error if status == "failed" else None)

    def output(self) -> list[dict[str, Any]]:
        """Return its items as it shows them."""
        return output_of(self.items, self.ids(), is_cut=self.outcome.status == "incomplete")


class RecordedAnswers:
    """The answers of an execution."""

    def __init__(self, recorded: RecordedTurns, view: ClientView) -> None:
        self.header = recorded.header
        self._recorded = recorded
        self._view = view
        self._ends = [part for part, rest in enumerate(recorded.rests) if self._ends_answer(rest.response)]
        """Parts with which an answer has ended, although the execution waits."""

    @property
    def last(self) -> int:
        """The number of the last answer."""
        waits = bool(self._ends) and self._ends[-1] == self._recorded.parts - 1
        return len(self._ends) - waits

    def answer(self, number: int) -> RecordedAnswer | None:
        """Return the answer of that number, counted from 0; None if there is none yet."""
        if number > self.last:
            return None
        earlier = [item for each in range(number) for item in self._items(each)]
        items = list(self._items(number))
        recorded, rest = self._recorded, self._rest(number)
        return RecordedAnswer(
            self.header.request_id, number, items, earlier, rest, recorded.is_queued, recorded.has_acted
        )

    def approvals(self) -> Sequence[ApprovalItem]:
        """Return all approvals that were asked for, in the order of their numbers."""
        return [
            approval for part in self._ends for approval in _approvals(self._recorded.rests[part].response.suspensions)
        ]

    def _parts(self, number: int) -> range:
        first = self._ends[number - 1] + 1 if number else 0
        last = self._ends[number] if number < len(self._ends) else self._recorded.parts - 1
        return range(first, last + 1)

    def _rest(self, number: int) -> Rest | None:
        part = self._parts(number)[-1]
        if part >= len(self._recorded.rests):
            return None
        rest = self._recorded.rests[part]
        is_over = rest.response.state is not State.SUSPENDED or number < len(self._ends)
        return rest if is_over else None

    def _items(self, number: int) -> Iterator[Item]:
        for part in self._parts(number):
            if self.header.mode is Mode.CHAT:
                yield from self._turn_items(part)
            if part < len(self._recorded.rests):
                yield from self._resting_items(part)

    def _turn_items(self, part: int) -> Iterator[Item]:
        """Yield the items of the turns with calls. The last text comes with the response, once it counts."""
        for turn in self._recorded.turns:
            reply = turn.reply
            if turn.part == part and reply.tool_calls:
                yield from self._reasoning(reply.reasoning)
                if reply.text:
                    yield TextItem(reply.text)
            for ended in turn.calls:
                if ended.part == part:
                    call = ended.call
                    yield ServerCallItem(call.id, call.name, call.arguments, ended.result, ended.is_error)

    def _resting_items(self, part: int) -> Iterator[Item]:
        response = self._recorded.rests[part].response
        if response.state is State.COMPLETE:
            yield from self._answer_items(response)
        elif part in self._ends:
            yield from _approvals(response.suspensions)

    def _answer_items(self, response: SystemResponse) -> Iterator[Item]:
        turns, is_chat = self._recorded.turns, self.header.mode is Mode.CHAT
        last = turns[-1].reply if turns and is_chat else None
        if response.content and not (last is not None and last.tool_calls):
            yield from self._reasoning("" if last is None else last.reasoning)
            yield TextItem(response.content)
        for number, call in enumerate(response.client_calls):
            yield ClientCallItem(client_call_id(response.request_id, number), call.name, call.arguments)

    def _reasoning(self, text: str) -> Iterator[Item]:
        if text and self._view.summary is not None:
            yield ReasoningItem(text)

    def _ends_answer(self, response: SystemResponse) -> bool:
        return self._view.client_approves and bool(_approvals(response.suspensions))


def _approvals(suspensions: Iterable[Suspension]) -> list[ApprovalItem]:
    """Return the calls among the suspensions that a person decides about."""
    return [_approval(each) for each in suspensions if each.kind in DECISION_KINDS]


def _approval(suspension: Suspension) -> ApprovalItem:
    about = suspension.value if isinstance(suspension.value, dict) else {}
    arguments = about.get("arguments")
    shown = arguments if isinstance(arguments, dict) else {}
    return ApprovalItem(suspension.suspension_id, suspension.kind, suspension.tool_id, shown)
