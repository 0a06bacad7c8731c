"""Page of the API description: plain HTML without scripts or anything from another host, so that it works offline."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import urlencode

from portico.entrypoints.http.docs.examples import EXAMPLES, OperationExample

SERVER = "http://127.0.0.1:8080"
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
h2 { border-top: 1px solid; margin-top: 2.5rem; padding-top: 1rem; } h3 { font-size: 1rem; }
pre { border: 1px solid; overflow-x: auto; padding: .6rem; } code, pre { font-family: ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; } td { border-top: 1px solid; padding: .3rem .6rem .3rem 0; }
td { vertical-align: top; } nav li { list-style: none; } :root { color-scheme: light dark; }
"""


def docs_page(document: Mapping[str, Any]) -> str:
    """Return the page of an API description, with a section for each operation and for each schema."""
    operations = list(_operations(document))
    schemas: Mapping[str, Any] = document["components"]["schemas"]
    links = "".join(
        f'<li><a href="#{each["operationId"]}">{_title(each, *place)}</a></li>' for each, *place in operations
    )
    body = [
        f"<h1>{escape(document['info']['title'])}</h1>",
        '<p>The same description for programs is at <a href="/openapi.json">/openapi.json</a>. The examples work on a',
        "new service, in the order of this page, with the rehearsal engine.</p>",
        f"<nav><ul>{links}</ul></nav>",
        *(_section(operation, method, path) for operation, method, path in operations),
        *(_schema_section(name, schema) for name, schema in schemas.items()),
    ]
    head = f"<meta charset=utf-8><title>{escape(document['info']['title'])}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(body)}</body></html>"


def curl(example: OperationExample, operation: Mapping[str, Any], method: str, path: str) -> str:
    """Return the example as a command."""
    kinds = {each["name"]: each["in"] for each in operation.get("parameters", ())}
    given = {kind: {n: v for n, v in example.parameters.items() if kinds[n] == kind} for kind in ("query", "header")}
    url = SERVER + path.format(**example.parameters) + (f"?{urlencode(given['query'])}" if given["query"] else "")
    words = ["curl", "-s", url] if method in {"GET", "POST"} else ["curl", "-s", "-X", method, url]
    for name, value in given["header"].items():
        words += ["-H", f"{name}: {value}"]
    if example.body is not None:
        words += ["-H", "Content-Type: application/json", "-d", json.dumps(example.body)]
    elif method == "POST":
        words[2:2] = ["-X", method]
    return shlex.join(words)


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield operation, method and path in the order of the examples."""
    found = {
        operation["operationId"]: (operation, method.upper(), path)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    yield from (found[name] for name in EXAMPLES)


def _title(operation: Mapping[str, Any], method: str, path: str) -> str:
    return f"<code>{method} {escape(path)}</code> {_text(operation['summary'])}"


def _section(operation: dict[str, Any], method: str, path: str) -> str:
    name = operation["operationId"]
    examples = "".join(
        f"<h3>Example: {_text(each.summary)}</h3><pre>{escape(curl(each, operation, method, path))}</pre>"
        for each in EXAMPLES[name]
    )
    parameters = _table(
        (f"<code>{escape(each['name'])}</code> ({each['in']})", _type(each["schema"]), _description(each))
        for each in operation.get("parameters", ())
    )
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    responses = _table(
        (f"<code>{status}</code>", _types(each), _text(each["description"]))
        for status, each in operation["responses"].items()
    )
    return (
        f'<h2 id="{name}">{_title(operation, method, path)}</h2><p>{_description(operation)}</p>{examples}'
        + (f"<h3>Parameters</h3>{parameters}" if parameters else "")
        + (f"<h3>Body</h3><p>{_type(body['schema'])}</p>" if body else "")
        + f"<h3>Responses</h3>{responses}"
    )


def _schema_section(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    fields = _table(
        (
            f"<code>{escape(field)}</code>{' (required)' if field in required else ''}",
            _type(each),
            _description(each),
        )
        for field, each in schema.get("properties", {}).items()
    )
    shown = fields or f"<p>{_type({key: value for key, value in schema.items() if key != 'description'})}</p>"
    return f'<h2 id="schema-{name}">{name}</h2><p>{_description(schema)}</p>{shown}'


def _table(rows: Iterator[tuple[str, str, str]]) -> str:
    cells = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{cells}</table>" if cells else ""


def _types(response: Mapping[str, Any]) -> str:
    return ", ".join(_type(each["schema"]) for each in response.get("content", {}).values() if "schema" in each)


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema as HTML, with links to the schemas that it names."""
    match schema:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            return f'<a href="#schema-{name}">{name}</a>'
        case {"type": "array", "items": items}:
            return f"list of {_type(items)}"
        case {"anyOf": choices} | {"oneOf": choices}:
            return " or ".join(map(_type, choices))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    kinds = schema.get("type", "any JSON")
    return escape(kinds if isinstance(kinds, str) else " or ".join(kinds))


def _description(described: Mapping[str, Any]) -> str:
    return _text(described.get("description", ""))


def _text(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
