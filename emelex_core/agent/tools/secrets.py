"""Which files are likely to hold secrets, by their names alone (behaviour 187).

A name is all that is looked at, so that deciding needs no reading. Such files are read and written only after somebody
approved exactly that, and searching leaves them out.
"""

from __future__ import annotations

import re
from typing import Final

_NAMES: Final = re.compile(
    r"""
      \.env (?: \. (?! (?:example|sample|template|dist)\Z ) .* )?
    | .* \. (?:pem|key|p12|pfx|jks|keystore|kdbx?|ppk|asc|gpg|tfstate(?:\.backup)?)
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
    r"key|token|secret|passw|credential|auth(?!or)|private|session|cookie|_pat\b", re.IGNORECASE
)
_DIRECTORIES: Final = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".emelex"})


def is_secret(parts: tuple[str, ...]) -> bool:
    """Whether the file's name, or a directory on the way to it, is one that usually holds secrets."""
    if not parts:
        return False
    return _NAMES.fullmatch(parts[-1]) is not None or not _DIRECTORIES.isdisjoint(part.lower() for part in parts)


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable's name says that its value is a secret."""
    return _VARIABLE.search(name) is not None
