"""Loader of the configuration: the file, then the environment, then the command line.

Theory of operation

1. One file (`portico.toml`, or the one that `PORTICO_CONFIG` names) gives a tree. A variable `PORTICO__SECTION__KEY`
   replaces one value in it: as text if the key takes text, as JSON otherwise. Overrides of the caller come last.
2. The tree is validated once, strictly. An unknown key is rejected by its dotted name, with the most similar known one.
3. An empty variable counts as unset.
4. Errors name keys and never values, since a value may be a misplaced secret.

pydantic-settings is not used: it ignores unknown variables, cannot match a variable to the engine `gpt-4o` of the file,
and repeats given values in its errors. It would only save the code that places the variables.
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

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.field_errors import UNKNOWN_FIELD, invalid_fields
from portico.ports.engine_schemes import SCHEMES
from portico.settings.ollama_probe import find_ollama_model
from portico.settings.schema import Settings
from portico.settings.values import closest_name, has_password

_FILE, _CONFIG, _PREFIX = Path("portico.toml"), "PORTICO_CONFIG", "PORTICO__"

Tree: TypeAlias = dict[str, Any]
KeyPath: TypeAlias = tuple[str, ...]


def load_settings(
    environ: Mapping[str, str] | None = None,
    path: Path | None = None,
    *,
    overrides: Mapping[str, object] = MappingProxyType({}),
    local_model: Callable[[], str | None] = find_ollama_model,
) -> Settings:
    """Return the settings of this process. `path` replaces `PORTICO_CONFIG`; `overrides` are keyed by dotted name.

    If no engine is configured, an available one is chosen: by the credential of its provider, or the `local_model` of
    an Ollama server. Raises: ConfigurationFailure (CONFIG_INVALID, CONFIG_NO_ENGINE), which names the keys at fault and
    no value.
    """
    given = os.environ if environ is None else environ
    variables = {name: value for name, value in given.items() if value}
    tree = _file_tree(variables, path)
    engine_source = str(_file_path(variables, path)) if "engines" in tree else f"{_PREFIX}ENGINES"
    errors = [*_file_errors(tree), *_insert_variables(tree, variables)]
    for dotted, value in overrides.items():
        _insert(tree, tuple(dotted.split(".")), value)
    if "engines" not in tree:
        chosen, engine_source = _default_engines(variables, local_model)
        tree |= chosen
    if not errors:
        try:
            context = {
                "environ": variables,
                "warnings": _warnings(variables),
                "engine_source": engine_source,
                "file": _file_path(variables, path),
            }
            return Settings.model_validate(tree, context=context)
        except ValidationError as error:
            errors = _messages(error)
    raise ConfigurationFailure(Code.CONFIG_INVALID, "; ".join(errors), {"errors": errors})


def _default_engines(variables: Mapping[str, str], local_model: Callable[[], str | None]) -> tuple[Tree, str]:
    """Return the table of an available engine, empty if there is none, and what made it available."""
    for name, scheme in SCHEMES.items():
        key = scheme.api_key_env
        if key is not None and variables.get(key):
            return {"engines": {name: {"model": f"{name}://{scheme.default_model}", "api_key_env": key}}}, key
    model = local_model()
    if model is None:
        return {}, ""
    return {"engines": {"ollama": {"model": f"ollama:///{model}"}}}, "the Ollama server of this machine"


def _file_tree(variables: Mapping[str, str], path: Path | None) -> Tree:
    file = _file_path(variables, path)
    if path is None and not variables.get(_CONFIG) and not file.exists():
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"{file} cannot be read: {error.strerror}"
    except tomllib.TOMLDecodeError as error:
        problem = f"{file} is not TOML: {error}"
    except UnicodeDecodeError:
        problem = f"{file} is not UTF-8"
    raise ConfigurationFailure(Code.CONFIG_INVALID, problem)


def _file_path(variables: Mapping[str, str], path: Path | None) -> Path:
    """Return the path of the configuration file, which may not exist."""
    return path or Path(variables.get(_CONFIG) or _FILE)


def _file_errors(tree: Tree) -> Iterator[str]:
    """Yield the error of a password in the file, which may be in a repository."""
    match tree.get("storage"):
        case {"url": str(url)} if has_password(url):
            yield f"storage.url: must not contain a password; set {_PREFIX}STORAGE__URL, PGPASSWORD or PGPASSFILE"


def _warnings(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each variable that would be a setting with two underscores.

    It is no error, because Kubernetes sets such variables for a service that is called `portico`.
    """
    alike = [name for name in variables if name.startswith("PORTICO_") and not name.startswith((_PREFIX, _CONFIG))]
    settings = {dotted.replace(".", "_"): dotted for dotted in _names(_schema(), ("",))} if alike else {}
    for variable in sorted(alike):
        dotted = settings.get(re.sub("_+", "_", variable.removeprefix("PORTICO_").lower()))
        if dotted is not None:
            right = _PREFIX + dotted.upper().replace(".", "__")
            yield f"the variable {variable} is ignored; {right} sets {dotted}"


