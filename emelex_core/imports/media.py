"""Media inside transcripts: base64 and data URLs become asset references.

The module owns these invariants:

- An event is never lost for its media: what cannot be stored becomes a labelled text and a defect.
- Nothing is fetched: an address of a remote image stays an address.
"""

from __future__ import annotations

import binascii
from collections import Counter
from typing import Any, Final

from emelex_core import limits
from emelex_core.errors import Invalid
from emelex_core.events import MediaPart, TextPart
from emelex_core.imports.records import MediaSink

_ADDRESS_CHARACTERS_MAX: Final = 2_000
_MEDIA_TYPE_CHARACTERS_MAX: Final = 100


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
            return TextPart(text="[media stored before]")
        declared = media_type if isinstance(media_type, str) and len(media_type) <= _MEDIA_TYPE_CHARACTERS_MAX else None
        if not isinstance(data, str) or not data:
            return self._placeholder("undecodable_media", "its data is missing")
        if len(data) // 4 * 3 > limits.ASSET_BYTES_MAX:
            return self._placeholder("oversized_media", f"more than {limits.ASSET_BYTES_MAX} bytes")
        try:
            content = binascii.a2b_base64(data, strict_mode=True)
        except (binascii.Error, ValueError):
            return self._placeholder("undecodable_media", "its data is not base64")
        try:
            return MediaPart(ref=self._sink(content, declared_media_type=declared))
        except Invalid as error:
            return self._placeholder("refused_media", error.message)

    def from_url(self, url: Any) -> MediaPart | TextPart:
        """Read a data URL, or keep another address as text."""
        if not isinstance(url, str) or not url:
            return self._placeholder("undecodable_media", "its address is missing")
        if not url.startswith("data:"):
            return TextPart(text=f"[media: {url[:_ADDRESS_CHARACTERS_MAX]}]")
        head, comma, data = url.partition(",")
        if not comma or not head.endswith(";base64"):
            return self._placeholder("undecodable_media", "its data URL is not base64")
        return self.from_base64(data, head.removeprefix("data:").partition(";")[0] or None)

    def _placeholder(self, name: str, reason: str) -> TextPart:
        self._defects[name] += 1
        return TextPart(text=f"[media not imported: {reason[:200]}]")
