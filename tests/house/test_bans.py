"""What may not be written does not stand in the tree (house habit 19); the bans themselves are in bans.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import tree
from tests.house.bans import BANS, Ban, control_sql, data_sql
from tests.house.tree import Source


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.name)
def test_banned_constructs_do_not_stand_in_the_tree(ban: Ban) -> None:
    """Each finding names its place; the message names the replacement."""
    looked_at = tree.sources() if ban.in_tests else tree.package_sources()
    found = [
        f"{source.place}:{getattr(node, 'lineno', '?')}"
        for source in looked_at
        if not ban.permits(source.place)
        for node in ban.find(source)
    ]
    assert not found, f"{ban.name} at {found}; instead: {ban.instead}"


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.name)
def test_each_ban_finds_its_sample(ban: Ban, tmp_path: Path) -> None:
    """Each line of a sample that holds a banned construct is found."""
    path = tmp_path / "sample.py"
    path.write_text(ban.sample, "utf-8")
    source = Source(path=path, place="sample.py", module="sample", in_package=True)
    expected = sum(
        1 for line in ban.sample.splitlines() if line and not line.startswith(("try:", "    ", "import datetime"))
    )
    assert len(list(ban.find(source))) == expected


def test_prose_is_not_taken_for_sql(tmp_path: Path) -> None:
    """Messages may speak of selecting and updating."""
    path = tmp_path / "prose.py"
    path.write_text(
        'a = "please select one from the list"\nb = "-----BEGIN KEY"\nc = "beginning"\n"""SELECT a FROM b"""\n', "utf-8"
    )
    source = Source(path=path, place="prose.py", module="prose", in_package=True)
    assert not list(data_sql(source))
    assert not list(control_sql(source))


def test_exceptions_to_bans_are_used() -> None:
    """A file that no longer needs its exception loses it; a folder's exception is a rule of the floors."""
    looked_at = {ban.name: tree.sources() if ban.in_tests else tree.package_sources() for ban in BANS}
    idle = [
        f"{ban.name}: {spot}"
        for ban in BANS
        for spot in ban.allowed
        if not spot.endswith("/")
        and not any(list(ban.find(source)) for source in looked_at[ban.name] if source.place == spot)
    ]
    assert not idle, f"remove these exceptions: {idle}"
