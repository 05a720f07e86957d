"""Text made harmless for servers that find control tokens in it.

A chat server renders messages into one text and tokenises that with special parsing on, so a message that says
`<|im_end|>` would end itself. Here everything that has the shape of a control token of a known template gets a space
behind its first character, which breaks the token and leaves the words readable to model and person.
"""

from __future__ import annotations

import re
from typing import Final

from emelex_core import codec

_CONTROL: Final = re.compile(
    r"""
    <(?= \|                                            # <|im_end|>, <|eot_id|>: ChatML, Llama 3, Phi, Qwen
       | \uff5c                                        # DeepSeek's full-width bar
       | /?s>                                          # Llama 2, Mistral
       | (?:start|end)_of_(?:turn|image)>              # Gemma
       | (?:bos|eos|pad|unk|mask)>
       | /?(?:think|tool_call|tool_response|tools)>    # Qwen 3, Hermes
       | (?:repo_?name|file_sep|filename|gh_stars|issue_\w{1,16}|jupyter_\w{1,16}|empty_output)>    # StarCoder, SmolLM
       | <SYS>> | </SYS>> )
    | \[(?= /?INST\] | /?(?:AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|SYSTEM_PROMPT)\] )    # Mistral
    """,
    re.VERBOSE,
)


def neutral(text: str) -> str:
    """Return the text with a space behind the first character of whatever has a control token's shape.

    Raises: Invalid for text that is not strict UTF-8.
    """
    codec.check_text(text, what="text for the model")
    return _CONTROL.sub(r"\g<0> ", text)
