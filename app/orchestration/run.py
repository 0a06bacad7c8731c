"""The door a pattern is given: everything it may await, and the rules of using it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar, overload

from pydantic import JsonValue

from app.domain.boundary import ExecutionHints, SuspensionKind, SystemRequest
from app.domain.effects import PREPARE, Answered, Form, Offered, Prepared, Reply, digest
from app.domain.events import Event
from app.domain.failures import Failure
from app.domain.lifecycle import State
from app.domain.messages import Message, ToolCall, ToolResult
from app.domain.produced import Produced
from app.orchestration.calling import Round
from app.orchestration.execution import Execution
from app.orchestration.inferring import Asked, Inference
from app.orchestration.leaf import Question, Race
from app.orchestration.tally import CallSlot

T = TypeVar("T")


class PatternMisuse(RuntimeError):  # noqa: N818 - names whose fault it is
    """A pattern broke a rule of the door; the message is the rule."""


class Run:
    """One branch's door. Its steps are `prefix` plus an ordinal from 0, in the order in which they are asked for.

    The branch owns its conversation: `infer` takes only what is new, and adds the answer itself.
    """

    def __init__(self, execution: Execution, prepared: Prepared, *, now: float, prefix: str = "") -> None:
        self.prepared = prepared
        self.now = now
        self.hints = execution.header.request.hints
        """The hints in force; a pattern may change them for what it asks next."""
        self.model = execution.header.request.model
        """The route or engine that is asked; a pattern may change it for what it asks next."""
        self.replica: int | None = None
        """The branch's number where several answer the same question; it stands on their inferences."""
        self._execution = execution
        self._prefix = prefix
        self._ordinal = 0
        self._shut = False
        self._conversation: list[Message] = []
        self._turn_starts = 0
        self._last_reply: Reply | None = None
        self._last_provider = ""
        self._slots: Sequence[CallSlot] = ()
        self._anchor = PREPARE
        self._offered = Offered((), ())

    async def infer(self, added: Sequence[Message], form: Form | None = None, *, tools: bool = True) -> Reply:
        """Asks a model about the branch's conversation with these messages added; without `tools` it is offered none.

        Its text has the form that is asked for as far as its provider sees to that. Raises: InferenceFailure.
        """
        key = self._take()
        first = not self._conversation
        new = list(added) if self._last_reply is None else [self._last_reply.message(self._last_provider), *added]
        self._conversation += new
        if first:
            self._turn_starts = len(self._conversation)
        hints = self._hints(first=first)
        asked_form = () if form is None else (form.schema, form.grammar)
        asked_model = () if self.model == self.request.model else (self.model,)
        fingerprint = digest("inference", key, new, hints, *asked_form, *asked_model)
        offered = self.prepared.tools if tools else ()
        asked = Asked(
            conversation=self._conversation,
            turn_starts=self._turn_starts,
            hints=hints,
            last_provider=self._last_provider,
            fingerprint=fingerprint,
            tools=offered,
            form=form,
            model=self.model,
            replica=self.replica,
        )
        inferred = await Inference(self._execution, key, asked, self.prepared).run()
        self._last_reply = inferred.reply
        self._anchor = inferred.attempt_key
        self._last_provider = inferred.candidate.provider
        self._slots = self._execution.tally.slots(inferred.attempt_key)
        self._offered = inferred.offered
        self.now = max(self.now, inferred.at)
        return inferred.reply

    async def call_tools(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Runs all calls of the last reply and returns their results in call order. A failed call is a result too."""
        if [slot.call for slot in self._slots] != list(calls):
            raise PatternMisuse("what one reply asks for goes into one call_tools")
        key = self._take()
        slots, self._slots = self._slots, ()
        calling = Round(self._execution, key, slots, self._offered.tools)
        results = await calling.run(self.prepared.bounds.calls_per_reply)
        self.now = max(self.now, calling.settled_at)
        return results

    def enter(self, state: State, reason: str) -> None:
        """Moves the lifecycle, where this is the outermost pattern; one that another called does not."""
        if not self._prefix:
            self._execution.advance(self._anchor, state, reason)

    def emit(self, *events: Event) -> None:
        """Says what happened since the branch's last inference."""
        self._execution.emit(self._anchor, *events)

    def draft(self, produced: Produced) -> None:
        """What the response shows if nothing better comes of this."""
        if not self._prefix:
            self._execution.draft = produced

    async def suspend(self, value: JsonValue, tool_id: str) -> JsonValue:
        """Asks somebody outside and returns the answer; until there is one the branch ends here."""
        key = self._take()
        question = Question(key, SuspensionKind.QUESTION, tool_id, value)
        row = self._execution.answer(question, digest("suspend", key, tool_id, value))
        assert isinstance(row.outcome, Answered)  # noqa: S101 - what a question can come to
        self.now = max(self.now, row.at)
        return row.outcome.payload

    @overload
    async def gather(self, branches: Sequence[Callable[["Run"], Awaitable[T]]]) -> list[T | Failure]: ...

    @overload
    async def gather(
        self, branches: Sequence[Callable[["Run"], Awaitable[T]]], until: Callable[[Mapping[int, T | Failure]], bool]
    ) -> dict[int, T | Failure]: ...

    async def gather(
        self,
        branches: Sequence[Callable[["Run"], Awaitable[T]]],
        until: Callable[[Mapping[int, T | Failure]], bool] | None = None,
    ) -> list[T | Failure] | dict[int, T | Failure]:
        """Runs the branches at once, each with a door of its own, and returns their results in order.

        A failed branch is its failure as a value. Nothing is shared but what was before. `until` sees what has
        finished, by branch; once that is enough, which it says of more when it said so of fewer, the other branches
        are called off. Then only what counted is returned, by branch.
        """
        key = self._take()
        doors = [self._branch(f"{key}/{index}/") for index in range(len(branches))]
        race = None if until is None else Race(key, len(branches), until)
        self._shut = True
        results = await self._execution.settle(
            [partial(branch, door) for branch, door in zip(branches, doors, strict=True)], race
        )
        self._shut = False
        self._anchor = key
        self.now = max([self.now, *(doors[index].now for index in results), race.at if race else 0.0])
        return list(results.values()) if race is None else results

    def _branch(self, prefix: str) -> "Run":
        door = Run(self._execution, self.prepared, now=self.now, prefix=prefix)
        door._conversation = list(self._conversation)
        door._turn_starts = self._turn_starts
        door.hints, door.model, door.replica = self.hints, self.model, self.replica
        door._last_reply = self._last_reply
        door._last_provider = self._last_provider
        door._anchor = prefix.removesuffix("/")
        return door

    def _take(self) -> str:
        if self._shut:
            raise PatternMisuse("use the run you were given; the parent's is shut meanwhile")
        key = f"{self._prefix}{self._ordinal}"
        self._ordinal += 1
        return key

    @property
    def request(self) -> SystemRequest:
        """What was asked for."""
        return self._execution.header.request

    def _hints(self, *, first: bool) -> ExecutionHints:
        """The request's hints; a call that was demanded is demanded of the first answer only, or no text would come."""
        hints = self.hints
        return hints.model_copy(update={"tool_choice": None}) if hints.demands_call and not first else hints
