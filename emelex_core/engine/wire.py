"""Requests in the form of the OpenAI chat-completions protocol.

Words cannot become control tokens there: servers render messages into one text and tokenise it with special parsing on,
so `neutral` breaks what looks like a control token in every text, a call's arguments and a tool's answer included
(behaviour 185).
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Final

from emelex_core.codec import Json
from emelex_core.engine.endpoint import EndpointConfig
from emelex_core.engine.neutral import neutral
from emelex_core.engine.ports import Message, Request, ToolSpec

_SEED_SPAN: Final = 2**31
"""Servers hold a seed in 32 bits, some of them signed."""


def body_of(request: Request, config: EndpointConfig) -> dict[str, Json]:
    """The JSON object to send for one generation."""
    body: dict[str, Json] = {
        "model": config.model,
        "messages": wire_messages(request.messages),
        "max_tokens": request.output_tokens_max,
        "temperature": request.sampling.temperature,
        "seed": request.sampling.seed % _SEED_SPAN,
        "stream": request.tell is not None,
    }
    if request.tell is not None:
        body["stream_options"] = {"include_usage": True}
    if request.stop:
        body["stop"] = list(request.stop)
    if request.grammar is not None and config.grammar:
        body["grammar"] = request.grammar
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    return body


def wire_messages(messages: tuple[Message, ...]) -> list[Json]:
    """Messages in the protocol's form."""
    return [_message(message) for message in messages]


def words_of(message: Message) -> str:
    """All words of a message, for a count that no tokenizer exceeds."""
    calls = "".join(f"{call.call_id}{call.name}{call.arguments}" for call in message.calls)
    return f"{message.text}{calls}{message.answers or ''}"


def without_images(message: Message) -> Message:
    """A message's words alone, for whoever counts them."""
    return replace(message, images=()) if message.images else message


def _message(message: Message) -> dict[str, Json]:
    found: dict[str, Json] = {"role": message.role.value, "content": neutral(message.text)}
    if message.images:
        pictures = [
            {
                "type": "image_url",
                "image_url": {"url": f"data:{image.media_type};base64,{base64.b64encode(image.data).decode('ascii')}"},
            }
            for image in message.images
        ]
        found["content"] = [{"type": "text", "text": neutral(message.text)}, *pictures]
    if message.calls:
        found["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": neutral(call.arguments)},
            }
            for call in message.calls
        ]
    if message.answers is not None:
        found["tool_call_id"] = message.answers
    return found


def _tool(tool: ToolSpec) -> dict[str, Json]:
    described = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": described}
