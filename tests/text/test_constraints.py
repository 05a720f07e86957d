"""What a person forbids is a constraint, however it is put (behaviour 184)."""

from __future__ import annotations

import pytest

from emelex_workers.text import cues
from emelex_workers.text.cues import Cue


@pytest.mark.parametrize(
    "line",
    [
        "Nobody may deploy the importer without Ann.",
        "No one can see the ledger.",
        "Not more than 40 rows at once.",
        "Leave conf/base.toml as it is.",
        "Hands off conf/base.toml!",
        "Plugins are banned in the core.",
        "Niemand aus dem Vertrieb darf die Tabelle sehen.",
        "Der Importer soll nicht neu starten.",
        "Lass conf/base.toml in Ruhe.",
        "Höchstens 40 Zeilen auf einmal.",
        "Nadie puede tocar la tabla.",
        "No borres conf/base.toml.",
        "Deja conf/base.toml como está.",
        "Personne ne touche à la table.",
        "Laissez conf/base.toml tel quel.",
    ],
)
def test_prohibitions_by_kind(line: str) -> None:
    assert cues.has(line, Cue.CONSTRAINT)


@pytest.mark.parametrize(
    "line",
    [
        "Nobody was there yesterday.",
        "Nothing happened after the deploy.",
        "It keeps running.",
        "Lass uns anfangen.",
        "Niemand war da.",
        "No funciona.",
    ],
)
def test_what_merely_happened_is_none(line: str) -> None:
    assert not cues.has(line, Cue.CONSTRAINT)
