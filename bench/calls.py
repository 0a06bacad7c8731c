"""The calls of functions of packages, recorded with `sys.setprofile`.

A coroutine that continues after an await is not a new call, and neither are comprehensions, lambdas and methods that
dataclasses generate.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import NamedTuple


class Call(NamedTuple):
    """A call of a function; `depth` is the number of its callers in the packages."""

    file: str
    function: str
    depth: int


class CallRecorder:
    """Records the first event of every frame of packages; frames are kept, so that none is taken for a later one."""

    def __init__(self, *packages: ModuleType) -> None:
        self._roots = tuple(map(directory_of, packages))
        self._frames: dict[FrameType, int] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame not in self._frames and frame.f_code.co_filename.startswith(self._roots):
            self._frames[frame] = self._depth(frame)

    def calls(self) -> list[Call]:
        """Return the calls in order."""
        calls = (self._call(frame, depth) for frame, depth in self._frames.items())
        return [call for call in calls if not call.function.startswith("<")]

    def _depth(self, frame: FrameType) -> int:
        caller = frame.f_back
        while caller is not None and caller not in self._frames:
            caller = caller.f_back
        return 0 if caller is None else self._frames[caller] + 1

    def _call(self, frame: FrameType, depth: int) -> Call:
        code = frame.f_code
        qualified = getattr(code, "co_qualname", code.co_name)
        name = code.co_name if code.co_name.startswith("<") else qualified.replace(".<locals>", "")
        root = next(root for root in self._roots if code.co_filename.startswith(root))
        return Call(code.co_filename.removeprefix(root), name, depth)


def directory_of(package: ModuleType) -> str:
    """Return the directory of the package, with a slash at its end."""
    return f"{Path(str(package.__file__)).parent}/"


@contextmanager
def recorded_calls(*packages: ModuleType) -> Iterator[CallRecorder]:
    """Record the calls of functions of the packages in this thread, in the context."""
    recorder = CallRecorder(*packages)
    sys.setprofile(recorder)
    try:
        yield recorder
    finally:
        sys.setprofile(None)
