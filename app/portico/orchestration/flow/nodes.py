"""Nodes of a flow, and the typed states between them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from portico.domain.field_errors import invalid_fields
from portico.domain.json_path import format_path
from portico.domain.value import replace, value
from portico.orchestration.flow.agent_config import AgentConfig
from portico.orchestration.flow.errors import DeserializeError, Invalid, SerializeError

SyncFunction: TypeAlias = Callable[..., Any]
AsyncFunction: TypeAlias = Callable[..., Awaitable[Any]]

NOT_WRITABLE = "cannot be written as JSON by its model"


@value
class StateType:
    """A typed state of a flow. A value is stored as JSON, and every reader validates a copy of its own."""

    key: str
    model: type[BaseModel]

    def read(self, text: str) -> BaseModel:
        """Return the value. Raises: DeserializeError."""
        try:
            return self.model.model_validate_json(text)
        except ValidationError as invalid:
            raise DeserializeError(self.key, validation_errors(invalid)) from None
        except Exception as error:  # a validator is other people's code and may raise anything
            raise DeserializeError(self.key, [("$", f"its model failed with {type(error).__name__}")]) from error

    def write(self, value: BaseModel) -> str:
        """Return the value as JSON. Raises: SerializeError."""
        try:
            return self.model.__pydantic_serializer__.to_json(
                value, by_alias=True, round_trip=True, warnings="error"
            ).decode()
        except Exception as cause:  # a serializer is other people's code and may raise anything
            raise SerializeError(f"{self.key}: {cause}") from cause

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the model. Raises: Invalid if it has none."""
        try:
            return self.model.model_json_schema()
        except Exception as error:  # a model may make its schema itself
            problem = f"{self.key}: its model has no JSON Schema ({error}); use types that JSON has"
            raise Invalid([problem]) from error

    def parse(self, value: object) -> str:
        """Return a JSON value that comes from outside as it is stored. Raises: DeserializeError; SerializeError."""
        try:
            text = to_json(value).decode()
        except (PydanticSerializationError, ValueError) as error:
            raise DeserializeError(self.key, [("$", "must be JSON")]) from error
        return self.write(self.read(text))


@dataclass(frozen=True, eq=False)
class Node:
    """A node: it fires once all `inputs` are there, removes them, and adds outputs."""

    key: str
    inputs: tuple[StateType, ...]
    outputs: tuple[StateType, ...]

    kind: ClassVar[str]

    def renamed(self, rename: Callable[[str], str]) -> "Node":
        """Return the node with other keys."""
        inputs = tuple(StateType(rename(state.key), state.model) for state in self.inputs)
        outputs = tuple(StateType(rename(state.key), state.model) for state in self.outputs)
        return replace(self, key=node_key(inputs), inputs=inputs, outputs=outputs)

    @cached_property
    def input_keys(self) -> tuple[str, ...]:
        """The keys of the inputs."""
        return tuple(state.key for state in self.inputs)


@dataclass(frozen=True, eq=False)
class WorkNode(Node):
    """An async function with one output. One that is not `idempotent` is never run twice by the service."""

    function: AsyncFunction
    idempotent: bool = True

    kind = "work"


@dataclass(frozen=True, eq=False)
class EitherNode(Node):
    """A pure function that chooses one of two outputs."""

    function: SyncFunction

    kind = "either"


@dataclass(frozen=True, eq=False)
class ForkNode(Node):
    """A pure function with several outputs, which are all produced."""

    function: SyncFunction

    kind = "fork"


@dataclass(frozen=True, eq=False)
class JoinNode(Node):
    """A pure function of two inputs; it fires when both are there."""

    function: SyncFunction

    kind = "join"


@dataclass(frozen=True, eq=False)
class AgentNode(Node):
    """A model with a task: the input is its first message, the output its answer."""

    config: AgentConfig

    kind = "agent"


def node_key(inputs: tuple[StateType, ...]) -> str:
    """Return the key of the node with these inputs."""
    return "+".join(state.key for state in inputs)


def model_key(model: type[BaseModel]) -> str:
    """Return the key of a model's states: the title of its JSON Schema."""
    config = model.model_config
    generator = config.get("model_title_generator")
    return config.get("title") or (generator(model) if generator else model.__name__)


def validation_errors(invalid: ValidationError) -> list[tuple[str, str]]:
    """Return the errors as pairs of path and message, without the input."""
    fields = invalid_fields(invalid.errors(include_url=False, include_input=False))
    return [(format_path(field.path), field.message) for field in fields]
