"""Which sentences carry durable facts, told by rules, and how much each is worth.

The module owns these invariants:

- Only a user's and an assistant's own prose is looked at; questions, chatter, plans of the moment, hypotheses, jokes
  and reports of what some page or tool says carry no fact.
- Confidence comes from the origin alone (`CONFIDENCE`); what a model says of its own certainty is worth nothing.

| origin | confidence |
|---|---|
| a user's rule or order (always, never, must, use X) | 0.95 |
| a user's decision or preference | 0.90 |
| a user's statement of fact | 0.85 |
| an assistant's decision, or its statement that names something | 0.70 |
| an assistant's other statement | 0.60 |

The default recall floor is 0.70: what an assistant said without naming anything is kept, and not recalled by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from emelex_core.events import EventKind
from emelex_workers.text import cues, keys
from emelex_workers.text.cues import Cue
from emelex_workers.text.lines import PROSE, Shape, Span
from emelex_workers.text.tokens import TokenKind, tokens


class Category(StrEnum):
    """What kind of fact it is; the first word of its key."""

    RULE = "rule"
    PREFERENCE = "preference"
    DECISION = "decision"
    COMMAND = "command"
    LOCATION = "location"
    PERSON = "person"
    FACT = "fact"


CONFIDENCE: Final[dict[tuple[EventKind, Category], float]] = {
    (EventKind.USER, Category.RULE): 0.95,
    (EventKind.USER, Category.PREFERENCE): 0.90,
    (EventKind.USER, Category.DECISION): 0.90,
    (EventKind.ASSISTANT, Category.DECISION): 0.70,
}
_USER_FACT: Final = 0.85
_ASSISTANT_NAMED: Final = 0.70
_ASSISTANT_OTHER: Final = 0.60

CHARACTERS_MIN: Final = 12
CHARACTERS_MAX: Final = 600
WORDS_MIN: Final = 3
RULE_WORDS_MIN: Final = 2
"""A rule with fewer content words, such as `do not merge`, belongs to its moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """A sentence that carries a fact. A higher score is kept first."""

    span: Span
    category: Category
    confidence: float
    score: float


