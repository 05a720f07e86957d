"""Find secrets in text and mask them (behaviour 187).

The module owns these invariants:

- Whatever is derived from a transcript (Summary, Knowledge, diagnostic, log) passes `mask`; the transcript never
  changes.
- Masking is idempotent, and what it returns holds nothing that `find` would find.
- Hashes, UUIDs, paths, identifiers and placeholders such as `$TOKEN` or `<your-key>` stand: they are anchors, not
  secrets.
- Every expression is linear in the text: repetitions are bounded or cannot overlap. A line without a long run of
  characters and without a telling word is passed over at once.

Why no library: detect-secrets, the best kept one, was made for files. There it misses two thirds of thirty shapes in
running text; asked about single lines it finds them all and takes nine lines in ten for secrets (docs/quality.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

REMOVED: Final = "[secret removed]"

ENTROPY_CHARACTERS_MIN: Final = 24
"""A token without any known shape counts from this length; shorter random tokens look too much like names."""
ENTROPY_TURNS_MIN: Final = 0.4
"""Share of neighbours of different class (upper, lower, digit): CamelCase reaches 0.3, random base 62 about 0.6."""

_PASSES_MAX: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One finding: character offsets into the text, and which rule found it."""

    start: int
    end: int
    kind: str


_VENDORS: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"(?P<aws>(?:AKIA|ASIA|ABIA|ACCA|AGPA|AROA|AIDA|ANPA)[A-Z0-9]{16})"
    r"|(?P<github>gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255})"
    r"|(?P<gitlab>gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|imt|oas)-[A-Za-z0-9_-]{16,255})"
    r"|(?P<slack>xox[abceoprs]-[A-Za-z0-9-]{10,255}|xapp-[A-Za-z0-9-]{10,255})"
    r"|(?P<google>AIza[0-9A-Za-z_-]{30,45}|ya29\.[0-9A-Za-z_-]{16,2048}|GOCSPX-[A-Za-z0-9_-]{20,64})"
    r"|(?P<llm>sk-(?:ant|proj|svcacct|admin|or)-[A-Za-z0-9_-]{12,255}|sk-(?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{20,255}"
    r"|(?:hf|r8|gsk|xai|pplx|tgp_v1)[_-](?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9]{20,255})"
    r"|(?P<stripe>(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,255}|whsec_[A-Za-z0-9+/=]{20,255})"
    r"|(?P<registry>npm_[A-Za-z0-9]{30,64}|pypi-[A-Za-z0-9_-]{16,512}|rubygems_[a-f0-9]{40,64}|cio[A-Za-z0-9]{32})"
    r"|(?P<mail>SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}|key-[0-9a-f]{32}|[0-9a-f]{32}-us[0-9]{1,2})"
    r"|(?P<twilio>(?:SK|AC)[0-9a-f]{32})"
    r"|(?P<cloud>do[opr]_v1_[a-f0-9]{64}|HRKU-[A-Za-z0-9_-]{30,80}|dapi[a-f0-9]{32}|shp(?:at|ca|pa"
    r"|ss)_[a-fA-F0-9]{32}"
    r"|sq0[a-z]{3}-[A-Za-z0-9_-]{20,64}|dckr_pat_[A-Za-z0-9_-]{20,64}|ATATT3[A-Za-z0-9_=-]{20,255})"
    r"|(?P<vault>hv[sbr]\.[A-Za-z0-9_-]{20,255}|dp\.(?:pt|st|ct|sa|scim)\.[A-Za-z0-9]{20,64})"
    r"|(?P<service>lin_api_[A-Za-z0-9]{20,64}|ntn_[A-Za-z0-9]{20,64}|secret_[A-Za-z0-9]{40,48}"
    r"|figd_[A-Za-z0-9_-]{20,64}"
    r"|PMAK-[a-f0-9]{24}-[a-f0-9]{20,40}|gl(?:sa|c)_[A-Za-z0-9+/=_]{20,255}|NRAK-[A-Z0-9]{20,32}"
    r"|sntry[su]_[A-Za-z0-9+/=_]{20,255})"
    r"|(?P<age>AGE-SECRET-KEY-1[A-Z0-9]{50,64})"
    r"|(?P<jwt>eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}(?:\.[A-Za-z0-9_-]{0,4096})?)"
    r"|(?P<bot>[0-9]{8,10}:[A-Za-z0-9_-]{35}|[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,45})"
    r")(?![A-Za-z0-9_])"
)
_WEBHOOK: Final = re.compile(
    r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/_-]{16,200})"
    r"|discord(?:app)?\.com/api/webhooks/([0-9]{8,24}/[A-Za-z0-9_-]{20,100})"
)
_KEY_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_USERINFO: Final = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{1,20}://([^\s/@:\"'<>]{0,120}:[^\s/@\"'<>]{1,200})@"
)
_QUERY: Final = re.compile(
    r"[?&](?:access_token|api_?key|auth|client_secret|key|password|sig|signature|token)=([^\s&#\"'<>`]{6,400})", re.I
)
_HEADER: Final = re.compile(
    r"\b(?:proxy-)?authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?((?:(?:bearer|basic|token|digest"
    r"|apikey)\s{1,3})?[^\s\"',;]{4,2048})"
    r"|\b(?:bearer|basic)\s{1,3}([A-Za-z0-9._~+/=-]{16,2048})"
    r"|\b(?:set-)?cookie:\s{0,3}([^\r\n\"']{8,2048})"
    r"|\bx-[a-z-]{0,20}(?:key|token|secret)[\"']?\s{0,3}:\s{0,3}[\"']?([^\s\"',;]{6,2048})",
    re.I,
)
_FLAG: Final = re.compile(
    r"(?<!\w)--?(?:password|passwd|passphrase|token|api-?key|secret|auth-token|access-token)(?:="
    r"|\s{1,3})[\"']?([^\s\"'<>$-][^\s\"'<>]{3,400})"
    r"|\bsshpass\s{1,3}-p\s{0,3}[\"']?([^\s\"']{3,200})"
    r"|\bcurl\b[^\n|;]{0,200}?\s-u\s{1,3}[\"']?([^\s\"':]{1,80}:[^\s\"']{2,200})",
    re.I,
)
_NAMES_OF_PASSWORDS: Final = (
    r"pass(?:word|wd|phrase|code|wort)|pwd|kennwort|contraseña|clave\ssecreta|mot\sde\spasse|wachtwoord|senha"
    r"|密码|口令|パスワード|暗証番号|пароль"
)
_NAMES_OF_TOKENS: Final = (
    r"secret|token|api[_\s-]?key|access[_-]?key|account[_-]?key|private[_-]?key|signing[_-]?key|auth[_-]?key"
    r"|credentials?"
    r"|encryption[_-]?key|client[_-]?secret|api[_-]?schlüssel"
)
_ASSIGNMENT: Final = re.compile(
    rf"(?:(?P<password>{_NAMES_OF_PASSWORDS})"
    rf"|(?P<token>{_NAMES_OF_TOKENS}))[a-z0-9_]{{0,20}}[\"'`*]{{0,3}}\s{{0,3}}(?:=>|:=|[=:：＝])\s{{0,3}}"
    r"(?P<value>\"[^\"\n]{1,400}\"|'[^'\n]{1,400}'|`[^`\n]{1,400}`|[^\s\"'`,;]{1,400})",
    re.I,
)
_SPOKEN: Final = re.compile(
    rf"(?<![A-Za-z0-9_])(?:(?P<password>{_NAMES_OF_PASSWORDS}|(?-i:PIN))|(?P<token>{_NAMES_OF_TOKENS}))(?![A-Za-z0-9_])"
    r"(?P<gap>[^.\r\n:=]{0,48}?)(?:\s(?:is|was|ist|lautet|es|est|são|é|är|to|auf)\s|[は是为])\s?(?:now\s|jetzt\s)?"
    r"(?P<value>\"[^\"\n]{3,200}\"|'[^'\n]{3,200}'|`[^`\n]{3,200}`|[^\s\"'`，。、]{4,200})",
    re.I,
)
_ABOUT_PASSWORDS: Final = re.compile(
    r"\b(?:length|limit|policy|expiry|lifetime|timeout|field|max\w*|min\w*|count|hash)\b", re.I
)
_RANDOM: Final = re.compile(rf"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{{{ENTROPY_CHARACTERS_MIN},}}={{0,2}}")
_LONG: Final = re.compile(r"[A-Za-z0-9_+=-]{15}|[A-Za-z0-9+/_-]{24}")
"""Every shape of a vendor but one, and every random token, has a run of this kind; most lines have none."""
_KEYWORDS: Final = (
    *("pass", "pwd", "kennwort", "contraseña", "clave", "wachtwoord", "senha", "密码", "口令", "パスワード"),
    *("暗証番号", "пароль", "secret", "token", "key", "credential", "schlüssel", "-----begin"),
    *("authorization", "bearer", "basic", "cookie", "curl", "://", "hooks.slack", "webhooks"),
)
"""Every other expression needs one of these."""
_PLACEHOLDER: Final = re.compile(
    r"\[secret|<|\$|\{|%|\*{3}|x{4,}|\.{3}|your[_-]|my[_-]|example|changeme|placeholder|redacted|process\.env"
    r"|os\.environ"
    r"|(?:none|null|nil|true|false|undefined|string|str|bytes|int|bool|number|any|optional|required|object|env"
    r"|self|this"
    r"|secret|token|password|passwd)\b",
    re.I,
)
_SPOKEN_WORD: Final = re.compile(r"[\w'’-]*[a-z][\w'’-]*")
_PLAIN_WORD: Final = re.compile(r"[^\W\d_]+[.!?,;:)\]]*|[\d.,]+")


