"""Every refusal of `POST /v1/execute` with what provokes it, in the order in which refusals win.

Of two faults of a request, the one that stands first here is the answer. Those of fields that are `collected` are
answered together, in this order. All are provoked in the service of `TABLES`, in which one execution runs and another
one waits; those of capacity while all its places are taken.

There is one exception: an Idempotency-Key that was used before is answered although the caller's limit is used up, or
there is no capacity. An execution that is stored while it runs has its place before it is written, one in memory when
it starts. Over HTTP nothing provokes the refusals of a mode without a pattern and of a service without a memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from portico.domain.access.limits import NO_LIMITS, AccessLimits, Rate
from portico.domain.failures import Code
from portico.domain.lifecycle import Mode

LONG: Final = 366 * 86_400
"""A window in which next to nothing comes back during a test."""
ONE_REQUEST: Final = AccessLimits(requests=Rate(1, LONG))
"""Limits of a key that was used before."""
SOME_COST: Final = AccessLimits(cost=Rate(1_000_000, LONG))
ABSENT: Final = object()
"""The value of a field that a provocation must not have."""
HELLO: Final = {"role": "user", "content": "Hello"}
TABLES: Final[Mapping[str, Any]] = {
    "auth": {"mode": "keys"},
    "telemetry": {"log_level": "error"},
    "server": {"max_in_flight": 2, "drain_seconds": 3_600, "allowed_hosts": ["localhost"]},
    "queue": {"waiting": 1, "at_once": 1},
    "engines": {
        "paid": {"model": "rehearsal://", "price": {"input": 1.0, "output": 2.0}},
        "unpriced": {"model": "rehearsal://"},
    },
    "routes": {"default": ["paid"]},
    "agents": {
        "counter": {"description": "Counts.", "model": "paid"},
        "brief": {"description": "Is brief.", "limits": {"tool_rounds": 1}},
        "unpriced": {"description": "Has no price.", "model": "unpriced"},
        "hidden": {"description": "Is not for everybody.", "model": "paid"},
    },
    "flows": {"modules": ["tests.support.agent_flows"]},
    "tools": {"modules": ["tests.support.shop_tools"]},
    "policy": {"deny": [{"tool": "write_note"}]},
    "guardrails": {"no_secrets": {"type": "pii"}},
    "limits": {
        "body_bytes": 65_536,
        "messages": 3,
        "tools": 2,
        "timeout": 86_400,
        "tool_rounds": 5,
        "calls_per_reply": 5,
        "tool_calls": 5,
        "attempts": 2,
        "flow_steps": 5,
        "plan_steps": 2,
        "passes": 2,
        "replicas": 3,
    },
}
RUNNING: Final = {"request_id": "running", "session_id": "busy"}
"""Names of the execution that runs; its Idempotency-Key is `used`."""
ENDED: Final = "ended"
"""Id of an execution that completed in memory."""


@dataclass(frozen=True, kw_only=True)
class Provocation:
    """Properties that a request must have: its body, the bytes behind it, its headers, its caller, its connection."""

    body: Mapping[str, Any] = field(default_factory=dict)
    modes: Sequence[Mode] = tuple(Mode)
    suffix: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    lacks: frozenset[str] = frozenset()
    """Permissions that the caller does not have."""
    limits: AccessLimits = NO_LIMITS
    is_surplus: bool = False
    is_full: bool = False

    def with_other(self, other: "Provocation") -> "Provocation":
        """Return what provokes both. Raises: Conflict."""
        modes = [mode for mode in self.modes if mode in other.modes]
        if not modes or (self.limits != other.limits and NO_LIMITS not in {self.limits, other.limits}):
            raise Conflict
        return Provocation(
            body=_merged(self.body, other.body),
            modes=modes,
            suffix=self.suffix + other.suffix,
            headers=_merged(self.headers, other.headers),
            lacks=self.lacks | other.lacks,
            limits=other.limits if self.limits == NO_LIMITS else self.limits,
            is_surplus=self.is_surplus or other.is_surplus,
            is_full=self.is_full or other.is_full,
        )

    def sent_body(self) -> dict[str, Any]:
        """Return the body, with a message unless it says something about messages."""
        sent: dict[str, Any] = _without_absent({"mode": self.modes[0], "messages": [HELLO], **self.body})
        return sent


@dataclass(frozen=True)
class Refusal:
    """A reason to refuse a request. `field` is what the details of the answer name first; None if they name nothing.

    Of those that are `collected` a request is refused for all at once.
    """

    name: str
    code: Code
    field: str | None
    provocation: Provocation
    collected: bool = False


class Conflict(Exception):  # noqa: N818 - no error, but the answer to whether two provocations go together
    """Two provocations that no request can have at once."""


def neighbours(refusals: Sequence[Refusal]) -> list[tuple[Refusal, Refusal]]:
    """Return each refusal with the next one that can be provoked beside it, and with the last one before it."""
    pairs = set()
    for place in range(len(refusals)):
        after, before = range(place + 1, len(refusals)), reversed(range(place))
        pairs |= {(place, each) for each in islice((each for each in after if _fit(refusals, place, each)), 1)}
        pairs |= {(each, place) for each in islice((each for each in before if _fit(refusals, each, place)), 1)}
    return [(refusals[one], refusals[other]) for one, other in sorted(pairs)]


def _fit(refusals: Sequence[Refusal], one: int, other: int) -> bool:
    try:
        refusals[one].provocation.with_other(refusals[other].provocation)
    except Conflict:
        return False
    return True


def _merged(one: Any, other: Any) -> Any:
    """Return both values in one: objects by their keys, lists one after the other. Raises: Conflict."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {key: _merged(one[key], other[key]) for key in one.keys() & other.keys()}
        return {**one, **other, **both}
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *other]
    if one != other:
        raise Conflict
    return one


