"""An answer validator without processes: virtual time stands still while it validates."""

from portico.capabilities.answer_contract import AnswerContract
from portico.domain.contract.request import OutputContract
from portico.domain.contract.rules import AnswerContent
from portico.domain.journal.outcomes import AnswerValidated
from portico.ports.validation import OnRuleException


class InlineAnswerValidator:
    """Implements `ports.AnswerValidator` on the event loop itself, without a limit, and counts what it is asked."""

    def __init__(self) -> None:
        self.checked = 0
        self.validated = 0

    async def check_contract(self, output: OutputContract) -> None:
        self.checked += 1
        AnswerContract(output).compile()

    async def validate(
        self, output: OutputContract, answer: str | AnswerContent, attempt: int, on_exception: OnRuleException
    ) -> AnswerValidated:
        self.validated += 1
        validated = AnswerContract(output).validate(answer, attempt)
        for rule, raised in validated.exceptions:
            on_exception(rule, raised)
        return validated.outcome()
