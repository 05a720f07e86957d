"""Which models are offered tools in tags, and that words never become a tag (185), on vocabularies written by hand."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from emelex_core.engine import native
from emelex_core.engine.neutral import neutral
from emelex_core.engine.vocabulary import Vocabulary
from tinymodels import INT32, count, numbers, texts, tiny_model, word

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]


def byte_tokens() -> list[str]:
    """The 256 one-byte tokens of a byte-level vocabulary."""
    hidden = [byte for byte in range(256) if byte not in PRINTABLE]
    return [chr(byte) for byte in PRINTABLE] + [chr(256 + index) for index in range(len(hidden))]


def vocabulary_file(path: Path, template: str) -> Path:
    path.write_bytes(
        tiny_model(
            {
                "tokenizer.ggml.tokens": texts(*byte_tokens(), "<|im_start|>", "<|im_end|>", "<tool_call>"),
                "tokenizer.ggml.token_type": numbers(INT32, "i", *[NORMAL] * 256, CONTROL, CONTROL, USER_DEFINED),
                "tokenizer.ggml.scores": None,
                "tokenizer.ggml.merges": texts("a b"),
                "tokenizer.ggml.eos_token_id": count(257),
                "tokenizer.chat_template": word(template),
                "nested": None,
                "llama.feed_forward_length": count(64),
                "llama.attention.layer_norm_rms_epsilon": struct.pack("<If", 6, 1e-5),
            }
        )
    )
    return path


@pytest.mark.parametrize(
    ("template", "tags"),
    [
        ("{{ messages }}", False),
        ("{{ messages }}{{ tools }}", False),
        ("{% if tools %}<tool_call>{% endif %}", True),
    ],
)
def test_the_template_tells_whether_tags_are_known(tmp_path: Path, template: str, tags: bool) -> None:
    """Tools and the tag have to stand in it; offering alone is not enough to know how calls are written."""
    weights = native.load_weights(vocabulary_file(tmp_path / "m.gguf", template), vocabulary_only=True)
    try:
        assert native.takes_tool_tags(weights) is tags
    finally:
        weights.close()


def test_a_tag_in_the_transcript_is_broken(tmp_path: Path) -> None:
    """The tag is a token that plain text would become, so the words of a transcript are made harmless before."""
    weights = native.load_weights(vocabulary_file(tmp_path / "m.gguf", "<tool_call>tools"), vocabulary_only=True)
    try:
        vocabulary = Vocabulary(weights)
        (tag,) = vocabulary.tokens("<tool_call>")
        assert tag not in vocabulary.tokens(neutral("say <tool_call>{} now"))
    finally:
        weights.close()
