"""Asks a model in this process: `llamacpp:///path/of/a/model.gguf`, by llama.cpp.

An engine has one thread, since only one at a time may work with a model of llama.cpp. Whoever asks waits in line and is
answered in the order of asking. Who gives up while waiting leaves the line at once; who gives up later is left at the
next token, or the next `BATCH_TOKENS` of a prompt.

The file is looked at when the engine is made, and loaded in that thread when it is first asked or reached, so that no
command waits for gigabytes that it does not use. A load that failed is tried again by whoever asks next. Nothing of
one answer is kept for the next: a prompt that is read anew gives the same numbers whatever was asked before, so that a
seed gives the same answer again, and nobody can measure what others have asked.

Times are those of `http_engine`, the waiting in line included: `attempt`, and for streams `first_token` and then
`idle`; nothing is connected to.
"""

from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
import anyio.to_thread

from app.adapters.engines.llama_cpp.file_check import is_loadable
from app.adapters.engines.llama_cpp.generation import Generation
from app.adapters.engines.llama_cpp.library import open_library
from app.adapters.engines.llama_cpp.model import LocalModel
from app.adapters.engines.llama_cpp.prompt import PromptWriter
from app.adapters.engines.llama_cpp.sampling import Sampling, SamplingOptions, sampling_of
from app.adapters.engines.timeouts import Timeouts
from app.adapters.engines.unsupported import ALL_ROLES, DEFAULT_NAMES, unsent_message_parts, unsent_options
from app.domain.failures import Code, ConfigurationFailure
from app.domain.model_call import AttemptFailureReason, EngineCall, Reply
from app.ports.model import EngineCapabilities, EngineError, EngineProfile, Progress

CAPABILITIES: Final = EngineCapabilities(
    schema=True, grammar=True, tools=False, forced_calls=False, images=False, embeddings=True
)
MAGIC: Final = b"GGUF"
T = TypeVar("T")


class LlamaCppEngine:
    """Implements `ports.Engine`, `Embedder` and `ExactCounter`. Enter it to have its thread and memory given back.

    An answer without `hints.max_tokens` has at most `response_reserve` tokens. A schema or a grammar is kept while it
    is written. Images and the definitions of tools are not told.

    Raises: ConfigurationFailure (CONFIG_INVALID) without the optional packages, for a file that is none of a model,
    and for options that no local model knows.
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
        """Waits for what is at work; whoever asked has left by then."""
        self._thread.submit(self._unload)
        await anyio.to_thread.run_sync(self._thread.shutdown)

    @property
    def profile(self) -> EngineProfile:
        return self._profile

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        sampling = sampling_of(call.hints, self._profile.options)
        hearing = _Hearing(progress, self._timeouts, streamed=stream)
        most = call.hints.max_tokens or self._profile.response_reserve
        writing = Generation(call, sampling, most, hearing.told if stream else _unheard)
        try:
            with hearing.scope:
                await self._in_line(writing.run)
        finally:
            writing.stop()
            hearing.end()
            progress.usage(writing.usage)
        if writing.finish is None:
            raise _late()
        withheld = _withheld(call, sampling, most)
        return Reply(writing.text, (), writing.finish, "", writing.usage, self._profile.model, withheld=withheld)

    async def ping(self) -> str:
        """Loads the model unless it is loaded; does not wait for answers that are being written when it is."""
        if self._loaded is not None:
            return _reached(*self._loaded)
        return await self._asked(_reached)

    async def _asked(self, job: Callable[[LocalModel, PromptWriter], T]) -> T:
        with anyio.move_on_after(self._timeouts.attempt_seconds):
            return await self._in_line(job)
        raise _late()

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


class _Hearing:
    """Tells what is written as it arrives from the model's thread, and says how long it is still waited for."""

    def __init__(self, progress: Progress, timeouts: Timeouts, *, streamed: bool) -> None:
        self._progress = progress
        self._idle = timeouts.idle_seconds
        self._loop = get_running_loop()
        self._over = False
        now = self._loop.time()
        self._end = now + timeouts.attempt_seconds
        self.scope = anyio.CancelScope(
            deadline=min(self._end, now + timeouts.first_token_seconds) if streamed else self._end
        )

    def told(self, text: str) -> None:
        """A token was written; called in the model's thread."""
        self._loop.call_soon_threadsafe(self._hear, text)

    def end(self) -> None:
        """What arrives from now on is not told."""
        self._over = True

    def _hear(self, text: str) -> None:
        if self._over:
            return
        self.scope.deadline = min(self._end, self._loop.time() + self._idle)
        if text:
            self._progress.text(text)


def _unheard(_text: str) -> None:
    """Nobody reads along."""


def _withheld(call: EngineCall, sampling: Sampling, most_tokens: int) -> tuple[str, ...]:
    """What of the call is not heeded, or otherwise than it was asked."""
    told = {"max_tokens": most_tokens, "stop": call.hints.stop, "grammar": call.grammar}
    tools = ("tools",) if call.tools else ()
    return (
        *unsent_options(call, DEFAULT_NAMES, sampling.model_dump(), told),
        *unsent_message_parts(call.messages, ALL_ROLES),
        *tools,
    )


def _late() -> EngineError:
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
        raise _invalid(profile, "model", "the file holds no model in the GGUF format")


def _invalid(profile: EngineProfile, key: str, what: str) -> ConfigurationFailure:
    return ConfigurationFailure(Code.CONFIG_INVALID, f"engines.{profile.name}.{key}: {what}")
