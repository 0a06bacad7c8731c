"""Repeatable randomness."""

from random import Random

from portico.adapters.system import format_uuid7
from tests.support.virtual_time import EPOCH


class SeededEntropy:
    """Implementation of `Entropy`: equal seeds give equal values, and ids ascend."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._milliseconds = int(EPOCH * 1000)

    def uuid7(self) -> str:
        self._milliseconds += 1
        return format_uuid7(self._milliseconds << 74 | self._random.getrandbits(74))

    def token(self, size: int) -> str:
        return self._random.randbytes(size).hex()

    def random_below(self, bound: int) -> int:
        return self._random.randrange(bound)
