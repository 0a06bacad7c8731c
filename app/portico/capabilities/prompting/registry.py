"""Registry of all prompts by id: it renders prompts and parses replies [003].

A registry holds every `PromptId` exactly once, or it cannot be made. Output is extracted but never repaired: a plan or
a judgement that was cut off must not be taken for a shorter one.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeVar, overload

from pydantic import BaseModel

from portico.capabilities.output.extract import JSONExtractionError, extract
from portico.capabilities.prompting.definition import EmptyInput, PromptDefinition, PromptId, PromptInput
from portico.capabilities.prompting.prompts import (
    answer,
    assessment,
    output_format,
    planning,
    recursion,
    repair,
    retrieval,
    summary,
    task_profile,
)
from portico.domain.value import replace

__all__ = ["JSONExtractionError", "PromptRegistry", "default_registry"]

Output = TypeVar("Output", bound=BaseModel)
FAMILIES: Final = (
    planning.PROMPTS,
    recursion.PROMPTS,
    assessment.PROMPTS,
    task_profile.PROMPTS,
    repair.PROMPTS,
    answer.PROMPTS,
    output_format.PROMPTS,
    retrieval.PROMPTS,
    summary.PROMPTS,
)
"""All shipped prompts, by family."""
# fmt: off
SYSTEM_PROMPTS: Final[Mapping[PromptId, PromptId]] = MappingProxyType({
    PromptId.PLAN_GENERATION_USER: PromptId.PLAN_GENERATION_SYSTEM,
    PromptId.RECURSIVE_PLAN_GENERATION_USER: PromptId.PLAN_GENERATION_SYSTEM,
    PromptId.RECURSIVE_SUBPLAN_GENERATION_USER: PromptId.PLAN_GENERATION_SYSTEM,
    PromptId.RECURSIVE_REFINEMENT_USER: PromptId.RECURSIVE_REFINEMENT_SYSTEM,
    PromptId.REASONING_STEP_USER: PromptId.REASONING_STEP_SYSTEM,
    PromptId.VALIDATION_SEMANTIC_USER: PromptId.VALIDATION_SEMANTIC_SYSTEM,
    PromptId.CONVERGENCE_ASSESSMENT_USER: PromptId.CONVERGENCE_ASSESSMENT_SYSTEM,
    PromptId.TASKPROFILE_INFERENCE_USER: PromptId.TASKPROFILE_INFERENCE_SYSTEM,
    PromptId.TASKPROFILE_UPDATE_USER: PromptId.TASKPROFILE_UPDATE_SYSTEM,
    PromptId.SUPERVISOR_REPAIR_JSON_USER: PromptId.SUPERVISOR_REPAIR_SYSTEM,
    PromptId.SUPERVISOR_REPAIR_TOOLCALL_USER: PromptId.SUPERVISOR_REPAIR_SYSTEM,
    PromptId.SUPERVISOR_REPAIR_PLAN_USER: PromptId.SUPERVISOR_REPAIR_SYSTEM,
    PromptId.SUPERVISOR_REPAIR_MISSINGTOOL_USER: PromptId.SUPERVISOR_REPAIR_SYSTEM,
    PromptId.ANSWER_SYNTHESIS_USER: PromptId.ANSWER_SYNTHESIS_SYSTEM,
    PromptId.ANSWER_JUDGEMENT_USER: PromptId.ANSWER_JUDGEMENT_SYSTEM,
    PromptId.INPUT_JUDGEMENT_USER: PromptId.INPUT_JUDGEMENT_SYSTEM,
})
# fmt: on
"""The system prompt of each user prompt that has one."""


class PromptRegistry:
    """The definitions of all prompts by id.

    Raises: ValueError if an id has two definitions or none; KeyError, from each method, for an unknown id.
    """

    def __init__(self, definitions: Iterable[PromptDefinition]) -> None:
        by_id: dict[PromptId, PromptDefinition] = {}
        for definition in definitions:
            if definition.prompt_id in by_id:
                raise ValueError(f"{definition.prompt_id} has two definitions")
            by_id[definition.prompt_id] = definition
        undefined = [prompt_id for prompt_id in PromptId if prompt_id not in by_id]
        if undefined:
            raise ValueError(f"there is no definition of {', '.join(undefined)}")
        self._definitions: Mapping[PromptId, PromptDefinition] = MappingProxyType(
            {prompt_id: by_id[prompt_id] for prompt_id in PromptId}
        )

    def ids(self) -> tuple[PromptId, ...]:
        """Return all ids, in the order of `PromptId`."""
        return tuple(self._definitions)

    def definition(self, prompt_id: PromptId) -> PromptDefinition:
        """Return the definition of that prompt."""
        if prompt_id not in self._definitions:
            raise KeyError(f"there is no prompt {prompt_id!a:.80}")
        return self._definitions[prompt_id]

    def with_texts(self, texts: Mapping[PromptId, str]) -> "PromptRegistry":
        """Return a registry with these texts in the place of those of the same prompts.

        Raises: ValueError for a text that its prompt's input cannot fill.
        """
        changed = {each: replace(self.definition(each), template=text) for each, text in texts.items()}
        return PromptRegistry({**self._definitions, **changed}.values())

    def get_prompt(self, prompt_id: PromptId, input_data: BaseModel, mark: str | None = None) -> str:
        """Return the prompt's text for that input; a `mark` marks the quoted text.

        Raises: pydantic.ValidationError if the input is not the prompt's.
        """
        return self.definition(prompt_id).render(input_data, mark)

    def system_prompt_of(self, prompt_id: PromptId, input_data: PromptInput) -> str | None:
        """Return the system prompt that goes with a user prompt of that input; None if there is none.

        A system prompt that does not take that input takes none.
        """
        system = SYSTEM_PROMPTS.get(prompt_id)
        if system is None:
            return None
        takes_input = isinstance(input_data, self.definition(system).input_model)
        return self.get_prompt(system, input_data if takes_input else EmptyInput())

    @overload
    def validate_output(
        self, prompt_id: PromptId, response: str | Mapping[str, Any], output_model: type[Output]
    ) -> Output: ...

    @overload
    def validate_output(
        self, prompt_id: PromptId, response: str | Mapping[str, Any], output_model: None = None
    ) -> BaseModel: ...

    def validate_output(
        self, prompt_id: PromptId, response: str | Mapping[str, Any], output_model: type[BaseModel] | None = None
    ) -> BaseModel:
        """Return the reply as the prompt's output model or as the one given instead.

        Raises: JSONExtractionError if the reply holds no JSON value; pydantic.ValidationError if the value does not
        fit; ValueError for a prompt that asks for text.
        """
        model = output_model or self.definition(prompt_id).output_model
        if model is None:
            raise ValueError(f"{prompt_id} asks for text, which has no output model")
        try:
            found = extract(response)
        except JSONExtractionError as error:
            error.prompt_id = prompt_id
            raise
        return model.model_validate(found.value)


@lru_cache(maxsize=1)
def default_registry() -> PromptRegistry:
    """Return the registry of all shipped prompts; always the same one."""
    return PromptRegistry(prompt for family in FAMILIES for prompt in family)
