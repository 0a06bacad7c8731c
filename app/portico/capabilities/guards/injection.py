"""Phrases by which a text tries to give a model orders: a search for known forms, not for intentions.

The text is searched as people would read it: without invisible characters, in one case and one width, and a second time
with look-alike letters as the Latin ones that they imitate. Text hidden in tag characters is searched, too. Of what
stands between words only that it stands there counts.

A paraphrase, another language, an encoding or a text in an image is not found, and a text about such attacks is. So
this check reduces what gets through; what a model may do is limited by policy and by the origin of its texts.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Final

from portico.capabilities.guards.pattern_set import PatternSet

_QUALIFIER = "(?:the|of|my|these|those|its|this|that|other|safety|security|content|core|system|existing|current|given)"
_STRONG = (
    "(?:all|any|every|each|previous|previously|prior|preceding|foregoing|former|above|earlier|past|your|initial"
    "|original|developer|developers|system)"
)
_ORDERS = (
    "(?:instruction|instructions|prompt|prompts|rule|rules|direction|directions|directive|directives|guideline"
    "|guidelines|guardrail|guardrails|constraint|constraints|restriction|restrictions|command|commands|programming)"
)
_DROP = "(?:ignore|ignoring|disregard|disregarding|forget|override|bypass|neglect|dismiss|discard)"
_MODEL = "(?:ai|ais|llm|llms|gpt|chatbot|chatbots|(?:ai|virtual) (?:assistant|agent)s?|(?:large )?language models?)"
_MODES = "(?:dan|jailbreak|jailbroken|god|sudo|unrestricted|unfiltered|uncensored)"
_PHRASES: Final = (
    f"{_DROP} (?:{_QUALIFIER} ){{0,3}}{_STRONG} (?:(?:{_QUALIFIER}|{_STRONG}) ){{0,4}}{_ORDERS}",
    f"{_DROP} (?:the )?{_ORDERS} (?:above|before this|you (?:were|have been|got|received))",
    f"{_DROP} (?:everything|anything|all|what) (?:that )?"
    "(?:above|you (?:were|have been|know|learned)|i said|came before)",
    f"(?:do not|don t|dont|stop|never) (?:follow|following|obey|obeying) (?:{_QUALIFIER} ){{0,3}}"
    f"(?:{_STRONG} (?:of )?){{1,3}}{_ORDERS}",
    f"you are (?:now |hereby )?(?:in |an? )?(?:{_MODES}|developer mode|debug mode|an? evil)(?: mode| ai| model)?",
    "you are no longer (?:bound|restricted|limited|subject|an? ai|an? assistant|an? language model)",
    f"(?:enter|enable|activate|switch to|start) (?:the )?{_MODES} mode",
    f"{_MODES} mode (?:is )?(?:now )?(?:enabled|activated|active|engaged)",
    "do anything now",
    "(?:pretend|imagine|act as if|act as though) (?:that )?you (?:have|had|are under) no (?:ethical |moral |content )?"
    "(?:restrictions?|rules?|limits|limitations|guidelines|filters?)",
    "(?:act|answer|respond|reply|behave|operate) (?:freely )?without (?:any )?(?:ethical |moral |safety |content )?"
    "(?:restrictions?|guidelines?|filters?|limitations?|censorship)",
    "(?:from|starting) now on you (?:will|must|shall) (?:only )?(?:obey|ignore|pretend)",
    "(?:reveal|show|print|repeat|display|output|expose|leak|recite|dump|tell|give|send|write|return) (?:me |us |out )?"
    "(?:(?:all|of|the|your|its|full|entire|exact|complete|whole|own|verbatim) ){0,5}"
    "(?:system prompts?|(?:hidden|initial|secret|developer|original|internal) (?:prompts?|instructions?))",
    "(?:reveal|print|repeat|display|output|expose|leak|recite|dump) (?:me |us |out )?your "
    "(?:(?:full|entire|exact|complete|own|verbatim) ){0,2}(?:prompts?|instructions|rules|guidelines)",
    "(?:repeat|print|output|echo) (?:everything|all|the (?:text|words|lines|content))"
    "(?: that (?:is|was|are|were))? above",
    f"(?:new|updated|real|actual|true|secret|hidden) (?:system (?:prompt|instructions?|message)"
    f"|instructions? (?:for|to) (?:the )?{_MODEL})",
    f"(?:attention|notice|note|instructions?|message|important) (?:to |for )?(?:all |any |the |every )?{_MODEL}",
    f"(?:if you are|as) (?:an? |the )?{_MODEL} (?:reading|processing|summarizing|summarising|parsing|that reads)",
    "(?:do not|don t|dont|never|without) (?:tell|telling|inform|informing|alert|alerting|notify|notifying) "
    "(?:the )?(?:user|users|human|humans|operator|operators) (?:about |that |of )?(?:this|these|it|you)",
    "(?:do not|don t|dont|never|without) (?:mention|mentioning|reveal|revealing) (?:this|these|it)"
    "(?: instructions?| message| text)? (?:to )?(?:the )?(?:user|users|human|humans|operator|operators)",
    "(?:send|post|forward|upload|email|mail|transmit|leak|exfiltrate) (?:[a-z]+ ){0,6}(?:api keys?|passwords?"
    "|credentials|secrets|access tokens?|system prompt|(?:chat|conversation) history|environment variables)"
    " (?:[a-z]+ ){0,4}to (?:https?|www|the following|[a-z0-9.]+@)",
    "ignoriere? (?:bitte )?(?:alle |die |deine |sämtliche ){0,3}(?:vorherigen|bisherigen|obigen|vorigen|früheren) "
    "(?:anweisungen|instruktionen|befehle|regeln)",
    "ignore[zr]? (?:toutes )?(?:les |vos |tes )?(?:consignes|instructions|directives|règles) "
    "(?:précédentes|antérieures|ci dessus)",
    "ignor[ae] (?:todas )?(?:las |tus |os |as |le |tutte le )?(?:instrucciones|órdenes|instruções|istruzioni|reglas) "
    "(?:anteriores|previas|precedenti)",
    "(?:игнорируй|забудь|проигнорируй)(?:те)? (?:все )?(?:предыдущие|прошлые|прежние) (?:инструкции|указания|команды)",
)
_MARKUP: Final = (
    r"<\|(?:im_start|im_end|system|user|assistant|endoftext|start_header_id|end_header_id|eot_id|begin_of_text)\|?>",
    r"\[/?inst\]|<</?sys>>",
    r"</?(?:system|system_prompt|developer|assistant)(?:\s[^<>]{0,40})?>",
    r"(?m)^[\s>*#\[]*(?:system|developer|admin|administrator)[\s_]+(?:message|override|prompt|instructions?|command)\]?\s*:",
    r"(?m)^\s*#{2,}\s*(?:system|assistant|human|user)\s*:",
    r"(?:忽略|无视|忘记|無視|忽視).{0,6}(?:之前|以上|上面|先前|前面|所有).{0,6}(?:指令|指示|提示|说明|規則|规则)",
    r"(?:以前|これまで|上記|前)の.{0,4}(?:指示|命令|プロンプト).{0,4}(?:無視|忘れ)",
    r"!\[[^\]\n]{0,200}\]\(https?://[^)\s]{1,400}[?&/=](?:\{|\$\{|%7b|\[)",
)
_NO_WORD = re.compile(r"[\W_]+")
_NO_ASCII_WORD: Final = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
_TAGS = re.compile("[\U000e0020-\U000e007e]+")
_TAG_BASE = 0xE0000
_LOOK_ALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u0432\u043d\u043a\u043c\u0442"
    "\u03bf\u03b1\u03b5\u03b9\u03ba\u03bd\u03c1\u03c4\u03c5\u03c7\u0131\u0261\u0251\u028f\u026a",
    "aeopcyxijsdhqwbhkmt" + "oaeiknptux" + "igayi",
)


class InjectionPatterns:
    """The built-in phrases and markup, and patterns of the configuration, which are searched in any case.

    Raises: ValueError for a pattern that RE2 does not take.
    """

    def __init__(self, own: Sequence[str] = ()) -> None:
        self._own = PatternSet([f"(?i){pattern}" for pattern in own])
        self._markup, self._phrases = _markup(), _phrases()

    def occur_in(self, text: str) -> bool:
        """Return True if one of the patterns matches the text as people would read it."""
        shown = readable(text)
        return bool(
            self._markup.matched(shown)
            or self._phrases.matched(_words(shown))
            or (self._own and self._own.matched(shown))
        )


def readable(text: str) -> str:
    """Return the text in lower case as it looks, and on further lines as it looks with Latin letters, and what hides in
    tag characters.
    """
    if text.isascii():
        return text.lower()
    shown = visible(text).casefold()
    views = [shown]
    if not shown.isascii():
        apart = unicodedata.normalize("NFKD", shown)
        views.append(_MARKS.sub("", apart).translate(_LOOK_ALIKES))
    views += ("".join(chr(ord(char) - _TAG_BASE) for char in run[0]).lower() for run in _TAGS.finditer(text))
    return "\n".join(views)


def visible(text: str) -> str:
    """Return the text without invisible characters, with compatible forms of a character made one."""
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))


def _words(text: str) -> str:
    """Return the words of the text, with one space before, between and behind them."""
    words = text.translate(_NO_ASCII_WORD) if text.isascii() else _NO_WORD.sub(" ", text)
    return f" {' '.join(words.split())} "


@cache
def _markup() -> PatternSet:
    return PatternSet(_MARKUP)


@cache
def _phrases() -> PatternSet:
    return PatternSet([f" (?:{phrase}) " for phrase in _PHRASES])
