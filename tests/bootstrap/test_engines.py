"""Table of engine schemes."""

from app.bootstrap.engines import ENGINES
from app.settings.values import SCHEMES


def test_every_scheme_of_the_configuration_has_a_builder() -> None:
    assert ENGINES.keys() == SCHEMES.keys()
