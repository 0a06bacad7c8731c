"""Media by URL: each is fetched once, before anything reads the request, and recorded as a step `media/N`.

From then on the execution goes on with a request that has the bytes, as if the client had sent them. A replay and a
recovery read them from the record, and ask nothing.
"""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from pydantic import JsonValue

from portico.domain.context.guards import GuardVerdict
from portico.domain.contract.media import PDF, fetched_type
from portico.domain.contract.messages import DocumentPart, MediaPart, Message, Origin, Part, TextPart, with_origin
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Failure, invalid_request
from portico.domain.fingerprints import digest
from portico.domain.journal.outcomes import MediaFetched, Outcome, RecordedStep, Refused
from portico.domain.journal.step_key import MEDIA_KEY, StepKey
from portico.domain.value import replace
from portico.orchestration.execution.effect import RecordedValue
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.pattern import FieldError
from portico.ports.media import NOTHING_FETCHED, MediaError, MediaFetcher

TextCheck: TypeAlias = Callable[[Environment, str], Awaitable[tuple[GuardVerdict, ...]]]
"""Returns what guards found in a text. Raises: ValidationFailure (VALIDATION_INPUT_REFUSED)."""


def media_errors(messages: Sequence[Message], fetcher: MediaFetcher | None) -> list[FieldError]:
    """Return an error for each URL of the messages that must not be fetched, and for those beyond the allowed number.

    None says what the URL is.
    """
    named = parts_by_url(messages)
    if fetcher is None:
        return [FieldError(field, NOTHING_FETCHED) for field, _ in named]
    refusals = [(field, fetcher.refusal(part.url or "")) for field, part in named]
    errors = [FieldError(field, refusal) for field, refusal in refusals if refusal is not None]
    most = fetcher.limits.max_parts
    beyond = f"must be absent: a request may have {most} parts with a url"
    return errors or [FieldError(field, beyond) for field, _ in named[most:]]


async def fetch_media(execution: Execution, check: TextCheck) -> None:
    """Fetch what is behind the URLs of the request, and let the execution go on with the bytes.

    Raises: RequestFailure (REQUEST_INVALID) naming the field of what cannot be had; ValidationFailure
    (VALIDATION_INPUT_REFUSED).
    """
    header, steps = execution.header, dict[StepKey, RecordedStep]()
    keys = _keys(header.request.messages)
    for field, part in parts_by_url(header.request.messages):
        key = keys[_identity(part)]
        if key in steps:
            continue
        earlier = [step.outcome for step in steps.values() if isinstance(step.outcome, MediaFetched)]
        effect = RecordedValue(
            key,
            digest("media", *_identity(part)),
            execution.correlation,
            find=partial(_fetched, field, part, earlier, check),
            is_instant=False,
            asked=partial(_asked, field, part),
        )
        steps[key] = step = await execution.perform(effect)
        if isinstance(step.outcome, Refused):
            raise step.outcome.failure()
        assert isinstance(step.outcome, MediaFetched)  # noqa: S101 - the other outcome of a fetch
        execution.ledger.flags.update(each.guard for each in step.outcome.guards if each.tripped)
    execution.header = replace(header, request=with_fetched(header.request, steps))


def with_fetched(request: SystemRequest, steps: Mapping[StepKey, RecordedStep]) -> SystemRequest:
    """Return the request with the bytes that were fetched in the place of URLs, as far as that is recorded."""
    keys = _keys(request.messages)
    if not keys:
        return request
    fetched = {key: step.outcome for key, step in steps.items() if isinstance(step.outcome, MediaFetched)}
    found = {identity: fetched[key] for identity, key in keys.items() if key in fetched}
    return request.model_copy(update={"messages": [_filled(message, found) for message in request.messages]})


Identity: TypeAlias = tuple[str, str, str]
"""What tells parts apart that are fetched: the type, the media type, and the URL."""


def _identity(part: MediaPart) -> Identity:
    return part.type, part.media_type, part.url or ""


def parts_by_url(messages: Sequence[Message]) -> list[tuple[str, MediaPart]]:
    """Return the parts with a URL in order, each with the field of its URL."""
    return [
        (f"messages.{number}.content.{index}.url", part)
        for number, message in enumerate(messages)
        if message.content.__class__ is list
        for index, part in message.media_by_url
    ]


def _keys(messages: Sequence[Message]) -> dict[Identity, StepKey]:
    """Return the key under which each of the parts with a URL is recorded; equal ones are fetched once."""
    identities = dict.fromkeys(_identity(part) for _, part in parts_by_url(messages))
    return {identity: MEDIA_KEY.child(number) for number, identity in enumerate(identities)}


def _asked(field: str, part: MediaPart) -> JsonValue:
    return {"field": field, "type": part.type}


async def _fetched(
    field: str, part: MediaPart, earlier: Collection[MediaFetched], check: TextCheck, environment: Environment
) -> Outcome:
    """Return what is behind the URL within what the `earlier` ones left of the limits, or the refusal of the part."""
    fetcher, clock = environment.media, environment.clock
    if fetcher is None:
        return Refused.by(invalid_request((field, NOTHING_FETCHED)))
    started_at, limits = clock.monotonic(), fetcher.limits
    used = sum(each.size for each in earlier)
    seconds = limits.timeout - sum(each.duration_ms for each in earlier) / 1000
    try:
        media = await fetcher.fetch(part.url or "", max_bytes=limits.max_bytes - used, seconds=seconds)
        media_type = fetched_type(media.content, part.media_type, media.media_type)
        is_text = isinstance(part, DocumentPart) and media_type != PDF
        guards = await check(environment, media.content.decode()) if is_text else ()
    except MediaError as refusal:
        return Refused.by(invalid_request((field, f"cannot be fetched: {refusal}")))
    except ValueError as refusal:
        return Refused.by(invalid_request((field, f"what is there {refusal}")))
    except Failure as refusal:
        return Refused.by(refusal)
    duration_ms = (clock.monotonic() - started_at) * 1000
    return MediaFetched(media_type, b64encode(media.content).decode(), duration_ms, guards)


def _filled(message: Message, found: Mapping[Identity, MediaFetched]) -> Message:
    """Return the message with the bytes of its parts; others may have made them, so it is not trusted any more."""
    if isinstance(message.content, str) or not message.media_by_url:
        return message
    filled = message.model_copy(update={"content": [_with_bytes(part, found) for part in message.content]})
    return with_origin(filled, Origin.FETCHED)


def _with_bytes(part: Part, found: Mapping[Identity, MediaFetched]) -> Part:
    if isinstance(part, TextPart) or _identity(part) not in found:
        return part
    media = found[_identity(part)]
    return part.model_copy(update={"url": None, "media_type": media.media_type, "data": media.data})
