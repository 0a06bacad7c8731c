"""Grammars that a model must keep while it writes, by what they are about."""

from collections.abc import Mapping
from typing import Final

GRAMMARS: Final[Mapping[str, str]] = {
    "one word": 'root ::= "yes"',
    "a choice": 'root ::= "yes" | "no" | "maybe so"',
    "common beginnings": 'root ::= "a" | "ab" | "abc" | "abd" | "abcde"',
    "a class": "root ::= [a-f]",
    "a class of others": "root ::= [^a-zA-Z0-9]",
    "any character": "root ::= . . .",
    "exactly so many": "root ::= [0-9]{12}",
    "from so many to so many": "root ::= [0-9]{2,5} [a-z]{0,3}",
    "at least so many": 'root ::= ("ab" | "cd"){3,} "!"',
    "nothing or something": 'root ::= "x"?',
    "signs": 'root ::= ("a"* "b"+ "c"?)+ "."',
    "names of rules": 'root ::= greeting " " name\ngreeting ::= "Hi" | "Hello"\nname ::= [A-Z] [a-z]{1,6}',
    "comments and blank lines": '# about\nroot ::= a | # the first\n\n  b\na ::= "1"\n# between\nb ::= "2"\n',
    "escapes": r'root ::= "\"\\\n\t\x41\u00e9\U0001F600" [\]\-\\]',
    "letters beyond ASCII": 'root ::= ("ä" | "ß" | "é" | "日本" | "語")+ "。"',
    "classes beyond ASCII": "root ::= [\u0430-\u044f]{2,6} [一-三]{1,2} [😀-😏]",
    "half of all characters": "root ::= [\u0800-\uffff]{3}",
    "a name of a control token": 'root ::= "<|im_end|>" "</s>"',
    "balanced brackets": 'root ::= "x" | "(" root ")" | "[" root "]"',
    "brackets with many readings": 'root ::= "x" | "(" root ")" | "(" root "]"',
    "many readings": 'root ::= ("x" | "xx" | x)+ ")"\nx ::= "x" x | "x"',
    "a palindrome": 'root ::= "a" root "a" | "b" root "b" | "x"',
    "sums": 'root ::= term (("+" | "-") term)*\nterm ::= factor (("*" | "/") factor)*\nfactor ::= [0-9] | "(" root ")"',
    "dates": 'root ::= "20" [0-9]{2} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])',
    "addresses": """
root ::= byte ("." byte){3}
byte ::= "25" [0-5] | "2" [0-4] [0-9] | "1" [0-9] [0-9] | [1-9]? [0-9]
""",
    "colours": 'root ::= "#" hex{6}\nhex ::= [0-9a-f]',
    "lines": 'root ::= ("- " [^\\n]{1,10} "\\n"){1,4}',
    "a table": 'root ::= row{2}\nrow ::= cell ("," cell){2} "\\r\\n"\ncell ::= [a-z0-9]{0,4}',
    "chess": 'root ::= "1. " move " " move\nmove ::= ([NBRQK]? [a-h] [1-8] | "O-O" "-O"?) [+#]?',
    "s-expressions": 'root ::= atom | "(" root (" " root)* ")"\natom ::= [a-z]',
    "JSON": r"""
root   ::= object
value  ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (member ("," ws member)*)? "}"
member ::= string ":" ws value
array  ::= "[" ws (value ("," ws value)*)? "]"
string ::= "\"" ([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
ws     ::= " "?
""",
    "an element": 'root ::= "<b>" (root | [^<>&]){0,3} "</b>"',
    "a script": r"""
root ::= (set | call){1,3}
set  ::= name "=" [0-9]{1,3} ";\n"
call ::= name "();\n"
name ::= [a-z-] [a-z0-9-]{0,5}
""",
}
