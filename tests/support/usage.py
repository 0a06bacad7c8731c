"""Random executions that use as much as they can: engines fail, stall and use up to their context window."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from portico.bootstrap.service import PATTERNS
from portico.capabilities.models.context_window import count_tokens
from portico.capabilities.models.tokens import UNCORRECTED
from portico.domain.contract.messages import ToolCall
from portico.domain.contract.quote import Quote
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import NO_USAGE, SystemResponse, TokenUsage
from portico.domain.failures import Code
from portico.domain.journal.events import FallbackTransition, InferenceStart, LifecycleTransition
from portico.domain.lifecycle import Mode
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.orchestration.planning.plan_mode import make_plan
from portico.orchestration.quote import QuoteCalculator
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineCapabilities, EngineError, EngineProfile, Progress
from portico.ports.runtime import Clock
from tests.support.chaos import TOOLS, ToolActions
from tests.support.harness import POLICY, Harness, chat_request, make_harness, profile

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "Bonn"]}, "size": {"type": "integer"}},
    "required": ["city", "size"],
}
RETRIED = [
    AttemptFailureReason.RATE_LIMITED,
    AttemptFailureReason.SERVER_ERROR,
    AttemptFailureReason.MALFORMED,
    AttemptFailureReason.TIMED_OUT,
]
FAULTS = [
    *RETRIED,
    *RETRIED,
    AttemptFailureReason.UNREACHABLE,
    AttemptFailureReason.QUOTA,
    AttemptFailureReason.CONTENT_FILTERED,
]
GENEROUS = replace(POLICY, breaker_failures=0, retry_floor=10_000)
COUNTER = UNCORRECTED


@dataclass(frozen=True, slots=True)
class EngineBehaviour:
    """Probabilities of what an engine does; an `obedient` one uses its input and `max_tokens` at most."""

    fails: float
    calls: float
    fits: float
    silent: float
    slow: float
    obedient: bool = False


class SpendingEngine:
    """An engine that decides everything by dice but never exceeds its context window."""

    def __init__(self, profile: EngineProfile, clock: Clock, dice: Random, manner: EngineBehaviour) -> None:
        self.profile = profile
        self._clock = clock
        self._dice = dice
        self._manner = manner

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Answer by dice."""
        usage = self._usage(call)
        reported = self._dice.random() >= self._manner.silent
        if reported:
            progress.usage(usage)
        for _ in range(self._dice.randrange(3)):
            progress.text("word ")
            await self._clock.sleep(self._dice.random() * self._manner.slow)
        await self._clock.sleep(self._dice.random() * self._manner.slow)
        if self._dice.random() < self._manner.fails:
            raise EngineError(self._dice.choice(FAULTS), "thrown", self._dice.choice([None, 0.0, 1.0]))
        text, calls = self._answer_to(call)
        return Reply(text, calls, "tool" if calls else "stop", "", usage if reported else NO_USAGE, self.profile.model)

    async def ping(self) -> str:
        """Return at once."""
        return "here"

    def _usage(self, call: EngineCall) -> TokenUsage:
        window = self.profile.context_window
        if self._manner.obedient:
            read = count_tokens(call, COUNTER)
            written = self._dice.randint(0, min(window - read, call.hints.max_tokens or window))
        else:
            whole = self._dice.random() < 0.3
            read = self._dice.randint(0, window)
            written = window - read if whole else self._dice.randint(0, window - read)
        return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)

    def _answer_to(self, call: EngineCall) -> tuple[str, tuple[ToolCall, ...]]:
        """Return a judgement, a plan or a final answer if the first message asks for one, else an answer."""
        prompt = call.messages[0].text
        if "You judge whether" in prompt:
            return self._judgement()
        if "You plan how" in prompt:
            return json.dumps({"rationale": "", "steps": random_steps(self._dice)}), ()
        if "You write the final answer" in prompt and self._dice.random() < 0.5:
            return json.dumps({"answer_text": "It is Ulm."}), ()
        return self._answer()

    def _judgement(self) -> tuple[str, tuple[ToolCall, ...]]:
        if self._dice.random() < self._manner.fits:
            return json.dumps({"valid": self._dice.random() < 0.4, "score": 0.5}), ()
        return "who knows", ()

    def _answer(self) -> tuple[str, tuple[ToolCall, ...]]:
        if self._dice.random() < self._manner.calls:
            names = [self._dice.choice([*TOOLS, "no_such_tool"]) for _ in range(self._dice.randrange(1, 6))]
            marks = [f"{self._dice.getrandbits(60):x}" for _ in names]
            asked = enumerate(zip(names, marks, strict=True))
            return "", tuple(ToolCall(id=f"c{at}", name=name, arguments={"mark": mark}) for at, (name, mark) in asked)
        if self._dice.random() < 0.2:
            return json.dumps(random_conversation(self._dice)), ()
        if self._dice.random() < self._manner.fits:
            return json.dumps({"city": self._dice.choice(["Ulm", "Bonn"]), "size": self._dice.randrange(2)}), ()
        return self._dice.choice(["prose", '{"city": "Rome"}', "[[["]), ()