_PREFERENCE: Final = re.compile(
    r"\b(?:(?:i|we)(?: really| strongly| usually| always| never| generally){0,2} (?:prefer|hate|dislike"
    r"|like (?:it|my|our|short|to))"
    r"|(?:my|our) (?:preference|preferred|favou?rite|convention|style|policy|standard)\b|prefer(?:red)? \w+"
    r"|convention (?:is|here)"
    r"|please (?:always|use|keep|stick|call me)|(?:answer|reply|respond|write) (?:me |to me )?in (?:english"
    r"|german|french|spanish|dutch"
    r"|italian|japanese|chinese))\b"
    r"|\b(?:ich bevorzuge|wir bevorzugen|mir ist .{1,40} lieber|unsere konvention|am liebsten"
    r"|antworte (?:mir )?(?:bitte )?auf"
    r"|je préfère|nous préférons|notre convention|prefiero|preferimos|nuestra convención|ik heb liever"
    r"|onze conventie|preferisco"
    r"|prefiro)\b|更喜欢|喜欢用|好み|の方がいい",
    re.I,
)
_PERSON: Final = re.compile(
    r"\b(?:my name is|i am the|i['’]m the|call me|(?:is|are) (?:our|the|my) (?:\w+ )?(?:maintainer|owner|lead|manager"
    r"|contact|reviewer|customer|admin|boss|architect|designer|on-?call)\w*|is responsible for"
    r"|(?:maintained|owned) by|works (?:at|for)|mein name ist|ich heiße|ist (?:unser|der|die) \w*(?:leiter|chef"
    r"|ansprechpartner|kunde)\w*|je m['’]appelle|mi nombre es|me llamo|mijn naam is)\b|我叫|私は.{1,20}です",
    re.I,
)
_COMMAND: Final = re.compile(
    r"^(?:to|um) (?:run|build|test|start|lint|deploy|install|format|release|bauen|testen|starten)\b.{0,80}[,:]"
    r"|\b(?:run|start|build|test|deploy|lint|install|execute|release|migrate)s? (?:it |them |this |everything "
    r"|the \w+ |all (?:the )?\w+ |tests )?"
    r"(?:with|via|using|by running) \S"
    r"|\b(?:tests?|build|lint|linter|server|migrations?|deploys?|checks?|suite)(?: \w+)? (?:run|runs|is run"
    r"|are run|start|starts|is started|is built|are built)"
    r" (?:with|via|using|by|through) \S|\b(?:test|build|lint|start|deploy) command (?:is|:)"
    r"|\b(?:tests? (?:laufen|startet man) mit|gebaut wird mit|les tests se lancent avec|se ejecutan? con"
    r"|de tests draaien met)\b",
    re.I,
)
_LOCATION: Final = re.compile(
    r"\b(?:lives? (?:in|at|under)|(?:is|are) (?:located|stored|defined|kept|found|configured|documented|hosted"
    r"|deployed|saved) (?:in|at|under|on)|located (?:in|at)|stored (?:in|at|under)|(?:logs?|config\w*|settings"
    r"|data|database|source|docs?|entry point|assets) (?:is|are|go|goes|live) (?:in|at|to|under)"
    r"|liegt (?:in|unter)|liegen (?:in|unter)|befinde[nt] sich|gespeichert (?:in|unter)|se trouve|est stocké"
    r"|está en|se guarda(?:n)? en|staat in|si trova)\b",
    re.I,
)
_FACT: Final = re.compile(
    r"\b(?:(?:the|our|this|my) (?:[\w-]{1,30} ){0,3}(?:project|repo(?:sitory)?|app(?:lication)?|service|api"
    r"|codebase|backend|frontend|site"
    r"|server|database|pipeline|branch|module|package|library|cluster|system|team|company|product|customer"
    r"|account|order|plan"
    r"|subscription|contract|licen[cs]e|warranty|default|version|port|timeout|limit|deadline|budget|schema"
    r"|endpoint|release|number|address"
    r"|email|name|key|token|window|policy|job|queue|cache|client|device|invoice)\b.{0,60}\b(?:is|are|uses?"
    r"|runs?|requires?|needs?|supports?|has|have|targets?"
    r"|listens?|depends?|expects?|returns?|includes?|expires?|costs?|belongs?|was|ends?|starts?)"
    r"|we (?:use|run|deploy|target|support|release|host|store|have|ship)|i (?:use|work (?:on|with|in|for|at)|live in)"
    r"|(?:built|written|implemented|hosted|deployed|released|licensed|configured) (?:with|in|on|under|using) "
    r"|depends on|listens on|root cause"
    r"|(?:was|is|were) caused by|turned out|the reason (?:is|was)|is called|is named|defaults? to"
    r"|the (?:bug|issue|problem|error|failure|crash) (?:is|was)|requires? (?:python|node|java|go|rust|ruby|php"
    r"|at least)"
    r"|(?:does|did|do)(?:n['’]t| not) (?:support|work|allow|resurrect|accept|handle))\b"
    r"|\b(?:wir (?:verwenden|nutzen|benutzen|haben|setzen)|(?:das|unser) projekt|der server|die datenbank"
    r"|läuft auf|benötigt|ursache (?:ist|war)"
    r"|(?:die|meine|unsere|ihre|deine) \w*(?:frist|version|adresse|nummer|\w*lizenz|\w*bestellung"
    r"|\w*rechnung)\b.{0,40}\b(?:ist|lautet|läuft|endet)"
    r"|nous utilisons|le projet|notre projet|le serveur|tourne sur|nécessite|la cause|usamos|el proyecto"
    r"|nuestro proyecto|el servidor|corre en|requiere"
    r"|wij gebruiken|we gebruiken|het project|ons project|draait op|usiamo|il progetto)\b"
    r"|我们(?:使用|用)|项目|服务器|原因是|プロジェクト|サーバー|使っています|原因は",
    re.I,
)
_USE: Final = re.compile(
    r"^(?:please |and |also |but |bitte )?(?:use|prefer|store|target|stick (?:to|with)|follow|indent"
    r"|format|commit|tag|name (?:all|every|\w+s)|write (?:all|every|commit|docs?|tests)|verwende|nutze|benutze"
    r"|utilise[rz]?|usa|gebruik|use[nz])\b.{3,}",
    re.I,
)
_PURPOSE: Final = re.compile(r"\b(?:to|in order to|um) \w+", re.I)
_DEPENDENT: Final = re.compile(
    r"^(?:[^:]{1,40}: )?(?:it|this|that|these|those|they|he|she|here|there|both|each|which|same|such|es"
    r"|dies(?:e[rs]?)?|das|sie"
    r"|er|ça|cela|ce|esto|eso|dit|dat)\b(?! (?:project|repo|repository|app|codebase|service|team|projekt|projet"
    r"|proyecto))",
    re.I,
)
_TASK: Final = re.compile(
    r"^(?:please |can you |could you |now |then |and |also |first |next |bitte |kannst du )*(?:add|build|create"
    r"|fix|make|implement|update|remove|delete|rename|refactor|show|explain|check|look|find|tell|give|list|try"
    r"|write|change|move|open|read|help|investigate|debug|review|summari[sz]e|translate|generate|run|install|test"
    r"|continue|finish|clean|hand|research|include|display|play|start|automatically"
    r"|erstelle|baue|füge|behebe|zeige|prüfe|ändere|schreibe|ajoute|crée|corrige|montre|añade|crea|corrige"
    r"|muestra|arregla|voeg|maak|toon)\b",
    re.I,
)
_ADVICE: Final = re.compile(
    r"\byou(?:['’](?:ll|re|ve|d)| (?:can|could|should|may|might|need|will|want|are|have|must|get|see|run|use"
    r"|try))\b|\bif you\b|\bconsider\b"
    r"|\bin this example\b|\b(?:usually|typically|generally|often|commonly|in general)\b|\b(?:widely|popular)\b"
    r"|\bfor you\b"
    r"|\b(?:sie können|du kannst|sie sollten|normalerweise|vous pouvez|tu peux|généralement|puedes|puede usted"
    r"|generalmente|je kunt|meestal)\b",
    re.I,
)
_PROBLEM: Final = re.compile(
    r"\b(?:i get|i['’]?m getting|when(?:ever)? i (?:try|run|start|click)|not working|fails with|it says|is says"
    r"|i have an? \w+ (?:problem|issue|error))\b",
    re.I,
)
_OWN: Final = re.compile(
    r"\b(?:our|this (?:project|repo\w*|codebase|app|service)|root cause|was caused by|(?:bug|issue|problem"
    r"|failure) was|unser\w*|notre|nuestr[oa]|ons|ursache)\b",
    re.I,
)
_DID: Final = re.compile(
    r"^(?:(?:successfully|i|i['’]ve|we|we['’]ve|have|also|now|just|then)\s+){0,3}(?:added|created|fixed|updated"
    r"|implemented|changed|removed|renamed|moved|merged|wrote|refactored|replaced|built|styled|verified|checked"
    r"|ran|executed|tested|introduced|demonstrated|attempted|listed|read|committed|appended|reworked|enhanced"
    r"|improved|hinzugefügt|erstellt|behoben|geändert)\b",
    re.I,
)
_STABLE_NAMES: Final = frozenset(
    {
        TokenKind.PATH,
        TokenKind.URL,
        TokenKind.IDENTIFIER,
        TokenKind.VERSION,
        TokenKind.NUMBER,
        TokenKind.FLAG,
        TokenKind.MAIL,
    }
)


