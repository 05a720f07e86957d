"""Thirty shapes of secrets, each random every time, as people and tools write them. None was ever valid."""

from __future__ import annotations

import random
import string
from collections.abc import Callable

Shape = Callable[[random.Random], tuple[str, str]]
"""Makes what is written, and the part of it that is secret."""

_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + string.digits


def secret(dice: random.Random, shape: str | None = None) -> tuple[str, str]:
    """Write one secret of a shape, or of a random one."""
    return SHAPES[shape or dice.choice(sorted(SHAPES))](dice)


def _some(dice: random.Random, letters: str, count: int) -> str:
    return "".join(dice.choice(letters) for _ in range(count))


def _prefixed(prefix: str, letters: str, count: int) -> Shape:
    def make(dice: random.Random) -> tuple[str, str]:
        value = prefix + _some(dice, letters, count)
        return value, value

    return make


def _within(template: str, letters: str, count: int) -> Shape:
    def make(dice: random.Random) -> tuple[str, str]:
        value = _some(dice, letters, count - 2) + "7k"
        return template.format(value), value

    return make


def _private_key(dice: random.Random) -> tuple[str, str]:
    body = _some(dice, _ALNUM + "+/", 64)
    return f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----", body


def _jwt(dice: random.Random) -> tuple[str, str]:
    value = f"eyJ{_some(dice, _ALNUM, 20)}.eyJ{_some(dice, _ALNUM, 30)}.{_some(dice, _ALNUM, 40)}"
    return value, value


SHAPES: dict[str, Shape] = {
    "aws access key": _prefixed("AKIA", _UPPER, 16),
    "aws secret key": _within("aws_secret_access_key = {}", _ALNUM + "/+", 40),
    "github token": _prefixed("ghp_", _ALNUM, 36),
    "github fine-grained token": _prefixed("github_pat_", _ALNUM, 60),
    "gitlab token": _prefixed("glpat-", _ALNUM, 20),
    "slack token": _prefixed("xoxb-", _ALNUM, 40),
    "slack webhook": _within("https://hooks.slack.com/services/T0AB12CD3/B0EF45GH6/{}", _ALNUM, 24),
    "google api key": _prefixed("AIza", _ALNUM, 35),
    "model provider key": _prefixed("sk-proj-", _ALNUM, 40),
    "other model provider key": _prefixed("sk-ant-api03-", _ALNUM, 60),
    "hub token": _prefixed("hf_", _ALNUM, 34),
    "payment key": _prefixed("sk_live_", _ALNUM, 24),
    "npm token": _prefixed("npm_", _ALNUM, 36),
    "python registry token": _prefixed("pypi-AgEIcHlwaS5vcmc", _ALNUM, 60),
    "mail service key": lambda dice: (2 * (f"SG.{_some(dice, _ALNUM, 22)}.{_some(dice, _ALNUM, 43)}",))[:2],
    "telephony key": _prefixed("SK", _HEX, 32),
    "jwt": _jwt,
    "private key": _private_key,
    "password assignment": _within("password={}", _ALNUM, 12),
    "quoted password": _within('"password": "{}"', _ALNUM, 14),
    "environment variable": _within("export DB_PASSWORD={}", _ALNUM, 12),
    "spoken password": _within("the password is {}", string.ascii_lowercase, 10),
    "gesprochenes Kennwort": _within("das Kennwort lautet {}", string.ascii_lowercase, 10),
    "contraseña hablada": _within("la contraseña es {}", string.ascii_lowercase, 10),
    "database url": _within("postgresql://app:{}@db.internal:5432/app", _ALNUM, 16),
    "basic auth url": _within("https://deploy:{}@git.internal/x.git", _ALNUM, 20),
    "bearer header": _within("Authorization: Bearer {}", _ALNUM, 40),
    "api key header": _within("X-Api-Key: {}", _ALNUM, 32),
    "query parameter": _within("https://api.internal/v1?access_token={}", _ALNUM, 28),
    "random token": lambda dice: (2 * (_some(dice, _ALNUM, 38) + "aB3",))[:2],
}
