"""Every dialect can be broken."""

from tests.adapters.engines.broken_replies import EMULATED_PROVIDERS
from tests.adapters.engines.dialects import DIALECTS

BINARY = {"bedrock"}
"""Dialects whose streams are no text; how they break is among the tests of their frames and replies."""


def test_every_dialect_has_an_emulator_whose_answers_are_broken():
    assert {speaker.name for speaker in EMULATED_PROVIDERS} == DIALECTS.keys() - BINARY