def durable(span: Span, *, grounded: bool) -> Durable | None:
    """Judge one span; None where it carries no durable fact, or may not.

    `grounded` says that the assistant has looked at something by a tool: before that, what it states is general
    knowledge and not the workspace's.
    """
    line = span.safe
    if span.shape not in PROSE or span.secret or "[control token]" in line or line.endswith((":", "：", "…")):
        return None
    if not CHARACTERS_MIN <= len(line) <= CHARACTERS_MAX or not _has_words(line) or line.startswith("["):
        return None
    if any(cues.has(line, cue) for cue in (Cue.QUESTION, Cue.HYPOTHETICAL, Cue.RETRACTION, Cue.CHATTER)):
        return None
    user = span.speaker is EventKind.USER
    category = _user_category(span) if user else _assistant_category(span, grounded=grounded)
    if category is None:
        return None
    return Durable(span=span, category=category, confidence=_confidence(span, category), score=_score(span, category))


def may_state(line: str) -> bool:
    """Whether somebody's line could be taken for a rule or a fact; quick and generous, for foreign text."""
    return (
        cues.has(line, Cue.CONSTRAINT)
        or cues.has(line, Cue.DECISION)
        or _PREFERENCE.search(line) is not None
        or _stated(line) is not None
    )


def _user_category(span: Span) -> Category | None:
    """A user's task of the moment is none, unless it states a rule for all times."""
    line = span.safe
    lasting = cues.has(line, Cue.CONSTRAINT)
    if cues.has(line, Cue.MOMENT) and not lasting:
        return None
    if lasting and not _TASK.match(line):
        lasts = len(keys.frame(line)) >= RULE_WORDS_MIN or _is_named(line) or cues.has_many_letters(line)
        return Category.RULE if lasts else None
    if _PERSON.search(line):
        return Category.PERSON
    if _TASK.match(line) and not _COMMAND.search(line):
        return None
    if _PREFERENCE.search(line):
        return Category.PREFERENCE
    if cues.has(line, Cue.DECISION):
        return Category.DECISION
    if _USE.match(line) and not _PURPOSE.search(line):
        return Category.RULE
    if _PROBLEM.search(line) or _ADVICE.search(line):
        return None
    stated = _stated(line)
    return None if stated is Category.FACT and span.shape is Shape.ITEM and not _is_named(line) else stated


