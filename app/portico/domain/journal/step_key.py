"""Keys of recorded steps.

A key alternates ordinals (from 0) and branch numbers: `2/1/0` is the first effect of branch 1 of the third step.
Inferences and tool calls are compositions: their attempts are `k/0`, `k/1`, …, and the wait after attempt i is
`k/i/0`. The plan, the result of PREPARE and the decision to stop have named keys. The decision that some branches of a
gather are enough, or that the time limit of a branch has passed, is recorded under the key of the step it belongs to.
What PREPARE has to wait for comes before it, under the key `prepare/r` for the search of the memory. What is behind the
URLs of the request is fetched before all else, as `media/0`, `media/1`, ….
A worker's validation of the answer of step k is `k/validation`; it takes no ordinal. The decisions of policy about tool
call k are `k/decision/0`, `k/decision/1`, …. The judges of the input have the branches `guard/0`, `guard/1`, ….
"""

from functools import lru_cache


class StepKey(str):
    """Key of a recorded step: an immutable path of numbers, or a name.

    It is stored, hashed and compared as its text, so that a key that was read back equals the one that was written.
    """

    __slots__ = ()

    @property
    def parent(self) -> "StepKey":
        """Return the key without its last number; the parent of a top-level step is `ROOT`."""
        return StepKey(self.rpartition("/")[0])

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the path. Raises: ValueError for a named key."""
        return numbers_of(self)

    @property
    def step_number(self) -> int | None:
        """Return the number of the top-level step that the key belongs to; None for a named key."""
        return step_number_of(self)

    @property
    def is_first_attempt(self) -> bool:
        """Return True for the first attempt of an inference or a tool call."""
        return self.endswith("/0")

    def child(self, *numbers: int) -> "StepKey":
        """Return the key that these numbers lead to from here."""
        path = "/".join(map(str, numbers))
        return StepKey(f"{self}/{path}" if self else path)

    @property
    def validation(self) -> "StepKey":
        """Return the key under which a worker's validation of the answer of this step is recorded."""
        return StepKey(f"{self}/validation")

    def decision(self, number: int) -> "StepKey":
        """Return the key under which that decision of policy about this tool call is recorded."""
        return StepKey(f"{self}/decision/{number}")

    def is_within(self, *ancestors: "StepKey") -> bool:
        """Return True if the key is one of these keys or lies below one of them."""
        return f"{self}/".startswith(tuple(f"{ancestor}/" if ancestor else "" for ancestor in ancestors))

    def precedes(self, other: "StepKey") -> bool:
        """Return True if this step ended before the other one began.

        Ordinals are at even places of a path and follow each other in time. Branch numbers are at odd places:
        branches of one gather are concurrent, so none of them precedes another.
        """
        for place, (own, others) in enumerate(zip(self.numbers, other.numbers, strict=False)):
            if own != others:
                return place % 2 == 0 and own < others
        return False

    def is_in_earlier_branch(self, branch: "StepKey") -> bool:
        """Return True if the step lies in a branch of the same step with a lower number than that branch."""
        own, place = self.numbers, len(branch.numbers) - 1
        return len(own) > place and own[:place] == branch.numbers[:place] and own[place] < branch.numbers[place]


@lru_cache(maxsize=1024)
def numbers_of(key: str) -> tuple[int, ...]:
    """Return the numbers of the path of a key. Raises: ValueError for a named key."""
    return tuple(map(int, key.split("/"))) if key else ()


@lru_cache(maxsize=1024)
def step_number_of(key: str) -> int | None:
    """Return the number of the top-level step that a key belongs to; None for a named key."""
    first = key.partition("/")[0]
    return int(first) if first.isdecimal() else None


def segment_of(attempt: StepKey, run: int) -> str:
    """Return the segment of a run of an attempt, counted from 1: its key, from the second run on with the number."""
    return attempt if run == 1 else f"{attempt}#{run}"


def attempt_of(segment: str) -> StepKey:
    """Return the key of the attempt that a segment belongs to."""
    return StepKey(segment.partition("#")[0])


ROOT = StepKey("")
"""Parent of the top-level steps; no step is recorded under it."""
PLAN_KEY = StepKey("plan")
PREPARE_KEY = StepKey("prepare")
COMPACTION_KEY = StepKey("prepare/c")
RETRIEVAL_KEY = StepKey("prepare/r")
STOP_KEY = StepKey("stop")
GUARD_KEY = StepKey("guard")
"""Parent of the judges' branches, and the decision that one of them refused the input."""
LIMIT_KEY = StepKey("limit")
MEDIA_KEY = StepKey("media")
"""Parent of the steps that fetch what is behind the URLs of the request."""
