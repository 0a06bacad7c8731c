"""One prompt put to a model: what is said, the form that is asked for, and how a reply is read."""

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
_MOST_FAULTS = 100
"""Of one answer that are kept; there can be one for every value in it."""


class PromptCall(Generic[Output]):
    """A prompt for a model, filled in, with its system prompt where there is one; `check` says what else must hold."""

    def __init__(
        self,
        prompt_id: PromptId,
        told: PromptInput,
        output: type[Output],
        check: Callable[[Output], None] = lambda output: None,
    ) -> None:
        """`check` raises a Failure with `details.violations` for an answer that will not do."""
        self._prompt_id = prompt_id
        self._told = told
        self._output = output
        self._check = check

    @property
    def messages(self) -> Sequence[Message]:
        """What a model is told."""
        registry = default_registry()
        system = self._prompt_id.removesuffix("_USER") + "_SYSTEM"
        first = (
            [Message(role="system", content=registry.get_prompt(PromptId(system), self._told))]
            if system in registry.ids()
            else []
        )
        return [*first, _user(registry.get_prompt(self._prompt_id, self._told))]

    @property
    def response_format(self) -> ResponseFormat:
        """The form that its answer has."""
        return ResponseFormat(self._told.output_schema(self._output))

    def parse_reply(self, text: str) -> Output:
        """The answer. Raises: ConstraintFailure, or what the check raises."""
        try:
            answer = default_registry().validate_output(self._prompt_id, text, self._output)
        except ValidationError as error:
            raise _unfit(error) from None
        self._check(answer)
        return answer

    def correction_messages(self, unfit: Failure) -> Sequence[Message]:
        """What a model is told of an answer that will not do."""
        found = [(violation["path"], violation["message"]) for violation in unfit.details.get("violations", ())]
        told = StructuredViolationsInput.from_pairs(found or [("$", unfit.message)])
        return [_user(default_registry().get_prompt(PromptId.STRUCTURED_VIOLATIONS_USER, told))]


def _user(text: str) -> Message:
    return Message(role="user", content=text)


def _unfit(error: ValidationError) -> ConstraintFailure:
    violations = [
        {"path": "$" + "".join(map(_step, fault["loc"])), "message": fault["msg"]}
        for fault in error.errors(include_url=False, include_context=False, include_input=False)[:_MOST_FAULTS]
    ]
    return ConstraintFailure(
        Code.CONSTRAINT_SCHEMA_INVALID, "the answer to a prompt does not fit its form", {"violations": violations}
    )


def _step(part: int | str) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{part}"
