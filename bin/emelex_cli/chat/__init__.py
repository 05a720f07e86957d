"""The attended chat: lines come in, a durable agent answers, and what happens is told as it happens.

`conversation` leads; `lines` asks a person or reads a pipe, `slash` knows the commands, and `tellers` tell: Markdown on
a terminal (`answer`), text into a pipe, JSON for programs.
"""
