"""Libraries that only a configured feature needs are not imported without it: they cost memory and time to start."""

import subprocess
import sys

OPTIONAL = {"cryptography", "grpc", "jwt", "mcp", "numpy", "opentelemetry.sdk", "re2", "yaml"}


def test_the_application_is_imported_without_optional_libraries() -> None:
    program = f"import sys, portico.entrypoints.http.app; print(*sorted({OPTIONAL!r} & sys.modules.keys()))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.split() == []


def test_the_mcp_server_is_imported_only_if_it_is_enabled() -> None:
    program = """
import sys
from portico.entrypoints.http.app import create_app
from portico.settings import Settings
create_app(Settings())
print("mcp.server" in sys.modules)
create_app(Settings.model_validate({"mcp": {"enabled": True}}))
print("mcp.server" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.split() == ["False", "True"]


def test_the_application_is_made_without_what_only_a_later_request_reads() -> None:
    program = """
import sys
from portico.adapters.stores import codec
from portico.capabilities.prompting.prompts.assessment import ConvergenceAssessmentOutput
from portico.entrypoints.http.app import create_app
from portico.entrypoints.http.console.assets import console_assets
from portico.settings import Settings
create_app(Settings())
print(codec._HEADER.pydantic_complete, ConvergenceAssessmentOutput.__pydantic_complete__)
print(console_assets.cache_info().currsize, "portico.entrypoints.http.openapi.document" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.split() == ["False", "False", "0", "False"]


def test_the_application_is_made_without_any_dialect_and_without_the_boxes_of_programs() -> None:
    program = """
import sys, portico.entrypoints.http.app
from portico.bootstrap.foundation import Foundation
from portico.settings import Settings
Foundation.of(Settings())
print(*sorted(name for name in sys.modules if name.startswith("portico.adapters.engines.") and "dialect" in name))
print(*sorted(name for name in sys.modules if "sandbox" in name or "monty" in name))
Foundation.of(Settings.model_validate({"tools": {"cli": {"greet": {"description": "Greet", "command": ["echo"]}}}}))
print("portico.adapters.tools.sandbox.levels" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.splitlines() == ["", "", "True"]
