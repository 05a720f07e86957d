"""Cue words: what a sentence does, told by rules, in the languages that the rules know.

English, German, French, Spanish, Dutch, Italian and Portuguese have the full table; Chinese, Japanese and Russian have
negation, constraint and decision. In another language a sentence has no cue and is ranked by what it names alone.

The module owns these invariants:

- A cue looks at one safe line (`Span.safe`); it never needs the lines around it.
- Expressions are compiled at first use and are linear in the line.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from emelex_workers.text.expressions import Expression


class Cue(Enum):
    """What a sentence does. The value is the pattern that tells."""

    def __init__(self, pattern: str) -> None:
        # An attribute, since a table by member would ask the member's hash for each of many lines.
        self.expression = Expression(pattern)

    NEGATION = (
        r"\b(?:not|never|no|none|nobody|nothing|neither|nor|cannot|without|avoid(?:s|ed|ing)?|forbidden|prohibited"
        r"|refuse[sd]?|nowhere)\b|n['’]t\b|\bdont\b"
        r"|\b(?:nicht|nie|niemals|nichts|kein(?:e[nrms]?)?|ohne|vermeide[nt]?|verboten|nirgends)\b"
        r"|\b(?:ne|n['’]\w+|pas|jamais|aucune?|sans|évite[rz]?|rien|interdit)\b"
        r"|\b(?:nunca|jamás|sin|ningún|ninguna|evita[r]?|nada|tampoco|prohibido)\b"
        r"|\b(?:niet|nooit|geen|zonder|vermijd|nergens|verboden)\b"
        r"|\b(?:non|senza|nessun[ao]?|evita(?:re)?|niente|vietato)\b"
        r"|\b(?:não|nenhum[a]?|sem|evite|proibido)\b"
        r"|\b(?:не|никогда|нельзя|без|ни)\b|[不别勿没未]|禁止|ない|ません|ずに"
    )
    CONSTRAINT = (
        r"\bnever\b(?! mind)"
        r"|\b(?:must|should|shall|may|can|are|is)(?: not|n['’]t| never)\b(?= (?:be |use|touch|commit|push|change|run"
        r"|add|call|write|edit|delete|modify|go|exceed|contain|have|depend|import|allowed))|(?:^|[,;:.—–-]\s*"
        r"|\b(?:please|and|but|so|also|you|then|just)\s+)(?:do not|don['’]t|dont|avoid|no more)\b(?! (?:know|think"
        r"|see|worry|have|understand|mind|need|want|forget|remember))|\buse[sd]?\b.{1,40},? not\b"
        r"|\bunder no circumstances\b|\bnot allowed\b|\bforbidden\b|\boff[- ]limits\b|\bat all times\b"
        r"|\bno (?:external|third[- ]party|new|additional|global|inline) \w+|\bkeep (?:it|the|this|all|everything)\b"
        r"|\balways\b|\bmust\b|\bfrom now on\b|\bmake sure\b|\bonly (?:use|run|edit|touch|change|commit|when|if"
        r"|after)\b"
        r"|\b(?:use|using) only\b|\bwithout (?:asking|changing|touching|breaking|using|adding)\b|\bat most\b"
        r"|\bat least\b|\b(?:no|not) more than\b|\bhands off\b|\b(?:banned|prohibited|taboo)\b"
        r"|\b(?:nobody|no one|nothing|none of \w+)\b.{1,60}\b(?:may|must|should|shall|can)\b"
        r"|\b(?:nobody|no one|nothing|none of \w+) (?:may|must|should|shall|can)\b"
        r"|\b(?:keep|leave)\b.{1,60}\b(?:as (?:it|they) (?:is|are)|untouched|unchanged|intact)\b"
        r"|\b(?:niemand|keiner)\b.{1,60}\b(?:darf|soll)\b|\b(?:niemand|keiner|kein\w*) (?:\w+ )?(?:darf|dürfen|soll)\b"
        r"|\bsoll(?:en|st|t)? (?:\w+ )?(?:nicht|nie|niemals|kein\w*)\b|\b(?:untersagt|unzulässig|tabu)\b|\bfinger weg\b"
        r"|\blass(?:t|en)?\b.{1,60}\b(?:in ruhe|unverändert|unangetastet|wie (?:es|er|sie) (?:ist|sind))\b"
        r"|\b(?:höchstens|maximal|nicht mehr als)\b"
        r"|\b(?:nadie|ningun[oa]|ningún) (?:\w+ )?(?:puede|debe)\b|\bno (?:se )?(?:puede|permite)n?\b"
        r"|\bno (?:edites|borres|modifiques|llames|envíes|subas|ejecutes|elimines|muevas|publiques|despliegues|añadas"
        r"|escribas|mandes|pases)\b|\b(?:como máximo|a lo sumo|no más de|intocable)\b"
        r"|\bdej[ae]\b.{1,60}\b(?:como está|intact[oa]s?|en paz|sin tocar)\b"
        r"|\bpersonne ne\b|\bau plus\b|\bpas plus de\b"
        r"|\blaisse[rz]?\b.{1,60}\b(?:tranquille|intact(?:es?|s)?|tel(?:le)?s? quel(?:le)?s?)\b"
        r"|\b(?:niemals|nie|immer|darf(?:st)? (?:nicht|nie|kein\w*)|dürfen (?:nicht|nie|kein\w*)|muss|müssen|verboten"
        r"|auf keinen fall|ab jetzt|ab sofort|stets|nur noch|bitte (?:nicht|kein\w*))\b"
        r"|^(?:bitte )?(?:\w+e|\w+en(?: sie)?) (?:nicht|kein\w*|nie)\b"
        r"|\b(?:jamais|toujours|il (?:ne )?faut|doit|doivent|interdit|n['’]utilise[rz]?(?: jamais| pas)|ne \w+ (?:pas"
        r"|jamais|plus)|désormais|en aucun cas)\b"
        r"|\b(?:nunca|jamás|siempre|debe[ns]?|no (?:se debe|uses?|usar|toques?|cambies?|hagas?)|prohibido"
        r"|a partir de ahora|bajo ningún concepto)\b"
        r"|\b(?:nooit|altijd|moet(?:en)?|mag (?:niet|geen|nooit)|mogen (?:niet|geen)|verboden|vanaf nu"
        r"|gebruik (?:geen|nooit))\b"
        r"|\b(?:sempre|deve|devono|vietato|d['’]ora in poi|non (?:usare|toccare|modificare))\b"
        r"|\b(?:nunca|deve[m]?|proibido|não (?:use|usar|toque|altere))\b"
        r"|\b(?:никогда|всегда|нельзя|должен|должн[аоы])\b|禁止|不要|不得|不能"
        r"|必须|务必|永远|しないで|禁じ|必ず|決して"
    )
    DECISION = (
        r"\b(?:we|i|they|team|everyone)(?: have|['’]ve|['’]re| are)? (?:all )?(?:decided|agreed|chose|settled|opted"
        r"|picked|switched|going with|keeping)\b|\bdecision\b.{0,12}\b(?:is|was|:)|\bdecided (?:to|on|against|that)\b"
        r"|\b(?:we|i)(?:['’]ll| will) (?:use|go with|keep|drop|switch|stick|move to|adopt)\b|\blet['’]?s (?:go with"
        r"|use|keep|stick|drop|switch)\b|\bagreed (?:on|to|with)\b|\bapproved\b"
        r"|\b(?:entschieden|beschlossen|wir (?:nehmen|bleiben bei|wechseln)|einigen uns|vereinbart|décidé"
        r"|on (?:utilise|part sur|garde|passe à)|nous (?:gardons|utiliserons)|decidi\w+|usaremos|vamos a usar"
        r"|acordamos|nos quedamos con|besloten|we kiezen|deciso|useremo|decidimos|vamos usar)\b"
        r"|\b(?:решили)\b|决定|改用|决议|決定|採用"
    )
    OPEN = (
        r"\btodo\b|\bfixme\b|\bnext steps?\b|\bremaining\b|\bstill (?:need|needs|to (?:do|be done)|open|missing"
        r"|pending|fails?|failing|broken|have to|has to)\b|\bnot yet\b|\bpending\b|\bleft to do\b|\bfollow[- ]up\b"
        r"|\bopen (?:question|issue|task|point)s?\b|\bblocked (?:on|by)\b|\bwaiting (?:for|on)\b|\bremains to\b"
        r"|\bunresolved\b|\blater we\b"
        r"|\b(?:offen(?:e[rns]?)?|noch (?:zu tun|nicht|offen|ausstehend)|fehlt noch|muss noch|nächste[rn]? schritte?"
        r"|steht noch aus|warten auf)\b"
        r"|\b(?:reste à|à faire|pas encore|prochaine étape|en attente)\b"
        r"|\b(?:pendiente|falta|todavía no|aún no|queda por|próximos pasos?)\b"
        r"|\b(?:nog niet|nog te doen|openstaand|volgende stap)\b"
        r"|\b(?:ancora da|da fare|in sospeso)\b"
        r"|\b(?:falta|pendente|ainda não)\b|待办|尚未|未完成|まだ|未対応|\bосталось"
    )
    OUTCOME = (
        r"\b(?:fixed|added|created|implemented|changed|updated|removed|renamed|moved|merged|built|wrote|refactored"
        r"|replaced|installed|configured|resolved|passes|passed|passing|fails|failed|failing|works|broke|found"
        r"|caused?|because|root cause|turns out|verified|confirmed|completed?|shipped|deployed|reverted|migrated"
        r"|measured|enabled|disabled)\b"
        r"|\b(?:behoben|hinzugefügt|erstellt|geändert|entfernt|umgesetzt|gefunden|ursache|weil|bestanden"
        r"|fehlgeschlagen|läuft|funktioniert|bestätigt|ausgetauscht|erstattet)\b"
        r"|\b(?:corrigé|ajouté|créé|modifié|supprimé|trouvé|parce que|réussi|échoué|vérifié)\b"
        r"|\b(?:corregi\w+|añadi\w+|cread[oa]|cambiad[oa]|eliminad[oa]|encontr\w+|porque|falló|funciona)\b"
        r"|\b(?:opgelost|toegevoegd|gemaakt|gewijzigd|verwijderd|gevonden|omdat|werkt)\b"
        r"|修复|完成|添加|原因|修正|追加"
    )
    CHATTER = (
        r"^(?:ok(?:ay)?|great|perfect|excellent|sure|certainly|of course|absolutely|good|nice|wonderful|awesome"
        r"|alright|got it|understood|thanks?|thank you|no problem|you['’]re (?:right|welcome)|yes|right|hmm|well"
        r"|sorry|i apologi[sz]e|my apologies|done|all done|voilà|super|klar|gerne|natürlich|prima|d['’]accord"
        r"|bien sûr|parfait|claro|perfecto|vale|zeker|prima|goed)\b[\s,.!–—-]*(?:$|(?:let me|i['’]?ll|i will|now|here"
        r"|i can|happy to|i['’]?d)\b)"
        r"|^(?:(?:now|next|first|then|finally|so|and|also|okay|ok|great|perfect|good|excellent|alright|sure"
        r"|certainly)\b)?[\s,.!:–—-]*(?:let me|let['’]s (?!go with|stick|keep|ship|drop|switch|not|leave)|i['’]?ll"
        r"|i will|i(?:['’]?m| am) (?:going to|now)|i need to|i should|i can (?:also|now|help)|we (?:should|need to"
        r"|can) (?:now |first |also |check|look|see|run|open|try|find|verify|navigate)|looking at|checking|here (?:is"
        r"|are|['’]s)|here['’]s|this (?:is|will)|that['’]s|feel free|would you like|do you want|shall i|anything else"
        r"|if you (?:need|have|want|['’]d)|please (?:let me|review|check|see)|waiting for|i hope)\b"
        r"|^(?:\w+[,!] )?(?:thank you|thanks)(?: (?:very|so) much)?[.!]*$"
        r"|^(?:thank you (?:for|so)|thanks for|vielen dank|merci (?:beaucoup|pour)|gracias por)\b"
        r"|^(?:ich (?:werde|schaue|prüfe|mache|beginne|sehe mir)|lass mich|jetzt (?:werde|prüfe|schaue)|hier (?:ist"
        r"|sind)|gern(?:e)?\b|je vais|laissez-moi|voici|voy a|déjame|aquí (?:está|tienes)|ik (?:ga|zal|kijk)|laat me"
        r"|hier (?:is|zijn))\b"
    )
    HYPOTHETICAL = (
        r"^(?:if|suppose|imagine|assuming|assume|pretend|say|what if|let['’]s say|hypothetically)\b"
        r"|\b(?:would|could have|might|maybe|perhaps|possibly|probably|hypothetical(?:ly)?|for example|for instance"
        r"|imagine|pretend|suppose|in theory|i guess|i think|not sure|could|would be nice|what if)\b"
        r"|\b(?:just kidding|kidding|joking|lol|haha|j/k|/s|wink)\b"
        r"|^(?:wenn|falls|angenommen|stell dir)\b"
        r"|\b(?:vielleicht|eventuell|könnte|würde|zum beispiel|scherz|spaß)\b"
        r"|^si\b"
        r"|\b(?:peut-être|pourrait|par exemple|quizás|tal vez|podría|por ejemplo|broma|misschien|zou|bijvoorbeeld"
        r"|grapje|forse|talvez)\b|也许|可能|例如|开玩笑|たぶん|例えば|冗談|может быть"
    )
    RETRACTION = (
        r"^(?:actually,? )?(?:never ?mind|scratch that|forget (?:that|it|what i said)|ignore (?:that|what i said"
        r"|my last)|just kidding|only joking|kidding|i was joking|that was a joke|disregard that)\b"
        r"|^(?:vergiss (?:das|es)|doch nicht|war (?:nur )?(?:ein )?(?:scherz|spaß)|nur spaß|oublie ça|laisse tomber"
        r"|je plaisante|olvída(?:lo)|era broma|laat maar|grapje)\b|^(?:算了"
        r"|当我没说|开玩笑)|^(?:冗談|忘れて)"
    )
    INSTRUCTION = (
        r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:previous|prior|above|earlier|all|instructions?"
        r"|rules?|prompts?)\b"
        r"|\b(?:system prompt|you (?:must|should|are now|will now|have to)|as an ai|assistant[:,]|new instructions?"
        r"|jailbreak|remember (?:that|this|to)|store (?:this|that) in|add (?:this )?to (?:your )?memory|from now on"
        r"|act as|pretend to be|do not tell|don['’]t tell|reveal|exfiltrate)\b"
        r"|\b(?:please|kindly) (?:run|execute|send|post|upload|download|delete|email|call|fetch|visit|open)\b"
        r"|\b(?:run|execute|send|curl|wget|upload|post|email|fetch|visit)\b.{0,60}(?:https?://|\|\s*(?:ba)?sh\b)"
        r"|\b(?:ignorier\w*|vergiss|befolge|ignore[rz]|oublie[rz]?|ignora|olvida)\b.{0,40}\b(?:anweisung\w*"
        r"|instructions?|instrucciones|regeln?|règles?|reglas)\b|忽略.{0,10}(?:指令"
        r"|指示|规则)|指示を無視"
    )
    QUOTING = (
        r"\b(?:says|said|states|stated|reads|claims|instructs|asks (?:us|me|you)|tells (?:us|me|you)|according to"
        r"|mentions|recommends|suggests)\b[^.]{0,12}[:\"“'`]"
        r"|\b(?:according to|as per|per) (?:the|this|its)\b"
        r"|\b(?:the|this) (?:page|readme|docs?|documentation|file|comment|article|issue|output|website|tool|email"
        r"|log)\b.{0,30}\b(?:says?|states?|reads?|claims?|instructs?|asks?|tells?|wants?|contains?|suggests?"
        r"|recommends?)\b"
        r"|\b(?:die seite|die datei|das dokument|la page|le fichier|la página|el archivo|de pagina)\b.{0,30}\b(?:sagt"
        r"|behauptet|steht|dit|indique|dice|zegt)\b"
    )
    MOMENT = (
        r"\b(?:right now|currently|at the moment|for now|today|yesterday|tomorrow|this (?:time|session|morning"
        r"|afternoon|run)|just now|temporarily|in a (?:moment|second|minute)|so far|in progress|momentan|gerade|heute"
        r"|gestern|vorerst|en ce moment|aujourd['’]hui|pour l['’]instant|ahora mismo|hoy|ayer|op dit moment"
        r"|vandaag)\b|现在|今天|今日"
    )
    QUESTION = r"[?？؟]\s*[\"'”’)\]*_]*$|^¿"


_AGREEING_WORDS: Final = """
ok okay yes yep yeah y no nope n thanks thank you great perfect nice good cool fine sure continue go on proceed next
done please do it  ja nein danke gut weiter mach oui non merci bien sí si gracias vale bueno bedankt prima verder
bitte mach sigue continúa adelante perfecto genial entendido por favor verstanden klar super
stop exit quit hi hello hey hallo  looks lgtm that this works for me now ahead sounds awesome excellent
"""
_ACKNOWLEDGEMENTS: Final = frozenset(_AGREEING_WORDS.split())
_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")


def has(line: str, cue: Cue) -> bool:
    """Whether the line shows the cue."""
    return cue.expression.search(line) is not None


def count(line: str, cue: Cue) -> int:
    """How often the line shows the cue."""
    return cue.expression.count(line)


def has_many_letters(line: str) -> bool:
    """Whether a line is written without spaces between its words, so that counting words says nothing."""
    return sum(ord(character) >= 0x2E80 for character in line) >= 6


def is_acknowledgement(line: str) -> bool:
    """Whether a line only agrees, thanks or greets: `ok, go ahead`."""
    words = [word.lower() for word in _WORD.findall(line)]
    return len(words) <= 5 and all(word in _ACKNOWLEDGEMENTS for word in words)
