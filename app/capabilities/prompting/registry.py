"""Registry of all prompts by id: it renders prompts and parses replies [003].

A registry holds every `PromptId` exactly once, or it cannot be made. Output is extracted but never repaired: a plan or
a judgement that was cut off must not be taken for a shorter one.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from app.capabilities.output.extract import JSONExtractionError, extract
from app.capabilities.prompting.definition import PromptDefinition, PromptId
from app.capabilities.prompting.prompts import answer, assessment, output_format, planning

__all__ = ["JSONExtractionError", "PromptRegistry", "default_registry"]

Output = TypeVar("Output", bound=BaseModel)


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

    def get_prompt(self, prompt_id: PromptId, input_data: BaseModel) -> str:
        """Return the prompt's text for that input.

        Raises: pydantic.ValidationError if the input is not the prompt's.
        """
        return self.definition(prompt_id).render(input_data)

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
    return PromptRegistry((*planning.PROMPTS, *assessment.PROMPTS, *answer.PROMPTS, *output_format.PROMPTS))
