"""Enforcement of an output format, also with engines that cannot enforce it themselves.

    the engine enforces a schema or grammar while it writes   → it does
    it can be forced to call a tool                           → `submit`, whose parameters are the schema
    neither                                                   → a contract in the prompt states the format

The answer is validated afterwards in every case, so all of them are equally reliable.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from portico.capabilities.models.engine_downgrade import downgrade, unsupported_parts
from portico.capabilities.prompting.definition import EmptyInput, PromptId
from portico.capabilities.prompting.prompts.output_format import GrammarContractInput, StructuredContractInput
from portico.capabilities.prompting.registry import PromptRegistry
from portico.domain.contract.constrained_types import FormatEnforcement
from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, Message, ToolCall
from portico.domain.contract.request import NamedTool
from portico.domain.journal.outcomes import Candidate
from portico.domain.model_call import EngineCall, Reply
from portico.domain.tools import ToolDefinition
from portico.domain.value import replace
from portico.ports.model import EngineProfile

SUBMIT_TOOL = "submit"


def choose_enforcement(call: EngineCall, profile: EngineProfile) -> FormatEnforcement | None:
    """Return the enforcement of the call's format with this engine; None if the call has no format."""
    supported = profile.capabilities
    if call.grammar is not None:
        return FormatEnforcement.GRAMMAR if supported.grammar else FormatEnforcement.CONTRACT
    if call.schema is None:
        return None
    if supported.schema and (supported.schema_with_tools or not call.tools):
        return FormatEnforcement.SCHEMA
    return (
        FormatEnforcement.SUBMIT
        if supported.tools and supported.forced_calls and _describes_object(call.schema)
        else FormatEnforcement.CONTRACT
    )


def candidate_for(call: EngineCall, profile: EngineProfile, enforcement: FormatEnforcement | None) -> Candidate:
    """Return the engine as a candidate for that call, with the parts of the call that it does not support."""
    withheld, prices = unsupported_parts(call, profile), profile.price
    account = profile.account if profile.binds_kept else None
    if prices is None:
        return Candidate(
            profile.name, profile.model, None, withheld, enforcement, deployment=profile.deployment, account=account
        )
    price, cache_price = (prices.input, prices.output), (prices.cached, prices.cache_write)
    return Candidate(
        profile.name, profile.model, price, withheld, enforcement, cache_price, profile.deployment, account
    )


def apply_enforcement(call: EngineCall, enforcement: FormatEnforcement | None, prompts: PromptRegistry) -> EngineCall:
    """Return the call with that enforcement, in the words of these prompts."""
    match enforcement:
        case FormatEnforcement.SUBMIT:
            submit = ToolDefinition(SUBMIT_TOOL, submit_description(prompts), call.schema or {})
            hints = call.hints.model_copy(update={"tool_choice": NamedTool(name=SUBMIT_TOOL)})
            return replace(call, tools=(*call.tools, submit), hints=hints, schema=None)
        case FormatEnforcement.CONTRACT:
            return replace(call, messages=_with_contract(call, prompts), schema=None, grammar=None)
        case _:
            return call


def prepare_call(
    call: EngineCall, profile: EngineProfile, enforcement: FormatEnforcement | None, prompts: PromptRegistry
) -> EngineCall:
    """Return the call as this engine is sent it with that enforcement."""
    return downgrade(call if enforcement is None else apply_enforcement(call, enforcement, prompts), profile)


def submitted_reply(reply: Reply, enforcement: FormatEnforcement | None) -> Reply:
    """Return the reply with the submitted answer as its text."""
    if enforcement is not FormatEnforcement.SUBMIT:
        return reply
    submitted = next((call for call in reply.tool_calls if call.name == SUBMIT_TOOL), None)
    if submitted is None:
        return reply
    ending = "length" if reply.finish_reason == "length" else "stop"
    blocks = tuple(block for block in reply.kept if "call" not in block)
    return replace(reply, text=_text_of(submitted), tool_calls=(), finish_reason=ending, kept=blocks)


def _describes_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def submit_description(prompts: PromptRegistry) -> str:
    """Return the description of the tool with which a model hands in its answer."""
    return prompts.get_prompt(PromptId.SUBMIT_TOOL_DESCRIPTION, EmptyInput())


def _with_contract(call: EngineCall, prompts: PromptRegistry) -> Sequence[Message]:
    """Insert the contract behind the leading system messages."""
    if call.grammar is not None:
        text = prompts.get_prompt(PromptId.GRAMMAR_CONTRACT_SYSTEM, GrammarContractInput(grammar=call.grammar))
    else:
        contract = StructuredContractInput(json_schema=dict(call.schema or {}))
        text = prompts.get_prompt(PromptId.STRUCTURED_CONTRACT_SYSTEM, contract)
    indexes = (index for index, message in enumerate(call.messages) if message.role != "system")
    first = next(indexes, len(call.messages))
    return [*call.messages[:first], Message(role="system", content=text), *call.messages[first:]]


def _text_of(call: ToolCall) -> str:
    if call.arguments.keys() == {UNREADABLE_ARGUMENTS}:
        return str(call.arguments[UNREADABLE_ARGUMENTS])
    return orjson.dumps(call.arguments).decode()
