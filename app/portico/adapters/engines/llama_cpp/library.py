"""The optional packages behind `llamacpp://`, imported when the first such engine is configured."""

from importlib import import_module
from logging import CRITICAL, getLogger
from types import ModuleType

from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.value import value


@value
class LlamaCppLibrary:
    """The packages of the extra `llamacpp`. Their types are unknown here, so that they may be missing."""

    llama: ModuleType
    """llama.cpp's C interface."""
    chat: ModuleType
    """Renders chat templates."""
    guidance: ModuleType
    """Enforces a JSON Schema by token masks."""
    jinja: ModuleType
    numpy: ModuleType


def open_library(engine: str) -> LlamaCppLibrary:
    """Import the packages, with llama.cpp ready and silent: it would write lines of its own between those of the log.

    Raises: ConfigurationFailure (CONFIG_INVALID) naming the engine when they are not installed or do not work here.
    """
    try:
        library = LlamaCppLibrary(
            llama=import_module("llama_cpp"),
            chat=import_module("llama_cpp.llama_chat_format"),
            guidance=import_module("llguidance"),
            jinja=import_module("jinja2"),
            numpy=import_module("numpy"),
        )
    except ImportError as cause:
        raise _unusable(engine, "needs optional packages: install portico[llamacpp]") from cause
    except (OSError, RuntimeError) as cause:
        raise _unusable(engine, "cannot be used, since the library of llama-cpp-python does not load here") from cause
    getLogger("llama-cpp-python").setLevel(CRITICAL + 1)
    library.llama.llama_backend_init()
    return library


def _unusable(engine: str, what: str) -> ConfigurationFailure:
    return ConfigurationFailure(Code.CONFIG_INVALID, f"engines.{engine}.model: llamacpp:// {what}")