def find(text: str) -> tuple[Secret, ...]:
    """Return every secret in the text, in order and without overlap; offsets are characters."""
    found = sorted(_candidates(text), key=lambda secret: (secret.start, -secret.end))
    result: list[Secret] = []
    for secret in found:
        if result and secret.start < result[-1].end:
            if secret.end > result[-1].end:
                result[-1] = Secret(start=result[-1].start, end=secret.end, kind=result[-1].kind)
            continue
        result.append(secret)
    return tuple(result)


def may_hold(text: str) -> bool:
    """Whether a text has anything that a secret needs; where it has not, no piece of it is one."""
    return _has_run(text) or _has_keyword(text)


def mask(text: str) -> str:
    """Return the text with every secret replaced by `[secret removed]`."""
    for _ in range(_PASSES_MAX):
        found = find(text)
        if not found:
            return text
        text = mask_ranges(text, found)
    return text if not find(text) else REMOVED


def mask_ranges(text: str, found: tuple[Secret, ...], *, offset: int = 0) -> str:
    """Replace findings that were made in a longer text, of which this one starts at character `offset`."""
    pieces: list[str] = []
    position = 0
    for secret in found:
        start, end = max(secret.start - offset, 0), min(secret.end - offset, len(text))
        if start >= end:
            continue
        pieces += (text[position:start], REMOVED)
        position = end
    pieces.append(text[position:])
    return "".join(pieces)


