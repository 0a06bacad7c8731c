"""Guards of the configuration, with their patterns and rules compiled."""

from portico.capabilities.answer_contract import AnswerContract
from portico.capabilities.guards.catalogue import GuardCatalogue
from portico.capabilities.output.rules.rule_set import RuleRegistry
from portico.domain.contract.request import OutputContract
from portico.domain.failures import Code, ConfigurationFailure, Failure
from portico.settings import Settings


def configured_guards(settings: Settings, rules: RuleRegistry) -> GuardCatalogue:
    """Return the configured guards.

    Raises: ConfigurationFailure (CONFIG_INVALID) naming the key of a guard whose patterns or rules cannot be used.
    """
    guards = [guard.guard(name) for name, guard in settings.guardrails.items()]
    for guard in guards:
        try:
            AnswerContract(OutputContract(rules=list(guard.rules)), rules).compile()
        except Failure as failure:
            message = failure.message.replace("output.rules", "rules", 1)
            raise ConfigurationFailure(Code.CONFIG_INVALID, f"guardrails.{guard.name}.{message}") from failure
    try:
        return GuardCatalogue(guards)
    except ValueError as error:
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"guardrails.{error}") from None
