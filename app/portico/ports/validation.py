"""Validation port: contracts and answers that are not small and plain, within a hard limit of time and memory."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from portico.domain.contract.request import OutputContract
from portico.domain.contract.rules import AnswerContent
from portico.domain.journal.outcomes import AnswerValidated
from portico.domain.raised_exception import RaisedException

OnRuleException: TypeAlias = Callable[[str, RaisedException], None]
"""Takes what the rule of that name raised."""


class AnswerValidator(Protocol):
    """Validator that delays no other request, however costly the schema, the patterns and the answer are."""

    async def check_contract(self, output: OutputContract) -> None:
        """Compile the contract.

        Raises: ConfigurationFailure, RequestFailure, for a contract that no answer can keep, or that is too costly.
        """
        ...

    async def validate(
        self, output: OutputContract, answer: str | AnswerContent, attempt: int, on_exception: OnRuleException
    ) -> AnswerValidated:
        """Validate the answer by its contract. An answer that exceeds the limit is invalid.

        Rules in Python act for the current caller. `on_exception` is called for each rule that raises, which makes the
        answer invalid, too.
        """
        ...
