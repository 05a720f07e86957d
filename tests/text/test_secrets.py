"""Secrets are found in every common shape, and anchors are not mistaken for them (behaviour 187)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_workers.text import secrets

R = "a8Kd03jQmZ71xLpV5tWc9YbE2nHs6RfU4gTo"  # 36 characters, random by hand; no real credential anywhere below
HEX = "0f3a9c1b7e5d2846" * 2

SHAPES = [
    f"AKIA{'Z7Q2' * 4}",
    f"ghp_{R}",
    f"github_pat_11ABCDE_{R}",
    f"glpat-{R[:20]}",
    f"xoxb-123456789012-{R[:24]}",
    f"AIza{R[:35]}",
    f"ya29.{R}",
    f"sk-ant-api03-{R}",
    f"sk-proj-{R}",
    f"sk-{R}",
    f"hf_{R}",
    f"sk_live_{R[:24]}",
    f"whsec_{R}",
    f"npm_{R}",
    f"pypi-AgEIcHlwaS5vcmc{R}",
    f"SG.{R[:22]}.{R}",
    f"key-{HEX}",
    f"SK{HEX}",
    f"dop_v1_{HEX * 2}",
    f"dapi{HEX}",
    f"shpat_{HEX}",
    f"hvs.{R}",
    f"lin_api_{R}",
    f"glsa_{R}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{R}",
    f"123456789:{R[:35]}",
    f"-----BEGIN RSA PRIVATE KEY-----\n{R}\n{R}\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\n{R}\n{R}",
    f"https://hooks.slack.com/services/T00000000/B00000000/{R[:24]}",
    "postgres://admin:h0rse-staple@db.example:5432/app",
    f"https://api.example/v1?api_key={R}",
    f"Authorization: Bearer {R}",
    "Authorization: Basic dXNlcjpwYXNzd29yZDE=",
    f"X-Api-Key: {R[:20]}",
    "Set-Cookie: session=abc123def456; Path=/",
    "password=hunter2",
    'DB_PASSWORD: "correct horse battery"',
    "client_secret = 9f8e7d6c5b4a",
    f"AWS_SECRET_ACCESS_KEY={R}wXyZ",
    "the password is hunter2",
    "My API key is now `abcd-1234-efgh`",
    "Das Passwort lautet Sommer2026!",
    "le mot de passe est Bonjour42",
    "密码是hunter2024",
    "mysql -u root --password=s3cr3t-pw",
    "curl -u admin:tr0ub4dor https://example.org",
    f"the value {R}{R[:8]} was pasted",
]


@pytest.mark.parametrize("text", SHAPES)
def test_shape_is_masked(text: str) -> None:
    masked = secrets.mask(f"Please use {text} and go on.")
    assert secrets.REMOVED in masked
    assert masked.startswith("Please use ")
    for piece in (
        R[:16],
        HEX[:16],
        "hunter2",
        "h0rse",
        "horse",
        "tr0ub4dor",
        "s3cr3t",
        "Sommer2026",
        "Bonjour42",
        "abcd-1234",
        "9f8e7d",
    ):
        assert piece not in masked


@pytest.mark.parametrize(
    "text",
    [
        "commit 2552732c903a393820bae8cb0d9a0985eb4a3f81",
        "sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "id 019a085e-04c1-7f81-a09e-9555f6a1fb40",
        "/home/dev/projects/emelex/workers/emelex_workers/text/secrets.py",
        "see TestHttpConnectionWithTransportLayerSecurityHandshake",
        "set MAX_OUTPUT_TOKENS=1024 and max_tokens: 4096",
        "the password is required",
        "We decided to pin `httpx` to 0.27.",
        "The token limit is 4096 here.",
        "The access token lifetime is 3600 seconds.",
        "The password length limit is 128 characters.",
        "Rename the token to `authToken`.",
        "token: str = os.environ['TOKEN']",
        "password=<your-password>",
        "export API_KEY=$API_KEY",
        "The token expired yesterday.",
        "Use `getpass()` for the password: it must not be echoed.",
        "def login(user: str, password: str) -> Token:",
        "from sklearn.model_selection import train_test_split",
        "https://example.org/docs/authentication#tokens",
        "risk-management-framework-for-everybody",
    ],
)
def test_anchor_is_not_masked(text: str) -> None:
    """Hashes, identifiers, paths and placeholders are what a Summary must keep (behaviour 188)."""
    assert secrets.mask(text) == text


@given(st.text(max_size=200), st.sampled_from(SHAPES), st.text(max_size=200))
def test_masking_is_idempotent_and_leaves_nothing_to_find(before: str, shape: str, after: str) -> None:
    masked = secrets.mask(f"{before} {shape} {after}")
    assert secrets.mask(masked) == masked
    assert not secrets.find(masked)


def test_findings_are_in_order_and_do_not_overlap() -> None:
    text = f"password=hunter2 and https://u:pw123@example.org and ghp_{R}"
    found = secrets.find(text)
    assert len(found) == 3
    assert all(left.end <= right.start for left, right in pairwise(found))


def test_time_is_linear_in_hostile_text() -> None:
    text = "password" * 40_000 + "=" * 40_000 + "eyJ" * 40_000 + "a1B" * 40_000 + "-----BEGIN PRIVATE KEY-----" * 4_000
    assert secrets.find(text)