def _assistant_category(span: Span, *, grounded: bool) -> Category | None:
    line = span.safe
    if any(cues.has(line, cue) for cue in (Cue.QUOTING, Cue.MOMENT, Cue.OPEN)) or _ADVICE.search(line):
        return None
    if _DEPENDENT.match(line) or _DID.match(line) or _TASK.match(line):
        return None
    if span.shape is Shape.ITEM and len(line) < 40:
        return None
    if cues.has(line, Cue.DECISION):
        return Category.DECISION
    stated = _stated(line)
    if stated is None or not (grounded or _OWN.search(line)):
        return None
    return stated if _is_named(line) or _OWN.search(line) else None


def _stated(line: str) -> Category | None:
    if _PERSON.search(line):
        return Category.PERSON
    if _COMMAND.search(line):
        return Category.COMMAND
    if _LOCATION.search(line):
        return Category.LOCATION
    return Category.FACT if _FACT.search(line) else None


def _confidence(span: Span, category: Category) -> float:
    if known := CONFIDENCE.get((span.speaker, category)):
        return known
    if span.speaker is EventKind.USER:
        return _USER_FACT
    return _ASSISTANT_NAMED if _is_named(span.safe) else _ASSISTANT_OTHER


def _score(span: Span, category: Category) -> float:
    score = 50.0 if span.speaker is EventKind.USER else 20.0
    score += {Category.RULE: 20.0, Category.PREFERENCE: 15.0, Category.DECISION: 12.0}.get(category, 5.0)
    score += 2.0 * min(sum(token.kind in _STABLE_NAMES for token in tokens(span.safe)), 4)
    score -= 10.0 if _DEPENDENT.match(span.safe) else 0.0
    return score - max(len(span.safe) - 240, 0) / 40


def _is_named(line: str) -> bool:
    return any(token.kind in _STABLE_NAMES for token in tokens(line)) or "`" in line


def _has_words(line: str) -> bool:
    """Languages without spaces count by characters."""
    return len(line.split()) >= WORDS_MIN or cues.has_many_letters(line)
