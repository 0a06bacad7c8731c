"""Output contracts of requests before there is an execution."""

from collections.abc import Mapping

from portico.capabilities.answer_contract import AnswerContract, needs_contract, with_grammar
from portico.domain.contract.request import SystemRequest
from portico.orchestration.execution.environment import Environment


async def with_contract(environment: Environment, request: SystemRequest, grammars: Mapping[str, str]) -> SystemRequest:
    """Return the request with the text of its named grammar. Raises: as `check_contract`."""
    request = with_grammar(request, grammars)
    if needs_contract(request.output):
        await check_contract(environment, AnswerContract(request.output))
    return request


async def check_contract(environment: Environment, contract: AnswerContract) -> None:
    """Raise ConfigurationFailure or RequestFailure for a contract that cannot be kept, or is too costly."""
    if contract.size.compiles_quickly:
        contract.compile()
    elif contract.size.is_plain:
        await environment.thread_pool.run(contract.compile)
    else:
        await environment.answer_validator.check_contract(contract.output)
