"""One prompt for a model: its messages, its output format, and the parsing of a reply."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from pydantic import ValidationError

from app.capabilities.prompting.definition import PromptId, PromptInput, PromptOutput
from app.capabilities.prompting.prompts.output_format import StructuredViolationsInput
from app.capabilities.prompting.registry import default_registry
from app.domain.contract.messages import Message
from app.domain.failures import Code, ConstraintFailure, Failure
from app.domain.model_call import ResponseFormat

Output = TypeVar("Output", bound=PromptOutput)
_MAX_VIOLATIONS = 100
"""Most violations that are kept of one answer; there can be one for every value in it."""


class PromptCall(Generic[Output]):
    """A rendered prompt, with its system prompt if there is one; `check` tests more than the format."""

    def __init__(
        self,
        prompt_id: PromptId,
        prompt_input: PromptInput,
        output: type[Output],
        check: Callable[[Output], None] = lambda output: None,
    ) -> None:
        """Initialise the call. `check` raises a Failure with `details.violations` for an invalid answer."""
        self._prompt_id = prompt_id
        self._prompt_input = prompt_input
        self._output = output
        self._check = check

    @property
    def messages(self) -> Sequence[Message]:
        """Return the messages for the model."""
        registry = default_registry()
        system = registry.system_prompt_of(self._prompt_id, self._prompt_input)
        first = [] if system is None else [Message(role="system", content=system)]
        return [*first, _user(registry.get_prompt(self._prompt_id, self._prompt_input))]

    @property
    def response_format(self) -> ResponseFormat:
        """Return the format of the answer."""
        return ResponseFormat(self._prompt_input.output_schema(self._output))

    def parse_reply(self, text: str) -> Output:
        """Return the answer. Raises: ConstraintFailure, or what the check raises."""
        try:
            answer = default_registry().validate_output(self._prompt_id, text, self._output)
        except ValidationError as error:
            raise _format_failure(error) from None
        self._check(answer)
        return answer

    def correction_messages(self, failure: Failure) -> Sequence[Message]:
        """Return the messages that tell the model why its answer is invalid."""
        found = [(violation["path"], violation["message"]) for violation in failure.details.get("violations", ())]
        quoted = StructuredViolationsInput.from_pairs(found or [("$", failure.message)])
        return [_user(default_registry().get_prompt(PromptId.STRUCTURED_VIOLATIONS_USER, quoted))]


def _user(text: str) -> Message:
    return Message(role="user", content=text)


def _format_failure(error: ValidationError) -> ConstraintFailure:
    violations = [
        {"path": "$" + "".join(map(_step, error_details["loc"])), "message": error_details["msg"]}
        for error_details in error.errors(include_url=False, include_context=False, include_input=False)[
            :_MAX_VIOLATIONS
        ]
    ]
    return ConstraintFailure(
        Code.CONSTRAINT_SCHEMA_INVALID, "the answer to a prompt does not fit its form", {"violations": violations}
    )


def _step(part: int | str) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{part}"
