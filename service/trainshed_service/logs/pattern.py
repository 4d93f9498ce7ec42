"""Filter patterns of CloudWatch Logs for unstructured lines.

`a b`: lines with both; `"a b"`: lines with the phrase; `?a ?b`: lines with either; `-a`: lines without it. Terms are
compared letter by letter, case counting. As in CloudWatch, `?` terms count only where all terms are of that kind.
JSON (`{…}`), space-delimited (`[…]`) and regular-expression (`%…%`) patterns are refused in words.
"""

from collections.abc import Callable

from trainshed_service.logs.errors import InvalidPattern

Matches = Callable[[str], bool]


def compile_pattern(pattern: str) -> Matches:
    """A function that says whether a line matches. InvalidPattern."""
    terms = _split(pattern.strip())
    wanted = [word for kind, word in terms if kind == ""]
    unwanted = [word for kind, word in terms if kind == "-"]
    either = [] if wanted or unwanted else [word for kind, word in terms if kind == "?"]

    def matches(text: str) -> bool:
        return (
            all(word in text for word in wanted)
            and not any(word in text for word in unwanted)
            and (not either or any(word in text for word in either))
        )

    return matches


def _split(pattern: str) -> list[tuple[str, str]]:
    """(kind, term) pairs; kind is '', '?' or '-'."""
    for sign, name in (("{", "JSON"), ("[", "space-delimited")):
        if pattern.startswith(sign):
            raise InvalidPattern(
                f"Invalid filter pattern: {name} patterns are not supported here; use terms, "
                '"quoted phrases", ?either ?or, or -excluded terms.'
            )
    terms: list[tuple[str, str]] = []
    at = 0
    while at < len(pattern):
        if pattern[at].isspace():
            at += 1
            continue
        kind = pattern[at] if pattern[at] in "?-" else ""
        at += len(kind)
        word, at = _quoted(pattern, at) if pattern[at : at + 1] == '"' else _bare(pattern, at)
        if not word:
            raise InvalidPattern("Invalid filter pattern: a term is empty.")
        terms.append((kind, word))
    return terms


def _quoted(pattern: str, at: int) -> tuple[str, int]:
    """The phrase that begins with the quote at `at`, and where the rest begins. `\\"` is a quote within it."""
    word: list[str] = []
    at += 1
    while at < len(pattern):
        if pattern[at] == "\\" and pattern[at + 1 : at + 2] in ('"', "\\"):
            word.append(pattern[at + 1])
            at += 2
        elif pattern[at] == '"':
            return "".join(word), at + 1
        else:
            word.append(pattern[at])
            at += 1
    raise InvalidPattern("Invalid filter pattern: a quote is not closed.")


def _bare(pattern: str, at: int) -> tuple[str, int]:
    end = at
    while end < len(pattern) and not pattern[end].isspace():
        end += 1
    word = pattern[at:end]
    if len(word) > 1 and word.startswith("%") and word.endswith("%"):
        raise InvalidPattern("Invalid filter pattern: regular expressions are not supported here; use terms.")
    for sign in word:
        if not (sign.isalnum() or sign in "_.:/=,@#%+*'<>!~$&();-?|^`\\"):
            raise InvalidPattern(
                f"Invalid filter pattern: a term with the character {sign} must stand in double quotes."
            )
    return word, end
