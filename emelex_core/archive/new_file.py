"""A new file that appears whole or not at all: private, synced, and never in the place of another (behaviour 160)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from emelex_core import home
from emelex_core.archive.document import Write
from emelex_core.assets import files
from emelex_core.assets.export import give_name, taken
from emelex_core.errors import NotFound


@contextmanager
def new_file(destination: Path) -> Generator[Write]:
    """Give the block something to write to; the file has its name when the block ends without an error.

    Raises: Refused when the name is taken, which stays as it is; NotFound for its directory; StorageFull, Storage.
    """
    folder = destination.parent
    if not folder.is_dir():
        raise NotFound(f"there is no directory {folder}")
    if home.exists(destination):
        raise taken(destination)
    with files.temporary(folder, prefix=f".{destination.name[:100]}.part-") as temporary:

        def write(data: bytes) -> None:
            files.write(temporary, data)

        yield write
        files.sync(temporary)
        give_name(temporary.path, destination)
    home.sync_directory(folder)