def _insert_variables(tree: Tree, variables: Mapping[str, str]) -> list[str]:
    """Insert each `PORTICO__…` variable into the tree, tables before their members, and return the errors."""
    errors = []
    ours = [variable for variable in variables if variable.startswith(_PREFIX)]
    for variable in sorted(ours, key=lambda name: (name.count("__"), name)):
        path = _spelled_as_in(tree, variable.removeprefix(_PREFIX).lower().split("__"))
        schema = _schema_at(path)
        if schema is None:
            errors.append(f"{variable}: {_unknown(path)}")
        elif _is_text(schema):
            _insert(tree, path, variables[variable])
        else:
            try:
                _insert(tree, path, json.loads(variables[variable]))
            except (ValueError, RecursionError):
                kind = _dereferenced(schema, _schema_of(path[0]))["type"]
                errors.append(f"{variable}: {'.'.join(path)} must be JSON, of type {kind}")
    return errors


def _spelled_as_in(tree: Tree, parts: list[str]) -> KeyPath:
    """Return the path with every name as the file spells it; variables ignore case and write `-` and `.` as `_`."""
    path = []
    here: Any = tree
    for part in parts:
        names = here if isinstance(here, dict) else {}
        alike = (name for name in names if re.sub("[-.]", "_", name.lower()) == part)
        spelled = part if part in names else next(alike, part)
        path.append(spelled)
        here = names.get(spelled)
    return tuple(path)


def _insert(tree: Tree, path: KeyPath, value: object) -> None:
    here = tree
    for part in path[:-1]:
        below = here.setdefault(part, {})
        if isinstance(below, list):
            below = here[part] = {"engines": below}  # only a route may be a list instead of a table
        if not isinstance(below, dict):
            return  # the file has no table here; validation rejects it
        here = below
    here[path[-1]] = value


def _messages(invalid: ValidationError) -> list[str]:
    """Return the errors for people; each begins with the dotted name of its key."""
    errors = invalid.errors(include_url=False, include_input=False)
    unknown = {_path(error) for error in errors if error["type"] == UNKNOWN_FIELD}
    fields = invalid_fields(errors, path_of=_path)
    return [
        _unknown(each.path) if each.path in unknown else re.sub(r"must be an object$", "must be a table", str(each))
        for each in fields
    ]


def _path(error: ErrorDetails) -> KeyPath:
    return tuple(str(part) for part in error["loc"] if part != "[key]")


def _unknown(path: KeyPath) -> str:
    """Return the error of a key that is not known, with the most similar one."""
    dotted = ".".join(path)
    if path[0] == "engines" and path[-1] == "api_key":
        return f"{dotted}: must not contain a secret; name its variable in api_key_env or its file in api_key_file"
    names = list(_names(_schema(), path))
    table = next((name.removesuffix(f".{dotted}") for name in names if name.endswith(f".{dotted}")), None)
    if len(path) == 1 and table is not None:
        return f"{dotted} is not known; did you mean [{table}] {dotted}?"
    return f"{dotted} is not known; did you mean {closest_name(dotted, names)}?"


@cache
def _schema() -> Tree:
    return Settings.model_json_schema()


@cache
def _schema_of(name: str) -> Tree:
    """Return the JSON Schema of one table of the configuration, since that of all of them takes long."""
    table: Any = Settings.model_fields[name].annotation
    return TypeAdapter(table).json_schema()


def _dereferenced(node: Tree, whole: Tree) -> Tree:
    """Return the node, or the one of the whole schema that it refers to."""
    referring = next((option for option in node.get("anyOf", ()) if "$ref" in option), node)
    if "$ref" not in referring:
        return node
    resolved: Tree = whole["$defs"][referring["$ref"].rpartition("/")[2]]
    return resolved


def _schema_at(path: KeyPath) -> Tree | None:
    """Return the JSON Schema of the value at a path; None if there is no such key."""
    if path[0] not in Settings.model_fields:
        return None
    node = whole = _schema_of(path[0])
    for part in path[1:]:
        table = _dereferenced(node, whole)
        named = next(iter(table.get("patternProperties", {}).values()), None)
        below: Tree | None = table.get("properties", {}).get(part, named)
        if below is None:
            return None
        node = below
    return node


def _is_text(node: Tree) -> bool:
    return any(option.get("type") == "string" for option in node.get("anyOf", (node,)))


def _names(node: Tree, path: KeyPath, here: KeyPath = ()) -> Iterator[str]:
    """Yield every known dotted name. Where any name is allowed, the one of the path is used."""
    table = _dereferenced(node, _schema())
    below = dict(table.get("properties", {}))
    if len(here) < len(path) and here == path[: len(here)]:
        below |= {path[len(here)]: child for child in table.get("patternProperties", {}).values()}
    for name, child in below.items():
        yield ".".join((*here, name))
        yield from _names(child, path, (*here, name))
