"""Everything about text between the store and the model: pure functions over events, no database, no clock.

Read in this order: `lines` (an event as spans that can be quoted), `cues` and `tokens` (what a line is about and what
it names), `anchors` (what must survive), `actions` (tool calls as command and outcome), `secrets` (what never
leaves), `guard` (what a model's wording must hold), `restate` (one bounded model call a line), `reply` (strict
reading of JSON replies), `keys` (sameness of sentences), `outline` (the readable form of a Summary and its
selection).
"""
