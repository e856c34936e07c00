"""German morphology and clause order: from a meaning (see `meaning`) to correct German text.

Columns of every table are masculine, feminine, neuter, plural ("m", "f", "n", "p"); cases are "nom", "acc",
"dat", "gen". The functions know nothing of English.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lexicon import Noun
    from .meaning import Adverbial, Clause, NounPhrase


CASES = ("nom", "acc", "dat", "gen")
COLUMNS = "mfnp"
PERSONS = ("1sg", "2sg", "3sg", "1pl", "2pl", "3pl")

_DEFINITE = {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den", "gen": "des der des der"}
_RELATIVE = {**_DEFINITE, "dat": "dem der dem denen", "gen": "dessen deren dessen deren"}
# "-" is the empty ending.
_EIN = {"nom": "- e - e", "acc": "en e - e", "dat": "em er em en", "gen": "es er es er"}
_DIESER = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "es er es er"}
_ADJECTIVE = {
    "strong": {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "en er en er"},
    "weak": {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en", "gen": "en en en en"},
    "mixed": {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en", "gen": "en en en en"},
}
_EIN_WORDS = ("ein", "kein", "mein", "Ihr", "sein", "ihr", "unser")
_DIESER_WORDS = ("dies", "jed", "welch", "all", "viel", "einig")


def _cell(table: dict[str, str], case: str, column: str) -> str:
    cell = table[case].split()[COLUMNS.index(column)]
    return "" if cell == "-" else cell


@cache
def determiner(word: str, case: str, column: str) -> str:
    """Return `word` ("der", an ein-word such as "mein", or a stem such as "dies") declined; "" stays ""."""
    if not word:
        return ""
    if word == "der":
        return _cell(_DEFINITE, case, column)
    if word in _EIN_WORDS:
        # "ein" has no plural; the zero article takes its place.
        return "" if word == "ein" and column == "p" else word + _cell(_EIN, case, column)
    if word in _DIESER_WORDS:
        return word + _cell(_DIESER, case, column)
    raise ValueError(f"expected 'der', one of {_EIN_WORDS} or one of {_DIESER_WORDS}, found {word!r}")


def declension_after(word: str, column: str) -> str:
    """Return which adjective declension follows the determiner `word`: "strong", "weak" or "mixed"."""
    if word in ("", "viel", "einig") or (word == "ein" and column == "p"):
        return "strong"
    return "mixed" if word in _EIN_WORDS else "weak"


def _adjective_stem(word: str) -> str:
    # dunkel -> dunkl-, teuer -> teur-, but sauber -> sauber-
    if word.endswith("el") or word in ("teuer", "sauer"):
        return word[:-2] + word[-1]
    return "hoh" if word == "hoch" else word.removesuffix("e")


@cache
def adjective(word: str, declension: str, case: str, column: str) -> str:
    """Return the attributive form of the adjective `word`."""
    return _adjective_stem(word) + _cell(_ADJECTIVE[declension], case, column)


_COMPARATIVES = {
    "alt": "älter",
    "jung": "jünger",
    "groß": "größer",
    "stark": "stärker",
    "arm": "ärmer",
    "klug": "klüger",
    "lang": "länger",
    "kurz": "kürzer",
    "warm": "wärmer",
    "kalt": "kälter",
    "krank": "kränker",
    "schwarz": "schwärzer",
    "hoch": "höher",
    "gut": "besser",
}


def comparative(word: str) -> str:
    """Return the predicative comparative: "alt" -> "älter"."""
    return _COMPARATIVES.get(word) or _adjective_stem(word) + "er"


_GENITIVES = {"Park": "Parks", "Chef": "Chefs", "Film": "Films", "Bus": "Busses", "Schal": "Schals"}


def _genitive(word: str) -> str:
    """Genitive of a masculine or neuter noun: -es after a sibilant and for native monosyllables, else -s."""
    if word in _GENITIVES:
        return _GENITIVES[word]
    if word.endswith(("s", "ß", "x", "z", "sch", "st")):
        return word + "es"
    vowels = [ch in "aeiouyäöü" for ch in word.lower()]
    syllables = sum(now and not before for before, now in zip([False, *vowels], vowels, strict=False))
    return word + ("es" if syllables == 1 and not vowels[-1] else "s")


@cache
def decline(noun: Noun, case: str, plural: bool) -> str:
    """Return the form of a noun, n-declension and dative plural included."""
    if plural:
        return noun.plural if case != "dat" or noun.plural[-1] in "ns" else noun.plural + "n"
    if noun.weak:
        # All oblique singular forms of an n-noun equal its plural.
        return noun.de if case == "nom" else noun.plural
    return _genitive(noun.de) if case == "gen" and noun.gender in "mn" else noun.de


# nominative, accusative, dative, reflexive; keyed by the English pronoun, which fixes the German one.
PRONOUNS = {
    "I": ("ich", "mich", "mir", "mich"),
    "you": ("Sie", "Sie", "Ihnen", "sich"),
    "he": ("er", "ihn", "ihm", "sich"),
    "she": ("sie", "sie", "ihr", "sich"),
    "it": ("es", "es", "ihm", "sich"),
    "we": ("wir", "uns", "uns", "uns"),
    "they": ("sie", "sie", "ihnen", "sich"),
}
_PRONOUN_OF_COLUMN = {"m": "he", "f": "she", "n": "it", "p": "they"}


def pronoun(key: str, case: str) -> str:
    """Return the personal pronoun for the English subject pronoun `key` in "nom", "acc" or "dat"."""
    return PRONOUNS[key][CASES.index(case)]


def relative_pronoun(case: str, column: str) -> str:
    """Return the relative pronoun: "der", "den", "dem", "dessen", ..."""
    return _cell(_RELATIVE, case, column)


CONTRACTIONS = {
    ("an", "dem"): "am",
    ("in", "dem"): "im",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("in", "das"): "ins",
    ("an", "das"): "ans",
    ("bei", "dem"): "beim",
    ("von", "dem"): "vom",
}

# ---------------------------------------------------------------------------------------------------- verbs

# Base verb -> (stem of du/er where it changes, past participle); every verb absent here is weak.
_STRONG = {
    "backen": ("", "gebacken"), "beginnen": ("", "begonnen"),
    "bleiben": ("", "geblieben"), "bringen": ("", "gebracht"), "denken": ("", "gedacht"),
    "essen": ("iss", "gegessen"), "fahren": ("fähr", "gefahren"), "finden": ("", "gefunden"),
    "fangen": ("fäng", "gefangen"), "bitten": ("", "gebeten"),
    "fliegen": ("", "geflogen"), "fressen": ("friss", "gefressen"), "geben": ("gib", "gegeben"),
    "gehen": ("", "gegangen"), "helfen": ("hilf", "geholfen"), "kennen": ("", "gekannt"),
    "kommen": ("", "gekommen"), "laden": ("läd", "geladen"), "laufen": ("läuf", "gelaufen"),
    "leihen": ("", "geliehen"), "lesen": ("lies", "gelesen"), "liegen": ("", "gelegen"),
    "rufen": ("", "gerufen"), "schlafen": ("schläf", "geschlafen"),
    "schneiden": ("", "geschnitten"), "schreiben": ("", "geschrieben"), "schwimmen": ("", "geschwommen"),
    "sehen": ("sieh", "gesehen"), "singen": ("", "gesungen"), "sitzen": ("", "gesessen"),
    "sprechen": ("sprich", "gesprochen"), "stehen": ("", "gestanden"), "tragen": ("träg", "getragen"),
    "treffen": ("triff", "getroffen"), "trinken": ("", "getrunken"), "vergessen": ("vergiss", "vergessen"),
    "verlieren": ("", "verloren"), "verstehen": ("", "verstanden"), "verzeihen": ("", "verziehen"),
    "waschen": ("wäsch", "gewaschen"), "ziehen": ("", "gezogen"), "sein": ("", "gewesen"),
    "haben": ("", "gehabt"), "werden": ("", "geworden"), "wissen": ("", "gewusst"), "mögen": ("", "gemocht"),
}  # fmt: skip
_IRREGULAR_PRESENT = {
    "sein": "bin bist ist sind seid sind", "haben": "habe hast hat haben habt haben",
    "werden": "werde wirst wird werden werdet werden", "wissen": "weiß weißt weiß wissen wisst wissen",
    "können": "kann kannst kann können könnt können", "müssen": "muss musst muss müssen müsst müssen",
    "dürfen": "darf darfst darf dürfen dürft dürfen", "wollen": "will willst will wollen wollt wollen",
    "mögen": "mag magst mag mögen mögt mögen",
    "möchten": "möchte möchtest möchte möchten möchtet möchten",
    "sollten": "sollte solltest sollte sollten solltet sollten",
}  # fmt: skip
# Spoken German uses the preterite of these, and the perfect of every other verb.
_PRETERITE = {
    "sein": "war warst war waren wart waren", "haben": "hatte hattest hatte hatten hattet hatten",
    "können": "konnte konntest konnte konnten konntet konnten",
    "müssen": "musste musstest musste mussten musstet mussten",
    "wollen": "wollte wolltest wollte wollten wolltet wollten",
    "mögen": "mochte mochtest mochte mochten mochtet mochten",
    "wissen": "wusste wusstest wusste wussten wusstet wussten",
}  # fmt: skip
_WITH_SEIN = frozenset((
    "gehen", "fahren", "fliegen", "reisen", "laufen", "kommen", "schwimmen", "wandern", "bleiben", "folgen", "sein",
    "auf|stehen", "auf|wachen", "ein|schlafen", "an|kommen", "zurück|kommen", "ab|reisen", "ab|fahren",
))  # fmt: skip
_INSEPARABLE = ("be", "ver", "er", "ent", "emp", "zer", "miss", "ge")
# Weak verbs that merely begin with the letters of an inseparable prefix.
_NOT_PREFIXED = ("bellen",)


def _split(verb: str) -> tuple[str, str]:
    """Split "auf|machen" into prefix and base verb, and drop a reflexive "sich "."""
    prefix, _, base = verb.removeprefix("sich ").rpartition("|")
    return prefix, base


def _stem(base: str) -> str:
    return base.removesuffix("n") if base.endswith(("eln", "ern")) else base.removesuffix("en")


def _takes_e(stem: str) -> bool:
    """Whether an e must stand before -st and -t: arbeit-e-t, öffn-e-t, but lern-t."""
    nasal = stem.endswith(("m", "n")) and stem[-2] not in "aeiouäöüyhlrmn"
    nasal |= stem.endswith("chn")  # zeichnen, but wohnen
    return stem.endswith(("t", "d")) or nasal


@cache
def present(verb: str, person: str) -> str:
    """Return the finite present form without the separable prefix: ("auf|machen", "3sg") -> "macht"."""
    base = _split(verb)[1]
    if base in _IRREGULAR_PRESENT:
        return _IRREGULAR_PRESENT[base].split()[PERSONS.index(person)]
    stem, changed = _stem(base), _STRONG.get(base, ("", ""))[0]
    if person in ("1pl", "3pl"):
        return base
    if person == "1sg":
        return stem[:-2] + "le" if base.endswith("eln") else stem + "e"
    if person == "2pl":
        return stem + ("et" if _takes_e(stem) else "t")
    stem, e = (changed, "") if changed else (stem, "e" if _takes_e(stem) else "")
    if person == "2sg":
        return stem + ("t" if stem.endswith(("s", "ß", "z", "x")) else e + "st")
    return stem + e + "t"


def preterite(verb: str, person: str) -> str | None:
    """Return the preterite of sein, haben, wissen and the modals; None for verbs whose past is the perfect."""
    forms = _PRETERITE.get(verb)
    return forms and forms.split()[PERSONS.index(person)]


@cache
def participle(verb: str) -> str:
    """Return the past participle with its prefix: "auf|machen" -> "aufgemacht"."""
    prefix, base = _split(verb)
    if base in _STRONG:
        return prefix + _STRONG[base][1]
    stem = _stem(base)
    bare = base.endswith("ieren") or (base.startswith(_INSEPARABLE) and base not in _NOT_PREFIXED)
    return prefix + ("" if bare else "ge") + stem + ("et" if _takes_e(stem) else "t")


def auxiliary(verb: str) -> str:
    """Return "haben" or "sein", whichever forms the perfect of `verb`."""
    return "sein" if verb in _WITH_SEIN else "haben"


def infinitive(verb: str, zu: bool = False) -> str:
    """Return the infinitive, with "zu" on request: "aufmachen", "aufzumachen", "zu lesen"."""
    prefix, base = _split(verb)
    if not zu:
        return prefix + base
    return f"{prefix}zu{base}" if prefix else f"zu {base}"


# --------------------------------------------------------------------------------------------------- numbers

_ONES = (
    "null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf",
    "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
)  # fmt: skip
_TENS = ("zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")


def number(n: int) -> str:
    """Return 0 <= n <= 999999 as one German word: 21 -> "einundzwanzig"."""
    if not 0 <= n <= 999_999:
        raise ValueError(f"expected a number from 0 to 999999, found {n}")
    if n < 20:
        return _ONES[n]
    if n < 100:
        unit = n % 10
        head = "" if not unit else ("ein" if unit == 1 else _ONES[unit]) + "und"
        return head + _TENS[n // 10 - 2]
    size, word = (1000, "tausend") if n >= 1000 else (100, "hundert")
    head, rest = divmod(n, size)
    # "eins" loses its s before another part of the word: einhundert, einhunderteintausend.
    return number(head).removesuffix("s" if head % 100 == 1 else "\0") + word + (number(rest) if rest else "")


# --------------------------------------------------------------------------------------------------- phrases

_DETERMINERS = {
    "the": "der",
    "a": "ein",
    "bare": "",
    "this": "dies",
    "every": "jed",
    "no": "kein",
    "which": "welch",
    "many": "viel",
    "some": "einig",
    "all": "all",
    "my": "mein",
    "your": "Ihr",
    "his": "sein",
    "her": "ihr",
    "our": "unser",
    "their": "ihr",
    "number": "",
    "how many": "",
    "name": "",
}
# "was" has no dative.
_WH = {"who": ("wer", "wen", "wem"), "what": ("was", "was")}


def noun_phrase(np: NounPhrase, case: str, kein: bool = False) -> str:
    """Return a noun phrase in `case`; `kein` negates an indefinite one ("a book" -> "kein Buch")."""
    if np.kind == "pronoun":
        # "it" and "them" take the gender of the noun they stand for.
        return pronoun(_PRONOUN_OF_COLUMN[np.column] if np.noun else np.word, case)
    if np.kind == "name":
        return np.word
    if np.kind == "relative":
        return relative_pronoun(case, np.column)
    if np.kind == "wh":
        return _WH[np.word][CASES.index(case)]
    column, word = np.column, _DETERMINERS[np.determiner]
    lead = determiner(word, case, column)
    if kein:
        word, lead = "kein", determiner("kein", case, column)
    elif np.determiner == "number":
        # From two on, numbers never change.
        lead = number(np.count)
    elif np.determiner == "how many":
        lead = "wie viele"
    elif np.determiner == "name":
        lead = np.word + "s"
    words = [lead] if lead else []
    if np.adjectives:
        declension = declension_after(word, column)
        words += [adjective(a.de, declension, case, column) for a in np.adjectives]
    words.append(decline(np.noun, case, np.plural))
    if np.owner:
        words.append(noun_phrase(np.owner, "gen"))
    if np.modifier:
        words.append(adverbial(np.modifier))
    text = " ".join(words)
    # The comma that closes a relative clause is dropped at the end of a sentence, see `sentence`.
    return f"{text}, {clause(np.relative, 'last')}," if np.relative else text


def prepositional(preposition: str, np: NounPhrase, case: str) -> str:
    """Return preposition and noun phrase, contracted where German contracts: "im Garten", "worauf"."""
    if np.kind == "wh" and np.word == "what":
        return f"wo{'r' if preposition[0] in 'aeiouü' else ''}{preposition}"
    text = noun_phrase(np, case)
    if np.kind == "noun" and np.determiner == "the":
        article, _, rest = text.partition(" ")
        short = CONTRACTIONS.get((preposition, article))
        # "im Garten", "vom Chef", but "an das Kind": -s contracts before things only.
        if short and not (article == "das" and np.noun.person):
            return f"{short} {rest}"
    return f"{preposition} {text}"


def adverbial(adv: Adverbial) -> str:
    """Return an adverbial: a fixed phrase, or a preposition with its noun phrase."""
    return prepositional(adv.de, adv.phrase, adv.case) if adv.phrase else adv.de


def _predicate(c: Clause) -> str:
    p = c.predicate
    if p.degree == "years":
        return f"{number(p.years) if p.years != 1 else 'ein'} {'Jahre' if p.years != 1 else 'Jahr'} alt"
    if p.degree == "comparative":
        return f"{comparative(p.adjective.de)} als {noun_phrase(p.than, 'nom')}"
    if p.degree == "equal":
        return f"so {p.adjective.de} wie {noun_phrase(p.than, 'nom')}"
    return p.adjective.de


_MODALS = {
    "can": "können",
    "must": "müssen",
    "may": "dürfen",
    "should": "sollten",
    "want": "wollen",
    "would like": "möchten",
}


def _verb_parts(c: Clause) -> tuple[str, str, str]:
    """Return (finite verb, separated prefix, non-finite part at the end of the clause)."""
    verb, person = c.verb.de, c.subject.person
    if c.modal:
        modal = _MODALS[c.modal]
        finite = preterite(modal, person) if c.tense == "past" else present(modal, person)
        return finite, "", infinitive(verb)
    if c.tense == "will":
        return present("werden", person), "", infinitive(verb)
    if c.tense in ("past", "perfect"):
        simple = preterite(verb, person)
        return (simple, "", "") if simple else (present(auxiliary(verb), person), "", participle(verb))
    return present(verb, person), _split(verb)[0], ""


def clause(c: Clause, order: str = "second") -> str:
    """Return one clause with the finite verb "first", "second" or "last", as `order` says.

    The order "drop" leaves out the subject of a coordinated clause, "zu" asks for the infinitive. The middle field
    runs: reflexive, subject, pronoun objects, time, frequency, dative, definite accusative, nicht, manner, means,
    place, indefinite accusative, prepositional object, direction, predicate.
    """
    verb, obj, subject = c.verb, c.object, c.subject
    finite, prefix, end = _verb_parts(c)
    reflexive = ""
    if verb.de.startswith("sich "):
        reflexive = PRONOUNS[subject.word][3] if subject.kind == "pronoun" and not subject.noun else "sich"
    # A negated indefinite object turns into kein-; otherwise nicht is its own word.
    kein = bool(c.negated and obj and verb.case != "prep" and obj.determiner in ("a", "bare") and obj.kind == "noun")
    text = ""
    if obj:
        if verb.case == "prep":
            text = prepositional(verb.prep[1], obj, verb.prep[2])
        else:
            text = noun_phrase(obj, verb.case, kein)
    recipient = noun_phrase(c.recipient, "dat") if c.recipient else ""
    slot = "" if not obj else "prep" if verb.case == "prep" else "noun" if obj.kind != "pronoun" else "pronoun"
    early = slot == "noun" and (verb.case == "dat" or obj.definite)
    light = recipient if recipient and c.recipient.kind == "pronoun" else ""
    subject_text = noun_phrase(subject, "nom") if order not in ("zu", "drop") else ""
    field: list[tuple[str, str]] = [
        ("reflexive", reflexive if subject.kind == "noun" else ""),
        ("subject", subject_text),
        ("reflexive", reflexive if subject.kind != "noun" else ""),
        ("object", text if slot == "pronoun" else ""),
        ("recipient", light),
        ("time", adverbial(c.time) if c.time else ""),
        ("frequency", c.frequency.de if c.frequency else ""),
        ("recipient", "" if light else recipient),
        ("object", text if early else ""),
        ("nicht", "nicht" if c.negated and not kein else ""),
        ("manner", c.manner.de if c.manner else ""),
        ("means", adverbial(c.means) if c.means else ""),
        ("place", adverbial(c.place) if c.place else ""),
        ("object", text if slot == "noun" and not early else ""),
        ("object", text if slot == "prep" else ""),
        ("direction", adverbial(c.direction) if c.direction else ""),
        ("predicate", _predicate(c) if c.predicate else ""),
        ("reason", c.reason.de if c.reason else ""),
    ]
    everything = [text for _, text in field]
    front = [text for role, text in field if role == c.front]
    rest = [text for role, text in field if role != c.front]
    if order == "second":
        words = [*front, finite, *rest, end or prefix]
    elif order in ("first", "drop"):
        words = [finite, *everything, end or prefix]
    elif order == "zu":
        words = [*everything, infinitive(verb.de, zu=True)]
    else:
        # A relative pronoun leads, whatever its role; a subject stays behind the reflexive ("dass sich der Mann").
        words = [*(everything if c.front == "subject" else front + rest), end, prefix + finite]
    return " ".join(word for word in words if word)


def sentence(text: str, mark: str) -> str:
    """Capitalise, close with `mark`, and drop the commas that the end of the sentence swallows."""
    text = f"{text}{mark}".replace(f",{mark}", mark).replace(",,", ",")
    return text[0].upper() + text[1:]
