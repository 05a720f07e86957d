"""Names that usually hold secrets, of files and of variables; copies of such files; files of several names (187)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emelex_core.agent.tools.finding import Grep
from emelex_core.agent.tools.reading import ReadFile
from emelex_core.agent.tools.rooted import Root
from emelex_core.agent.tools.secrets import holds_credentials, is_secret, is_secret_variable
from emelex_core.agent.tools.shell import environment
from emelex_core.errors import ToolError
from toolcalls import call

SECRET_FILES = [
    *(".env", ".env.local", ".env-prod", ".env_prod", "prod.env", ".envrc", ".envrc.local", ".ENV"),
    *(".env~", ".env.bak", ".env.old", ".env.orig", ".env.swp", ".env.save", "..env.swp", ".env.bak.old", ".env.bak1"),
    *("id_rsa~", "id_ed25519.bak", "server.pem.old", "server.key.orig", ".id_rsa.swp", "credentials.json.save"),
    *(
        "AuthKey.p8",
        "a.p12",
        "a.pfx",
        "a.jks",
        "a.kdbx",
        "a.ppk",
        "a.age",
        "client.ovpn",
        "x.tfstate.backup",
        "x.tfvars",
    ),
    *(".netrc~", ".pgpass.bak", "secrets.yaml.bak", ".npmrc.old", "secrets.yml~", ".bash_history"),
]
PLAIN_FILES = [
    *(".env.example", ".env-sample", ".env.template", "example.env", "environment.md", "a.py~", "notes.bak"),
    *("id_rsa.pub", "keyboard.py", "secrets.py", "README.md.orig", "envoy.yaml", "monkey"),
]
SECRET_VARIABLES = [
    *("PGPASSWORD", "MYSQL_PWD", "DB_PASS", "PASSPHRASE", "CI_JWT", "SENTRY_DSN", "API_KEY", "GH_TOKEN", "APP_SECRET"),
    *("DB_PW", "GITHUB_PAT", "AZURE_STORAGE_CONNECTION_STRING"),
]


@pytest.mark.parametrize("name", SECRET_FILES)
def test_secret_files(name: str) -> None:
    """A copy holds what the file held."""
    assert is_secret(("conf", name))


@pytest.mark.parametrize("name", PLAIN_FILES)
def test_plain_files(name: str) -> None:
    """Asking too often teaches to say yes."""
    assert not is_secret(("conf", name))


@pytest.mark.parametrize("name", SECRET_VARIABLES)
def test_secret_variables(name: str) -> None:
    """No command sees them."""
    assert is_secret_variable(name)
    assert name not in environment({name: "x"})


@pytest.mark.parametrize("name", ["PWD", "OLDPWD", "PATH", "HOME", "LANG", "AUTHOR", "EDITOR"])
def test_plain_variables(name: str) -> None:
    """What commands need stays."""
    assert environment({name: "/x"})[name] == "/x"


@pytest.mark.parametrize(
    ("value", "held"),
    [
        ("postgres://user:word@db/x", True),
        ("redis://:word@cache:6379", True),
        ("http://me:word@proxy:3128", True),
        ("https://example.org/a:b@c", False),
        ("https://example.org:8080/", False),
        ("git@example.org:a/b", False),
        ("ssh://git@example.org:22/x", False),
    ],
)
def test_a_url_with_a_password_is_a_secret_under_any_name(value: str, held: bool) -> None:
    """`DATABASE_URL`, `http_proxy`: the value tells."""
    assert holds_credentials(value) is held
    assert ("DATABASE_URL" not in environment({"DATABASE_URL": value})) is held


def test_a_file_of_several_names_needs_approval(tmp_path: Path) -> None:
    """Its other name may be a secret's: reading asks, and searching passes it over and says so."""
    (tmp_path / ".env").write_text("WORD=alpha\n", "utf-8")
    os.link(tmp_path / ".env", tmp_path / "notes.txt")
    (tmp_path / "plain.txt").write_text("alpha\n", "utf-8")
    with Root(tmp_path) as root:
        tool = ReadFile(root)
        assert "other names" in (tool.caution({"path": "notes.txt"}) or "")
        assert tool.caution({"path": "plain.txt"}) is None
        assert tool.caution({"path": "."}) is None
        with pytest.raises(ToolError, match="approv"):
            call(tool, path="notes.txt")
        assert "WORD=alpha" in call(tool, approved=True, path="notes.txt").text
        found = call(Grep(root), pattern="alpha").text
    assert "plain.txt:1: alpha" in found
    assert "WORD" not in found
    assert "1 files left out: they have other names" in found
