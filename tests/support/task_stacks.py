"""Stacks of the tasks of an event loop, for the report of a test that hangs."""

import asyncio
import weakref
from collections.abc import Iterator

_LOOPS: "weakref.WeakSet[asyncio.AbstractEventLoop]" = weakref.WeakSet()


def watch(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """Remember the loop as long as it exists, and return it."""
    _LOOPS.add(loop)
    return loop


def format_task_stacks() -> str:
    """Return where each task of the loops that are not closed waits, through all coroutines that it awaits."""
    tasks = [task for loop in _LOOPS if not loop.is_closed() for task in asyncio.all_tasks(loop)]
    return "\n".join(line for task in tasks for line in (task.get_name(), *_awaited(task.get_coro())))


def _awaited(coroutine: object) -> Iterator[str]:
    """Yield the place in each coroutine of the chain; a task's own stack has the first one only."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        coroutine = getattr(coroutine, "cr_await", None)
