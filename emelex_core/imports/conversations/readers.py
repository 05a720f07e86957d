"""One door to the readers of conversations: formats that have no byte offset to go on from."""

from __future__ import annotations

from emelex_core.errors import Invalid
from emelex_core.imports.chatgpt.reader import ChatGPTReader
from emelex_core.imports.conversations.conversation import ConversationReader
from emelex_core.imports.gemini.reader import GeminiReader
from emelex_core.imports.langgraph.reader import LangGraphReader
from emelex_core.imports.openai.agents import OpenAIAgentsReader
from emelex_core.imports.openai.chat import OpenAIChatReader
from emelex_core.imports.records import (
    CHATGPT,
    GEMINI,
    LANGGRAPH,
    OPENAI_AGENTS,
    OPENAI_CHAT,
    MediaSink,
    TranscriptFile,
)


def open_conversations(file: TranscriptFile, media: MediaSink) -> ConversationReader:
    """Return the reader of a file of conversations. Nothing is read before the iteration starts.

    Raises: Invalid for a format without such a reader.
    """
    readers: dict[str, type[ConversationReader]] = {
        GEMINI: GeminiReader,
        OPENAI_CHAT: OpenAIChatReader,
        CHATGPT: ChatGPTReader,
        OPENAI_AGENTS: OpenAIAgentsReader,
        LANGGRAPH: LangGraphReader,
    }
    reader = readers.get(file.format)
    if reader is None:
        raise Invalid(f"{file.path}: no reader for the format {file.format!r}")
    return reader(file, media)
