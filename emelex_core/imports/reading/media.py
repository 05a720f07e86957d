"""Media inside transcripts: base64 and data URLs become asset references.

The module owns these invariants:

- An event is never lost for its media: what cannot be stored becomes a labelled text and a defect.
- Nothing is fetched: an address of a remote image stays an address.
- The bytes are decoded while they are stored; what a label says they are is not believed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from emelex_core import limits
from emelex_core.assets.media import Readable
from emelex_core.errors import Invalid
from emelex_core.events import MediaPart, TextPart
from emelex_core.imports.files.base64_source import Base64Source, Undecodable
from emelex_core.imports.records import MediaSink

_ADDRESS_CHARACTERS_MAX: Final = 2_000
_MEDIA_TYPE_CHARACTERS_MAX: Final = 100
_NAME_CHARACTERS_MAX: Final = 100
_HEAD_CHARACTERS_MAX: Final = 1_000
"""How far the comma of a data URL is looked for."""
_STORED_BEFORE: Final = "[media stored before]"


class MediaReader:
    """Turns the media of one transcript into parts, through the importer's sink."""

    def __init__(self, sink: MediaSink, defects: Counter[str]) -> None:
        self._sink = sink
        self._defects = defects
        self.muted = False
        """Whether media are passed over: a reading that only recalls stores nothing."""

    def from_base64(self, data: Any, media_type: Any) -> MediaPart | TextPart:
        """Decode and store; return a placeholder for what does not decode, is too large or is refused by the sink."""
        if self.muted:
            return TextPart(text=_STORED_BEFORE)
        declared = media_type if isinstance(media_type, str) and len(media_type) <= _MEDIA_TYPE_CHARACTERS_MAX else None
        if not isinstance(data, str) or not data:
            return self._placeholder("undecodable_media", "its data is missing")
        return self._store(data, 0, declared)

    def from_url(self, url: Any) -> MediaPart | TextPart:
        """Read a data URL, or keep another address as text."""
        if not isinstance(url, str) or not url:
            return self._placeholder("undecodable_media", "its address is missing")
        if not url.startswith("data:"):
            return TextPart(text=f"[media: {url[:_ADDRESS_CHARACTERS_MAX]}]")
        if self.muted:
            return TextPart(text=_STORED_BEFORE)
        comma = url.find(",", 0, _HEAD_CHARACTERS_MAX)
        if comma < 0 or not url.endswith(";base64", 0, comma):
            return self._placeholder("undecodable_media", "its data URL is not base64")
        return self._store(url, comma + 1, url[len("data:") : comma].partition(";")[0] or None)

    def from_source(self, source: Readable, *, name: str) -> MediaPart | TextPart:
        """Store what a source yields; `name` stands in the placeholder of what the sink refuses."""
        try:
            return MediaPart(ref=self._sink(source, declared_media_type=None))
        except Invalid as error:
            return self._placeholder("refused_media", f"{name[:_NAME_CHARACTERS_MAX]}: {error.message}")

    def _store(self, text: str, start: int, declared: str | None) -> MediaPart | TextPart:
        """Let the sink read the base64 text from `start` on."""
        if len(text) - start == 0:
            return self._placeholder("undecodable_media", "its data is missing")
        if (len(text) - start) // 4 * 3 > limits.ASSET_BYTES_MAX + 2:
            return self._placeholder("oversized_media", f"more than {limits.ASSET_BYTES_MAX} bytes")
        try:
            return MediaPart(ref=self._sink(Base64Source(text, start), declared_media_type=declared))
        except Undecodable:
            return self._placeholder("undecodable_media", "its data is not base64")
        except Invalid as error:
            return self._placeholder("refused_media", error.message)

    def _placeholder(self, name: str, reason: str) -> TextPart:
        self._defects[name] += 1
        return TextPart(text=f"[media not imported: {reason[:200]}]")
