"""The interpreter of code that is installed, for modules that do not run it."""

from importlib.metadata import PackageNotFoundError, version


def installed_interpreter() -> str | None:
    """Return the version of the interpreter that is installed; None if none is."""
    try:
        return f"monty {version('pydantic-monty')}"
    except PackageNotFoundError:
        return None
