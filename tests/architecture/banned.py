"""Banned calls and imports, and their few exceptions."""

import ast
import re
from collections.abc import Iterator

from tests.architecture.source import Finding, Rule, Source, called, dotted, imported, product

TIME_AND_CHANCE = ("app/portico/adapters/system.py",)
TIME_MODULES = frozenset({"time", "random", "uuid", "secrets"})
TIME_CALL = re.compile(r"(^|\.)(datetime\.(now|utcnow|today)|date\.today|urandom|getrandom)$")
UNSAFE_MODULES = frozenset({"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"})
SHELL_CALL = re.compile(r"(^|\.)(os\.(system|popen)|create_subprocess_shell|getoutput|getstatusoutput)$")
LOOSE_TASK = re.compile(
    r"((^|\.)asyncio|loop(\(\))?)\.create_task$|(^|\.)ensure_future$|^create_task$|(^|\.)asyncio\.wait_for$|^wait_for$"
)
STOPPABLE = re.compile(r"(scope|handle|timer|running|generation|writing|executions?|facade)(\(\))?$", re.IGNORECASE)
SCOPES = re.compile(
    r"(^|\.)(TaskGroup|create_task_group|CancelScope|move_on_after|move_on_at|fail_after|fail_at"
    r"|asyncio\.(timeout|timeout_at|gather|wait|shield))$"
)
BROAD = frozenset({"Exception", "BaseException"})
RUNS_OTHERS_CODE = (
    "app/portico/adapters/runners/",
    "app/portico/adapters/event_bus.py",
    "app/portico/adapters/stores/job_thread.py",
    "app/portico/adapters/stores/journal/writer.py",
    "app/portico/adapters/telemetry/tracing/span_queue.py",
    "app/portico/adapters/tools/mcp/server.py",
    "app/portico/adapters/tools/threads.py",
    "app/portico/capabilities/tools/",
    "app/portico/capabilities/output/rules/",
    "app/portico/domain/raised_exception.py",
    "app/portico/orchestration/flow/",
    "app/portico/orchestration/planning/synthesis.py",
    "app/portico/bootstrap/flows.py",
    "app/portico/bootstrap/modules.py",
    "app/portico/entrypoints/",
)
"""Entry points, the event bus, the thread of a database, the journal's writer, the sender of spans, the runners, the
callers of tools, custom rules and flows, the texts of their exceptions, the connection to an MCP server, and phase E,
which owes an answer in every case.
"""


def time_and_chance(source: Source) -> Iterator[Finding]:
    for line, name in imported(source):
        if name.split(".")[0] in TIME_MODULES:
            yield Finding(line, f"imports {name}")
    for call, name in called(source):
        if TIME_CALL.search(name):
            yield Finding(call.lineno, f"calls {name}")


def middleware(source: Source) -> Iterator[Finding]:
    for line, name in imported(source):
        if name.endswith(".BaseHTTPMiddleware"):
            yield Finding(line, f"imports {name}")
    for node in source.nodes(ast.Attribute):
        if node.attr == "BaseHTTPMiddleware":
            yield Finding(node.lineno, f"uses {dotted(node)}")
    for call, name in called(source):
        if name.endswith(".middleware"):
            yield Finding(call.lineno, f"calls {name}")


def unsafe_data(source: Source) -> Iterator[Finding]:
    for line, name in imported(source):
        if name.split(".")[0] in UNSAFE_MODULES:
            yield Finding(line, f"imports {name}")


def shells(source: Source) -> Iterator[Finding]:
    for call, name in called(source):
        in_shell = any(
            keyword.arg == "shell" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
            for keyword in call.keywords
        )
        if in_shell or SHELL_CALL.search(name):
            yield Finding(call.lineno, f"{name} starts a shell")


def loose_tasks(source: Source) -> Iterator[Finding]:
    for call, name in called(source):
        if LOOSE_TASK.search(name):
            yield Finding(call.lineno, f"calls {name}")


def cancelled_tasks(source: Source) -> Iterator[Finding]:
    for call, name in called(source):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "cancel":
            owner = name.removesuffix(".cancel")
            if owner != "self" and not STOPPABLE.search(owner):
                yield Finding(call.lineno, f"calls {name}, which may be a task's")


