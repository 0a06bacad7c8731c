"""Pure modules of the console with tables of cases: the time axis, layouts, differences and snippets, run by Node."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.domain.diagrams import machines
from portico.entrypoints.http.console import assets

PARTS = Path(assets.__file__).parent / "static" / "parts"
RUNNER = """
const calls = JSON.parse(await new Response(process.stdin).text());
const found = [];
for (const [path, name, args] of calls) {
  const value = (await import(path))[name];
  found.push(typeof value === "function" ? value(...args) ?? null : value);
}
console.log(JSON.stringify(found));
"""
HOSTILE = ("it's", "$(touch x) `id` $HOME", 'a"b\\c', "line\nbreak\ttab", "”😀 \u2028 \u202e", "", "!! %s {x} ${y}")


def called(*calls: tuple[str, str, Sequence[Any]]) -> list[Any]:
    """Return what functions of modules return, each called with these arguments."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node; the tests in Chromium use the same functions")
    wanted = json.dumps([[f"file://{PARTS / module}.js", name, args] for module, name, args in calls])
    command = [node, "--input-type=module", "--eval", RUNNER]
    ended = subprocess.run(command, input=wanted, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    found: list[Any] = json.loads(ended.stdout)
    return found


def span(start: float, end: float) -> dict[str, float]:
    return {"start": start, "end": end}


def test_a_wait_is_compressed_where_only_a_suspension_is_open_or_a_gap_is_long() -> None:
    whole = span(0, 10_000)
    cases = [
        ([span(0, 4000), span(6000, 10_000)], [], []),
        ([span(0, 1000), span(6000, 10_000)], [], [span(1000, 6000)]),
        ([span(0, 1000), span(1500, 10_000)], [span(1100, 1500)], [span(1100, 1500)]),
        ([span(0, 10_000)], [span(2000, 3000)], []),
        ([], [], [span(0, 10_000)]),
    ]
    found = called(*(("axis", "waits", [whole, busy, asked]) for busy, asked, _ in cases))
    assert found == [expected for _, _, expected in cases]


def test_the_axis_draws_waits_56_pixels_wide_and_keeps_the_order_of_times() -> None:
    (axis,) = called(("axis", "timeAxis", [span(0, 8_040_000), [span(2000, 8_038_000)], 456]))
    stretches = [(each["wait"], round(each["x"]), round(each["width"])) for each in axis["stretches"]]
    assert stretches == [(False, 0, 200), (True, 200, 56), (False, 256, 200)]
    assert all(a["x"] < b["x"] for a, b in zip(axis["ticks"], axis["ticks"][1:], strict=False))
    assert not any(156 < tick["x"] < 264 for tick in axis["ticks"])


def test_every_state_has_a_place_of_its_own() -> None:
    for machine in machines():
        names = [str(state) for state in machine["states"]]
        places, layout = called(("layout", "PLACES", []), ("layout", "machineLayout", [names]))
        assert set(names) <= set(places)
        assert len({(node["x"], node["y"]) for node in layout["nodes"].values()}) == len(names)


def test_a_graph_is_layered_by_the_longest_path_also_with_a_cycle() -> None:
    edges = [["a", "b"], ["b", "c"], ["a", "c"], ["c", "d"], ["d", "b"]]
    (found,) = called(("layout", "layered", [["a", "b", "c", "d"], edges]))
    assert [found[name]["layer"] for name in "abcd"] == [0, 1, 2, 3]
    assert found["a"] == {"layer": 0, "row": 0}


def test_words_that_differ_are_marked_on_both_sides() -> None:
    cases = [
        ("three working days.", "three days.", [["working"], []]),
        ("same", "same", [[], []]),
        ("a b c", "a x c", [["b"], ["x"]]),
        ("", "new", [[], ["new"]]),
    ]
    found = called(*(("difference", "wordDifference", [a, b]) for a, b, _ in cases))
    for (left, right, marked), sides in zip(cases, found, strict=True):
        assert ["".join(piece["text"] for piece in side) for side in sides] == [left, right]
        assert [[p["text"].strip() for p in side if p["changed"] and p["text"].strip()] for side in sides] == marked


def test_paths_that_differ_are_named() -> None:
    (found,) = called(("difference", "jsonDifference", [{"a": [1, {"b": 2}], "c": 1}, {"a": [1, {"b": 3}], "d": 1}]))
    assert [each["path"] for each in found] == ["a[1].b", "c", "d"]


def test_steps_are_aligned_by_key_and_the_first_difference_is_proved_by_fingerprints() -> None:
    def step(key: str, asked: str | None = "f", answered: str | None = "d") -> dict[str, Any]:
        return {"key": key, "kind": "attempt", "fingerprint": asked, "digest": answered, "request": asked}

    a = [step("0"), step("1"), step("2", "x"), step("3")]
    b = [step("0"), step("1", answered="e"), step("2", "y"), step("2/1"), step("3", None, None)]
    (found,) = called(("difference", "alignedSteps", [a, b]))
    assert [(each["key"], each["cause"]) for each in found] == [
        ("0", ""),
        ("1", "answered differently"),
        ("2", "was asked something else"),
        ("2/1", "only in B"),
        ("3", "was asked something else"),
    ]


@settings(max_examples=4, deadline=None)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=60))
def test_a_word_for_the_shell_is_that_text(texts: list[str]) -> None:
    wanted = [text.replace("\0", "") for text in (*texts, *HOSTILE)]
    wanted = [text.encode("utf-8", "ignore").decode() for text in wanted]
    command = " ".join(["printf '%s\\0'", *called(*(("snippets", "shellWord", [text]) for text in wanted))])
    ended = subprocess.run(["/bin/sh", "-c", command], capture_output=True, timeout=20, check=True)
    assert ended.stdout.decode().split("\0")[:-1] == wanted


@contextmanager
def recorder() -> Iterator[tuple[str, list[Any]]]:
    """Yield the URL of a server that notes the bodies and keys that it is sent."""
    taken: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.append((self.path, json.loads(body), self.headers.get("authorization")))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"content": "noted"}')

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_every_snippet_sends_exactly_the_request(tmp_path: Path) -> None:
    body: Mapping[str, Any] = {
        "messages": [{"role": "user", "content": text} for text in HOSTILE],
        "metadata": {"it's": "$(touch x)"},
        "hints": {"temperature": 0.5, "options": {"a": [True, False, None, 1, {}], "b": []}},
    }
    with recorder() as (url, taken):
        call = {"base": url, "body": body, "auth": True, "stream": False}
        curl, python, typescript = called(
            *(("snippets", f"{name}Snippet", [call]) for name in ("curl", "python", "typescript"))
        )
        environ = {"PATH": "/usr/bin:/bin:/usr/local/bin", "PORTICO_KEY": "ptk_k"}
        script = tmp_path / "snippet.mjs"
        script.write_text(typescript)
        commands = (["/bin/sh", "-c", curl], [sys.executable, "-c", python], [shutil.which("node") or "", str(script)])
        for command in commands:
            ended = subprocess.run(
                command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=30, check=False
            )
            assert (ended.returncode, "noted" in ended.stdout) == (0, True), ended.stderr
    assert taken == [("/v1/execute", body, "Bearer ptk_k")] * 3
    assert not (tmp_path / "x").exists()
    assert all("ptk_k" not in snippet for snippet in (curl, python, typescript))
