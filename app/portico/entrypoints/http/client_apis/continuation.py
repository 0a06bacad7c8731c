"""Continuation of the record by clients that send the whole conversation again.

A client call's id names the execution that handed it out. If the conversation up to the answer with such calls is what
that execution received, and the answer is what it was shown, then the request runs after that execution, with the
messages behind the answer. So what a client cannot carry survives: results of tools that ran here, signed thoughts, and
the origins of texts. What was edited, compacted, expired or not stored is taken as it was sent.

An answer is the run of assistant messages up to the last one with calls, since an API may show it as several items.
Where an API shows the calls that ran here, these and their results are part of it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from portico.domain.contract.messages import Message, TextPart, ToolCall, system_prompt
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.fingerprints import received_digest
from portico.domain.ids import RequestId, ToolCallId
from portico.domain.value import value
from portico.entrypoints.http.client_apis.ids import called_execution
from portico.entrypoints.http.client_apis.turn import ServerCallItem, Turn, turn_of

_PARAGRAPH: Final = "\n\n"


@value
class SentConversation:
    """A conversation as a client sent it, split behind the last message with calls.

    `request_id` is the execution that all these calls name.
    """

    request_id: RequestId
    answered: Sequence[Message]
    behind: Sequence[Message]


def sent_conversation(messages: Sequence[Message]) -> SentConversation | None:
    """Return the conversation split at its last answer with calls; None if they do not all name one execution."""
    end = next((at for at in range(len(messages), 0, -1) if messages[at - 1].tool_calls), 0)
    request_id = _named_execution(messages[end - 1].tool_calls or ()) if end else None
    return None if request_id is None else SentConversation(request_id, messages[:end], messages[end:])


def continued_request(
    request: SystemRequest, sent: SentConversation, received: str | None, response: SystemResponse
) -> SystemRequest | None:
    """Return the request after the execution with this response, with the messages behind its answer only.

    `received` is the digest of what that execution received. None if the client has sent another conversation.
    """
    if not response.client_calls:
        return None
    turn = turn_of(response)
    ran: dict[str, ServerCallItem] = {item.id: item for item in turn.items if isinstance(item, ServerCallItem)}
    start = len(sent.answered)
    while start and (sent.answered[start - 1].role == "assistant" or sent.answered[start - 1].tool_call_id in ran):
        start -= 1
    if received != received_digest(sent.answered[:start]) or not _is_shown(sent.answered[start:], turn, ran):
        return None
    stored_ids: dict[str, ToolCallId] = {
        shown.id: call.id for shown, call in zip(turn.client_calls, response.client_calls, strict=True)
    }
    behind = [_renamed(message, stored_ids) for message in sent.behind]
    messages = [*system_prompt(request.messages), *behind]
    return request.model_copy(update={"after": response.request_id, "messages": messages})


def whole_field(request: SystemRequest, continued: SystemRequest, name: str) -> str:
    """Return the name that a field of the continued request has in the one with the whole conversation."""
    parent, _, below = name.partition(".")
    number, dot, rest = below.partition(".")
    if parent != "messages" or not number.isdecimal():
        return name
    left_out = len(request.messages) - len(continued.messages)
    at = int(number) + (left_out if int(number) >= len(system_prompt(continued.messages)) else 0)
    return f"{parent}.{at}{dot}{rest}"


def _named_execution(calls: Sequence[ToolCall]) -> RequestId | None:
    """Return the execution that all calls name; None if one of them names none, or another one."""
    named = {None if found is None else found.request_id for found in (called_execution(call.id) for call in calls)}
    return named.pop() if len(named) == 1 else None


def _is_shown(answer: Sequence[Message], turn: Turn, ran: Mapping[str, ServerCallItem]) -> bool:
    """Return True if the answer has the texts and the calls that were shown. How texts are divided does not count.

    Calls that ran here, and their results, may be left out, since not every API shows them.
    """
    texts = [text for message in answer if message.role == "assistant" for text in _texts(message)]
    calls = [(call.id, call.name, call.arguments) for message in answer for call in message.tool_calls or ()]
    results = [message for message in answer if message.tool_call_id is not None]
    return (
        [call for call in calls if call[0] not in ran]
        == [(call.id, call.name, dict(call.arguments)) for call in turn.client_calls]
        and all(
            (name, arguments) == (ran[each].name, ran[each].arguments) for each, name, arguments in calls if each in ran
        )
        and all(each.content == ran[each.tool_call_id or ""].output for each in results)
        and _PARAGRAPH.join(texts) == _PARAGRAPH.join(turn.texts)
    )


def _texts(message: Message) -> Sequence[str]:
    if isinstance(message.content, str):
        return [message.content] if message.content else []
    return [part.text for part in message.content if isinstance(part, TextPart)]


def _renamed(message: Message, ids: Mapping[str, ToolCallId]) -> Message:
    """Return the result of a call under the id that the call has in the record."""
    stored = ids.get(message.tool_call_id or "")
    return message if stored is None else message.model_copy(update={"tool_call_id": stored})
