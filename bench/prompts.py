"""Cost of the service's own prompts: look-up, rendering, and reading a reply."""

from functools import partial

import orjson

from bench.answers import microseconds
from bench.scenarios import BenchEnvironment, Numbers
from portico.capabilities.output.extract import extract
from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompts.assessment import AnswerJudgementInput
from portico.capabilities.prompting.registry import default_registry

DATA_BYTES, REPLY_BYTES = 4_096, 20_480
_WORDS = 'Braces {request} and "quotes" and <tags>.\n'


async def prompts(_bench: BenchEnvironment) -> Numbers:
    """Measure the registry, the rendering of 4 kB of data, and the extraction of an answer of 20 kB."""
    registry = default_registry()
    answer = (_WORDS * (DATA_BYTES // len(_WORDS) + 1))[:DATA_BYTES]
    judged = AnswerJudgementInput(request="Is it?", answer=answer)
    return {
        "prompt_lookup_us": microseconds(lambda: default_registry().definition(PromptId.ANSWER_JUDGEMENT_USER)),
        "prompt_render_us": microseconds(lambda: registry.get_prompt(PromptId.ANSWER_JUDGEMENT_USER, judged)),
        "extraction_ms": max(microseconds(partial(extract, reply)) for reply in _replies()) / 1e3,
    }


def _replies() -> list[str]:
    """Return replies of 20 kB: JSON alone, in a fence, in prose, and behind many brackets that are no JSON."""
    value, brackets = _value(REPLY_BYTES), "[see below] {name} and so on. " * (REPLY_BYTES // 60)
    return [
        value,
        f"Here it is:\n```json\n{value}\n```\nBye.",
        f"I think {value} says it.",
        brackets + _value(REPLY_BYTES - len(brackets)),
    ]


def _value(size: int) -> str:
    """Return JSON of about that many bytes."""
    item = {"name": "step", "text": _WORDS}
    return orjson.dumps({"steps": [item] * (size // len(orjson.dumps(item)))}).decode()
