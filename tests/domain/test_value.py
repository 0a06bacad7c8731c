"""Values: compared and hashed by their fields, and kept from changes by the type checker."""

import dataclasses
import re
from dataclasses import field, fields
from pathlib import Path

import pytest
from mypy import api

from portico.domain.value import replace, value
from tests.architecture.source import ROOT

MODULE = """
from dataclasses import field
from portico.domain.value import replace, value

@value
class Point:
    x: int
    tags: tuple[str, ...] = field(default=())

@value(slots=False)
class Stored:
    x: int

Point(1).x = 2  # read-only
Stored(1).x = 2  # read-only
replace(Point(1), y=2)  # Unexpected keyword argument "y" for "replace"
Point()  # Missing positional argument "x"
Stored("1")  # incompatible type
replace(Point(1, ("a",)), x=2)
hash(Stored(1))
"""


@value
class Point:
    x: int
    y: int = 0


@value(slots=False)
class Stored:
    x: int


def test_values_of_equal_fields_are_equal_and_have_one_hash() -> None:
    assert Point(1) == Point(1, 0) != Point(1, 1)
    assert len({Point(1), Point(1, 0), Stored(1), Stored(1)}) == 2
    assert replace(Point(1), y=2) == Point(1, 2)
    assert [each.name for each in fields(Point)] == ["x", "y"]


def test_a_value_has_no_dict_unless_it_is_stored() -> None:
    assert not hasattr(Point(1), "__dict__")
    assert vars(Stored(1)) == {"x": 1}


def test_the_type_checker_refuses_changes_and_wrong_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "points.py"
    module.write_text(MODULE, encoding="utf-8")
    monkeypatch.setenv("MYPYPATH", str(ROOT / "app"))
    report, _, _ = api.run(
        ["--strict", "--no-error-summary", "--config-file=", "--cache-dir", str(tmp_path), str(module)]
    )
    wanted = {number: line.partition("  # ")[2] for number, line in enumerate(MODULE.splitlines(), 1) if "  # " in line}
    found = dict(re.findall(r"points\.py:(\d+): error: (.*)", report))
    assert {int(number) for number in found} == wanted.keys(), report
    assert all(text in found[str(number)] for number, text in wanted.items()), report


@pytest.mark.parametrize("given", [Point(1, 3), Stored(1)])
def test_replace_does_what_that_of_dataclasses_does(given: Point | Stored) -> None:
    changed = replace(given, x=7)
    assert changed == dataclasses.replace(given, x=7)
    assert replace(given) == given != changed
    with pytest.raises(KeyError, match="z"):
        replace(given, z=1)


def test_a_value_is_shown_as_a_dataclass_is_without_what_is_hidden() -> None:
    @value
    class Hidden(Point):
        key: str = field(default="", repr=False)

    @value
    class Named:
        x: int

        def __repr__(self) -> str:
            return "named"

    assert repr(Point(1)) == "Point(x=1, y=0)"
    assert repr(Hidden(1, 2, "secret")).endswith("Hidden(x=1, y=2)")
    assert repr(Named(1)) == "named"