@dataclass(frozen=True, slots=True)
class SpentTotals:
    """Totals of an execution, counted from its history and by the clock."""

    inferences: int
    tool_calls: int
    transitions: int
    tokens: int
    seconds: float
    cost: float | None

    @classmethod
    def of(cls, response: SystemResponse, record: ExecutionHistory, seconds: float) -> "SpentTotals":
        events = [item.event for item in record.events]
        return cls(
            inferences=sum(isinstance(event, InferenceStart) for event in events),
            tool_calls=sum(call.attempts for call in response.tool_calls_made),
            transitions=sum(isinstance(event, LifecycleTransition | FallbackTransition) for event in events),
            tokens=response.token_usage.total_tokens,
            seconds=seconds,
            cost=None if response.cost is None else response.cost.amount,
        )

    def beyond(self, quoted: Quote) -> list[str]:
        """Return the names of the totals that exceed the quote."""
        found = [
            name
            for name in ("inferences", "tool_calls", "transitions", "tokens", "seconds")
            if getattr(self, name) > getattr(quoted, name)
        ]
        if quoted.cost is not None and (self.cost or 0.0) > quoted.cost.amount * (1 + 1e-9):
            found.append("cost")
        return found


def random_behaviour(dice: Random, *, obedient: bool = False) -> EngineBehaviour:
    """Return a behaviour between well-behaved and wild."""
    share, silent = dice.random, 0.0 if obedient else dice.random() / 2
    return EngineBehaviour(share() * 0.8, share() * 0.9, share(), silent, dice.choice([0.1, 1.0, 20.0]), obedient)


def random_engines(
    clock: Clock, dice: Random, *, priced: bool, obedient: bool = False, kind: type[SpendingEngine] = SpendingEngine
) -> list[SpendingEngine]:
    """Return up to three engines of random capabilities and windows."""
    found = []
    for name in ["a", "b", "c"][: dice.randrange(1, 4)]:
        able = EngineCapabilities(schema=dice.random() < 0.5, tools=dice.random() < 0.8)
        price = (dice.random() * 5, dice.random() * 20) if priced or dice.random() < 0.5 else None
        room = {"context_window": dice.choice([3_000, 8_000, 128_000]), "response_reserve": dice.choice([0, 500])}
        shape = profile(name, price=price, capabilities=able, **room)
        found.append(kind(shape, clock, dice, random_behaviour(dice, obedient=obedient)))
    return found


def random_conversation(dice: Random) -> dict[str, Any]:
    """Return a random input of an inference step, with or without a schema and tools."""
    found: dict[str, Any] = {"messages": [{"role": "user", "content": "Which city?"}]}
    if dice.random() < 0.5:
        found["schema"] = dice.choice([SCHEMA, {}])
    if dice.random() < 0.5:
        found["tools"] = dice.sample(TOOLS, dice.randrange(len(TOOLS) + 1))
    return found


def random_steps(dice: Random) -> list[dict[str, Any]]:
    """Return a random plan, mostly one that can run."""
    found: list[dict[str, Any]] = []
    for number in range(dice.randrange(1, 6)):
        step = {"name": f"s{number}", **dice.choice([_infer, _infer, _tool, _redundant, _other])(dice)}
        if number and dice.random() < 0.5:
            step["depends_on"] = dice.sample([each["name"] for each in found], dice.randrange(min(number, 2) + 1))
        found.append(step)
    return found


def _infer(dice: Random) -> dict[str, Any]:
    step: dict[str, Any] = {"type": "infer"}
    if dice.random() < 0.4:
        step["input"] = dice.choice(["Which city?", random_conversation(dice)])
    if dice.random() < 0.5:
        step["schema"] = dice.choice([SCHEMA, {}])
    if dice.random() < 0.3:
        step |= {"rules": ["not_empty"], "attempts": 1}
    if dice.random() < 0.4:
        step["tools"] = dice.sample(TOOLS, dice.randrange(len(TOOLS) + 1))
    if dice.random() < 0.2:
        step["timeout"] = dice.choice([1.0, 30.0])
    return step


def _tool(dice: Random) -> dict[str, Any]:
    return {"type": "tool", "input": {"name": dice.choice(TOOLS), "arguments": {"mark": f"{dice.getrandbits(60):x}"}}}


def _redundant(dice: Random) -> dict[str, Any]:
    step: dict[str, Any] = {"type": "redundant", "schema": dice.choice([SCHEMA, {}])}
    if dice.random() < 0.7:
        step |= {"n": dice.randrange(1, 4), "voting": dice.choice(["majority", "unanimity", "field_majority"])}
    if dice.random() < 0.4:
        step["input"] = random_conversation(dice) | dice.choice([{}, {"n": 4}])
    return step


