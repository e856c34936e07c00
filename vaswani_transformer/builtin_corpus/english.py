"""English morphology and clause order: from a meaning (see `meaning`) to correct English text."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .meaning import Adverbial, Clause, NounPhrase


_PLURALS = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "policeman": "policemen",
    "mouse": "mice",
    "knife": "knives",
    "wolf": "wolves",
    "scarf": "scarves",
    "shelf": "shelves",
    "potato": "potatoes",
    "tomato": "tomatoes",
    "radio": "radios",
    "piano": "pianos",
    "photo": "photos",
    "zoo": "zoos",
}


def _with_s(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


@cache
def plural(noun: str) -> str:
    """Return the plural of a noun."""
    return _PLURALS.get(noun) or _with_s(noun)


# Verb -> (past, participle); every verb absent here is regular.
_IRREGULAR = {
    "leave": ("left", "left"), "show": ("showed", "shown"),
    "be": ("was", "been"), "have": ("had", "had"), "buy": ("bought", "bought"), "sell": ("sold", "sold"),
    "read": ("read", "read"), "write": ("wrote", "written"), "eat": ("ate", "eaten"), "drink": ("drank", "drunk"),
    "see": ("saw", "seen"), "know": ("knew", "known"), "find": ("found", "found"), "lose": ("lost", "lost"),
    "bring": ("brought", "brought"), "draw": ("drew", "drawn"), "hear": ("heard", "heard"),
    "understand": ("understood", "understood"), "forget": ("forgot", "forgotten"), "cut": ("cut", "cut"),
    "pay": ("paid", "paid"), "sing": ("sang", "sung"), "feed": ("fed", "fed"), "meet": ("met", "met"),
    "forgive": ("forgave", "forgiven"), "think": ("thought", "thought"), "speak": ("spoke", "spoken"),
    "begin": ("began", "begun"), "fall": ("fell", "fallen"), "take": ("took", "taken"), "sleep": ("slept", "slept"),
    "swim": ("swam", "swum"), "run": ("ran", "run"), "get": ("got", "gotten"), "wake": ("woke", "woken"),
    "go": ("went", "gone"), "come": ("came", "come"), "give": ("gave", "given"), "send": ("sent", "sent"),
    "lend": ("lent", "lent"), "tell": ("told", "told"), "drive": ("drove", "driven"), "fly": ("flew", "flown"),
    "sit": ("sat", "sat"), "stand": ("stood", "stood"), "lay": ("laid", "laid"), "say": ("said", "said"),
    "wear": ("wore", "worn"), "put": ("put", "put"), "lie": ("lay", "lain"),
}  # fmt: skip


def _with_ed(verb: str) -> str:
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + ("d" if verb.endswith("e") else "ed")


@cache
def third_person(verb: str) -> str:
    """Return the he/she/it form of the present."""
    return {"have": "has", "be": "is"}.get(verb) or _with_s(verb)


@cache
def past(verb: str) -> str:
    """Return the simple past ("was" for "be")."""
    return _IRREGULAR[verb][0] if verb in _IRREGULAR else _with_ed(verb)


@cache
def participle(verb: str) -> str:
    """Return the past participle."""
    return _IRREGULAR[verb][1] if verb in _IRREGULAR else _with_ed(verb)


def article(following: str) -> str:
    """Return "a" or "an", as the sound of the word that follows demands."""
    silent_h, yod = following.startswith(("hour", "honest")), following.startswith(("uni", "euro", "one"))
    return "an" if silent_h or (following[0] in "aeiou" and not yod) else "a"


# Adjectives with a comparative in -er; all others take "more".
_SHORT = frozenset((
    "old", "young", "tall", "small", "rich", "poor", "strong", "big", "cheap", "heavy", "light", "new", "clean",
    "fresh", "sweet", "hot", "cold", "long", "short", "warm", "fast", "nice", "brave", "funny", "happy", "lazy",
    "friendly", "dirty", "easy", "ugly", "hungry", "angry", "sad", "quiet",
))  # fmt: skip


def comparative(adjective: str) -> str:
    """Return the comparative: "big" -> "bigger", "modern" -> "more modern"."""
    if adjective not in _SHORT:
        return f"more {adjective}"
    if adjective.endswith("y"):
        return adjective[:-1] + "ier"
    if adjective in ("big", "hot", "sad"):
        return adjective + adjective[-1] + "er"
    return adjective + ("r" if adjective.endswith("e") else "er")


_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def number(n: int) -> str:
    """Return 0 <= n <= 999999 in words: 121 -> "one hundred twenty-one"."""
    if not 0 <= n <= 999_999:
        raise ValueError(f"expected a number from 0 to 999999, found {n}")
    if n < 20:
        return _ONES[n]
    if n < 100:
        return _TENS[n // 10 - 2] + (f"-{_ONES[n % 10]}" if n % 10 else "")
    size, word = (1000, "thousand") if n >= 1000 else (100, "hundred")
    head, rest = divmod(n, size)
    return f"{number(head)} {word}" + (f" {number(rest)}" if rest else "")


# --------------------------------------------------------------------------------------------------- phrases

_OBJECT_PRONOUNS = {"I": "me", "he": "him", "she": "her", "we": "us", "they": "them"}


def noun_phrase(np: NounPhrase, role: str = "object") -> str:
    """Return a noun phrase as "subject" or "object"."""
    if np.kind == "pronoun":
        return np.word if role == "subject" else _OBJECT_PRONOUNS.get(np.word, np.word)
    if np.kind == "name":
        return np.word
    if np.kind == "wh":
        return "whom" if np.word == "who" and role != "subject" else np.word
    if np.kind == "relative":
        return "that" if not np.noun.person else "who" if role == "subject" else "whom"
    rest = " ".join([*(a.en for a in np.adjectives), plural(np.noun.en) if np.plural else np.noun.en])
    lead = np.determiner
    if lead == "a":
        lead = article(rest)
    elif lead == "this" and np.plural:
        lead = "these"
    elif lead == "number":
        lead = number(np.count)
    elif lead == "name":
        lead = f"{np.word}'s"
    elif lead == "the" and np.owner:
        lead = f"{noun_phrase(np.owner)}'s"
    text = rest if lead == "bare" else f"{lead} {rest}"
    if np.modifier:
        text += f" {adverbial(np.modifier)}"
    return f"{text} {clause(np.relative)}" if np.relative else text


def adverbial(adv: Adverbial) -> str:
    """Return an adverbial: a fixed phrase, or a preposition with its noun phrase."""
    return f"{adv.en} {noun_phrase(adv.phrase)}" if adv.phrase else adv.en


def _predicate(c: Clause) -> str:
    p = c.predicate
    if p.degree == "years":
        return f"{number(p.years)} {'years' if p.years != 1 else 'year'} old"
    if p.degree == "comparative":
        return f"{comparative(p.adjective.en)} than {noun_phrase(p.than)}"
    if p.degree == "equal":
        return f"as {p.adjective.en} as {noun_phrase(p.than)}"
    return p.adjective.en


def _be(person: str, tense: str) -> str:
    if tense == "past":
        return "was" if person in ("1sg", "3sg") else "were"
    return {"1sg": "am", "3sg": "is"}.get(person, "are")


def _verb_parts(c: Clause, inverted: bool) -> tuple[str, str]:
    """Return (auxiliary or "", main verb); negation and questions call for an auxiliary."""
    verb, person = c.verb.en.split()[0], c.subject.person
    third, was = person == "3sg", c.tense == "past"
    do = "did" if was else "does" if third else "do"
    if c.modal in ("must", "want") and (c.modal == "want" or was or c.negated):
        word = "have" if c.modal == "must" else "want"
        if c.negated or inverted:
            return do, f"{word} to {verb}"
        return "", f"{past(word) if was else third_person(word) if third else word} to {verb}"
    if c.modal == "would like":
        return "would", f"like to {verb}"
    if c.modal:
        return ("could" if was else c.modal), verb
    if c.tense == "will":
        return "will", verb
    if c.tense == "perfect":
        return ("has" if third else "have"), participle(verb)
    if verb == "be":
        return _be(person, c.tense), ""
    if c.negated or inverted:
        return do, verb
    return "", past(verb) if was else third_person(verb) if third else verb


def clause(c: Clause, order: str = "statement") -> str:
    """Return one clause as a "statement", "question", "imperative" or "infinitive", or "drop" its subject.

    Fronted objects, adverbs and question words stand first; only questions invert subject and auxiliary.
    """
    verb, obj = c.verb, c.object
    particle = " ".join(verb.en.split()[1:])
    inverted = order == "question" and not (c.front == "subject" and c.subject.kind != "pronoun" and c.subject.asked)
    aux, main = _verb_parts(c, inverted)
    if order in ("imperative", "infinitive"):
        aux, main = "", verb.en.split()[0]
    preposition = verb.prep[0] if verb.prep else ""
    manner = c.manner.en if c.manner else ""
    # "laughs loudly about the film" but "reads the book slowly"
    inner, outer = (manner, "") if preposition else ("", manner)
    roles = {
        "time": adverbial(c.time) if c.time else "",
        "place": adverbial(c.place) if c.place else "",
        "direction": adverbial(c.direction) if c.direction else "",
        "object": noun_phrase(obj) if obj else "",
        "recipient": noun_phrase(c.recipient) if c.recipient else "",
        "reason": c.reason.en if c.reason else "",
    }  # fmt: skip
    front = ""
    if c.front in roles:
        front, roles[c.front] = roles[c.front], ""
    # "turns on the lamp" but "turns it on"
    complement = [particle, inner, preposition, roles["object"]]
    if verb.separable and obj and obj.kind == "pronoun":
        complement = [roles["object"], particle]
    subject = noun_phrase(c.subject, "subject")
    negation = "not" if c.negated else ""
    frequency = c.frequency.en if c.frequency else ""
    if aux == "can" and negation and not inverted:
        aux, negation = "cannot", ""
    if order == "imperative":
        head = ["please"]
    elif order == "infinitive":
        head = ["to"]
    elif order == "drop":
        head = [aux, negation]
    elif inverted:
        head = [front, aux, subject, negation]
    else:
        head = [front, subject, aux, negation]
    words = [
        *head, frequency, main, roles["recipient"], *complement, _predicate(c) if c.predicate else "", outer,
        roles["direction"], adverbial(c.means) if c.means else "", roles["place"], roles["time"],
    ]  # fmt: skip
    return " ".join(" ".join(words).split())


def sentence(text: str, mark: str) -> str:
    """Capitalise and close with `mark`."""
    return text[0].upper() + text[1:] + mark
