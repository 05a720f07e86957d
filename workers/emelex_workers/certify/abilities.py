"""What a job may ask of its model: what the certificate says, or the cautious default without one.

The module owns this invariant: abilities are stated in the job's record in full, so that a repeated run has the same.
"""

from __future__ import annotations

from pathlib import Path

from emelex_core.engine.ports import ChatEngine
from emelex_core.models import certificates
from emelex_workers.certify import trials
from emelex_workers.text.restate import UNCERTIFIED, Abilities, Freedom


def of(engine: ChatEngine, models: Path | None) -> Abilities:
    """What the engine's weights have shown under this release; `models` is that folder of the Home, if there is one.

    Raises: Storage.
    """
    if models is None:
        return UNCERTIFIED
    info = engine.info
    found = certificates.read(models, snapshot_id=info.snapshot_id, engine=info.engine, trials=trials.DIGEST)
    if found is None:
        return UNCERTIFIED
    words = None if found.words.form is None else Freedom(found.words.form)
    return Abilities(certified=True, words=words, judges=found.judges.form is not None)
