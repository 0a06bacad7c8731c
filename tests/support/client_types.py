"""The types of the Python client package, from the API description: `python -m tests.support.client_types` writes them.

An object is a `TypedDict`, an enumeration a `Literal`, a union an alias. Fields that need not be there are
`NotRequired`. Own code, since datamodel-code-generator would bring a dozen packages to write these few lines.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
DESCRIPTION: Final = ROOT / "openapi" / "openapi.json"
TYPES: Final = ROOT / "clients" / "python" / "portico_client" / "types.py"
_HEAD: Final = '''# ruff: noqa: E501
"""Types of the API, generated from openapi/openapi.json by `make clients-types`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

'''
_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def types_text(description: Mapping[str, Any]) -> str:
    """Return the module with one type for each schema of the description, formatted."""
    schemas: Mapping[str, Mapping[str, Any]] = description["components"]["schemas"]
    ordered = sorted(schemas.items(), key=lambda each: (_rank(each[1]), each[0]))
    parts = [_definition(name, schema) for name, schema in ordered]
    return _formatted(_HEAD + "\n".join(parts))


def _rank(schema: Mapping[str, Any]) -> int:
    """Return the place of a type: first what names no other type, then objects, then unions of objects."""
    return 1 if schema.get("properties") else 2 if "oneOf" in schema or "anyOf" in schema else 0


def _definition(name: str, schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    if not properties:
        return f"{name}: TypeAlias = {_type(schema)}\n"
    required = frozenset(schema.get("required", ()))
    fields = {
        field: _type(each) if field in required else f"NotRequired[{_type(each)}]" for field, each in properties.items()
    }
    if any(iskeyword(field) or not field.isidentifier() for field in fields):
        members = ", ".join(f"{field!r}: {_quoted(written)}" for field, written in fields.items())
        return f'{name} = TypedDict("{name}", {{{members}}})\n'
    lines = [f"    {field}: {written}\n{_doc(properties[field])}" for field, written in fields.items()]
    return f"class {name}(TypedDict):\n{_doc(schema)}\n" + "".join(lines)


def _type(schema: Mapping[str, Any]) -> str:  # noqa: PLR0911 - one a form of schema
    """Return the annotation of a schema; `Any` of one that says nothing."""
    match schema:
        case {"$ref": reference}:
            return str(reference).rpartition("/")[2]
        case {"anyOf": members} | {"oneOf": members}:
            return " | ".join(dict.fromkeys(map(_type, members)))
        case {"enum": members}:
            return f"Literal[{', '.join(map(repr, members))}]"
        case {"const": member}:
            return f"Literal[{member!r}]"
        case {"type": list(members)}:
            return " | ".join(_type({**schema, "type": each}) for each in members)
        case {"type": "array"}:
            return f"list[{_type(schema.get('items', {}))}]"
        case {"type": "object"}:
            further = schema.get("additionalProperties", True)
            return f"dict[str, {_type(further) if isinstance(further, dict) else 'Any'}]"
        case {"type": scalar}:
            return _SCALARS[scalar]
        case _:
            return "Any"


def _quoted(written: str) -> str:
    """Return an annotation as a string, since types may stand before what they name."""
    return json.dumps(written.replace('"', "'"))


def _doc(schema: Mapping[str, Any]) -> str:
    words = " ".join(str(schema.get("description", "")).split()).replace("\\", "\\\\").replace('"', "'")
    return f'    """{words}"""\n' if words else ""


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TYPES), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


if __name__ == "__main__":
    TYPES.write_text(types_text(json.loads(DESCRIPTION.read_bytes())), encoding="utf-8")
