"""How an answer is kept to its form by an engine that may not do it by itself.

    the engine keeps a schema or grammar while it writes   → it does
    it can be made to call a tool                          → `submit`, whose parameters are the schema
    neither                                                → the form stands in the prompt, as a contract

Whatever the way, the answer is validated afterwards, so all of them may be trusted alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from app.capabilities.models.engine_downgrade import downgrade
from app.capabilities.prompting.definition import PromptId
from app.capabilities.prompting.prompts.output_format import (
    GrammarContractInput,
    StructuredContractInput,
    SubmitToolInput,
)
from app.capabilities.prompting.registry import default_registry
from app.domain.contract.constrained_types import FormatEnforcement
from app.domain.contract.messages import UNREADABLE_ARGUMENTS, Message, ToolCall
from app.domain.contract.request import NamedTool
from app.domain.model_call import EngineCall, Reply
from app.domain.tools import ToolDefinition
from app.ports.model import EngineProfile

SUBMIT_TOOL = "submit"


def choose_enforcement(call: EngineCall, profile: EngineProfile) -> FormatEnforcement | None:
    """The way in which this engine is kept to the call's form; None when there is none to be kept to."""
    able = profile.capabilities
    if call.grammar is not None:
        return FormatEnforcement.GRAMMAR if able.grammar else FormatEnforcement.CONTRACT
    if call.schema is None:
        return None
    if able.schema and (able.schema_with_tools or not call.tools):
        return FormatEnforcement.SCHEMA
    return (
        FormatEnforcement.SUBMIT
        if able.tools and able.forced_calls and _is_of_objects(call.schema)
        else FormatEnforcement.CONTRACT
    )


def apply_enforcement(call: EngineCall, way: FormatEnforcement | None) -> EngineCall:
    """The call as it is asked in that way."""
    match way:
        case FormatEnforcement.SUBMIT:
            submit = ToolDefinition(SUBMIT_TOOL, _described(), call.schema or {})
            hints = call.hints.model_copy(update={"tool_choice": NamedTool(name=SUBMIT_TOOL)})
            return replace(call, tools=(*call.tools, submit), hints=hints, schema=None)
        case FormatEnforcement.CONTRACT:
            return replace(call, messages=_with_contract(call), schema=None, grammar=None)
        case _:
            return call


def prepare_call(call: EngineCall, profile: EngineProfile, way: FormatEnforcement | None) -> EngineCall:
    """The call as this engine is sent it when it is asked in that way."""
    return downgrade(apply_enforcement(call, way), profile)


def submitted_reply(reply: Reply, way: FormatEnforcement | None) -> Reply:
    """The reply with what was submitted as its text."""
    if way is not FormatEnforcement.SUBMIT:
        return reply
    submitted = next((call for call in reply.tool_calls if call.name == SUBMIT_TOOL), None)
    if submitted is None:
        return reply
    ending = "length" if reply.finish_reason == "length" else "stop"
    kept = tuple(block for block in reply.kept if "call" not in block)
    return replace(reply, text=_text_of(submitted), tool_calls=(), finish_reason=ending, kept=kept)


def _is_of_objects(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _described() -> str:
    return default_registry().get_prompt(PromptId.SUBMIT_TOOL_DESCRIPTION, SubmitToolInput())


def _with_contract(call: EngineCall) -> Sequence[Message]:
    """The contract stands behind what the system says already."""
    registry = default_registry()
    if call.grammar is not None:
        text = registry.get_prompt(PromptId.GRAMMAR_CONTRACT_SYSTEM, GrammarContractInput(grammar=call.grammar))
    else:
        form = StructuredContractInput(json_schema=dict(call.schema or {}))
        text = registry.get_prompt(PromptId.STRUCTURED_CONTRACT_SYSTEM, form)
    spoken = (index for index, message in enumerate(call.messages) if message.role != "system")
    first = next(spoken, len(call.messages))
    return [*call.messages[:first], Message(role="system", content=text), *call.messages[first:]]


def _text_of(call: ToolCall) -> str:
    if call.arguments.keys() == {UNREADABLE_ARGUMENTS}:
        return str(call.arguments[UNREADABLE_ARGUMENTS])
    return orjson.dumps(call.arguments).decode()
