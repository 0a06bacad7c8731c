"""Prompts about the format of an answer: the required format, violations of it, and the submit tool."""

from collections.abc import Iterable
from typing import Final

from pydantic import Field, JsonValue

from portico.capabilities.prompting.definition import EmptyInput, PromptDefinition, PromptId, PromptInput

REJECTED_ANSWER_NOTICE: Final = "Your last answer was refused."
"""The beginning of a message that lists the violations of an answer."""
MAX_VIOLATIONS: Final = 20
MAX_PATH_CHARACTERS: Final = 200
MAX_MESSAGE_CHARACTERS: Final = 300


class StructuredContractInput(PromptInput):
    """The JSON Schema that an answer must fit."""

    json_schema: dict[str, JsonValue] = Field(description="JSON Schema 2020-12.")


class GrammarContractInput(PromptInput):
    """The grammar that an answer must follow."""

    grammar: str = Field(min_length=1, description="The grammar itself, in GBNF.")


class QuotedViolation(PromptInput):
    """One violation of an answer."""

    path: str = Field(max_length=MAX_PATH_CHARACTERS, description="Where, such as $.items[0]; $ is the whole answer.")
    message: str = Field(max_length=MAX_MESSAGE_CHARACTERS, description="What is wrong there.")


class StructuredViolationsInput(PromptInput):
    """The violations of the last answer, as many as one message should hold."""

    violations: tuple[QuotedViolation, ...] = Field(
        min_length=1, max_length=MAX_VIOLATIONS, description="The violations."
    )
    left_out: int = Field(0, ge=0, description="How many more there were.")

    @classmethod
    def from_pairs(cls, found: Iterable[tuple[str, str]]) -> "StructuredViolationsInput":
        """Return the first of these (path, message) pairs, shortened if they are long. There must be at least one."""
        pairs = list(found)
        quoted = tuple(
            QuotedViolation(path=_cut(path, MAX_PATH_CHARACTERS), message=_cut(message, MAX_MESSAGE_CHARACTERS))
            for path, message in pairs[:MAX_VIOLATIONS]
        )
        return cls(violations=quoted, left_out=len(pairs) - len(quoted))

    @property
    def further(self) -> str:
        """Return the sentence about the violations that are left out, if there are any."""
        return f"There are {self.left_out} more that are not listed. " if self.left_out else ""


def _cut(text: str, most_characters: int) -> str:
    return text if len(text) <= most_characters else text[: most_characters - 1] + "…"


PROMPTS: Final = (
    PromptDefinition(
        prompt_id=PromptId.STRUCTURED_CONTRACT_SYSTEM,
        template="""\
Your answer is one JSON value that fits the JSON Schema below. Write nothing before it and nothing after it: no
explanation, no Markdown, no comments. Where the schema lists values, use one of them exactly as it is written.

{data_rule}

{json_schema}""",
        input_model=StructuredContractInput,
        output_model=None,
    ),
    PromptDefinition(
        prompt_id=PromptId.GRAMMAR_CONTRACT_SYSTEM,
        template="""\
Your answer, from its first character to its last, follows the GBNF grammar below, beginning with its rule `root`.
Write no character that the grammar does not allow.

{data_rule}

{grammar}""",
        input_model=GrammarContractInput,
        output_model=None,
    ),
    PromptDefinition(
        prompt_id=PromptId.STRUCTURED_ANSWER_USER,
        template="Now give your final answer to the request, in the form demanded of it, from what has been found.",
        input_model=EmptyInput,
        output_model=None,
    ),
    PromptDefinition(
        prompt_id=PromptId.STRUCTURED_VIOLATIONS_USER,
        template=f"""\
{REJECTED_ANSWER_NOTICE} Each violation below has the path of a place in that answer, `$` for all of it, and says
what is wrong there.

{{data_rule}}

{{violations}}

{{further}}Give the whole answer once more, in the form demanded before, with every violation put right.""",
        input_model=StructuredViolationsInput,
        output_model=None,
    ),
    PromptDefinition(
        prompt_id=PromptId.SUBMIT_TOOL_DESCRIPTION,
        template="Hands in the final answer and ends the task. Call it once, when the work is done, with the answer as "
        "its arguments.",
        input_model=EmptyInput,
        output_model=None,
    ),
)