def _other(dice: Random) -> dict[str, Any]:
    ranked = {"type": "rerank", "input": {"query": "city", "candidates": ["a city", "a town"]}}
    return dice.choice([ranked, {"type": "validate", "rules": ["not_empty"]}])


def random_request(dice: Random, engines: Sequence[SpendingEngine], *modes: Mode) -> SystemRequest:
    """Return a random request of one of these modes, by default of all."""
    names = ["default", *(engine.profile.name for engine in engines)]
    mode = dice.choice(modes or [Mode.CHAT, Mode.STRUCTURED, Mode.REDUNDANT, Mode.PLAN])
    fields: dict[str, Any] = {"mode": mode, "model": dice.choice([None, *names])}
    fields["output"] = {"semantic": dice.random() < 0.3, "rules": dice.choice([[], ["not_empty"]])}
    if mode is Mode.PLAN:
        policies = [{"require_linear": True}, {"max_steps": 3}, {"allowed_step_types": ["infer", "tool"]}]
        policy = dice.choice(policies) if dice.random() < 0.3 else None
        fields["plan"] = {"steps": dice.choice([None, random_steps(dice), random_steps(dice)]), "policy": policy}
    elif mode is not Mode.CHAT:
        fields["output"]["schema"] = SCHEMA
    if dice.random() < (0.1 if mode is Mode.PLAN else 0.6):
        fields["tools"] = dice.sample(TOOLS, dice.randrange(len(TOOLS) + 1))
    if mode is Mode.REDUNDANT:
        n = dice.randrange(1, 6)
        models = [dice.choice(names) for _ in range(n)] if dice.random() < 0.5 else None
        voting = dice.choice(["majority", "unanimity", "field_majority"])
        fields["redundancy"] = {"n": n, "models": models, "voting": voting, "early_stop": dice.random() < 0.5}
    return chat_request("Which city?", **fields)


def random_limits(dice: Random) -> dict[str, Any]:
    """Return random limits."""
    return {
        "tool_rounds": dice.randrange(4),
        "calls_per_reply": dice.randrange(1, 5),
        "attempts": dice.randrange(1, 4),
        "timeout": dice.choice([5.0, 60.0, 600.0]),
    }


def spending_harness(clock: Clock, engines: Sequence[SpendingEngine], dice: Random, **limits: Any) -> Harness:
    """Return a harness with these engines and tools that read, fail and write."""
    retries = dice.randrange(3)
    policy = replace(dice.choice([POLICY, GENEROUS]), max_retries=retries)
    return make_harness(clock, *engines, tools=ToolActions().tools(dice), policy=policy, **limits)


def quote_of(here: Harness, request: SystemRequest) -> Quote:
    """Return the quote of the request in that harness."""
    environment = here.environment
    calculator = QuoteCalculator(environment.catalogue, environment.tool_registry, "USD", PATTERNS)
    return calculator.quote(request, here.limits)


def planning_of(request: SystemRequest) -> Any:
    """Return the planner of the request; None for a mode without a plan."""
    return make_plan if request.mode is Mode.PLAN else None


def ended_by_budget(response: SystemResponse) -> bool:
    """Return True if the budget ended the execution."""
    return response.error is not None and response.error.code is Code.ORCHESTRATION_BUDGET_EXCEEDED


class ReluctantEngine:
    """An engine that fails until all retries are spent; the last inference fails even then.

    Every attempt uses the whole window, as output. The answers come from the script, by number of the inference.
    """

    def __init__(self, clock: Clock, shape: EngineProfile, round_of: "AnswerScript") -> None:
        self.profile = shape
        self._clock = clock
        self._round = round_of

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Fail unless it is the last attempt of an inference that is answered."""
        usage = TokenUsage(output_tokens=self.profile.context_window, total_tokens=self.profile.context_window)
        progress.usage(usage)
        says = self._round.next()
        if says is None:
            raise EngineError(AttemptFailureReason.SERVER_ERROR, "not yet", 0.0)
        text, calls = (says, ()) if isinstance(says, str) else ("", says)
        return Reply(text, calls, "stop", "", usage, self.profile.model)

    async def ping(self) -> str:
        """Return at once."""
        return "here"


class AnswerScript:
    """Script by which the last attempt of each inference is answered, until its entries are used."""

    def __init__(self, attempts: int, says: Sequence[str | tuple[ToolCall, ...]]) -> None:
        self._attempts = attempts
        self._says = says
        self._taken = 0

    def next(self) -> str | tuple[ToolCall, ...] | None:
        """Return the answer of the next attempt; None if it fails."""
        inference, number = divmod(self._taken, self._attempts)
        self._taken += 1
        return self._says[inference] if number == self._attempts - 1 and inference < len(self._says) else None