def _without_absent(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_absent(each) for key, each in value.items() if each is not ABSENT}
    return value


def _refusal(name: str, code: Code, field: str | None, **provocation: Any) -> Refusal:
    return Refusal(name, code, field, Provocation(**provocation))


def _invalid(name: str, field: str | None, /, *modes: Mode, **body: Any) -> Refusal:
    """Return a refusal of fields that are collected."""
    return Refusal(
        name, Code.REQUEST_INVALID, field, Provocation(body=body, modes=modes or tuple(Mode)), collected=True
    )


def _above_cap(field: str, value: Any, *modes: Mode) -> Refusal:
    *names, last = field.split(".")
    body = {last: value}
    for name in reversed(names):
        body = {name: body}
    return _invalid(f"{field} above its cap", field, *modes, **body)


def _steps(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "type": "infer", "input": "a"} for name in names]


_C = Code
_PLAN, _CHAT, _FLOW, _REDUNDANT, _STRUCTURED = Mode.PLAN, Mode.CHAT, Mode.FLOW, Mode.REDUNDANT, Mode.STRUCTURED
_WITHOUT_FLOWS = tuple(mode for mode in Mode if mode is not Mode.FLOW)
_SECRET = {"role": "user", "content": "password: c4nary-8f"}
_KEY = "Idempotency-Key"
_COUNTED = {"name": "counted", "input": {"task": "sum"}}
_FORGED = [{"name": "a", "type": "tool", "input": {"name": "roll_dice", "arguments": {"count": 1, "sides": "many"}}}]

