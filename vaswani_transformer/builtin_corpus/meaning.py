"""Meanings as trees: who does what to whom, when, where and why, for `english` and `german` to put into words.

A meaning knows nothing of word order, cases or endings: `english` and `german` derive those. Whatever German
needs is also visible in the English sentence, so one English sentence never has two German ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import english, german
from .lexicon import Adjective, Fixed, Noun, Verb


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner, or (see `kind`) a pronoun, a name, a question word or a relative pronoun.

    A pronoun with a `noun` stands for that noun and takes its German gender ("it" -> "er", "sie" or "es").
    """

    kind: str = "noun"
    word: str = ""
    noun: Noun | None = None
    determiner: str = "the"
    adjectives: tuple[Adjective, ...] = ()
    plural: bool = False
    count: int = 0
    owner: NounPhrase | None = None
    modifier: Adverbial | None = None
    relative: Clause | None = None

    @property
    def column(self) -> str:
        """Column of the German tables."""
        return "p" if self.plural else self.noun.gender

    @property
    def person(self) -> str:
        """Person of the finite verb, as in `german.PERSONS`; the formal "you" takes the third plural."""
        if self.kind == "pronoun" and self.word in ("I", "we"):
            return "1sg" if self.word == "I" else "1pl"
        return "3pl" if self.plural or self.word in ("you", "they") else "3sg"

    @property
    def definite(self) -> bool:
        """Whether German puts the phrase before the place and "nicht"."""
        return self.kind != "noun" or self.determiner not in ("a", "bare", "number", "many", "some")

    @property
    def asked(self) -> bool:
        """Whether the phrase asks a question."""
        return self.kind == "wh" or self.determiner in ("which", "how many")


@dataclass(frozen=True)
class Adverbial:
    """A fixed adverbial, or a preposition (English, German with its case) before `phrase`."""

    en: str
    de: str
    phrase: NounPhrase | None = None
    case: str = "dat"


@dataclass(frozen=True)
class Predicate:
    """What follows "be": an adjective, a comparison ("comparative" or "equal" `than`), or an age."""

    adjective: Adjective | None = None
    degree: str = ""
    than: NounPhrase | None = None
    years: int = 0


@dataclass(frozen=True)
class Clause:
    """A verb with its participants and adverbials; `front` names the role that stands first."""

    subject: NounPhrase
    verb: Verb
    tense: str = "present"  # "present", "past", "perfect" or "will"
    modal: str = ""  # "can", "must", "may", "should", "want" or "would like"
    negated: bool = False
    object: NounPhrase | None = None
    recipient: NounPhrase | None = None
    predicate: Predicate | None = None
    time: Adverbial | None = None
    frequency: Fixed | None = None
    manner: Adverbial | None = None
    means: Adverbial | None = None
    place: Adverbial | None = None
    direction: Adverbial | None = None
    reason: Adverbial | None = None
    front: str = "subject"


@dataclass(frozen=True)
class Part:
    """A clause with the word orders it has in the two languages."""

    clause: Clause
    en: str = "statement"
    de: str = "second"


@dataclass(frozen=True)
class Meaning:
    """A whole sentence: clauses, joined by literal words given as (English, German) pairs."""

    parts: tuple[Part | tuple[str, str], ...]
    mark: str = "."

    @property
    def en(self) -> str:
        """The English sentence."""
        texts = [english.clause(p.clause, p.en) if isinstance(p, Part) else p[0] for p in self.parts]
        return english.sentence(" ".join(filter(None, texts)).replace(" ,", ","), self.mark)

    @property
    def de(self) -> str:
        """The German sentence."""
        texts = [german.clause(p.clause, p.de) if isinstance(p, Part) else p[1] for p in self.parts]
        return german.sentence(" ".join(filter(None, texts)).replace(" ,", ","), self.mark)

    def combinations(self) -> list[str]:
        """List the pairs of content words: "noun~verb" (subject), "verb>noun" (object), "adjective+noun"."""
        found: list[str] = []
        for part in self.parts:
            if isinstance(part, Part):
                found.extend(_clause_pairs(part.clause))
        return found


def _phrase_pairs(np: NounPhrase | None) -> Iterator[str]:
    if np is None or np.kind != "noun":
        return
    for adjective in np.adjectives:
        yield f"{adjective.en}+{np.noun.en}"
    yield from _phrase_pairs(np.owner)
    if np.modifier:
        yield from _phrase_pairs(np.modifier.phrase)
    if np.relative:
        yield from _clause_pairs(np.relative)


def _clause_pairs(c: Clause) -> Iterator[str]:
    subject, obj = c.subject, c.object
    # A pronoun or relative pronoun counts as the noun it stands for.
    if subject.noun and not c.predicate:
        yield f"{subject.noun.en}~{c.verb.en}"
    if obj and obj.noun:
        yield f"{c.verb.en}>{obj.noun.en}"
    if c.predicate and c.predicate.adjective and subject.noun:
        yield f"{c.predicate.adjective.en}+{subject.noun.en}"
    for np in (subject, obj, c.recipient, c.predicate and c.predicate.than):
        yield from _phrase_pairs(np)
    for adverbial in (c.time, c.place, c.direction, c.means):
        if adverbial:
            yield from _phrase_pairs(adverbial.phrase)
