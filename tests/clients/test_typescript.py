"""The TypeScript package: built, packed, installed in an empty project, and used against a live service."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import anyio
import pytest
from playwright.sync_api import Route

from tests.clients.faulty_proxy import faulty_proxy
from tests.clients.journey import FILE, check_journey, journey_service
from tests.support.browser import running_browser, running_shop
from tests.support.portico import portico
from tests.support.scripted_provider import answered, scripted_service, streamed
from tests.support.upstream import UpstreamAction, reply

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "typescript"
MODULES = ROOT / ".clients" / "typescript" / "node_modules"
EXAMPLE = re.compile(r"```ts\n(.*?)```\n\n```\n(.*?)```", re.DOTALL)
PAGES = (ROOT / "docs" / "clients.md", PACKAGE / "README.md")
SECONDS = 50.0
TYPESCRIPT_7 = ROOT / ".clients" / "checkers" / "node_modules" / "typescript" / "bin" / "tsc"
AI_SDK = ROOT / ".clients" / "sdks" / "node_modules" / "ai"
ASKS = {"approve": [{"tool": "roll_dice"}]}
HAND_WRITTEN_LINES = 955
TOOLS = """
import { Portico } from "@portico/client";
const seen = [];
let release;
const both = new Promise((resolve) => (release = resolve));
const lookup = {
  name: "lookup",
  parameters: { type: "object", properties: { key: { type: "string" } } },
  async run({ key }) {
    if (seen.push(key) === 2) release();
    await both;
    return key.toUpperCase();
  },
};
const fails = { name: "fails", run: () => { throw new RangeError("none"); } };
const response = await new Portico().run("Look", { tools: [lookup, fails] });
console.log(response.content, seen.sort().join(" "));
"""
BROWSER_PAGE = """<!doctype html>
<script type="importmap">{"imports": {"@portico/client": "/page/index.js"}}</script>
<pre></pre>
<script type="module">
import { Portico } from "@portico/client";
const pre = document.querySelector("pre");
const stream = new Portico({ baseUrl: location.origin }).stream("Hello");
for await (const { text, replaces } of stream.text()) {
  pre.textContent = [...pre.textContent].slice(0, [...pre.textContent].length - replaces).join("") + text;
}
pre.id = stream.requestId;
</script>
"""
needs_ai_sdk = pytest.mark.skipif(not AI_SDK.exists(), reason="no AI SDK: make clients installs it")
needs_typescript = pytest.mark.skipif(
    not MODULES.exists() or shutil.which("npm") is None,
    reason="no Node or no TypeScript: make clients installs it",
)


def test_its_version_is_that_of_the_service() -> None:
    found = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))["version"] == found[1]


def test_it_describes_every_operation_of_the_service() -> None:
    described = json.loads((ROOT / "openapi" / "openapi.json").read_text(encoding="utf-8"))
    generated = (PACKAGE / "src" / "api.ts").read_text(encoding="utf-8")
    operations = {method["operationId"] for path in described["paths"].values() for method in path.values()}
    assert operations == set(re.findall(r'operations\["(\w+)"\]', generated))
    assert all(f"        {name}: " in generated for name in described["components"]["schemas"])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty project in which the packed package is installed."""
    folder = tmp_path_factory.mktemp("typescript")
    source = folder / "source"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("node_modules", "dist", "*.tgz"))
    (source / "node_modules").symlink_to(MODULES)
    command = [shutil.which("npm") or "npm", "pack", "--offline"]
    packed = subprocess.run(command, cwd=source, capture_output=True, timeout=SECONDS, check=False)
    assert packed.returncode == 0, packed.stdout + packed.stderr
    [archive] = source.glob("*.tgz")
    installed = folder / "node_modules" / "@portico"
    with tarfile.open(archive) as tar:
        tar.extractall(installed, filter="data")
    (installed / "package").rename(installed / "client")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    return folder