# fmt: off
REFUSALS: Final[Sequence[Refusal]] = (
    # the connection and the host
    _refusal("surplus connection", _C.REQUEST_OVERLOADED, None, is_surplus=True),
    _refusal("foreign host", _C.REQUEST_INVALID, None, headers={"Host": "portico.example"}),
    # the caller
    _refusal("credentials", _C.ACCESS_UNAUTHENTICATED, None, headers={"Authorization": "Bearer ptk_unknown"}),
    # the body and the headers
    _refusal("media type", _C.REQUEST_UNSUPPORTED_MEDIA, None, headers={"Content-Type": "text/plain"}),
    _refusal("size", _C.REQUEST_TOO_LARGE, None, suffix=b" " * 65_536),
    _refusal("JSON", _C.REQUEST_INVALID, None, suffix=b"}"),
    _refusal("schema", _C.REQUEST_INVALID, "surprise", body={"surprise": 1}),
    _refusal("Idempotency-Key", _C.REQUEST_INVALID, _KEY, headers={_KEY: "two words"}),
    # what the caller may do
    _refusal("right to send messages", _C.ACCESS_DENIED, "can_send_messages", lacks=frozenset({"can_send_messages"})),
    _refusal("session of another user", _C.REQUEST_NOT_FOUND, None, body={"session_id": "foreign"}),
    _refusal("after a running one", _C.REQUEST_IN_PROGRESS, None, body={"after": RUNNING["request_id"]}),
    _refusal("unknown agent", _C.REQUEST_INVALID, "agent", body={"agent": "unknown"}, lacks=frozenset({"agent:*"})),
    _refusal("right to the agent", _C.ACCESS_DENIED, "agent:hidden",
             body={"agent": "hidden"}, lacks=frozenset({"agent:*"})),
    _refusal("wider than the agent", _C.REQUEST_INVALID, "limits.tool_rounds", modes=[_CHAT],
             body={"agent": "brief", "limits": {"tool_rounds": 9}}),
    _refusal("right to the model", _C.ACCESS_DENIED, "model:nowhere",
             body={"model": "nowhere"}, lacks=frozenset({"model:*"})),
    _refusal("right to an agent of the flow", _C.ACCESS_DENIED, "agent:counter",
             modes=[_FLOW], body={"flow": _COUNTED}, lacks=frozenset({"agent:*"})),
    _refusal("right to the tool", _C.ACCESS_DENIED, "tool:nowhere",
             body={"tools": ["nowhere"]}, lacks=frozenset({"tool:*"})),
    # what is raised alone
    _refusal("unknown flow", _C.CONFIG_FLOW_INVALID, "flow.name",
             modes=[_FLOW], body={"flow": {"name": "nowhere", "input": 1}}),
    _refusal("unknown model", _C.REQUEST_INVALID, "model", body={"model": "nowhere"}),
    # the caps
    _above_cap("messages", [HELLO] * 4),
    _above_cap("tools", ["roll_dice", "current_time", "count_words"]),
    _above_cap("hints.timeout", 90_000),
    _above_cap("limits.tool_rounds", 9),
    _above_cap("limits.calls_per_reply", 9),
    _above_cap("limits.tool_calls", 9),
    _above_cap("limits.attempts", 9),
    _above_cap("limits.flow_steps", 9),
    _above_cap("plan.steps", _steps("a", "b", "c"), _PLAN),
    _above_cap("plan.passes", 9, _PLAN),
    _above_cap("plan.policy.max_steps", 9, _PLAN),
    _above_cap("plan.policy.timeout_per_step", 90_000, _PLAN),
    # the context
    _invalid("skills in another mode", "context.skills", _PLAN, _FLOW, context={"skills": ["tone"]}),
    _invalid("retrieval in another mode", "context.retrieve", _PLAN, _FLOW, context={"retrieve": True}),
    _invalid("chunks without retrieval", "context.max_chunks", context={"retrieve": False, "max_chunks": 3}),
    _invalid("score without retrieval", "context.min_score", context={"retrieve": False, "min_score": 0.5}),
    # step types and fields of other modes
    _invalid("unknown step type", "plan.policy.allowed_step_types", _PLAN,
             plan={"policy": {"allowed_step_types": ["nowhere"]}}),
    _invalid("redundancy in another mode", "redundancy", _CHAT, _STRUCTURED, _PLAN, _FLOW, redundancy={"n": 2}),
    _invalid("plan in another mode", "plan", _CHAT, _STRUCTURED, _REDUNDANT, _FLOW, plan={}),
    _invalid("flow in another mode", "flow", *_WITHOUT_FLOWS, flow=_COUNTED),
    # sessions and what is stored
    _invalid("after with a session", "after", after=ENDED, session_id="new"),
    _invalid("busy without a session", "if_session_busy", if_session_busy="enqueue", session_id=ABSENT),
    _invalid("background without a store", "store", store=False, background=True, session_id=ABSENT),
    _invalid("session without a store", "store", store=False, session_id="new"),
    # the messages and what only the mode knows
    _invalid("no messages", "messages", *_WITHOUT_FLOWS, messages=ABSENT),
    _invalid("format in mode chat", "output.schema", _CHAT, output={"schema": {"type": "object"}}),
    _invalid("repair in mode chat", "output.repair_allowed", _CHAT, output={"repair_allowed": False}),
    _invalid("too many replicas", "redundancy.n", _REDUNDANT, redundancy={"n": 9}),
    _invalid("no flow in mode flow", "flow", _FLOW, flow=ABSENT),
    _invalid("input of the flow", "flow.input.task", _FLOW, flow={"name": "counted", "input": {"task": 1}}),
    # what depends on the engines
    _invalid("unknown option", "hints.options", hints={"options": {"nowhere": 1}}),
    _invalid("engine without a price", "limits.cost", model="unpriced", limits={"cost": 1.0}),
    # what depends on skills and agents
    _invalid("unknown skill", "context.skills.0", _CHAT, _STRUCTURED, _REDUNDANT, context={"skills": ["nowhere"]}),
    _invalid("agent without a price", "limits.cost", tools=["agent:unpriced"], limits={"cost": 1.0}),
    # tools
    _refusal("unknown tool", _C.TOOL_NOT_FOUND, "nowhere", body={"tools": ["nowhere"]}),
    _refusal("tool that policy denies", _C.ACCESS_DENIED, "write_note", body={"tools": ["write_note"]}),
    _refusal("demanded tool that is not offered", _C.REQUEST_INVALID, "hints.tool_choice",
             body={"tools": ["roll_dice"], "hints": {"tool_choice": {"name": "current_time"}}}),
    # what the mode makes of tools, of the plan and of the output
    _refusal("tool that is not replicated", _C.REQUEST_INVALID, "tools",
             modes=[_REDUNDANT], body={"tools": ["ask_person"]}),
    _refusal("arguments of a planned call", _C.REQUEST_INVALID, "plan.steps.0.input.arguments.sides",
             modes=[_PLAN], body={"plan": {"steps": _FORGED}}),
    _refusal("no format", _C.CONFIG_SCHEMA_REQUIRED, "output",
             modes=[_STRUCTURED], body={"output": {"schema": ABSENT, "grammar": ABSENT}}),
    # the contract of the output, and the input
    _refusal("schema of the output", _C.CONFIG_SCHEMA_INVALID, "output.schema",
             modes=[_STRUCTURED, _REDUNDANT, _PLAN], body={"output": {"schema": {"type": "nowhere"}}}),
    _refusal("grammar of the output", _C.CONFIG_GRAMMAR_NOT_FOUND, "output.grammar",
             modes=[_STRUCTURED, _PLAN], body={"output": {"grammar": "nowhere"}}),
    _refusal("rules of the output", _C.REQUEST_INVALID, "output.rules.0", body={"output": {"rules": ["nowhere"]}}),
    _refusal("unusable rules of the input", _C.REQUEST_INVALID, "input.rules.0",
             body={"input": {"rules": ["nowhere"]}}),
    _refusal("rules of the input", _C.VALIDATION_INPUT_REFUSED, "input_rules",
             body={"input": {"rules": [{"type": "length", "max": 1}]}}),
    _refusal("guard", _C.VALIDATION_INPUT_REFUSED, "no_secrets", body={"messages": [_SECRET]}),
    # the budget
    _refusal("budget", _C.ORCHESTRATION_BUDGET_EXCEEDED, "limits.tokens",
             modes=[_CHAT], body={"limits": {"tokens": 1}}),
    # what is taken
    _refusal("Idempotency-Key without a store", _C.REQUEST_INVALID, "store",
             headers={_KEY: "new"}, body={"store": False}),
    _refusal("full queue", _C.REQUEST_OVERLOADED, None, body={"background": True, "store": True}),
    _refusal("model without a price for a caller with a cost limit", _C.ACCESS_DENIED, None,
             modes=[_CHAT], body={"model": "unpriced"}, limits=SOME_COST),
    _refusal("limit of requests", _C.REQUEST_RATE_LIMITED, "requests", limits=ONE_REQUEST),
    _refusal("capacity", _C.REQUEST_OVERLOADED, None, body={"session_id": RUNNING["session_id"]}, is_full=True),
    _refusal("request id of an execution in memory", _C.REQUEST_ID_CONFLICT, None, body={"request_id": ENDED}),
    _refusal("Idempotency-Key of another body", _C.REQUEST_IDEMPOTENCY_MISMATCH, None, headers={_KEY: "used"}),
    _refusal("busy session", _C.REQUEST_SESSION_BUSY, None, body={"session_id": RUNNING["session_id"]}),
    _refusal("request id of a stored execution", _C.REQUEST_ID_CONFLICT, None,
             body={"request_id": RUNNING["request_id"]}),
    _refusal("capacity of an execution in memory", _C.REQUEST_OVERLOADED, None,
             body={"background": False, "session_id": ABSENT}, is_full=True),
)
# fmt: on
