"""Where the configuration comes from: the file, then the environment, then the command line.

Theory of operation

1. One file (`portico.toml`, or what `PORTICO_CONFIG` names) gives a tree. A variable `PORTICO__SECTION__KEY` replaces
   one place in it, as text where text belongs and as JSON elsewhere; an override of the caller replaces last.
2. The tree is validated once, strictly. What this version does not know is refused by its dotted name: as a thing of a
   later version when `_LATER` has it, else with the nearest name there is.
3. Errors name keys and never values, for a value may be a secret in the wrong place.

Plain pydantic and tomllib rather than pydantic-settings: that ignores unknown variables, cannot match a variable to the
engine `gpt-4o` of the file, and repeats in its errors what was given. All it would save is placing the variables.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from pydantic import ValidationError

from app.domain.failures import Code, ConfigurationFailure
from app.settings.ollama_probe import find_ollama_model
from app.settings.schema import Settings, closest_name
from app.settings.values import NOT_IN_THIS_VERSION

_FILE, _CONFIG, _PREFIX = Path("portico.toml"), "PORTICO_CONFIG", "PORTICO__"
_USUAL: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "OPENAI_API_KEY": ("openai", "openai://gpt-4o-mini"),
        "ANTHROPIC_API_KEY": ("anthropic", "anthropic://claude-haiku-4-5"),
        "GEMINI_API_KEY": ("gemini", "gemini://gemini-2.5-flash"),
    }
)
"""The engine that a key stands for when none is configured, in order of preference."""
_LATER = frozenset(
    {
        *("agents", "flows", "skills", "policy", "tools"),
        *("auth.bootstrap_key_file", "auth.issuer", "auth.audience", "auth.jwks_url"),
        *("telemetry.otlp_endpoint", "telemetry.sample_ratio", "telemetry.capture_content"),
        "limits.passes",
    }
)
_UNKNOWN = "extra_forbidden"

Tree: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str, ...]


def load_settings(
    environ: Mapping[str, str] | None = None,
    path: Path | None = None,
    *,
    overrides: Mapping[str, object] = MappingProxyType({}),
    local_model: Callable[[], str | None] = find_ollama_model,
) -> Settings:
    """The settings of this process. `path` is taken before `PORTICO_CONFIG`; `overrides` go by dotted name.

    Where no engines are configured one is taken that is there: by its provider's key, else `local_model` of an Ollama
    server. Raises: ConfigurationFailure (CONFIG_INVALID, CONFIG_NO_ENGINE), which names the keys at fault and no value.
    """
    variables = os.environ if environ is None else environ
    tree = _file_tree(variables, path)
    faults = _place_variables(tree, variables)
    for dotted, value in overrides.items():
        _place(tree, tuple(dotted.split(".")), value)
    if "engines" not in tree:
        tree |= _found_engines(variables, local_model)
    if not faults:
        try:
            return Settings.model_validate(tree, context={"environ": variables})
        except ValidationError as error:
            faults = [_told(tuple(map(str, fault["loc"])), fault["type"], fault["msg"]) for fault in error.errors()]
    raise ConfigurationFailure(Code.CONFIG_INVALID, "; ".join(faults), {"errors": faults})


def _found_engines(variables: Mapping[str, str], local_model: Callable[[], str | None]) -> Tree:
    for key, (name, url) in _USUAL.items():
        if variables.get(key):
            return {"engines": {name: {"model": url, "api_key_env": key}}}
    model = local_model()
    return {} if model is None else {"engines": {"ollama": {"model": f"ollama:///{model}"}}}


def _file_tree(variables: Mapping[str, str], path: Path | None) -> Tree:
    named = path or (Path(variables[_CONFIG]) if variables.get(_CONFIG) else None)
    file = named or _FILE
    if named is None and not file.exists():
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        fault = f"{file} cannot be read: {error.strerror}"
    except tomllib.TOMLDecodeError as error:
        fault = f"{file} is not TOML: {error}"
    except UnicodeDecodeError:
        fault = f"{file} is not UTF-8"
    raise ConfigurationFailure(Code.CONFIG_INVALID, fault)


def _place_variables(tree: Tree, variables: Mapping[str, str]) -> list[str]:
    """Puts each `PORTICO__…` variable in its place, a table before what is in it; returns what is wrong."""
    faults = []
    ours = [variable for variable in variables if variable.startswith(_PREFIX)]
    for variable in sorted(ours, key=lambda name: (name.count("__"), name)):
        path = _spelt_as_in(tree, variable.removeprefix(_PREFIX).lower().split("__"))
        schema = _schema_at(path)
        if schema is None:
            faults.append(f"{variable}: {_told(path, _UNKNOWN)}")
        elif _is_text(schema):
            _place(tree, path, variables[variable])
        else:
            try:
                _place(tree, path, json.loads(variables[variable]))
            except (ValueError, RecursionError):
                kind = _resolved(schema)["type"]
                faults.append(f"{variable}: {'.'.join(path)} must be JSON, of type {kind}")
    return faults


def _spelt_as_in(tree: Tree, parts: list[str]) -> Place:
    """The path with every name as the file spells it: a variable knows neither case nor `-` nor `.`."""
    path = []
    here: Any = tree
    for part in parts:
        names = here if isinstance(here, dict) else {}
        alike = (name for name in names if re.sub("[-.]", "_", name.lower()) == part)
        spelt = part if part in names else next(alike, part)
        path.append(spelt)
        here = names.get(spelt)
    return tuple(path)


def _place(tree: Tree, path: Place, value: object) -> None:
    here = tree
    for part in path[:-1]:
        below = here.setdefault(part, {})
        if isinstance(below, list):
            below = here[part] = {"engines": below}  # only a route may be a list where a table may stand
        if not isinstance(below, dict):
            return  # the file has no table here, which validation refuses
        here = below
    here[path[-1]] = value


def _told(path: Place, kind: str, message: str = "") -> str:
    """One fault for people, led by its dotted name."""
    dotted = ".".join(part for part in path if part != "[key]")
    if kind != _UNKNOWN:
        text = re.sub(r"^\w+ should", "must", message.removeprefix("Value error, "))
        return f"{dotted}: {text}" if dotted else text
    if any(".".join(path[:length]) in _LATER for length in range(1, len(path) + 1)):
        return f"{dotted}: {NOT_IN_THIS_VERSION}"
    if path[0] == "engines" and path[-1] == "api_key":
        return f"{dotted}: a secret never stands here; name its variable in api_key_env or its file in api_key_file"
    return f"{dotted} is not known; did you mean {closest_name(dotted, _names(_schema(), path))}?"


@cache
def _schema() -> Tree:
    return Settings.model_json_schema()


def _resolved(node: Tree) -> Tree:
    """The node itself, where it only refers to another."""
    referring = next((option for option in node.get("anyOf", ()) if "$ref" in option), node)
    if "$ref" not in referring:
        return node
    resolved: Tree = _schema()["$defs"][referring["$ref"].rpartition("/")[2]]
    return resolved


def _schema_at(path: Place) -> Tree | None:
    """What may stand there, as JSON Schema; None when nothing may."""
    node = _schema()
    for part in path:
        table = _resolved(node)
        named = next(iter(table.get("patternProperties", {}).values()), None)
        below: Tree | None = table.get("properties", {}).get(part, named)
        if below is None:
            return None
        node = below
    return node


def _is_text(node: Tree) -> bool:
    return any(option.get("type") == "string" for option in node.get("anyOf", (node,)))


def _names(node: Tree, path: Place, prefix: str = "") -> Iterator[str]:
    """Every dotted name there is; where any name may stand, the one that stands in the path."""
    table = _resolved(node)
    below = dict(table.get("properties", {}))
    if prefix == f"{path[0]}.":
        below |= {name: child for child in table.get("patternProperties", {}).values() for name in path[1:2]}
    for name, child in below.items():
        yield prefix + name
        yield from _names(child, path, f"{prefix}{name}.")
