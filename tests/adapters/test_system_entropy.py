"""System randomness and ids."""

from collections.abc import Callable
from uuid import RFC_4122, UUID

import pytest

from portico.adapters.system import SystemEntropy, format_uuid7
from portico.ports.runtime import Entropy
from tests.support.entropy import SeededEntropy


class SteppingClock:
    """A clock that a test sets, also back."""

    def __init__(self) -> None:
        self.seconds = 1_790_000_000.123

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def call_later(self, _seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        return callback


@pytest.fixture
def wall() -> SteppingClock:
    return SteppingClock()


@pytest.fixture(params=["system", "seeded"])
def source(request: pytest.FixtureRequest, wall: SteppingClock) -> Entropy:
    return SystemEntropy(wall) if request.param == "system" else SeededEntropy(1)


def test_an_id_is_a_uuid_of_version_7(source: Entropy) -> None:
    text = source.uuid7()
    found = UUID(text)
    assert (found.version, found.variant) == (7, RFC_4122)
    assert str(found) == text


def test_the_example_of_rfc_9562_is_formatted_as_there() -> None:
    value = 0x017F22E279B0 << 74 | 0xCC3 << 62 | 0x18C4DC0C0C07398F
    assert format_uuid7(value) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


def test_an_id_starts_with_the_time_in_milliseconds(wall: SteppingClock) -> None:
    assert UUID(SystemEntropy(wall).uuid7()).int >> 80 == 1_790_000_000_123


def test_ids_are_strictly_increasing(source: Entropy) -> None:
    ids = [source.uuid7() for _ in range(20_000)]
    assert ids == sorted(set(ids))


def test_ids_increase_after_the_clock_was_set_back(wall: SteppingClock) -> None:
    source = SystemEntropy(wall)
    ids = []
    for step in (0.0, -3600.0, 0.001, 7200.0, -1.0):
        wall.seconds += step
        ids.append(source.uuid7())
    assert ids == sorted(set(ids))


def test_two_sources_give_different_ids(wall: SteppingClock) -> None:
    assert SystemEntropy(wall).uuid7() != SystemEntropy(wall).uuid7()


def test_a_token_has_the_requested_number_of_bytes_as_hex(source: Entropy) -> None:
    for size in (1, 8, 32):
        assert len(bytes.fromhex(source.token(size))) == size
    assert source.token(16) != source.token(16)


def test_random_below_returns_every_value_below_its_bound(source: Entropy) -> None:
    assert {source.random_below(6) for _ in range(1000)} == set(range(6))


def test_equal_seeds_give_equal_values() -> None:
    def draw(seed: int) -> list[str | int]:
        source = SeededEntropy(seed)
        return [source.uuid7(), source.token(8), source.random_below(1000), source.uuid7()]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_no_random_bytes_are_used_twice(wall: SteppingClock) -> None:
    source = SystemEntropy(wall)
    tokens = [source.token(size) for size in (16, 5_000, 16, *[16] * 600)]
    assert [len(token) for token in tokens[:3]] == [32, 10_000, 32]
    assert len(set(tokens)) == len(tokens)
    assert not any(token in tokens[1] for token in tokens if len(token) == 32)
