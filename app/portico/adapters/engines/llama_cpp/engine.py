"""The engine of a model in this process, by llama.cpp: `llamacpp:///path/of/a/model.gguf`.

An engine has one thread, since only one thread at a time may use a model of llama.cpp. Calls wait in line and are
answered in order. A call that is cancelled while it waits leaves the line at once, a running one ends at the next
token, or after the next `BATCH_TOKENS` of its prompt.

The file is checked when the engine is built, and loaded in that thread by the first call or ping, so that no command
waits for gigabytes that it does not use. The call after a failed load tries again. Nothing of one answer is stored for
the next: a prompt that is read again gives the same numbers, so that a seed gives the same answer again, and no caller
can measure what others have asked.

The timeouts are those of `http/engine.py`, waiting in line included: `attempt`, and for streams `first_token` and then
`idle`; there is nothing to connect to.
"""

from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
import anyio.to_thread

from portico.adapters.engines.llama_cpp.file_check import is_loadable
from portico.adapters.engines.llama_cpp.generation import Generation
from portico.adapters.engines.llama_cpp.library import open_library
from portico.adapters.engines.llama_cpp.model import LocalModel
from portico.adapters.engines.llama_cpp.prompt import PromptWriter
from portico.adapters.engines.llama_cpp.sampling import Sampling, SamplingOptions, sampling_of
from portico.adapters.engines.timeouts import Timeouts
from portico.adapters.engines.unsupported import ALL_ROLES, DEFAULT_NAMES, unsent_message_parts, unsent_options
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.ports.model import EngineError, EngineProfile, Progress

MAGIC: Final = b"GGUF"
T = TypeVar("T")


class LlamaCppEngine:
    """Implements `Engine`. Leaving its context frees its thread and memory.

    An answer without `hints.max_tokens` has at most `response_reserve` tokens. A schema or a grammar is enforced while
    the answer is written. Images and the definitions of tools are not part of the prompt.

    Raises: ConfigurationFailure (CONFIG_INVALID) without the optional packages, for a file that is not a model, and for
    options that no local model knows.
    """

    def __init__(self, profile: EngineProfile, timeouts: Timeouts) -> None:
        self._profile = profile
        self._timeouts = timeouts
        self._path = Path(profile.model)
        _check(profile, self._path)
        self._library = open_library(profile.name)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"llamacpp {profile.name}")
        self._loaded: tuple[LocalModel, PromptWriter] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for the running job; its caller has left by then."""
        self._thread.submit(self._unload)
        await anyio.to_thread.run_sync(self._thread.shutdown)

    @property
    def profile(self) -> EngineProfile:
        return self._profile

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        sampling = sampling_of(call.hints, self._profile.options)
        live_progress = _LiveProgress(progress, self._timeouts, streamed=stream)
        most = call.hints.max_tokens or self._profile.response_reserve
        generation = Generation(call, sampling, most, live_progress.token_written if stream else _ignore_text)
        try:
            with live_progress.scope:
                await self._in_line(generation.run)
        finally:
            generation.stop()
            live_progress.end()
            progress.usage(generation.usage)
        if generation.finish is None:
            raise _timed_out()
        withheld = _withheld(call, sampling, most)
        return Reply(
            generation.text, (), generation.finish, "", generation.usage, self._profile.model, withheld=withheld
        )

    async def ping(self) -> str:
        """Load the model unless it is loaded. A loaded model answers at once, without waiting in line."""
        if self._loaded is not None:
            return _reached(*self._loaded)
        return await self._run_in_time(_reached)

    async def _run_in_time(self, job: Callable[[LocalModel, PromptWriter], T]) -> T:
        with anyio.move_on_after(self._timeouts.attempt_seconds):
            return await self._in_line(job)
        raise _timed_out()

    async def _in_line(self, job: Callable[[LocalModel, PromptWriter], T]) -> T:
        return await get_running_loop().run_in_executor(self._thread, self._do, job)

    def _do(self, job: Callable[[LocalModel, PromptWriter], T]) -> T:
        if self._loaded is None:
            self._loaded = self._load()
        return job(*self._loaded)

    def _load(self) -> tuple[LocalModel, PromptWriter]:
        if not is_loadable(self._path):
            raise EngineError(AttemptFailureReason.MODEL_MISSING, "llama.cpp cannot read the model file")
        model = LocalModel(self._library, self._path, window_tokens=self._profile.context_window)
        try:
            return model, PromptWriter(self._library, model)
        except EngineError:
            model.close()
            raise

    def _unload(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            loaded[0].close()


class _LiveProgress:
    """The progress of one answer: publishes tokens from the model's thread, and moves the deadline of the attempt."""

    def __init__(self, progress: Progress, timeouts: Timeouts, *, streamed: bool) -> None:
        self._progress = progress
        self._idle = timeouts.idle_seconds
        self._loop = get_running_loop()
        self._has_ended = False
        now = self._loop.time()
        self._deadline = now + timeouts.attempt_seconds
        self.scope = anyio.CancelScope(
            deadline=min(self._deadline, now + timeouts.first_token_seconds) if streamed else self._deadline
        )

    def token_written(self, text: str) -> None:
        """Receive a token's text; called in the model's thread."""
        self._loop.call_soon_threadsafe(self._publish, text)

    def end(self) -> None:
        """Publish nothing from now on."""
        self._has_ended = True

    def _publish(self, text: str) -> None:
        if self._has_ended:
            return
        self.scope.deadline = min(self._deadline, self._loop.time() + self._idle)
        if text:
            self._progress.text(text)


def _ignore_text(_text: str) -> None:
    """Ignore a token's text."""


def _withheld(call: EngineCall, sampling: Sampling, most_tokens: int) -> tuple[str, ...]:
    """Return the parts of the call that are ignored, or changed."""
    applied = {"max_tokens": most_tokens, "stop": call.hints.stop, "grammar": call.grammar}
    tools = ("tools",) if call.tools else ()
    return (
        *unsent_options(call, DEFAULT_NAMES, sampling.model_dump(), applied),
        *unsent_message_parts(call.messages, ALL_ROLES),
        *tools,
    )


def _timed_out() -> EngineError:
    return EngineError(AttemptFailureReason.TIMED_OUT, "the model did not answer in time")


def _reached(model: LocalModel, _prompter: PromptWriter) -> str:
    return f"loaded, with a context of {model.window_tokens} tokens"


def _check(profile: EngineProfile, path: Path) -> None:
    unknown = sorted(profile.options - SamplingOptions.model_fields.keys())
    if unknown:
        known = ", ".join(sorted(SamplingOptions.model_fields))
        raise _invalid(profile, "options", f"{', '.join(unknown)}: a local model knows {known}")
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
    except OSError as cause:
        raise _invalid(profile, "model", f"the file cannot be read: {cause.strerror}") from cause
    if head != MAGIC:
        raise _invalid(profile, "model", "the file is not a model in the GGUF format")


def _invalid(profile: EngineProfile, key: str, what: str) -> ConfigurationFailure:
    return ConfigurationFailure(Code.CONFIG_INVALID, f"engines.{profile.name}.{key}: {what}")
