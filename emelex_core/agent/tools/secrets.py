"""Which files are likely to hold secrets, by their names alone (behaviour 187).

A name is all that is looked at, so that deciding needs no reading. Such files are read and written only after somebody
approved exactly that, and searching leaves them out.
"""

from __future__ import annotations

import re
from typing import Final

_BACKUP: Final = re.compile(
    r"(?: ~ | [-_.] (?:bak|backup|old|orig|sw[op]|save|copy) \d? | \.~\d+~ )+ \Z", re.VERBOSE | re.IGNORECASE
)
"""How editors and people name a copy, which holds what the file held."""
_NAMES: Final = re.compile(
    r"""
      \.env (?: [-_.] (?! (?:example|sample|template|dist)\Z ) .* )?
    | \.envrc (?: [-_.] .* )?
    | (?! (?:example|sample|template|dist)\.env\Z ) .* \. env
    | .* \. (?:pem|key|p8|p12|pfx|jks|keystore|kdbx?|ppk|asc|gpg|age|ovpn|tfstate|tfvars)
    | id_ (?:rsa|dsa|ecdsa|ed25519) (?:_sk)? (?! .*\.pub\Z ) .*
    | \.? (?:netrc|npmrc|pypirc|pgpass|my\.cnf|git-credentials|htpasswd|dockercfg|s3cfg|boto|vault-token)
    | .* credentials? (?:\.(?:json|ya?ml|toml|ini|txt|db|csv))?
    | (?:.*[._-])? secrets? (?:\.(?:json|ya?ml|toml|ini|txt|env|enc))?
    | service[_-]?account .* \.json
    | .* _history
    """,
    re.VERBOSE | re.IGNORECASE,
)
_VARIABLE: Final = re.compile(
    r"key|token|secret|pass|pwd|pw\b|credential|auth(?!or)|private|session|cookie|_pat\b|jwt|dsn|bearer|conn(?:ection)?_?str",
    re.IGNORECASE,
)
_NO_SECRETS: Final = frozenset({"PWD", "OLDPWD"})
"""Where the command runs, in names that every shell has."""
_CREDENTIALS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s?#]*:[^/\s?#]*@")
"""A URL with a password, as databases and proxies have them."""
_DIRECTORIES: Final = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".emelex"})


def is_secret(parts: tuple[str, ...]) -> bool:
    """Whether the file's name, or a directory on the way to it, is one that usually holds secrets."""
    if not parts:
        return False
    # An editor hides its copy of `.env` as `..env.swp`; any other copy keeps the name at its front.
    name = _BACKUP.sub("", parts[-1])
    named = any(_NAMES.fullmatch(known) for known in (parts[-1], name, name.removeprefix(".")))
    return named or not _DIRECTORIES.isdisjoint(part.lower() for part in parts)


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable's name says that its value is a secret."""
    return name not in _NO_SECRETS and _VARIABLE.search(name) is not None


def holds_credentials(value: str) -> bool:
    """Whether an environment variable's value holds a URL with a password."""
    return _CREDENTIALS.search(value) is not None
