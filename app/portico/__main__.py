"""Command `portico`, also as `python -m portico`."""

import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from portico.entrypoints.cli.service_parts import Wiring

_IMPORTING = (5_000, 1_000, 1_000)
"""Thresholds of the garbage collection with which only new objects are searched."""

_COMPLETION_WORDS = 3


def portico() -> None:
    """Run the command that this process was started with; `health` and `completion` before all else is imported."""
    if sys.argv[1:2] == ["health"]:
        from portico.entrypoints.cli.health import run_health  # noqa: PLC0415 - see above

        code = run_health(sys.argv[1:])
        if code is not None:
            sys.exit(code)
    if sys.argv[1:2] == ["completion"] and len(sys.argv) == _COMPLETION_WORDS:
        from portico.entrypoints.cli.completion_commands import SHELLS  # noqa: PLC0415 - see above

        if sys.argv[2] in SHELLS:
            SHELLS[sys.argv[2]]()
            return
    # Imported objects stay alive; searching all of them again and again takes a fifth of the start-up time.
    gc.set_threshold(*_IMPORTING)
    from portico.entrypoints.cli.command_line import main  # noqa: PLC0415 - see above

    main(_load_wiring)


def _load_wiring() -> "Wiring":
    """Return the parts of the service, which take most of the start-up time."""
    from portico.bootstrap.checks import check_audit, check_issuer, check_storage, check_traces  # noqa: PLC0415 - see above
    from portico.bootstrap.keys import open_keys  # noqa: PLC0415 - see above
    from portico.bootstrap.service import open_history_reader, open_offline, open_service  # noqa: PLC0415 - see above
    from portico.entrypoints.cli.service_parts import Checks, Wiring  # noqa: PLC0415 - see above
    from portico.entrypoints.http.app import create_app  # noqa: PLC0415 - see above
    from portico.entrypoints.http.protocol import BoundedProtocol  # noqa: PLC0415 - see above

    gc.freeze()
    return Wiring(
        create_app=create_app,
        protocol=BoundedProtocol,
        open_service=open_service,
        open_history_reader=open_history_reader,
        checks=Checks(check_storage, check_issuer, check_traces, check_audit, open_offline),
        open_keys=open_keys,
    )


if __name__ == "__main__":
    portico()
