"""Random noun phrases, adverbials and clauses that make sense; `lexicon` says which words go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import TypeVar

from . import english, german
from . import lexicon as lex
from .lexicon import Adjective, Noun, Verb
from .meaning import Adverbial, Clause, NounPhrase, Predicate

T = TypeVar("T")

# Subjects with these determiners sound odd in questions, and leave open how far a "not" reaches.
QUANTIFIERS = ("every", "no", "all", "many", "some")
_PRONOUNS = ("I", "you", "he", "she", "we", "they")
_POSSESSIVES = ("my", "your", "his", "her", "our", "their")
_NAMES = tuple(lex.NAMES)

# Kinds of verb, each as often as a clause should have it.
_FRAMES = (
    "acc " * 9 + "intr " * 3 + "dat " * 2 + "prep " * 3 + "give " * 3 + "move " * 2 + "put live rest belong"
)  # fmt: skip
_VERBS_OF_FRAME = {
    frame: tuple(v for v in lex.VERBS if v.case == case and v is not lex.BELONG)
    for frame, case in (("intr", ""), ("acc", "acc"), ("dat", "dat"), ("prep", "prep"))
}
_MEANS = (
    Adverbial("by bus", "mit dem Bus"), Adverbial("by train", "mit dem Zug"), Adverbial("by ship", "mit dem Schiff"),
)  # fmt: skip
# Persons, other than kin, whom one calls one's own.
_OWN = frozenset(("friend", "neighbor", "colleague", "boss", "teacher", "doctor", "guest", "customer", "lawyer"))
# Verbs that a place does not suit.
_PLACELESS = frozenset((
    "come back", "get up", "leave", "depart", "hurry", "pick up", "clean", "take care", "visit",
))  # fmt: skip
# Verbs that take neither modal nor adverbials.
_STATES = frozenset((
    "know", "like", "love", "have", "belong", "need", "cost", "trust", "believe", "live", "stand", "lie", "lose",
    "fall in love",
))  # fmt: skip
# What one may well do at home.
_DURATIVE = frozenset((
    "read", "write", "eat", "drink", "cook", "bake", "clean", "wash", "draw", "paint", "repair", "sing", "learn",
    "feed", "work", "play", "sleep", "dance", "wait", "speak", "talk", "rest", "stay", "live", "swim", "smoke",
    "clean up", "watch television",
))  # fmt: skip


@cache
def adjectives_of(noun: Noun) -> tuple[Adjective, ...]:
    """Return the adjectives that can describe `noun`."""
    return tuple(a for a in lex.ADJECTIVES if {noun.en, *noun.classes} & set(a.classes))


def hides_past(verb: Verb) -> bool:
    """Whether the English past may look like a present: of "read" and "put", and of "lie" ("lay")."""
    base = verb.en.split()[0]
    return english.past(base) == base or verb is lex.LIE


class ClauseGenerator:
    """Endless source of random clauses; only `Random.random` is used, which is the same on every Python."""

    def __init__(self, seed: str) -> None:
        """Start from `seed`."""
        self._random = Random(seed).random

    def pick(self, options: Sequence[T]) -> T:
        """Choose one of `options`."""
        return options[int(self._random() * len(options))]

    def chance(self, probability: float) -> bool:
        """Toss a coin."""
        return self._random() < probability

    def integer(self, low: int, high: int) -> int:
        """Choose a whole number from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    # noun phrases

    def noun_phrase(self, noun: Noun, subject: bool = False, plain: bool = False) -> NounPhrase:
        """Return a phrase around `noun`; a `plain` one is short and never quantified."""
        # Nobody has two fathers.
        unique = "kin" in noun.classes and noun.en.endswith(("father", "mother"))
        plural = not noun.mass and self.chance(0.2) and not unique
        determiner = self._determiner(noun, plural, subject, plain)
        word = self.pick(_NAMES) if determiner == "name" else ""
        adjectives: tuple[Adjective, ...] = ()
        options = adjectives_of(noun)
        if options and self.chance(0.2 if subject else 0.34):
            adjectives = (self.pick(options),)
        owner = None
        owned = not noun.mass and {"thing", "wear", "ride", "pet", "read"} & set(noun.classes)
        if owned and determiner == "the" and not plain and self.chance(0.1):
            owner = NounPhrase(noun=self.pick(lex.nouns_of("person")))
        count = self._count(noun) if determiner == "number" else 0
        return NounPhrase("noun", word, noun, determiner, adjectives, plural, count, owner)

    def _determiner(self, noun: Noun, plural: bool, subject: bool, plain: bool) -> str:
        if "kin" in noun.classes:
            determiner = self.pick((*_POSSESSIVES, *_POSSESSIVES, "name", "name", "the"))
        elif noun.mass:
            options = ("the", "bare", "bare", "bare", "this", *_POSSESSIVES[:3])
            determiner = "the" if subject else self.pick(options)
            # "beginnt die Arbeit", not "beginnt Arbeit"
            if determiner == "bare" and "labor" in noun.classes:
                determiner = "the"
        elif plural:
            own = self.pick(_POSSESSIVES)
            determiner = self.pick(("the", "the", "the", "this", "number", "number", "many", "some", own))
            if determiner == "the" and not plain:
                if self.chance(0.15) and subject:
                    determiner = "all"
                elif not self.chance(0.7) and not subject:
                    determiner = "bare"
        else:
            own = self.pick(_POSSESSIVES)
            determiner = self.pick(("the", "the", "the", "the", "a", "a", "a", "this", own, "name"))
            if subject and self.chance(0.08):
                determiner = self.pick(("every", "no"))
        if plain and determiner in ("number", "many", "some", "name"):
            return "the"
        if noun.person and "kin" not in noun.classes:
            # "my boss" and "Anna's friend", but neither "my queen" nor "Anna's tourist"
            nobodys = determiner == "name" and noun.en not in ("friend", "neighbor")
            if nobodys or (determiner in _POSSESSIVES and noun.en not in _OWN):
                return "the"
        return determiner

    def _count(self, noun: Noun) -> int:
        """Return a count: mostly small, up to a hundred, with a thin tail; persons come in small groups."""
        if self.chance(0.6) or noun.person:
            return self.integer(2, 12)
        return self.integer(13, 99) if self.chance(0.95) else 100 * self.integer(1, 9)

    def subject(self, classes: tuple[str, ...] = ("person",)) -> NounPhrase:
        """Return a subject of one of `classes`; persons may be pronouns or names."""
        if classes[0] == "person":
            draw = self._random()
            if draw < 0.22:
                return NounPhrase("pronoun", self.pick(_PRONOUNS))
            if draw < 0.4:
                return NounPhrase("name", self.pick(_NAMES))
        return self.noun_phrase(self.pick(lex.nouns_of(*classes)), subject=True)

    def pronoun_of(self, np: NounPhrase) -> NounPhrase | None:
        """Return the personal pronoun that takes up `np`, or None where it would be in doubt."""
        if np.kind == "pronoun":
            return np
        if np.kind == "name":
            return NounPhrase("pronoun", {"m": "he", "f": "she"}[lex.NAMES[np.word]])
        if np.determiner in ("every", "no"):
            return None
        if np.plural:
            return NounPhrase("pronoun", "they", np.noun, plural=True)
        if np.noun.person:
            word = {"m": "he", "f": "she"}.get(np.noun.gender)
            return NounPhrase("pronoun", word) if word else None
        return NounPhrase("pronoun", "it", np.noun)

    def _person(self, subject: NounPhrase, name: float) -> NounPhrase:
        """Return a pronoun or a name (with probability `name`) that does not refer back to `subject`."""
        if self.chance(name):
            return NounPhrase("name", self.pick([n for n in _NAMES if n != subject.word]))
        taboo = ("I", "we") if subject.word in ("I", "we") else (subject.word,)
        return NounPhrase("pronoun", self.pick([p for p in _PRONOUNS if p not in taboo]))

    def thing(self, verb: Verb, subject: NounPhrase, avoid: Noun | None = None) -> NounPhrase:
        """Return an object for `verb`, other than `avoid` or else its subject."""
        avoid = avoid or subject.noun
        options = lex.nouns_of(*verb.objects)
        noun = self.pick([n for n in options if n is not avoid] or options)
        if noun.person and verb.case != "prep" and self.chance(0.27):
            return self._person(subject, 0.45)
        return self.noun_phrase(noun)

    # adverbials

    def place(self, verb: Verb) -> Adverbial:
        """Return where an action may happen."""
        if self.chance(0.12) and verb.en not in ("swim", "hike"):
            en, de = self.pick(lex.CITIES)
            return Adverbial(f"in {en}", f"in {de}")
        if self.chance(0.06) and verb.en in _DURATIVE:
            return Adverbial("at home", "zu Hause")
        if self.chance(0.1) and verb.en not in lex.SUITABLE:
            return Adverbial("in front of", "vor", NounPhrase(noun=self.pick(lex.OUTSIDE)))
        place = self.pick(lex.SUITABLE.get(verb.en) or lex.SUITABLE[""])
        return Adverbial(place.en, place.de, self._place_phrase(place.noun))

    def _place_phrase(self, noun: Noun) -> NounPhrase:
        options = adjectives_of(noun)
        adjectives = (self.pick(options),) if options and self.chance(0.25) else ()
        return NounPhrase(noun=noun, determiner=self.pick(("the", "the", "the", "a", "this")), adjectives=adjectives)

    def destination(self) -> Adverbial:
        """Return where a walk leads."""
        if self.chance(0.1):
            return Adverbial("home", "nach Hause")
        place = self.pick(lex.PLACES)
        return Adverbial("to", place.towards, self._place_phrase(place.noun), place.case)

    def spot(self, case: str) -> Adverbial:
        """Return a place on, under or beside a piece of furniture: location ("dat") or direction ("acc")."""
        noun = self.pick(tuple(lex.SPOTS))
        en, de = self.pick(lex.SPOTS[noun])
        return Adverbial("into" if (en, case) == ("in", "acc") else en, de, self._place_phrase(noun), case)

    def time(self, letter: str, negated: bool) -> Adverbial:
        """Return a time that goes with the tense `letter`."""
        if self.chance(0.12) and letter != "f":
            hour = self.integer(1, 12)
            word = german.number(hour) if hour > 1 else "ein"
            return Adverbial(f"at {english.number(hour)} o'clock", f"um {word} Uhr")
        entry = self.pick(lex.TIMES)
        while letter not in entry.tenses or (negated and "h" in entry.tenses):
            entry = self.pick(lex.TIMES)
        return Adverbial(entry.en, entry.de)

    # clauses

    def core(self, subject: NounPhrase | None = None, frames: str = _FRAMES) -> Clause:
        """Return a present clause with its participants; `frames` limits the kinds of verb."""
        frame = self.pick(frames.split())
        if frame in _VERBS_OF_FRAME:
            verb = self.pick(_VERBS_OF_FRAME[frame])
            while subject and "person" not in verb.subjects:
                verb = self.pick(_VERBS_OF_FRAME[frame])
            classes = verb.subjects if subject or "person" not in verb.subjects or self.chance(0.15) else ("person",)
            who = subject or self.subject(classes)
            return Clause(who, verb, object=self.thing(verb, who) if frame != "intr" else None)
        if frame == "belong" and not subject:
            what = self.noun_phrase(self.pick(lex.nouns_of(*lex.BELONG.subjects)), subject=True, plain=True)
            return Clause(replace(what, determiner="this"), lex.BELONG, object=self.thing(lex.BELONG, what))
        who = subject or self.subject()
        if frame == "give":
            return self._giving(who)
        if frame == "move":
            return self._moving(who)
        if frame == "put":
            verb = self.pick((lex.LAY, lex.PLACE))
            obj = self.noun_phrase(self.pick(lex.nouns_of(*verb.objects)), plain=True)
            return Clause(who, verb, object=obj, direction=self.spot("acc"))
        if frame == "live":
            verb = self.pick((lex.LIVE, lex.STAY))
            return Clause(who, verb, place=self.place(verb))
        # "rest", and "belong" where the subject is a given person
        if subject or self.chance(0.5):
            seat = NounPhrase(noun=self.pick(lex.nouns_of("seat")), determiner=self.pick(("the", "a", "this")))
            return Clause(who, lex.SIT, place=Adverbial("on", "auf", seat))
        flat = self.chance(0.5)
        thing = self.noun_phrase(self.pick(lex.nouns_of("flat" if flat else "upright")), subject=True, plain=True)
        return Clause(thing, lex.LIE if flat else lex.STAND, place=self.spot("dat"))

    def _giving(self, who: NounPhrase) -> Clause:
        verb = self.pick(lex.GIVE_VERBS)
        if self.chance(0.45):
            recipient = self._person(who, 0.33)
        else:
            noun = self.pick([n for n in lex.nouns_of("person") if n is not who.noun])
            recipient = self.noun_phrase(noun, plain=True)
        return Clause(who, verb, object=self.noun_phrase(self.pick(lex.nouns_of(*verb.objects))), recipient=recipient)

    def _moving(self, who: NounPhrase) -> Clause:
        if self.chance(0.4):
            verb, (en, de) = self.pick((lex.DRIVE, lex.FLY, lex.TRAVEL, lex.TRAVEL)), self.pick(lex.CITIES)
            means = self.pick(_MEANS) if verb is lex.TRAVEL and self.chance(0.6) else None
            return Clause(who, verb, direction=Adverbial(f"to {en}", f"nach {de}"), means=means)
        return Clause(who, self.pick((lex.GO, lex.GO, lex.COME, lex.RUN, lex.DRIVE)), direction=self.destination())

    def core_that(self, suits: Callable[[Clause], bool], subject: NounPhrase, frames: str) -> Clause:
        """Return a `core` clause that satisfies `suits`."""
        while not suits(c := self.core(subject, frames)):
            pass
        return c

    def inflect(self, c: Clause, tenses: str = "ppptttfmm", negation: float = 0.12) -> Clause:
        """Choose tense ("p"resent, pas"t", "f"uture, "m"odal) and negation."""
        letter = self.pick(tenses)
        animate = c.subject.kind != "noun" or c.subject.noun.person
        state = c.verb.en in _STATES
        if (
            (letter == "f" and state and c.verb is not lex.LIVE)
            or (letter == "t" and hides_past(c.verb))
            or (letter == "m" and (state or not animate))
        ):
            letter = "p"
        negated = c.subject.determiner not in QUANTIFIERS and self.chance(negation)
        obj = c.object
        if negated and obj and obj.determiner in ("number", "many", "some"):
            obj = replace(obj, determiner="bare", count=0)
        modal, tense = "", {"t": "past", "f": "will"}.get(letter, "present")
        if letter == "m":
            modal = self.pick(("can", "must", "may", "should", "want", "would like"))
            tense = "past" if modal in ("can", "must", "want") and self.chance(0.3) else "present"
        return replace(c, tense=tense, modal=modal, negated=negated, object=obj)

    def adorn(self, c: Clause, amount: float = 1.0, front: bool = True) -> Clause:
        """Add adverbials of time, frequency, manner and place, and front one of them now and then."""
        letter = "t" if c.tense == "past" else "f" if c.tense == "will" else "p"
        changes: dict[str, object] = {}
        state = c.verb.en in _STATES
        # With "not", a further adverbial beside the object would be what is negated.
        object_negated = c.negated and c.object
        if self.chance(0.42 * amount) and not state:
            changes["time"] = self.time(letter, c.negated)
        elif self.chance(0.2 * amount) and not (c.modal or c.tense == "will" or c.negated or state):
            # "usually" is for the present only.
            changes["frequency"] = self.pick([f for f in lex.FREQUENCIES if letter in f.tenses])
        if c.verb.manners and not object_negated and self.chance(0.22 * amount) and "frequency" not in changes:
            changes["manner"] = Adverbial(*lex.MANNERS[self.pick(c.verb.manners)])
        settled = c.place or c.direction or c.predicate or state or c.verb.case == "prep" or object_negated
        if not settled and "manner" not in changes and c.verb.en not in _PLACELESS and self.chance(0.35 * amount):
            changes["place"] = self.place(c.verb)
        fronted = [role for role in ("time", "place") if role in changes and not c.negated]
        if front and fronted and self.chance(0.35):
            changes["front"] = self.pick(fronted)
        return replace(c, **changes)

    def simple(self, subject: NounPhrase | None = None, tenses: str = "pppttm", amount: float = 0.5) -> Clause:
        """Return a statement of moderate length for use inside a complex sentence."""
        return self.adorn(self.inflect(self.core(subject), tenses), amount, front=False)

    def state(self, who: NounPhrase, tense: str = "present") -> Clause:
        """Return "X is tired" and the like."""
        return Clause(who, lex.BE, tense, predicate=Predicate(self.pick(lex.STATES)), negated=self.chance(0.1))