def _candidates(text: str) -> Iterator[Secret]:
    if _has_run(text):
        for match in _VENDORS.finditer(text):
            yield Secret(start=match.start(), end=match.end(), kind=match.lastgroup or "vendor")
        for match in _RANDOM.finditer(text):
            if _is_random(match[0]):
                yield Secret(start=match.start(), end=match.end(), kind="entropy")
    if _has_keyword(text):
        yield from _named(text)


def _has_run(text: str) -> bool:
    return _LONG.search(text) is not None or "eyJ" in text


def _has_keyword(text: str) -> bool:
    if "PIN" in text or ("=" in text and ("?" in text or "&" in text)):
        return True
    folded = text.casefold()
    return any(map(folded.__contains__, _KEYWORDS))


def _named(text: str) -> Iterator[Secret]:
    """Find what a word or a form beside it makes a secret."""
    yield from _private_keys(text)
    for kind, pattern in (
        ("webhook", _WEBHOOK),
        ("userinfo", _USERINFO),
        ("query", _QUERY),
        ("header", _HEADER),
        ("flag", _FLAG),
    ):
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            if not _PLACEHOLDER.match(match[group].rpartition(":")[2] if kind == "userinfo" else match[group]):
                yield Secret(start=match.start(group), end=match.end(group), kind=kind)
    for match in _ASSIGNMENT.finditer(text):
        if _is_assigned(match["value"], password=match["password"] is not None):
            yield Secret(start=match.start("value"), end=match.end("value"), kind="assignment")
    for match in _SPOKEN.finditer(text):
        if _is_spoken(match):
            yield Secret(start=match.start("value"), end=match.end("value"), kind="spoken")


def _private_keys(text: str) -> Iterator[Secret]:
    """A block without its end line is cut off somewhere: everything after its begin line is taken for the key."""
    position = 0
    while begin := _KEY_BEGIN.search(text, position):
        end = _KEY_END.search(text, begin.end())
        position = end.end() if end else len(text)
        yield Secret(start=begin.start(), end=position, kind="private_key")


def _is_assigned(value: str, *, password: bool) -> bool:
    """Whether the right side of `name = value` is a secret rather than a type, a placeholder, a call or prose."""
    bare = value.strip("\"'`*")
    if len(bare) < 4 or _PLACEHOLDER.match(bare) or "(" in bare:
        return False
    quoted = bare != value
    if password:
        return quoted or not bare.endswith((".", "?")) or not _PLAIN_WORD.fullmatch(bare)
    return not _PLAIN_WORD.fullmatch(bare) and not _is_name(bare)


def _is_name(text: str) -> bool:
    """Whether it reads as a name of code or a path: words joined by separators, without a digit."""
    return not any(character.isdigit() for character in text) and len(text) < 48


def _is_spoken(match: re.Match[str]) -> bool:
    """Whether what follows `the password is` is a secret, and not what is said about passwords and tokens."""
    bare = match["value"].strip("\"'`")
    quoted = bare != match["value"]
    word = bare.rstrip(".,;:!?)")
    has_digit = any(character.isdigit() for character in word)
    if _PLACEHOLDER.match(bare) or " " in bare:
        return False
    if match["token"]:
        return has_digit and len(word) >= 8 and any(character.isalpha() for character in word)
    if quoted:
        return True
    if _ABOUT_PASSWORDS.search(match["gap"]):
        return False
    return has_digit or (not word.isalpha() and not _SPOKEN_WORD.fullmatch(word))


def _is_random(token: str) -> bool:
    """Whether a token without a known shape is random: three classes of characters that change often."""
    letters = [character for character in token if character.isalnum()]
    classes = [0 if character.isdigit() else 1 if character.isupper() else 2 for character in letters]
    if len(letters) < ENTROPY_CHARACTERS_MIN or len(set(classes)) < 3:
        return False
    turns = sum(left != right for left, right in pairwise(classes))
    return turns / (len(classes) - 1) >= ENTROPY_TURNS_MIN
