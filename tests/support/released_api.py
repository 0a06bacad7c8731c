"""The API description against that of the last release: `python -m tests.support.released_api`.

Gone is an operation, a status, a field of a response, or a value that a client may send or get; new duties are fields
that a request did not need before. Neither may be, unless the changelog says "Breaking" under what is not released yet.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CURRENT = ROOT / "openapi" / "openapi.json"
RELEASED = ROOT / "openapi" / "released.json"
CHANGELOG = ROOT / "CHANGELOG.md"


def breaks(released: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    """Yield each thing that clients of the release rely on and that the current description has not."""
    for path, operations in released["paths"].items():
        for method, operation in operations.items():
            here = f"{method.upper()} {path}"
            found = current["paths"].get(path, {}).get(method)
            if found is None:
                yield f"{here} is gone"
                continue
            yield from (f"{here}: status {each} is gone" for each in operation["responses"].keys() - found["responses"])
    sent = _reached(released, "requestBody")
    for name, schema in released["components"]["schemas"].items():
        yield from _schema_breaks(name, schema, current["components"]["schemas"].get(name), is_sent=name in sent)


def _schema_breaks(name: str, old: Mapping[str, Any], new: Mapping[str, Any] | None, *, is_sent: bool) -> Iterator[str]:
    if new is None:
        yield f"schema {name} is gone"
        return
    yield from (f"{name}.{each} is gone" for each in old.get("properties", {}).keys() - new.get("properties", {}))
    yield from (f"{name}: value {each} is gone" for each in set(old.get("enum", ())) - set(new.get("enum", ())))
    if is_sent:
        needed = set(new.get("required", ())) - set(old.get("required", ()))
        yield from (f"{name}.{each} is newly required" for each in needed)


def _reached(document: Mapping[str, Any], part: str) -> set[str]:
    """Return the names of the schemas that this part of the operations leads to."""
    schemas = document["components"]["schemas"]
    operations = [each for path in document["paths"].values() for each in path.values()]
    todo, found = _references([each.get(part, {}) for each in operations]), set[str]()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo |= _references(schemas[name])
    return found


def _references(part: Any) -> set[str]:
    pieces = json.dumps(part).split('"#/components/schemas/')[1:]
    return {piece.split('"')[0] for piece in pieces}


def main() -> int:
    """Print what is gone, and return the exit code."""
    if not RELEASED.exists():
        sys.stdout.write("openapi/released.json comes with the first release, so nothing was compared.\n")
        return 0
    found = sorted(breaks(json.loads(RELEASED.read_bytes()), json.loads(CURRENT.read_bytes())))
    unreleased = CHANGELOG.read_text(encoding="utf-8").partition("## [Unreleased]")[2].partition("\n## ")[0]
    if not found or "Breaking" in unreleased:
        return 0
    sys.stderr.write("\n".join(found) + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
