"""Hostile grammars, each with a text that makes it most expensive."""

from collections.abc import Callable

from portico.capabilities.output.grammar.parser import MAX_GROUPS

KIB = 64
WHOLE = KIB * 1024 - 100


def rules(count: int, body: Callable[[int], str], last: str = '"a"') -> str:
    """Return rules r0 to the last, each of which may name the next."""
    return (
        "root ::= r0\n" + "".join(f"r{number} ::= {body(number)}\n" for number in range(count)) + f"r{count} ::= {last}"
    )


HOSTILE = {
    "any character 65,000 times": ("root ::= " + "." * WHOLE, "a" * 4000),
    "a literal of 65,000 characters": ('root ::= "' + "a" * WHOLE + '"', "a" * 4000),
    "21,000 classes": ("root ::= " + "[a]" * (WHOLE // 3), "a" * 4000),
    "a class of 20,000 characters": (
        "root ::= [" + "".join(chr(200 + 2 * n) for n in range(20_000)) + "]*",
        "È" * 4000,
    ),
    "8,000 different classes": (
        "root ::= (" + "|".join(f"[\\u{n:04x}]" for n in range(WHOLE // 9)) + ")*",
        "aÈ" * 2000,
    ),
    "65,000 empty alternatives": ('root ::= "a"' + "|" * WHOLE, "a"),
    "16,000 equal alternatives": ("root ::= (" + '"a"|' * (WHOLE // 4) + '"b")+', "a" * 4000),
    "32,000 references": ("root ::= " + "a " * (WHOLE // 2) + '\na ::= "a"', "a" * 4000),
    "32,000 references to what may be empty": ("root ::= " + "a " * (WHOLE // 2) + '\na ::= "a" | ""', "a" * 4000),
    "16,000 optional characters": ("root ::= " + '"a"?' * (WHOLE // 4), "a" * 4000),
    "32,000 comments": ('root ::= "a"\n' + "#\n" * (WHOLE // 2), "a"),
    "60,000 open groups": ("root ::= " + "(" * 60_000, ""),
    "5,000 groups that may be empty": ("root ::= " + '("a"|)' * MAX_GROUPS, "a" * 4000),
    "5,000 different groups": ("root ::= " + "".join(f'("{chr(200 + n)}"?|"a")' for n in range(5000)), "a" * 4000),
    "64 nested groups": ("root ::= " + "(" * 64 + '"a"' + ")?" * 64, "a"),
    "a fold of groups": ("root ::= " + "(" * 64 + '"a"' + "|)?" * 63 + "|)", "a"),
    "64 nested groups, repeated": ("root ::= " + "(" * 64 + '"a"' + '|"b" "c"?){0,1}' * 63 + ")", "bcbc"),
    "64 stacks of 64 repetitions": ("root ::= " + "(" * 64 + '"a"' + ("?" * 64 + ")") * 64, "a"),
    "two words of 30,000 characters": (f'root ::= "{"a" * 30_000}" | "{"a" * 30_000}b"', "a" * 4000),
    "1,000 rules in a row": (rules(998, lambda n: f'r{n + 1} "x" | r{n + 1} "y"'), "a" + "xy" * 499),
    "rules that double what may be empty": (rules(998, lambda n: f'r{n + 1} r{n + 1} | ""'), "a" * 4000),
    "rules that double what comes": (rules(60, lambda n: f"r{n + 1} r{n + 1}"), "a" * 4000),
    "rules that multiply what comes": (rules(190, lambda n: f"r{n + 1}{{1000}}"), "a" * 4000),
    "a web of rules": (
        rules(900, lambda n: f'"a" r{n * 7 % 900} r{n * 13 % 900} | "a" r{n * 3 % 900} | r{n + 1}'),
        "a" * 4000,
    ),
    "many repetitions of many": ("root ::= " + '"a"{0,1000}' * 199, "a" * 4000),
    "5,000 repetitions": ("root ::= " + "[a-z]{0,40}" * 4999, "a" * 4000),
    "copies without end": ("root ::= " + '"a"{0,1000}' * (WHOLE // 11), "a" * 4000),
    "1,000 times 1,000 times 1,000": ('root ::= (("a"{1000}){1000}){1000}', "a" * 4000),
    "1,000 times one or two": ('root ::= ("a" | "aa"){0,1000}', "a" * 2000),
    "a | a a": ('root ::= x*\nx ::= "a" | "a" "a"', "a" * 4000),
    "(a | a)*": ('root ::= ("a" | "a")*', "a" * 4000),
    "(a* a* a*) b": ("root ::= " + '"a"*' * 100 + '"b"', "a" * 4000),
    "s: a s s | a": ('root ::= "a" root root | "a"', "a" * 4000),
    "s: a s s s | a s s | a": ('root ::= s\ns ::= "a" s s s | "a" s s | "a"', "a" * 4000),
    "s: a s b | a s c | d": ('root ::= "a" root "b" | "a" root "c" | "d"', "a" * 2000 + "d" + "bc" * 1000),
    "palindromes": ('root ::= "a" root "a" | "b" root "b" | "a" | "b" | ""', "ab" * 2000),
    "brackets never closed": ('root ::= "[" root* "]"', "[" * 4000),
    "brackets closed in two ways": ('root ::= ("[" root "]" | "[" root "]]")*', "[" * 1300 + "]" * 2000),
    "every character another": ("root ::= (. . .?)*", "".join(chr(0x4E00 + n) for n in range(4000))),
}
