"""Validation port: contracts and answers that are not small and plain, within a hard limit of time and memory."""

from typing import Protocol

from portico.domain.contract.request import OutputContract
from portico.domain.contract.rules import AnswerContent
from portico.domain.journal.outcomes import AnswerValidated


class AnswerValidator(Protocol):
    """Validator that delays no other request, however costly the schema, the patterns and the answer are."""

    async def check_contract(self, output: OutputContract) -> None:
        """Compile the contract.

        Raises: ConfigurationFailure, RequestFailure, for a contract that no answer can keep, or that is too costly.
        """
        ...

    async def validate(self, output: OutputContract, answer: str | AnswerContent, attempt: int) -> AnswerValidated:
        """Validate the answer by its contract. An answer that exceeds the limit is invalid."""
        ...