async def run_node(project: Path, *command: str, url: str = "") -> str:
    """Run Node in the project, with this URL for clients without one, and return what it prints."""
    environment = {"PATH": os.environ["PATH"], "PORTICO_URL": url}
    with anyio.fail_after(SECONDS):
        ran = await anyio.run_process(["node", *command], cwd=project, env=environment, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.decode()


@needs_typescript
@pytest.mark.timeout(60)
async def test_it_plays_the_journey_of_all_clients_over_cuts(project: Path) -> None:
    shutil.copy(Path(__file__).with_name("journey.mjs"), project / "shared.mjs")
    async with journey_service() as (scripted, proxy):
        printed = await run_node(project, "shared.mjs", str(FILE), proxy.url)
    check_journey(json.loads(printed), scripted, proxy)


@needs_typescript
@pytest.mark.timeout(60)
async def test_an_application_uses_it_while_every_stream_is_cut(project: Path) -> None:
    shutil.copy(Path(__file__).with_name("typescript_journey.mjs"), project / "journey.mjs")
    scripts = (
        answered("Hello there."),
        streamed("One 😀 two three"),
        answered("", ("p1", "ask_person", {"question": "May I?"})),
        answered("You said yes."),
        answered("", ("p2", "calculate", {"expression": "17*3"})),
        answered("It is 51."),
        answered("Done later."),
        *[reply({"error": {"message": "no"}}, status=400)] * 2,
        streamed("One two"),
    )
    policy = {"approve": [{"tool": "calculate"}]}
    async with (
        scripted_service(*scripts, policy=policy) as scripted,
        faulty_proxy(scripted.served) as proxy,
    ):
        printed = await run_node(project, "journey.mjs", scripted.served.url, proxy.url)
        assert len(scripted.provider.requests) in {len(scripts) - 1, len(scripts)}  # The last one is left at once.
    assert printed.split() == ["execute", "stream", "answers", "background", "errors", "leaving", "retries", "folding"]
    assert proxy.connections > 10


@needs_typescript
@pytest.mark.timeout(60)
async def test_the_model_calls_functions_of_the_application(project: Path) -> None:
    (project / "tools.mjs").write_text(TOOLS, encoding="utf-8")
    calls = (("c1", "lookup", {"key": "a"}), ("c2", "lookup", {"key": "b"}), ("c3", "fails", {}))
    async with scripted_service(answered("", *calls), answered("Found.")) as scripted:
        printed = await run_node(project, "tools.mjs", url=scripted.served.url)
        results = [each["content"] for each in scripted.sent_messages() if each["role"] == "tool"]
    assert printed == "Found. a b\n"
    assert results[:2] == ["A", "B"]
    assert "RangeError: none" in results[2]


@needs_typescript
@needs_ai_sdk
@pytest.mark.timeout(60)
async def test_every_chunk_for_the_ai_sdk_is_one_of_its_schema(project: Path) -> None:
    shutil.copy(Path(__file__).with_name("ai_sdk_journey.mjs"), project / "ai_sdk.mjs")
    (project / "node_modules" / "ai").symlink_to(AI_SDK)
    scripts = (
        streamed("", ("c1", "calculate", {"expression": "17*3"})),
        streamed("It is 51."),
        streamed("", ("c2", "roll_dice", {"count": 2, "sides": 6})),
        streamed("Wrong words", broken=UpstreamAction.CLOSE),
        streamed("Right."),
        *[reply({"error": {"message": "no"}}, status=400)] * 2,
    )
    async with scripted_service(*scripts, failover={"max_retries": 1}, policy=ASKS) as scripted:
        printed = await run_node(project, "ai_sdk.mjs", scripted.served.url)
    assert printed == "whole\n"


@needs_typescript
@pytest.mark.browser
@pytest.mark.timeout(60)
def test_a_browser_reads_a_stream_of_its_own_origin(project: Path, tmp_path: Path) -> None:
    modules = project / "node_modules" / "@portico" / "client" / "dist"

    def serve(route: Route) -> None:
        name = route.request.url.rpartition("/page/")[2]
        route.fulfill(path=modules / name) if name else route.fulfill(body=BROWSER_PAGE, content_type="text/html")

    with running_shop(tmp_path) as shop, running_browser() as browser:
        page = browser.new_page()
        page.route("**/page/*", serve)
        page.goto(f"{shop.url}/page/")
        page.locator("pre[id]").wait_for(timeout=20_000)
        shown, request_id = page.locator("pre").text_content(), page.locator("pre").get_attribute("id")
        assert shop.ask("GET", f"/v1/executions/{request_id}")["response"]["content"] == shown


def test_what_is_written_by_hand_stays_small() -> None:
    modules = [each for each in (PACKAGE / "src").glob("*.ts") if each.name != "api.ts"]
    texts = [re.sub(r"/\*.*?\*/", "", each.read_text(encoding="utf-8"), flags=re.DOTALL) for each in modules]
    lines = [line.strip() for text in texts for line in text.split("\n")]
    assert len([line for line in lines if line and not line.startswith(("//", "import"))]) <= HAND_WRITTEN_LINES


@needs_typescript
@pytest.mark.timeout(60)
async def test_the_examples_of_the_pages_compile_and_print_what_they_show(project: Path) -> None:
    examples = [example for page in PAGES for example in EXAMPLE.findall(page.read_text(encoding="utf-8"))]
    names = [f"example{number}" for number in range(len(examples))]
    for name, (code, _) in zip(names, examples, strict=True):
        (project / f"{name}.ts").write_text(code, encoding="utf-8")
    options = ("--strict", "--target", "es2022", "--module", "nodenext")
    sources = [f"{name}.ts" for name in names]
    await run_node(project, str(MODULES / "typescript" / "bin" / "tsc"), *options, *sources)
    if TYPESCRIPT_7.exists():
        await run_node(project, str(TYPESCRIPT_7), *options, "--noEmit", *sources)
    async with portico() as (served, _):
        printed = [await run_node(project, f"{name}.js", url=served.url) for name in names]
    assert len(examples) == 3
    assert printed == [shown for _, shown in examples]
