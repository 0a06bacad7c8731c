"""A tool of an MCP server."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

import mcp_types as types
import orjson

from portico.adapters.tools.caller_values import caller_facts
from portico.adapters.tools.mcp.questions import NO_ANSWERS, Answers, Questions, answers_of
from portico.adapters.tools.mcp.server_config import McpServerConfig
from portico.adapters.tools.plain_text import plain_text
from portico.domain.tools import Availability, SideEffects, ToolDefinition, ToolInfo
from portico.ports.tool import OnProgress, ToolContext, ToolError

MAX_NAME: Final = 64
CALLER_META: Final = "portico/caller"
"""Key in the `_meta` of a call under which a server finds for whom it acts."""
MAX_ROUNDS: Final = 10
"""Calls of one attempt, when a server asks again for what no person can answer."""
ROUND_PAUSE_S: Final = 0.25
_MAX_DESCRIPTION: Final = 4_000
_DIGEST_CHARACTERS: Final = 8
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_ALWAYS: Final = Availability(available=True)


class McpCaller(Protocol):
    """The connection to a server, as its tools use it."""

    @property
    def failure(self) -> str:
        """Return the reason why the server cannot be called now; empty if it can."""
        ...

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        answers: Answers = NO_ANSWERS,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Call a tool once, or go on with a call after its questions were answered.

        The server may say how far it is. `meta` goes with the call, in its `_meta`.

        Raises: ToolError; ToolOutcomeUnknown if the connection was lost meanwhile.
        """
        ...


class McpTool:
    """A tool of an MCP server, named `server__tool`, with the definition that the server listed."""

    def __init__(self, config: McpServerConfig, listed: types.Tool, caller: McpCaller) -> None:
        name, description = tool_name(config.name, listed.name), _description(listed)
        side_effects, idempotent = safety(listed.annotations) if config.trusted else (SideEffects.EXTERNAL, False)
        self._original = listed.name
        self._server = config.name
        self._caller = caller
        self._passes_caller = config.pass_caller
        self._credential = None if config.credential is None else config.credential.name
        self._definition = ToolDefinition(name, description, listed.input_schema)
        self._info = ToolInfo(
            name,
            "mcp",
            description,
            side_effects,
            idempotent,
            timeout=config.timeout,
            identity=_identity(config),
            containment=_containment(config),
            original_name=listed.name,
            isolation=None if config.isolated is None else config.isolated.level_in_force,
            network=None if config.isolated is None else config.isolated.network,
            credentials=() if config.credential is None else (config.credential.name,),
        )

    def info(self) -> ToolInfo:
        return self._info

    def definition(self) -> ToolDefinition:
        return self._definition

    def available(self) -> Availability:
        failure = self._caller.failure
        return Availability(False, failure) if failure else _ALWAYS

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Call the tool once and return the text of its result.

        Raises: ToolError with the server's text if the call failed; ToolOutcomeUnknown if the connection was lost;
        ToolSuspended with a question of the server, whose answer goes back to it with the state that it gave.
        """
        if self._credential is not None:
            await context.credential(self._credential)
        answers = NO_ANSWERS if context.continuation is None else answers_of(context.continuation)
        on_progress = None if context.on_progress is None else context.progress
        meta = {CALLER_META: caller_facts(context.caller)} if self._passes_caller else None
        for _ in range(MAX_ROUNDS):
            result = await self._caller.call(self._original, arguments, answers, on_progress, meta)
            if not isinstance(result, types.InputRequiredResult):
                break
            questions = Questions(result)
            if questions.forms:
                raise ToolError.suspend({"server": self._server, **questions.shown()}, questions.state)
            answers = Answers(questions.refusals(), result.request_state)
            await context.clock.sleep(ROUND_PAUSE_S)
        else:
            raise ToolError(f"the server asked more than {MAX_ROUNDS} times for what no person can answer")
        text = result_text(result)
        if result.is_error:
            raise ToolError(text)
        return text


def _identity(config: McpServerConfig) -> str:
    passed = " pass_caller" if config.pass_caller else ""
    if config.isolated is None:
        credential = "" if config.credential is None else f" {config.credential.name}"
        return f"{config.url}{passed}{credential}"
    return f"{config.command} {config.isolated.network} {config.isolated.is_enforced}{passed}"


def _containment(config: McpServerConfig) -> str:
    place = f"Runs in the MCP server {config.name}, outside of the service."
    return place if config.isolated is None else f"{place} {config.isolated.containment()}"


def tool_name(server: str, tool: str) -> str:
    """Return the name of a server's tool here: `server__tool`, of at most 64 characters that models take.

    A name that had to be changed ends in a digest of the original, so that two originals never share one.
    """
    plain = f"{server}__{_NOT_IN_NAMES.sub('_', tool)}"
    if plain == f"{server}__{tool}" and len(plain) <= MAX_NAME:
        return plain
    digest = hashlib.blake2b(tool.encode(), digest_size=_DIGEST_CHARACTERS // 2).hexdigest()
    return f"{plain[: MAX_NAME - _DIGEST_CHARACTERS - 1]}_{digest}"


def safety(hints: types.ToolAnnotations | None) -> tuple[SideEffects, bool]:
    """Return the side effects that a trusted server's hints mean, and whether a call is idempotent.

    Absent hints have the protocol's defaults: not read-only, open world, not idempotent.
    """
    if hints is None:
        return SideEffects.EXTERNAL, False
    if hints.read_only_hint:
        return SideEffects.READ, True
    side_effects = SideEffects.WRITE if hints.open_world_hint is False else SideEffects.EXTERNAL
    return side_effects, bool(hints.idempotent_hint)


def result_text(result: types.CallToolResult) -> str:
    """Return the content of a result as text; what is no text is named with its type and its size."""
    texts = [_block_text(block) for block in result.content]
    if not texts and result.structured_content is not None:
        texts = [orjson.dumps(result.structured_content).decode()]
    return plain_text("\n".join(texts).encode(errors="replace"))


def _block_text(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent(text=text):
            return text
        case types.ImageContent(data=data, mime_type=kind) | types.AudioContent(data=data, mime_type=kind):
            return f"[{block.type} {kind}, {len(data)} characters of base64]"
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return text
        case types.EmbeddedResource(resource=resource):
            return f"[resource {resource.uri}]"
        case types.ResourceLink(uri=uri):
            return f"[resource {uri}]"


def _description(listed: types.Tool) -> str:
    text = listed.description or listed.title or listed.name
    return plain_text(text.encode(errors="replace"))[:_MAX_DESCRIPTION]
