"""Everything about text between the store and the model: pure functions over events, no database, no clock.

Read in this order: `secrets` (what never leaves) and `lines` (an event as spans that can be quoted); `cues`,
`tokens` and `keys` (what a line does, what it names, what it is the same as); `anchors`, `actions` and `foreign`
(what must survive, what was done, what others said); `guard`, `grammar`, `reply` and `restate` (one bounded model
call a line, and what its answer must hold); `windows`, `fold` and `outline` (a Session as the lines of a Summary);
`phrases` and `durable` (which sentences are worth remembering).
"""
