"""A call of the facade: its options, and its result if nothing runs for it yet."""

from collections.abc import Mapping, Sequence
from dataclasses import field

from portico.domain.contract.messages import Message
from portico.domain.ids import IdempotencyKey, RequestId, SpanId, TraceId
from portico.domain.journal.header import ClientView, SpanLink
from portico.domain.value import value
from portico.orchestration.execution_views import ExecutionView
from portico.orchestration.runtime.transcript import Transcript


@value
class CallOptions:
    """Options of a call that are not part of the request's body.

    The request's own `trace_id` takes precedence over the caller's. That is recorded if `sampled`; the sampler decides
    if it is None, and about a trace of the request's own. With `subscribe` the execution's events can be read from the
    first one. `background` asks for a background execution although the body does not. `authentication_ms` is
    how long it took to find the principal. With a `transcript` the conversation begins with it, in place of that of the
    execution that the request comes after. `received` are the messages that the client has sent, where the entry point
    has put `after` in the place of some of them. `client` is for answers of a client API that are read later. `run_id`
    is the request id of a schedule's run.
    """

    trace_id: TraceId | None = None
    parent_span_id: SpanId | None = None
    sampled: bool | None = None
    subscribe: bool = False
    idempotency_key: IdempotencyKey | None = None
    background: bool = False
    authentication_ms: float = 0.0
    received: Sequence[Message] | None = None
    client: ClientView | None = None
    transcript: Transcript | None = None
    run_id: RequestId | None = None
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values of credentials that headers of the request brought, by the names of these credentials."""

    def links(self, transcript: Transcript, *, own_trace: bool) -> tuple[SpanLink, ...]:
        """Return the links to the execution before, and to the caller's span if the request has a trace of its own."""
        links = () if transcript.root_span is None else (transcript.root_span,)
        if not own_trace or self.trace_id is None or self.parent_span_id is None:
            return links
        return (*links, SpanLink(self.trace_id, self.parent_span_id))


DEFAULT_OPTIONS = CallOptions()


@value
class Accepted:
    """A stored execution that runs, here or on another replica, when its turn comes."""

    view: ExecutionView
    trace_id: TraceId
    root_span_id: SpanId
    sampled: bool
