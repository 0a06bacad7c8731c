"""Decision which contracts and answers are small and plain: validating them delays no other request noticeably.

Everything else is compiled and validated by a worker process with a hard limit of time and memory. So are contracts
with rules of modules, which are other people's code. Grammars do not count: the recogniser has a limit of its own
steps, and works on a thread.
"""

from functools import lru_cache
from typing import Final

import orjson

from portico.capabilities.output.rules.custom import BUILT_IN_RULES
from portico.capabilities.output.schema.plainness import MAX_PATTERN_SIZE, pattern_size, schema_patterns_size
from portico.domain.contract.request import OutputContract
from portico.domain.contract.rules import Compare, Regex, Rule
from portico.domain.value import value

SMALL_CONTRACT_BYTES: Final = 8_192
SMALL_ANSWER_CHARACTERS: Final = 4_096
_QUICK_CONTRACT_BYTES: Final = 2_048
_QUICK_RULES_BYTES: Final = 1_024
_QUICK_PATTERNS_SIZE: Final = 64
_NOT_PLAIN: Final = MAX_PATTERN_SIZE + 1


@value
class ContractSize:
    """The size of a contract: small and plain or not, and how quickly it is used."""

    is_plain: bool
    """True if the contract is small and plain, and all of its rules are built in."""
    has_plain_format: bool
    """True if the contract is small and plain, wherever its rules are defined."""
    compiles_quickly: bool
    """True if it may be compiled on the event loop: that takes about a millisecond."""
    validates_quickly: bool
    """True if a small answer may be found valid on the event loop: that takes a few milliseconds at worst."""
    reads_values: bool
    """True if the effort grows with the answer: a schema, a path or a pattern is applied to it."""

    def is_small_with(self, text: str) -> bool:
        """Return True if an answer with that text may be validated here: it and the contract are small and plain."""
        return self.is_plain and (not self.reads_values or len(text) <= SMALL_ANSWER_CHARACTERS)

    def is_quick_with(self, text: str) -> bool:
        """Return True if an answer with that text may be validated on the event loop."""
        return self.validates_quickly and len(text) <= SMALL_ANSWER_CHARACTERS


def contract_size(output: OutputContract) -> ContractSize:
    """Return the size of the contract, which may be invalid."""
    try:
        schema = b"" if output.schema_ is None else orjson.dumps(output.schema_)
    except orjson.JSONEncodeError:
        return ContractSize(
            is_plain=True, has_plain_format=True, compiles_quickly=True, validates_quickly=False, reads_values=True
        )
    rules = [rule for rule in output.rules if not isinstance(rule, str)]
    rules_data = b"".join(rule.model_dump_json().encode() for rule in rules)
    length = len(schema) + len(rules_data)
    is_small = length <= SMALL_CONTRACT_BYTES
    patterns_size = _schema_patterns_size(schema) + sum(map(_rule_patterns_size, rules)) if is_small else _NOT_PLAIN
    has_plain_format = patterns_size <= MAX_PATTERN_SIZE
    is_plain = has_plain_format and all(map(BUILT_IN_RULES.has, output.rules))
    is_quick = is_plain and patterns_size <= _QUICK_PATTERNS_SIZE
    return ContractSize(
        is_plain=is_plain,
        has_plain_format=has_plain_format,
        compiles_quickly=is_quick and length + len(output.grammar or "") <= _QUICK_CONTRACT_BYTES,
        validates_quickly=is_quick
        and output.grammar is None
        and len(rules_data) <= _QUICK_RULES_BYTES
        and b"[*]" not in rules_data,
        reads_values=bool(schema) or any(rule.path is not None or isinstance(rule, Regex) for rule in rules),
    )


@lru_cache(maxsize=256)
def _schema_patterns_size(schema: bytes) -> int:
    """Return the size of the patterns of a small schema; that of one that is not plain is too large."""
    if not schema:
        return 0
    size = schema_patterns_size(orjson.loads(schema))
    return _NOT_PLAIN if size is None else size


def _rule_patterns_size(rule: Rule) -> int:
    match rule:
        case Regex(pattern=pattern):
            size = pattern_size(pattern)
            return _NOT_PLAIN if size is None else size
        case Compare(other=str(other)) if "[*]" in other:
            return _NOT_PLAIN
        case _:
            return 0
