"""Tables of isolation: their defaults, what they refuse, and the box that a program gets."""

from pathlib import Path

import pytest

from portico.bootstrap.sandbox import isolated, network_warnings
from portico.domain.failures import ConfigurationFailure
from portico.domain.tools import IsolationLevel
from portico.settings import Settings, load_settings
from tests.support.sandbox import opened_sandbox

PROGRAM = """
[tools.cli.sum]
description = "Add up"
command = ["awk", "1"]
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the directory of a configuration with everything that no box may open."""
    for name in ("data", "log", "modules", "skills/one", "tools"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "secrets.env").write_text("TOKEN=hunter22\n")
    (tmp_path / "headers.txt").write_text("Authorization: Bearer x\n")
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "portico.db").touch()
    (tmp_path / "modules" / "shop.py").touch()
    (tmp_path / "tools" / "run.sh").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    return tmp_path


def settings_of(place: Path, text: str) -> Settings:
    path = place / "portico.toml"
    path.write_text(f'[storage]\nurl = "sqlite:///{place}/var/portico.db"\n{text}')
    return load_settings({}, path, local_model=lambda: None)


def refusal(place: Path, text: str) -> str:
    settings = settings_of(place, text)
    with pytest.raises(ConfigurationFailure) as refused:
        isolated("tools.cli.sum", settings.tools.cli["sum"], settings, opened_sandbox())
    return refused.value.message


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('isolation = "limits"\nrequire_isolation = true', "require_isolation: cannot be kept at the level limits"),
        ('require_isolation = true\n[tools.sandbox]\nisolation = "limits"', "cannot be kept at the level limits"),
        ('side_effects = "none"\nnetwork = "open"', 'network: must be "none" for a tool without side effects'),
        ('read_paths = ["nowhere"]', "read_paths.0: does not exist"),
        ('read_paths = ["data", "/"]', "read_paths.1: must not be /"),
        ('write_paths = ["/proc"]', "write_paths.0: must not be /proc"),
        ('read_paths = ["/sys"]', "read_paths.0: must not be /sys"),
        ('working_dir = "/dev"', "working_dir: must not be /dev"),
        ('read_paths = ["."]', "read_paths.0: must not be opened to a program, since portico.toml is in it"),
        ('read_paths = ["link"]', "read_paths.0: must not be opened to a program, since portico.toml is in it"),
        ('read_paths = ["var"]', "read_paths.0: must not be opened to a program, since portico.db is in it"),
        ('env_file = "{place}/secrets.env"\nread_paths = ["secrets.env"]', "since secrets.env is in it"),
        ('read_paths = ["log"]\n[audit]\nfile = "{place}/log/audit.jsonl"', "since audit.jsonl is in it"),
        ('read_paths = ["var"]\n[tools.files]\nroot = "var/files"', "must not contain the root of tools.files"),
        ('working_dir = "."', "working_dir: must not be opened to a program, since portico.toml is in it"),
        ('working_dir = "nowhere"', "working_dir: does not exist"),
    ],
)
def test_a_box_that_would_open_too_much_stops_the_start(place: Path, lines: str, message: str) -> None:
    assert message in refusal(place, f"{PROGRAM}{lines}".replace("{place}", str(place)))


@pytest.mark.parametrize(
    ("paths", "rest", "name"),
    [
        ("modules", '[tools]\nmodules = ["modules.shop"]', "shop.py"),
        ("skills", '[skills]\ndirectory = "{place}/skills"', "skills"),
        ("tools", '[tools.python]\ninterpreter = "{place}/tools/run.sh"', "run.sh"),
        ("tools", '[tools.sandbox]\nbubblewrap = "tools/run.sh"', "run.sh"),
        ("tools", '[tools.mcp.other]\ncommand = ["tools/run.sh"]', "run.sh"),
        ("tools", '[tools.cli.other]\ndescription = "Other"\ncommand = ["tools/run.sh"]', "run.sh"),
    ],
)
def test_what_the_service_runs_may_be_read_and_not_written(place: Path, paths: str, rest: str, name: str) -> None:
    rest = rest.replace("{place}", str(place))
    message = refusal(place, f'{PROGRAM}write_paths = ["{paths}"]\n{rest}')
    assert message == f"tools.cli.sum.write_paths.0: must not be written to a program, since {name} is in it"
    settings = settings_of(place, f'{PROGRAM}read_paths = ["{paths}"]\n{rest}')
    isolated("tools.cli.sum", settings.tools.cli["sum"], settings, opened_sandbox())


@pytest.mark.parametrize("side_effects", ["none", "read", "write", "external"])
def test_declared_side_effects_decide_if_the_working_directory_is_written(place: Path, side_effects: str) -> None:
    text = f'{PROGRAM}working_dir = "data"\nside_effects = "{side_effects}"\n'
    settings = settings_of(place, text)
    box = isolated("tools.cli.sum", settings.tools.cli["sum"], settings, opened_sandbox()).box
    data = place / "data"
    assert (box.directory, box.readable, box.writable) == (
        (data, (data,), ()) if side_effects in {"none", "read"} else (data, (), (data,))
    )


def test_a_level_of_a_program_replaces_the_common_one(place: Path) -> None:
    text = f'[tools.sandbox]\nisolation = "limits"\n{PROGRAM}isolation = "landlock"\n'
    settings = settings_of(place, text)
    program = isolated("tools.cli.sum", settings.tools.cli["sum"], settings, opened_sandbox())
    assert program.level is IsolationLevel.LANDLOCK


def test_each_open_network_has_a_warning(place: Path) -> None:
    [warning] = network_warnings(settings_of(place, f'{PROGRAM}network = "open"\n'))
    assert warning.startswith("tools.cli.sum.network: it reaches all that the service reaches")
    assert list(network_warnings(settings_of(place, PROGRAM))) == []
