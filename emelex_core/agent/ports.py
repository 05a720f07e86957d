"""What an agent is made of: a model, tools, a journal, a sink and somebody who approves; and the values between them.

The ports own these invariants:

- Messages are `Event`s, the same that a Session stores, so that what a model saw is what was written down.
- A model only proposes (`calls`); the ids under which something can run are ours.
- The journal hears of each step before the step is taken, and of each result before anything rests on it. The order of
  its calls is one grammar, which `TurnJournal` spells.
"""

from __future__ import annotations

from emelex_core.agent.calls import (
    ApprovalDecision,
    ApprovalRequest,
    Approve,
    Arguments,
    Effect,
    ProposedCall,
    Tool,
    ToolCall,
    ToolContext,
    ToolDeclaration,
    ToolOutcome,
)
from emelex_core.agent.notices import (
    AgentEvent,
    ApprovalAsked,
    ApprovalDecided,
    Checkpointed,
    EventSink,
    TextDelta,
    ToolFinished,
    ToolProposed,
    ToolStarted,
    TurnCompleted,
    TurnFailed,
    TurnOutcome,
    TurnStarted,
)
from emelex_core.agent.rounds import (
    AgentModel,
    ModelIdentity,
    ModelReply,
    ModelRequest,
    RoomChecked,
    ToolChoice,
    Usage,
)
from emelex_core.agent.turn_journal import (
    NullJournal,
    TurnJournal,
)
from emelex_core.engine.cancel import CancelToken
from emelex_core.engine.ports import FinishReason, Sampling

__all__ = [
    "AgentEvent",
    "AgentModel",
    "ApprovalAsked",
    "ApprovalDecided",
    "ApprovalDecision",
    "ApprovalRequest",
    "Approve",
    "Arguments",
    "CancelToken",
    "Checkpointed",
    "Effect",
    "EventSink",
    "FinishReason",
    "ModelIdentity",
    "ModelReply",
    "ModelRequest",
    "NullJournal",
    "ProposedCall",
    "RoomChecked",
    "Sampling",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolContext",
    "ToolDeclaration",
    "ToolFinished",
    "ToolOutcome",
    "ToolProposed",
    "ToolStarted",
    "TurnCompleted",
    "TurnFailed",
    "TurnJournal",
    "TurnOutcome",
    "TurnStarted",
    "Usage",
]
