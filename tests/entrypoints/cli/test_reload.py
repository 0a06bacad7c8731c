"""SIGHUP: a running `portico serve` reads its skills again."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

from tests.support.cli_process import Process, serving

SKILL = "---\ndescription: d\n---\ntext"


def names(portico: Process) -> list[str]:
    return [each["name"] for each in json.loads(portico.ask("GET", "/v1/skills")[1])["data"]]


def test_a_hangup_reloads_the_skills_and_unusable_ones_change_nothing(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    folder = tmp_path / "skills"
    folder.mkdir()
    (folder / "tone.md").write_text(SKILL)
    with serving(start, PORTICO__SKILLS__DIRECTORY=str(folder)) as portico:
        assert names(portico) == ["tone"]
        (folder / "cards.md").write_text("no skill")
        portico.signal(signal.SIGHUP)
        portico.wait_for_error("the skills that were read before stay in force")
        assert names(portico) == ["tone"]
        (folder / "cards.md").write_text(SKILL)
        portico.signal(signal.SIGHUP)
        while names(portico) != ["cards", "tone"]:
            pass
        assert portico.execute("Hello")[0] == 200
        portico.signal(signal.SIGTERM)
        assert portico.ended()[0] == 0
