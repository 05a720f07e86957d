"""Phrases of facts: the expressions by which `durable` tells what a sentence states, in the languages it knows.

The module owns these invariants:

- An expression looks at one safe line and is linear in it.
- Each expression says one thing; how they combine, and for which speaker, is `durable`'s business.
"""

from __future__ import annotations

import re
from typing import Final

from emelex_workers.text.expressions import Expression

PREFERENCE: Final = Expression(
    r"\b(?:(?:i|we)(?: really| strongly| usually| always| never| generally){0,2} (?:prefer|hate|dislike|like (?:it|my"
    r"|our|short|to))|(?:my|our) (?:preference|preferred|favou?rite|convention|style|policy|standard)\b"
    r"|prefer(?:red)? \w+|convention (?:is|here)|please (?:always|use|keep|stick|call me)|(?:answer|reply|respond"
    r"|write) (?:me |to me )?in (?:english|german|french|spanish|dutch|italian|japanese|chinese))\b"
    r"|\b(?:ich bevorzuge|wir bevorzugen|mir ist .{1,40} lieber|unsere konvention|am liebsten"
    r"|antworte (?:mir )?(?:bitte )?auf|je préfère|nous préférons|notre convention|prefiero|preferimos"
    r"|nuestra convención|ik heb liever|onze conventie|preferisco|prefiro)\b"
    r"|更喜欢|喜欢用|好み|の方がいい"
)
"""How somebody likes things to be done."""
PERSON: Final = Expression(
    r"\b(?:my name is|i am the|i['’]m the|call me|(?:is|are) (?:our|the|my) (?:\w+ )?(?:maintainer|owner|lead|manager"
    r"|contact|reviewer|customer|admin|boss|architect|designer|on-?call)\w*|is responsible for|(?:maintained"
    r"|owned) by|works (?:at|for)|mein name ist|ich heiße|ist (?:unser|der|die) \w*(?:leiter|chef|ansprechpartner"
    r"|kunde)\w*|je m['’]appelle|mi nombre es|me llamo|mijn naam is)\b"
    r"|我叫|私は.{1,20}です"
)
"""Who somebody is."""
COMMAND: Final = Expression(
    r"^(?:to|um) (?:run|build|test|start|lint|deploy|install|format|release|bauen|testen|starten)\b.{0,80}[,:]"
    r"|\b(?:run|start|build|test|deploy|lint|install|execute|release|migrate)s? (?:it |them |this |everything "
    r"|the \w+ |all (?:the )?\w+ |tests )?(?:with|via|using|by running) \S"
    r"|\b(?:tests?|build|lint|linter|server|migrations?|deploys?|checks?|suite)(?: \w+)? (?:run|runs|is run|are run"
    r"|start|starts|is started|is built|are built) (?:with|via|using|by|through) \S"
    r"|\b(?:test|build|lint|start|deploy) command (?:is|:)"
    r"|\b(?:tests? (?:laufen|startet man) mit|gebaut wird mit|les tests se lancent avec|se ejecutan? con"
    r"|de tests draaien met)\b"
)
"""How something is run, built or tested."""
LOCATION: Final = Expression(
    r"\b(?:lives? (?:in|at|under)|(?:is|are) (?:located|stored|defined|kept|found|configured|documented|hosted"
    r"|deployed|saved|loaded|read) (?:in|at|under|on|from)|located (?:in|at)|stored (?:in|at|under)|(?:logs?"
    r"|config\w*|settings|data|database|source|docs?|entry point|assets) (?:is|are|go|goes|live) (?:in|at|to|under)"
    r"|liegt (?:in|unter)|liegen (?:in|unter)|befinde[nt] sich|gespeichert (?:in|unter)|se trouve|est stocké|está en"
    r"|se guarda(?:n)? en|staat in|si trova)\b"
)
"""Where something is."""
FACT: Final = Expression(
    r"\b(?:(?:the|our|this|my) (?:[\w-]{1,30} ){0,3}(?:project|repo(?:sitory)?|app(?:lication)?|service|api|codebase"
    r"|backend|frontend|site|server|database|pipeline|branch|module|package|library|cluster|system|team|company"
    r"|product|customer|account|order|plan|subscription|contract|licen[cs]e|warranty|default|version|port|timeout"
    r"|limit|deadline|budget|schema|endpoint|release|number|address|email|name|key|token|window|policy|job|queue"
    r"|cache|client|device|invoice)\b.{0,60}\b(?:is|are|uses?|runs?|requires?|needs?|supports?|has|have|targets?"
    r"|listens?|depends?|expects?|returns?|includes?|expires?|costs?|belongs?|was|ends?|starts?)|we (?:use|run|deploy"
    r"|target|support|release|host|store|have|ship)|i (?:use|work (?:on|with|in|for|at)|live in)|(?:built|written"
    r"|implemented|hosted|deployed|released|licensed|configured) (?:with|in|on|under|using) |depends on|listens on"
    r"|root cause|(?:was|is|were) caused by|turned out|the reason (?:is|was)|is called|is named|defaults? to"
    r"|the (?:bug|issue|problem|error|failure|crash) (?:is|was)|requires? (?:python|node|java|go|rust|ruby|php"
    r"|at least)|(?:does|did|do)(?:n['’]t| not) (?:support|work|allow|resurrect|accept|handle))\b"
    r"|\b(?:wir (?:verwenden|nutzen|benutzen|haben|setzen)|(?:das|unser) projekt|der server|die datenbank|läuft auf"
    r"|benötigt|ursache (?:ist|war)|(?:die|meine|unsere|ihre|deine) \w*(?:frist|version|adresse|nummer|\w*lizenz"
    r"|\w*bestellung|\w*rechnung)\b.{0,40}\b(?:ist|lautet|läuft|endet)|nous utilisons|le projet|notre projet"
    r"|le serveur|tourne sur|nécessite|la cause|usamos|el proyecto|nuestro proyecto|el servidor|corre en|requiere"
    r"|wij gebruiken|we gebruiken|het project|ons project|draait op|usiamo|il progetto)\b"
    r"|我们(?:使用|用)|项目|服务器|原因是|プロジェクト|サーバー|使っています|原因は"
)
"""A lasting property of the project, its parts or its people."""
USE: Final = Expression(
    r"^(?:please |and |also |but |bitte )?(?:use|prefer|store|target|stick (?:to|with)|follow|indent|format|commit"
    r"|tag|name (?:all|every|\w+s)|write (?:all|every|commit|docs?|tests)|verwende|nutze|benutze|utilise[rz]?|usa"
    r"|gebruik|use[nz])\b.{3,}"
)
"""An order without end: use this."""
PURPOSE: Final = Expression(r"\b(?:to|in order to|um) \w+")
ASKED: Final = Expression(r"\b(?:please|bitte|s['’]il (?:te|vous) plaît|por favor|alsjeblieft|per favore)[.!]*$")
"""Asks for something to be done now: `the report needs a second look, please`."""
WISH: Final = Expression(
    r"\bi(?:['’]d| would) (?:like|love)\b|\b(?:i|we) (?:want|need) (?:you|to)\b|^(?:please|kindly|bitte)\b"
    r"|\bich (?:möchte|will|hätte gern|wünsche)\b|\bich (?:\w+ )?(?:brauche|bitte)\b"
    r"|\b(?:quiero|quisiera|necesito)\b|\bme gustaría\b|^por favor\b"
    r"|\bje (?:voudrais|veux|souhaite)\b|\bik wil\b|\bvorrei\b"
)
"""Says what somebody wants of the agent: `I would like you to go over it`."""
DEPENDENT: Final = Expression(
    r"^(?:[^:]{1,40}: )?(?:it|this|that|these|those|they|he|she|here|there|both|each|which|same|such|es"
    r"|dies(?:e[rs]?)?|das|sie|er|ça|cela|ce|esto|eso|dit|dat)\b(?! (?:project|repo|repository|app|codebase|service"
    r"|team|projekt|projet|proyecto))"
)
"""Means nothing without the sentence before it."""
"""An order for one purpose, and so for one moment."""
TASK: Final = Expression(
    r"^(?:please |can you |could you |now |then |and |also |first |next |bitte |kannst du )*(?:add|build|create|fix"
    r"|make|implement|update|remove|delete|rename|refactor|show|explain|check|look|find|tell|give|list|try|write"
    r"|change|move|open|read|help|investigate|debug|review|summari[sz]e|translate|generate|run|install|test|continue"
    r"|finish|clean|hand|research|include|display|play|start|automatically|erstelle|baue|füge|behebe|zeige|prüfe"
    r"|ändere|schreibe|ajoute|crée|corrige|montre|añade|crea|corrige|muestra|arregla|voeg|maak|toon)\b"
)
"""A task of the moment."""
FOR_ALL_TIME: Final = Expression(
    r"\b(?:never|always|from now on|niemals|nie|immer|ab jetzt|ab sofort|nunca|jamás|siempre|jamais|toujours|désormais"
    r"|nooit|altijd|mai|sempre)\b"
)
"""Makes of an order a rule, whatever it begins with: `change this file never`."""
ADVICE: Final = Expression(
    r"\byou(?:['’](?:ll|re|ve|d)| (?:can|could|should|may|might|need|will|want|are|have|must|get|see|run|use|try))\b"
    r"|\bif you\b|\bconsider\b|\bin this example\b"
    r"|\b(?:usually|typically|generally|often|commonly|in general)\b"
    r"|\b(?:widely|popular)\b|\bfor you\b"
    r"|\b(?:sie können|du kannst|sie sollten|normalerweise|vous pouvez|tu peux|généralement|puedes|puede usted"
    r"|generalmente|je kunt|meestal)\b"
)
"""General advice to a reader: knowledge of the world, not of this workspace."""
VERBS: Final = (
    r"(?:is|are|will be|wird|sera|será|zal|sarà"
    r"|has|have|uses?|runs?|starts?|ends?|happens?|owns?|go(?:es)? (?:out|to|through)|lives?|expires?"
    r"|belongs?|costs?|ist|sind|hat|haben|läuft|laufen|nutzt|endet|est|sont|utilise|tourne|es|son|tiene|usa|corre"
    r"|heeft|gebruikt|draait)"
)
"""Verbs that state."""
VALUED: Final = Expression(
    r"^(?:(?:the|our|my|all|every|each|der|die|das|unser\w*|mein\w*|le|la|notre|nos|mon|ma|el|nuestr\w+|mi|het|de|ons"
    r"|onze)\b"
    rf"[^,;:]{{1,50}}?|(?-i:[A-ZÄÖÜÉ])[\w-]{{2,30}}(?: [\w-]+){{0,2}}) {VERBS}\b.{{2,}}"
    r"|^(?:we|i)['’](?:re|m) using .{2,}"
)
"""A person states something of a definite subject."""
PROPER: Final = re.compile(r"(?<=[\w,] )(?:[A-ZÄÖÜÉ][\w-]+|\d[\w.,/-]*)")
PROBLEM: Final = Expression(
    r"\b(?:i get|i['’]?m getting|when(?:ever)? i (?:try|run|start|click)|not working|fails with|it says|is says"
    r"|i have an? \w+ (?:problem|issue|error)|broken|slow|failing|wrong|missing|crash\w*|hangs?|does(?:n['’]t"
    r"| not) work)\b"
)
"""A report of trouble, which will pass."""
"""A name or a number inside a sentence."""
OWN: Final = Expression(
    r"\b(?:our|this (?:project|repo\w*|codebase|app|service)|root cause|was caused by|(?:bug|issue|problem"
    r"|failure) was|unser\w*|notre|nuestr[oa]|ons|ursache)\b"
)
"""Speaks of this project, or of a cause that was found in it."""
DID: Final = Expression(
    r"^(?:(?:successfully|i|i['’]ve|we|we['’]ve|have|also|now|just|then)\s+){0,3}(?:added|created|fixed|updated"
    r"|implemented|changed|removed|renamed|moved|merged|wrote|refactored|replaced|built|styled|verified|checked|ran"
    r"|executed|tested|introduced|demonstrated|attempted|listed|read|committed|appended|reworked|enhanced|improved"
    r"|hinzugefügt|erstellt|behoben|geändert)\b"
)
"""A report of what was just done."""
