"""Stop texts end an answer wherever its tokens happen to be cut."""

from hypothesis import given, settings
from hypothesis import strategies as st

from portico.adapters.engines.llama_cpp.generation import StopTextFilter

PIECES = st.lists(st.text("ab", max_size=4), max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(PIECES, STOPS)
def test_all_before_the_first_stop_text_is_said_and_nothing_else(pieces: list[str], stops: list[str]):
    ending, said, written = StopTextFilter(stops), "", ""
    for piece in pieces:
        said += ending.feed(piece)
        written += piece
        if ending.reached:
            break
    said += ending.rest()
    places = [place for place in map(written.find, stops) if place >= 0]
    assert ending.reached == bool(places)
    assert said == (written[: min(places)] if places else written)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(PIECES, STOPS)
def test_no_more_is_held_back_than_may_still_become_a_stop_text(pieces: list[str], stops: list[str]):
    ending, said, written = StopTextFilter(stops), "", ""
    for piece in pieces:
        said += ending.feed(piece)
        written += piece
        held = written[len(said) :]
        assert ending.reached or not held or any(stop.startswith(held) for stop in stops)
        if ending.reached:
            break