def broad_excepts(source: Source) -> Iterator[Finding]:
    for node in source.nodes(ast.ExceptHandler):
        if not _is_broad(node.type) or _lets_everything_on(node):
            continue
        if not source.path.startswith(RUNS_OTHERS_CODE):
            yield Finding(node.lineno, "catches everything although no foreign code runs")
        elif not _reason(source, node.lineno):
            yield Finding(node.lineno, "catches everything without a reason")


def _is_broad(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(dotted(name) in BROAD for name in names)


def _lets_everything_on(handler: ast.ExceptHandler) -> bool:
    """Return True if the handler only cleans up before it raises everything again."""
    last = handler.body[-1]
    return dotted(handler.type) == "BaseException" and isinstance(last, ast.Raise) and last.exc is None


def _reason(source: Source, line: int) -> str:
    """Return the comment on the line or above it, without instructions for the linter."""
    said = source.comments.get(line, "") + source.comments.get(line - 1, "")
    return re.sub(r"#\s*(noqa(: ?[A-Z0-9, ]+)?)?[\s-]*", "", said).strip()


def environment(source: Source) -> Iterator[Finding]:
    for line, name in imported(source):
        if name in {"os.environ", "os.environb", "os.getenv", "os.putenv"}:
            yield Finding(line, f"imports {name}")
    for node in source.nodes(ast.Attribute):
        if dotted(node) in {"os.environ", "os.environb", "os.getenv", "os.putenv"}:
            yield Finding(node.lineno, f"reads {dotted(node)}")


def scopes(source: Source) -> Iterator[Finding]:
    for call, name in called(source):
        if SCOPES.search(name):
            yield Finding(call.lineno, f"calls {name}")


def product_but(*exceptions: str) -> "_ProductBut":
    """Return a predicate for product code outside these paths."""
    return _ProductBut(exceptions)


class _ProductBut:
    def __init__(self, exceptions: tuple[str, ...]) -> None:
        self._exceptions = exceptions

    def __call__(self, path: str) -> bool:
        return product(path) and not path.startswith(self._exceptions)


SCOPED = ("app/portico/orchestration/execution/execution.py", "app/portico/orchestration/execution/branches.py")


def orchestration_but_execution(path: str) -> bool:
    """Return True for orchestration outside the modules that may limit and group tasks."""
    return path.startswith("app/portico/orchestration/") and path not in SCOPED


ANY = "app/portico/domain/any.py"
RULES = (
    Rule(
        "Time, chance and new ids come from ports",
        product_but(*TIME_AND_CHANCE),
        time_and_chance,
        planted=(
            (ANY, "import time\n"),
            (ANY, "import random as dice\n"),
            (ANY, "from uuid import uuid4\n"),
            (ANY, "import secrets\n"),
            (ANY, "import datetime\nat = datetime.datetime.now()\n"),
            (ANY, "from datetime import datetime\ndef f():\n    return datetime.utcnow()\n"),
            (ANY, "from datetime import date\ntoday = date.today()\n"),
            (ANY, "import os\nsalt = os.urandom(8)\n"),
        ),
        innocent=(
            ("app/portico/adapters/system.py", "import time\n"),
            (ANY, "from datetime import UTC, datetime\nat = datetime.fromtimestamp(0, UTC)\n"),
            (ANY, "from portico.ports import Clock\ndef f(clock: Clock) -> float:\n    return clock.now()\n"),
        ),
    ),
    Rule(
        "Middleware is pure ASGI",
        product,
        middleware,
        planted=(
            (ANY, "from starlette.middleware.base import BaseHTTPMiddleware\n"),
            (ANY, "import starlette.middleware.base as base\nclass A(base.BaseHTTPMiddleware): ...\n"),
            (ANY, "@app.middleware('http')\nasync def f(request, call_next): ...\n"),
        ),
        innocent=((ANY, "app.add_middleware(Limits)\n"),),
    ),
    Rule(
        "Data is never code",
        product,
        unsafe_data,
        planted=((ANY, "import pickle\n"), (ANY, "from marshal import loads\n")),
        innocent=((ANY, "import orjson\n"),),
    ),
    Rule(
        "Nothing is given to a shell",
        product,
        shells,
        planted=(
            (ANY, "run('ls', shell=True)\n"),
            (ANY, "run('ls', shell=chosen)\n"),
            (ANY, "import os\nos.system('ls')\n"),
            (ANY, "import asyncio\nasyncio.create_subprocess_shell('ls')\n"),
        ),
        innocent=((ANY, "run(['ls'], shell=False)\n"),),
    ),
    Rule(
        "Every task has an owner and every wait a scope",
        product,
        loose_tasks,
        planted=(
            (ANY, "import asyncio\nasyncio.create_task(f())\n"),
            (ANY, "asyncio.get_running_loop().create_task(f())\n"),
            (ANY, "self._loop.create_task(f())\n"),
            (ANY, "from asyncio import create_task\ncreate_task(f())\n"),
            (ANY, "asyncio.ensure_future(f())\n"),
            (ANY, "async def f():\n    await asyncio.wait_for(g(), 1)\n"),
        ),
        innocent=((ANY, "group.create_task(f())\n"), (ANY, "group.start_soon(f)\n")),
    ),
    Rule(
        "What runs is stopped by its scope, never by cancelling its task",
        product,
        cancelled_tasks,
        planted=(
            (ANY, "task.cancel()\n"),
            (ANY, "asyncio.current_task().cancel()\n"),
            (ANY, "self._tasks[0].cancel()\n"),
            (ANY, "for waiting in all_of_them:\n    waiting.cancel('late')\n"),
        ),
        innocent=(
            (ANY, "scope.cancel()\n"),
            (ANY, "group.cancel_scope.cancel()\n"),
            (ANY, "self._handle.cancel()\n"),
            (ANY, "running.cancel()\n"),
        ),
    ),
    Rule(
        "Everything is caught only where other people's code runs, and the reason stands beside it",
        product,
        broad_excepts,
        planted=(
            (ANY, "try:\n    f()\nexcept Exception:\n    pass\n"),
            (ANY, "try:\n    f()\n# because\nexcept Exception:\n    pass\n"),
            (ANY, "try:\n    f()\nexcept (ValueError, BaseException):\n    raise\n"),
            (ANY, "try:\n    f()\nexcept:\n    raise\n"),
            (ANY, "try:\n    f()\nexcept BaseException as cause:\n    raise ValueError from cause\n"),
            ("app/portico/entrypoints/cli.py", "try:\n    f()\nexcept Exception:\n    pass\n"),
            ("app/portico/entrypoints/cli.py", "try:\n    f()\nexcept Exception:  # noqa: BLE001\n    pass\n"),
            ("app/portico/entrypoints/cli.py", "try:\n    f()\nexcept:  # noqa\n    pass\n"),
        ),
        innocent=(
            (ANY, "try:\n    f()\nexcept ValueError:\n    pass\n"),
            (ANY, "try:\n    f()\nexcept BaseException:\n    close()\n    raise\n"),
            (
                "app/portico/entrypoints/cli.py",
                "try:\n    f()\n# a bug must not end the loop\nexcept Exception:\n    pass\n",
            ),
            (
                "app/portico/entrypoints/cli.py",
                "try:\n    f()\nexcept Exception:  # noqa: BLE001 - a tool is foreign\n    pass\n",
            ),
        ),
    ),
    Rule(
        "Only the settings read the environment; the instrumentation of requests can be configured in no other way, "
        "and the question for health loads no settings",
        product_but(
            "app/portico/settings/",
            "app/portico/adapters/telemetry/tracing/server_spans.py",
            "app/portico/entrypoints/cli/health.py",
        ),
        environment,
        planted=(
            (ANY, "import os\nkey = os.environ['KEY']\n"),
            (ANY, "import os\nkey = os.getenv('KEY')\n"),
            (ANY, "from os import environ\n"),
        ),
        innocent=(
            ("app/portico/settings/loading.py", "import os\nkey = os.environ['KEY']\n"),
            (ANY, "import os\npid = os.getpid()\n"),
        ),
    ),
    Rule(
        "Within orchestration, task groups, scopes and timeouts are in the execution and its branches only",
        orchestration_but_execution,
        scopes,
        planted=(
            ("app/portico/orchestration/facade.py", "import anyio\nwith anyio.move_on_after(1):\n    pass\n"),
            ("app/portico/orchestration/patterns/chat.py", "async with create_task_group() as group:\n    pass\n"),
            ("app/portico/orchestration/patterns/chat.py", "async def f():\n    await asyncio.gather(g(), h())\n"),
            ("app/portico/orchestration/pipeline/x.py", "scope = anyio.CancelScope(shield=True)\n"),
        ),
        innocent=(
            ("app/portico/orchestration/execution/execution.py", "import anyio\nwith anyio.fail_after(1):\n    pass\n"),
            ("app/portico/orchestration/patterns/chat.py", "async def f(run):\n    return await run.gather(a, b)\n"),
        ),
    ),
)
