"""The door a pattern is given: everything it may await, and the rules of using it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TypeVar, overload

from pydantic import JsonValue

from app.capabilities.prompting.prompt_call import Output, PromptCall
from app.domain.contract.messages import Message, ToolCall, ToolResult
from app.domain.contract.request import ExecutionHints, RedundancyOptions, SystemRequest
from app.domain.contract.response import StepStatus, SuspensionKind
from app.domain.failures import Code, Failure
from app.domain.fingerprints import digest
from app.domain.journal.events import Event, StepStart
from app.domain.journal.header import EffectiveLimits
from app.domain.journal.outcomes import InferenceSetup, Outcome, Plan, Prepared, SuspensionAnswer
from app.domain.journal.step_key import PREPARE_KEY
from app.domain.lifecycle import State
from app.domain.model_call import Reply, ResponseFormat
from app.domain.pattern_result import PatternResult
from app.orchestration.execution.attempt import InferenceRequest
from app.orchestration.execution.branches import EarlyStop, TimeLimit
from app.orchestration.execution.effect import Effect, StepProgress, SuspensionRequest
from app.orchestration.execution.environment import Environment
from app.orchestration.execution.execution import Execution
from app.orchestration.execution.inference import Inference
from app.orchestration.execution.ledger import ToolCallState
from app.orchestration.execution.tool_round import ToolRound

T = TypeVar("T")
_GREEDY = ExecutionHints(temperature=0)
_USUAL_REDUNDANCY = RedundancyOptions()


class PatternMisuse(RuntimeError):  # noqa: N818 - names whose fault it is
    """A pattern broke a rule of the door; the message is the rule."""


class RunContext:
    """One branch's door. Its steps are `prefix` plus an ordinal from 0, in the order in which they are asked for.

    The branch owns its conversation: `infer` takes only what is new, and adds the answer itself.
    """

    def __init__(self, execution: Execution, *, now: float, anchor: str, prefix: str = "") -> None:
        request = execution.header.request
        self.now = now
        self.messages: Sequence[Message] = ()
        """What the branch's conversation begins with. A pattern may change this, and what follows, for its branches."""
        self.tools: Sequence[str] = ()
        """The names of the tools that may be offered."""
        self.allowed_tools: Sequence[str] | None = request.tools
        """The names of the tools that the request allows, all when it is None."""
        self.output = request.output
        """The form and the rules of the branch's answer."""
        self.redundancy = request.redundancy or _USUAL_REDUNDANCY
        self.hints = request.hints
        self.model = request.model
        """The route or engine that is asked."""
        self.replica: int | None = None
        """The branch's number where several answer the same question; it stands on their inferences."""
        self.plan: Plan | None = None
        """What was planned, in the mode that plans."""
        self.planned_at = 0.0
        """When it was, in Unix seconds."""
        self.correlation = execution.correlation
        """What is told with everything that happens here."""
        self._forks = () if execution.header.fork is None else execution.header.fork.chain
        self._unsaid: Sequence[Message] = ()
        self._aside = False
        self._step: StepProgress | None = None
        self._execution = execution
        self._prefix = prefix
        self._ordinal = 0
        self._shut = False
        self._conversation: list[Message] = []
        self._turn_starts = 0
        self._last_reply: Reply | None = None
        self._last_provider = ""
        self._rejected = False
        self._slots: Sequence[ToolCallState] = ()
        self._anchor = anchor
        self._offered = InferenceSetup((), ())

    def apply_prepared(self, prepared: Prepared, *, now: float) -> None:
        """What PREPARE found is there from now on."""
        self.messages = prepared.messages
        self.tools = prepared.tools if self.allowed_tools is self.request.tools else self.allowed_tools or ()
        self.now, self._anchor = now, PREPARE_KEY
        self._leave_the_record()

    async def infer(self, added: Sequence[Message], form: ResponseFormat | None = None, *, tools: bool = True) -> Reply:
        """Asks a model about the branch's conversation with these messages added; without `tools` it is offered none.

        Its text has the form that is asked for as far as its provider sees to that. Raises: InferenceFailure.
        """
        key = self._take()
        first = not self._conversation
        answer = [] if self._last_reply is None else [self._last_reply.message(self._last_provider)]
        new = [*answer, *added, *self._unsaid]
        self._unsaid = ()
        self._conversation += new
        if first:
            self._turn_starts = len(self._conversation)
        hints = self._hints(first=first)
        asked_form = () if form is None else (form.schema, form.grammar)
        asked_model = () if self.model == self.request.model else (self.model,)
        fingerprint = digest("inference", key, new, hints, *asked_form, *asked_model)
        asked = InferenceRequest(
            conversation=self._conversation,
            turn_starts=self._turn_starts,
            hints=hints,
            last_provider=self._last_provider,
            fingerprint=fingerprint,
            correlation=self.correlation,
            tools=self.tools if tools else (),
            response_format=form,
            model=self.model,
            replica=self.replica,
            is_side_question=self._aside,
            previous_rejected=self._rejected,
        )
        self._rejected = False
        inference = Inference(self._execution, key, asked)
        try:
            inferred = await inference.run()
        finally:
            self.now = max(self.now, inference.ended_at)
        self._last_reply = inferred.reply
        self._anchor = inferred.attempt_key
        self._last_provider = inferred.candidate.provider
        self._slots = self._execution.ledger.tool_calls_of(inferred.attempt_key)
        self._offered = inferred.setup
        return inferred.reply

    async def call_tools(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Runs all calls of the last reply and returns their results in call order. A failed call is a result too."""
        if [slot.call for slot in self._slots] != list(calls):
            raise PatternMisuse("what one reply asks for goes into one call_tools")
        key = self._take()
        slots, self._slots = self._slots, ()
        return await self._call(key, slots, self._offered)

    async def call_tool(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Calls a tool that no model asked for. A failed call is a result too, and so is one that is refused."""
        key = self._take()
        offer = Effect(key, digest("offer", key, name), self.correlation, partial(self._offer, name), instant=True)
        row = await self._execution.perform(offer)
        assert isinstance(row.outcome, InferenceSetup)  # noqa: S101 - what an offer of tools can come to
        self._anchor, self.now = key, max(self.now, row.at)
        slot = ToolCallState(
            ToolCall(id=f"call_{key}", name=name, arguments=dict(arguments)), self.correlation.step_name
        )
        self._execution.ledger.add_tool_call(key, slot)
        [result] = await self._call(key, [slot], row.outcome)
        return result

    async def ask(self, question: PromptCall[Output]) -> Output:
        """What a model answers to that, apart from the branch's conversation and from the response.

        An answer that will not do is told what is wrong with it, and the model tries again within `attempts`. Raises:
        InferenceFailure; ConstraintFailure, or what the question checks, of the last attempt.
        """
        door = RunContext(self._execution, now=self.now, anchor=self._anchor, prefix=f"{self._take()}/0/")
        self._execution.ledger.excluded_prefixes += (door._prefix,)
        door.correlation, door.replica = self.correlation, self.replica
        door.model, door.hints, door._aside = self.model, _GREEDY, True
        added, left = question.messages, self.limits.attempts
        while True:
            reply = await door.infer(added, question.response_format)
            self._anchor, self.now, left = door._anchor, door.now, left - 1
            try:
                return question.parse_reply(reply.text)
            except Failure as unfit:
                if not left:
                    raise
                door.reject_answer()
                added = question.correction_messages(unfit)

    async def record_value(
        self,
        find: Callable[[Environment], Awaitable[Outcome]],
        *known: object,
        key: str | None = None,
        is_instant: bool = True,
    ) -> Outcome:
        """What is found, recorded as a step of its own or under that key, so that a replay does not look again.

        The journal knows it again by what is `known` of it beforehand. One that is `instant` never waits.
        """
        key = key or self._take()
        leaf = Effect(
            key,
            digest("found", key, *known),
            self.correlation,
            lambda: find(self._execution.environment),
            instant=is_instant,
        )
        row = await self._execution.perform(leaf)
        self._anchor, self.now = key, max(self.now, row.at)
        return row.outcome

    def reject_answer(self) -> None:
        """The last answer will not do, so the next is asked of another provider where the route says so."""
        self._rejected = True

    async def compute(self, work: Callable[[], T]) -> T:
        """Do long work that has no effects on a thread, and return what it returns. It is not recorded as a step."""
        return await self._execution.compute(work)

    def transition_to(self, state: State, reason: str) -> None:
        """Moves the lifecycle, where this is the outermost pattern; one that another called does not."""
        if not self._prefix:
            self._execution.transition_to(self._anchor, state, reason)

    def announce_retry(self, why: Failure) -> None:
        """Says that another attempt follows: as a move of the lifecycle, or of the step of a plan that this is in."""
        self.transition_to(State.EXECUTE, why.code.lower())
        if self._step is not None:
            self.emit(self._step.end_event(StepStatus.FAILED, at=self.now, code=why.code))
            self._attempt(self._step)

    def start_step(self, step_type: str) -> None:
        """Says that a step of a plan begins here. That it ends is said in any case, by the execution's end at last."""
        self._step = StepProgress(step_type, self.correlation)
        self._attempt(self._step)
        self._execution.steps_in_progress.append(self._step)

    def end_step(self, status: StepStatus, code: Code | None = None) -> None:
        """Says how the step ended that began here."""
        assert self._step is not None  # noqa: S101 - a step that ends has begun
        self.emit(self._step.end_event(status, at=self.now, code=code))
        self._execution.steps_in_progress.remove(self._step)

    def emit(self, *events: Event) -> None:
        """Says what happened since the branch's last inference."""
        self._execution.emit(self._anchor, self.correlation, *events)

    def set_partial_result(self, produced: PatternResult) -> None:
        """What the response shows if nothing better comes of this."""
        if not self._prefix:
            self._execution.partial_result = produced

    async def suspend(self, value: JsonValue, tool_id: str) -> JsonValue:
        """Asks somebody outside and returns the answer; until there is one the branch ends here."""
        key = self._take()
        question = SuspensionRequest(key, SuspensionKind.QUESTION, tool_id, value)
        row = self._execution.answer_to(question)
        assert isinstance(row.outcome, SuspensionAnswer)  # noqa: S101 - what a question can come to
        self.now = max(self.now, row.at)
        return row.outcome.payload

    async def with_timeout(self, seconds: float, branch: Callable[["RunContext"], Awaitable[T]]) -> T:
        """Runs the branch with a door of its own. Raises: Cancellation (CANCELLED_TIMEOUT) after that running time."""
        key = self._take()
        door, limit = self._branch(f"{key}/0/"), TimeLimit(key, seconds)
        self._shut = True
        try:
            return await self._execution.with_timeout(limit, partial(branch, door))
        finally:
            self._shut, self._anchor = False, key
            self.now = max(self.now, limit.expired_at or door.now)

    @overload
    async def gather(
        self,
        branches: Sequence[Callable[["RunContext"], Awaitable[T]]],
        *,
        after: Mapping[int, Sequence[int]] | None = ...,
    ) -> list[T | Failure]: ...

    @overload
    async def gather(
        self,
        branches: Sequence[Callable[["RunContext"], Awaitable[T]]],
        *,
        until: Callable[[Mapping[int, T | Failure]], bool],
    ) -> dict[int, T | Failure]: ...

    async def gather(
        self,
        branches: Sequence[Callable[["RunContext"], Awaitable[T]]],
        *,
        until: Callable[[Mapping[int, T | Failure]], bool] | None = None,
        after: Mapping[int, Sequence[int]] | None = None,
    ) -> list[T | Failure] | dict[int, T | Failure]:
        """Runs the branches at once, each with a door of its own, and returns their results in order.

        A failed branch is its failure as a value. Nothing is shared but what was before. A branch begins when those,
        all earlier, that it comes `after` have ended. `until` sees what has finished, by branch; once that is enough,
        which it says of more when it said so of fewer, the other branches are called off. Then only what counted is
        returned, by branch.
        """
        key = self._take()
        doors = [self._branch(f"{key}/{index}/") for index in range(len(branches))]
        race = None if until is None else EarlyStop(key, len(branches), until)
        self._shut = True
        begun = [
            partial(_begin, branch, doors[index], [doors[earlier] for earlier in (after or {}).get(index, ())])
            for index, branch in enumerate(branches)
        ]
        results = await self._execution.gather(begun, race, after or {})
        self._shut = False
        self._anchor = key
        self.now = max([self.now, *(doors[index].now for index in results), race.decided_at if race else 0.0])
        return list(results.values()) if race is None else results

    def _attempt(self, step: StepProgress) -> None:
        self.emit(StepStart(step.step_type, step.attempt + 1))
        step.attempt, step.anchor, step.started_at = step.attempt + 1, self._anchor, self.now

    def _branch(self, prefix: str) -> "RunContext":
        door = copy(self)
        door._prefix, door._anchor, door._ordinal = prefix, prefix.removesuffix("/"), 0
        door._conversation, door._slots, door._offered = list(self._conversation), (), InferenceSetup((), ())
        return door

    def _take(self) -> str:
        if self._shut:
            raise PatternMisuse("use the run you were given; the parent's is shut meanwhile")
        self._leave_the_record()
        key = f"{self._prefix}{self._ordinal}"
        self._ordinal += 1
        return key

    def _leave_the_record(self) -> None:
        """Puts in force what holds from here on, where an execution that this one was forked from ends."""
        while self._forks and not self._prefix and self._ordinal >= self._forks[0].from_step:
            fork, self._forks = self._forks[0], self._forks[1:]
            self.model, self.hints = fork.model or self.model, merge_hints(self.hints, fork.hints)
            if fork.tools is not None:
                self.tools = self.allowed_tools = fork.tools
            self._unsaid = (*self._unsaid, *fork.messages)

    @property
    def new_messages(self) -> list[Message]:
        """What came of what this conversation began with: the rounds of tools, and the last answer."""
        rounds = [each for each in self._conversation[self._turn_starts :] if each.role == "tool" or each.tool_calls]
        return rounds if self._last_reply is None else [*rounds, self._last_reply.message(self._last_provider)]

    @property
    def request(self) -> SystemRequest:
        """What was asked for."""
        return self._execution.header.request

    def may_call_tool(self, name: str) -> bool:
        """Whether the request lets a tool of that name be called, wherever that is."""
        return self.allowed_tools is None or name in self.allowed_tools

    @property
    def limits(self) -> EffectiveLimits:
        """The limits in force."""
        return self._execution.header.bounds

    async def _call(self, key: str, slots: Sequence[ToolCallState], offered: InferenceSetup) -> list[ToolResult]:
        calling = ToolRound(self._execution, key, slots, offered=offered.tools, correlation=self.correlation)
        results = await calling.run(self.limits.calls_per_reply)
        self.now = max(self.now, calling.ended_at)
        return results

    async def _offer(self, name: str) -> Outcome:
        return InferenceSetup(
            self._execution.environment.tool_registry.offer_of(name) if self.may_call_tool(name) else (), ()
        )

    def _hints(self, *, first: bool) -> ExecutionHints:
        """The request's hints; a call that was demanded is demanded of the first answer only, or no text would come."""
        hints = self.hints
        return hints.model_copy(update={"tool_choice": None}) if hints.demands_call and not first else hints


def merge_hints(hints: ExecutionHints, others: ExecutionHints | None) -> ExecutionHints:
    """The hints with those of the others that are not absent."""
    return hints.model_copy(update={name: value for name, value in others or () if value is not None and value != {}})


async def _begin(branch: Callable[[RunContext], Awaitable[T]], door: RunContext, earlier: Sequence[RunContext]) -> T:
    door.now = max([door.now, *(each.now for each in earlier)])
    return await branch(door)
