"""One prompt for a model: its messages, its output format, and the parsing of a reply."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from pydantic import ValidationError

from portico.capabilities.prompting.definition import PromptId, PromptInput, PromptOutput
from portico.capabilities.prompting.prompts.output_format import StructuredViolationsInput
from portico.capabilities.prompting.registry import PromptRegistry, default_registry
from portico.domain.contract.messages import Message
from portico.domain.failures import Code, ConstraintFailure, Failure
from portico.domain.model_call import ResponseFormat
from portico.domain.value import value

Output = TypeVar("Output", bound=PromptOutput)
_MAX_VIOLATIONS = 100
"""Most violations that are kept of one answer; there can be one for every value in it."""


@value
class Prompt:
    """A prompt with its input, not rendered yet, and the messages that come before it."""

    prompt_id: PromptId
    prompt_input: PromptInput
    before: tuple[Message, ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        """The id and the input: the fingerprint of what is asked, without the text and without defaults."""
        return self.prompt_id, self.prompt_input.model_dump(mode="json", exclude_defaults=True), *self.before

    def messages(self, registry: PromptRegistry) -> Sequence[Message]:
        """Return the messages for the model: the system prompt, if there is one, and the prompt."""
        system = registry.system_prompt_of(self.prompt_id, self.prompt_input)
        first = [] if system is None else [Message(role="system", content=system)]
        return [
            *self.before,
            *first,
            Message(role="user", content=registry.get_prompt(self.prompt_id, self.prompt_input)),
        ]

    @classmethod
    def of_violations(cls, violations: Sequence[tuple[str, str]]) -> "Prompt":
        """Return the prompt that tells a model what is wrong with its answer, from pairs of path and message."""
        return cls(PromptId.STRUCTURED_VIOLATIONS_USER, StructuredViolationsInput.from_pairs(violations))


Asked: TypeAlias = Sequence[Message] | Prompt
"""What a model is asked: messages, or a prompt."""


class PromptCall(Generic[Output]):
    """A prompt with the output that it asks for; `check` tests more than the format."""

    def __init__(
        self,
        prompt_id: PromptId,
        prompt_input: PromptInput,
        output: type[Output],
        check: Callable[[Output], None] = lambda output: None,
    ) -> None:
        """Initialise the call. `check` raises a Failure with `details.violations` for an invalid answer."""
        self.prompt = Prompt(prompt_id, prompt_input)
        self.check = check
        self._output = output

    @property
    def messages(self) -> Sequence[Message]:
        """Return the messages for the model, with the shipped texts."""
        return self.prompt.messages(default_registry())

    @property
    def response_format(self) -> ResponseFormat:
        """Return the format of the answer."""
        return ResponseFormat(self.prompt.prompt_input.output_schema(self._output))

    def parse(self, text: str) -> Output:
        """Return the answer, not checked yet. Raises: ConstraintFailure."""
        return parse_output(self.prompt.prompt_id, text, self._output)


def parse_output(prompt_id: PromptId, text: str, output: type[Output]) -> Output:
    """Return the reply to that prompt as the output. Raises: ConstraintFailure with `details.violations`."""
    try:
        return default_registry().validate_output(prompt_id, text, output)
    except ValidationError as error:
        raise _format_failure(error) from None


def violations_of(failure: Failure) -> Sequence[tuple[str, str]]:
    """Return what is wrong with an answer, as pairs of path and message; at least one."""
    found = [(violation["path"], violation["message"]) for violation in failure.details.get("violations", ())]
    return found or [("$", failure.message)]


def misfit(violations: Sequence[tuple[str, str]]) -> ConstraintFailure:
    """Return the failure of an answer that does not have the form that its prompt asks for."""
    listed = [{"path": path, "message": message} for path, message in violations]
    return ConstraintFailure(
        Code.CONSTRAINT_SCHEMA_INVALID, "the answer to a prompt does not fit its form", {"violations": listed}
    )


def _format_failure(error: ValidationError) -> ConstraintFailure:
    found = error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_VIOLATIONS]
    return misfit([("$" + "".join(map(_step, each["loc"])), each["msg"]) for each in found])


def _step(part: int | str) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{part}"
