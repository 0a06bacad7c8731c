"""Checks of a complete reply before it is used."""

from collections.abc import Sequence

from portico.domain.contract.messages import Message
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.domain.value import replace
from portico.ports.model import EngineError

_ID_CHARACTERS = 256


def normalise_reply(reply: Reply, conversation: Sequence[Message], key: str) -> Reply:
    """Return the reply with call ids that the conversation does not have yet.

    Providers that give no ids, or count them anew each time, give calls of two rounds the same id; then the attempt's
    key is appended. Raises: EngineFault if the reply is empty, or has two calls with one id.
    """
    if not (reply.text or reply.tool_calls or reply.finish_reason == "length"):
        raise EngineError(AttemptFailureReason.MALFORMED, "the provider's answer is empty")
    if not reply.tool_calls:
        return reply
    ids = [call.id for call in reply.tool_calls]
    if len(set(ids)) != len(ids):
        raise EngineError(AttemptFailureReason.MALFORMED, "the provider's answer names two calls alike")
    taken = {call.id for message in conversation for call in message.tool_calls or ()}
    if taken.isdisjoint(ids):
        return reply
    mark = f"~{key}"
    fresh = {each: each[: _ID_CHARACTERS - len(mark)] + mark if each in taken else each for each in ids}
    return replace(
        reply,
        tool_calls=tuple(call.model_copy(update={"id": fresh[call.id]}) for call in reply.tool_calls),
        kept=tuple(
            block | {"call": fresh[block["call"]]} if block.get("call") in fresh else block for block in reply.kept
        ),
    )
