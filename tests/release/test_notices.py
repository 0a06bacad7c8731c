"""THIRD_PARTY_NOTICES has every package that the lock installs, with its licence."""

from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from release.lock import LOCK, locked
from release.notices import FILE, VENDOR, notices, stated_licence


def test_the_file_is_that_of_the_installed_packages() -> None:
    assert FILE.read_text(encoding="utf-8") == notices(), "Run `make notices`."


def test_every_locked_package_and_what_the_console_contains_is_named_once() -> None:
    listed = FILE.read_text(encoding="utf-8").partition("====")[0]
    named = [line.split(":")[0].strip() for line in listed.splitlines() if line.startswith("  ")]
    vendored = [f"{path.stem} (in the console)" for path in VENDOR.glob("*.LICENSE")]
    assert sorted(named) == sorted([*locked(LOCK), *vendored])


def installed(folder: Path, metadata: str) -> Distribution:
    """Return an installed package with this metadata."""
    path = folder / "acme-1.dist-info"
    path.mkdir()
    (path / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme\nVersion: 1\n{metadata}", encoding="utf-8")
    return PathDistribution(path)


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License-Expression: MIT\nLicense: other\n", "MIT"),
        ("License: BSD\nClassifier: License :: OSI Approved :: MIT License\n", "BSD"),
        ("Classifier: License :: OSI Approved :: MIT License\n", "MIT License"),
        (f"License: {'text ' * 40}\nClassifier: License :: OSI Approved :: MIT License\n", "MIT License"),
    ],
)
def test_the_licence_is_what_the_metadata_states_best(tmp_path: Path, metadata: str, licence: str) -> None:
    assert stated_licence(installed(tmp_path, metadata)) == licence


def test_a_package_that_states_none_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="acme states no licence"):
        stated_licence(installed(tmp_path, "License: UNKNOWN\n"))
