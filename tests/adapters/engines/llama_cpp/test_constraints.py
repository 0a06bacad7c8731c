"""The characters that the first bytes of a token can become."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.adapters.engines.llama_cpp.constraints import code_point_range


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.characters(min_codepoint=0x80, exclude_categories=["Cs"]))
def test_a_character_is_among_those_that_its_first_bytes_begin(character: str):
    data = character.encode()
    for size in range(1, len(data)):
        first, last = code_point_range(data[:size])
        assert first <= ord(character) <= last


@pytest.mark.parametrize(
    "begun", ["c3", "df", "e0", "e1", "e280", "ee", "efbf", "f0", "f09f", "f09f98", "f4", "f48fbf"]
)
def test_all_of_them_begin_so(begun: str):
    data = bytes.fromhex(begun)
    for code in code_point_range(data):
        assert chr(code).encode().startswith(data)
