"""A random generator of plausible meanings: whole sentences of all kinds, out of the clauses of `clauses`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from . import english, german
from . import lexicon as lex
from .clauses import QUANTIFIERS, ClauseGenerator, adjectives_of, hides_past
from .lexicon import Fixed
from .meaning import Adverbial, Clause, Meaning, NounPhrase, Part, Predicate

_ACTIONS = {v.en: v for v in lex.VERBS if v.case == "acc" and "person" in v.subjects}
# Where one goes, what for, and the classes of the object.
_PURPOSES = {
    "supermarket": ("buy", "food drink"), "market": ("buy", "fruit flora"), "bakery": ("buy", "bake"),
    "library": ("read", "read"), "restaurant": ("eat", "food"), "station": ("pick up", "person"),
    "airport": ("pick up", "person"), "kitchen": ("cook", "boil"), "hospital": ("visit", "kin"),
    "garden": ("feed", "pet"), "zoo": ("see", "animal"), "cinema": ("see", "film"),
    "school": ("learn", "learn"), "forest": ("photograph", "animal"),
}  # fmt: skip
# Adverbial question: the kinds of verb, the role asked for, and the question word.
_WH_ADVERBS = {
    "where": ("acc intr live", "place", Adverbial("where", "wo")),
    "to": ("move", "direction", Adverbial("where", "wohin")),
    "when": ("acc acc dat intr prep move", "time", Adverbial("when", "wann")),
    "why": ("acc acc dat intr prep move", "reason", Adverbial("why", "warum")),
}
# Adjectives that are hardly ever compared.
_ABSOLUTE = frozenset(("empty", "broken", "sour", "wild", "delicious", "sick", "dark", "young"))
# Verbs that make no request, no attempt, and no event before or after another.
_EVENTLESS = frozenset((
    "have", "need", "lose", "like", "love", "know", "see", "hear", "forget", "find", "wear", "cry", "understand",
    "belong", "trust", "dream", "arrive", "wake up", "fall asleep", "fall in love", "look for",
))  # fmt: skip
# What one can do at a chore ("while ..."), and the chores.
_PASTIMES = frozenset(("sing", "laugh", "speak", "talk", "think", "drink", "dream", "smile"))
_CHORES = frozenset(("work", "cook", "bake", "wait", "clean", "wash", "repair", "eat", "draw", "paint", "clean up"))
_STRANGERS = tuple(noun for noun in lex.nouns_of("person") if "kin" not in noun.classes)
_SPOTTABLE = frozenset(lex.nouns_of("flat", "upright"))


def _askable(c: Clause) -> Clause:
    """Return `c` with a subject that one can ask about: "no man" and "every man" do not sound well in a question."""
    if c.subject.determiner in QUANTIFIERS:
        return replace(c, subject=replace(c.subject, determiner="the"))
    return c


def _eventful(c: Clause) -> bool:
    return c.verb.en not in _EVENTLESS


def _told(c: Clause) -> Meaning:
    return Meaning((Part(c),))


def _asked(c: Clause, german_order: str = "second") -> Meaning:
    return Meaning((Part(c, "question", german_order),), "?")


class Generator(ClauseGenerator):
    """Endless source of random meanings."""

    def __init__(self, seed: str) -> None:
        """Start from `seed`."""
        super().__init__(seed)
        kinds: tuple[tuple[Callable[[], Meaning], int], ...] = (
            (self.statement, 30), (self.yes_no, 8), (self.wh, 11), (self.description, 9), (self.relative, 10),
            (self.reason, 6), (self.report, 7), (self.condition, 8), (self.coordination, 9), (self.purpose, 5),
            (self.imperative, 4), (self.price, 2), (self.topic, 1),
        )  # fmt: skip
        self._kinds = [make for make, weight in kinds for _ in range(weight)]

    def meaning(self) -> Meaning:
        """Return the next random meaning."""
        return self.pick(self._kinds)()

    def statement(self) -> Meaning:
        """A main clause."""
        c = self.core()
        # In the perfect, "know" would rather be "kennengelernt".
        if self.chance(0.05) and c.verb.case and not german.preterite(c.verb.de, "3sg") and c.verb.en != "know":
            # "already" stands between "has" and the participle, as any adverb of frequency.
            return _told(replace(c, tense="perfect", frequency=Fixed("already", "schon", "t")))
        return _told(self.adorn(self.inflect(c)))

    def yes_no(self) -> Meaning:
        """A question for yes or no."""
        return _asked(self.adorn(self.inflect(_askable(self.core())), 0.6, front=False), "first")

    def wh(self) -> Meaning:
        """A question with a question word: who, whom, what, which, how many, where, when, why."""
        kind = self.pick(("who", "who", "whom", "what", "which", "which", "many", "where", "to", "when", "why"))
        tenses = "pppttfm"
        if kind == "who":
            c = self.core(NounPhrase("wh", "who"))
            return _asked(self.adorn(self.inflect(c, tenses, 0.1), 0.6, front=False))
        if kind in _WH_ADVERBS:
            frames, role, adverb = _WH_ADVERBS[kind]
            c = _askable(self.core(frames=frames))
            c = self.inflect(c, tenses, 0.15 if kind == "why" else 0.0)
            if kind == "to":
                c = replace(c, means=None)
            return _asked(replace(c, **{role: adverb}, front=role))
        c = _askable(self.core(frames="acc acc dat prep" if kind == "whom" else "acc acc acc prep"))
        noun = c.object.noun
        # Ask for the kind of object that the verb has; an animal in the dative is "whom" too, as "wem" is.
        if c.object.kind != "noun" or noun.person or c.verb.case == "dat":
            obj = NounPhrase("wh", "who")
        elif kind in ("whom", "what"):
            obj = NounPhrase("wh", "what")
        elif kind == "many" and not noun.mass and c.verb.case == "acc":
            obj = NounPhrase(noun=noun, determiner="how many", plural=True)
        else:
            obj = NounPhrase(noun=noun, determiner="which", plural=not noun.mass and self.chance(0.3))
        c = replace(self.inflect(replace(c, object=None), tenses, 0.0), object=obj, front="object")
        return _asked(self.adorn(c, 0.5, front=False))

    def description(self) -> Meaning:
        """A sentence with "be": an age, a place, a comparison, or a quality."""
        draw = self._random()
        tense = "past" if self.chance(0.25) else "present"
        if draw < 0.12:
            return self._age(tense)
        if draw < 0.3:
            return self._whereabouts(tense)
        return self._quality(tense, compared=draw < 0.5)

    def _age(self, tense: str) -> Meaning:
        age = Predicate(degree="years", years=self.integer(1, 99))
        who = self.subject()
        if who.kind == "noun":
            who = NounPhrase(noun=who.noun)
        return _told(Clause(who, lex.BE, tense, predicate=age))

    def _whereabouts(self, tense: str) -> Meaning:
        who = self.subject()
        c = Clause(who, lex.BE, tense, place=self.place(lex.BE), negated=self._negated(who))
        if self.chance(0.4):
            c = replace(c, time=self.time("t" if tense == "past" else "p", negated=True))
        return self._asked_or_told(c)

    def _quality(self, tense: str, compared: bool) -> Meaning:
        adjective = self.pick(lex.ADJECTIVES)
        nouns = lex.nouns_of(*adjective.classes)
        who = replace(self.noun_phrase(self.pick(nouns), subject=True), adjectives=())
        if compared and adjective.en not in _ABSOLUTE:
            alike = [n for n in nouns if n.classes[0] == who.noun.classes[0]]
            than = replace(self.noun_phrase(self.pick(alike), plain=True), adjectives=())
            if than.determiner in ("bare", "a"):
                than = replace(than, determiner="the")
            if than.noun is who.noun:
                than = replace(than, determiner="this" if who.determiner != "this" else "my")
            if who.determiner in (*QUANTIFIERS, "a"):
                who = replace(who, determiner="the")
            predicate = Predicate(adjective, self.pick(("comparative", "comparative", "equal")), than)
            return _told(Clause(who, lex.BE, tense, predicate=predicate))
        c = Clause(who, lex.BE, tense, predicate=Predicate(adjective), negated=self._negated(who))
        if not who.owner and who.noun in _SPOTTABLE and who.determiner == "the" and self.chance(0.4):
            c = replace(c, subject=replace(who, modifier=self.spot("dat")))
        return self._asked_or_told(c)

    def _negated(self, who: NounPhrase) -> bool:
        return who.determiner not in QUANTIFIERS and self.chance(0.15)

    def _asked_or_told(self, c: Clause) -> Meaning:
        return _asked(_askable(c), "first") if self.chance(0.2) else _told(c)

    def relative(self) -> Meaning:
        """A noun with a relative clause, as the subject or the object of the main clause."""
        as_subject = self.chance(0.65)
        if as_subject and self.chance(0.6):
            noun = self.pick(_STRANGERS)
        else:
            noun = self.pick((*lex.nouns_of("read", "thing", "wear", "ride", "pet"), *_STRANGERS))
        plural = self.chance(0.25)
        gap = NounPhrase("relative", noun=noun, plural=plural)
        verbs = [v for v in lex.VERBS if {noun.en, *noun.classes} & set(v.objects) and "person" in v.subjects]
        if noun.person and self.chance(0.55):
            # "he" keeps the place of the relative pronoun.
            c = self.core(NounPhrase("pronoun", "he"), "acc acc prep dat give move")
            c = replace(c, subject=gap)
        else:
            verb = self.pick([v for v in verbs if v.en not in _EVENTLESS])
            c = Clause(self.subject(), verb, object=gap, front="object")
            if c.subject.noun is noun:
                c = replace(c, subject=NounPhrase("name", "Anna"))
        c = self.adorn(self.inflect(c, "pptt", 0.06), 0.25, front=False)
        determiner = self.pick(("the", "the", "the", "this")) if not noun.person or as_subject else "the"
        options = adjectives_of(noun)
        adjectives = (self.pick(options),) if options and self.chance(0.25) else ()
        head = NounPhrase(noun=noun, determiner=determiner, plural=plural, relative=c, adjectives=adjectives)
        if not as_subject:
            # A separable prefix would stand far behind its verb, after the relative clause.
            verb = self.pick([v for v in verbs if "|" not in v.de and v is not c.verb])
            return _told(self.inflect(Clause(self.subject(), verb, object=head), "p", 0.0))
        if noun.person and self.chance(0.6):
            return _told(self.inflect(self.core(head, "acc intr move live dat"), "ppt", 0.08))
        quality = Predicate(self.pick([a for a in options if a not in adjectives]))
        tense = "past" if self.chance(0.2) else "present"
        return _told(Clause(head, lex.BE, tense, predicate=quality, negated=self.chance(0.1)))

    def _person_with_pronoun(self) -> tuple[NounPhrase, NounPhrase]:
        while True:
            who = self.subject()
            pronoun = self.pronoun_of(who)
            if pronoun and who.determiner not in ("number", "many", "some"):
                return who, pronoun

    def reason(self) -> Meaning:
        """A main clause with "because" or "although", or with "so"."""
        who, pronoun = self._person_with_pronoun()
        who = replace(who, adjectives=())
        because = self.pick(("because", "because", "although")) == "because"
        link = ("because", ", weil") if because else (", although", ", obwohl")
        if self.chance(0.45):
            feeling = Clause(who, lex.BE, predicate=Predicate(lex.ADJECTIVE[self.pick(("happy", "sad", "angry"))]))
            inner = self.simple(pronoun if self.chance(0.6) else None, "ptmm", 0.3)
            return Meaning((Part(feeling), link, Part(inner, de="last")))
        main = self.inflect(self.core(who, "acc intr move give live"), "ppttm", 0.2)
        tense = "past" if main.tense == "past" else "present"
        weather = Clause(NounPhrase("pronoun", "it"), self.pick((lex.RAIN, lex.SNOW)), tense)
        cause = weather if self.chance(0.25) else self.state(pronoun, tense)
        if self.chance(0.35):
            # The cause comes first and names the person, the consequence takes the pronoun.
            if cause is not weather:
                cause, main = replace(cause, subject=who), replace(main, subject=pronoun)
            if because:
                return Meaning((Part(cause), (", so", ", deshalb"), Part(main, de="first")))
            return Meaning((("although", "obwohl"), Part(cause, de="last"), (",", ","), Part(main, de="first")))
        return Meaning((Part(main), link, Part(cause, de="last")))

    def report(self) -> Meaning:
        """Somebody says or knows that ..., or asks whether ..."""
        who = self.subject()
        if who.determiner in ("no", "every"):
            who = NounPhrase("name", "Julia")
        inner = _askable(self.simple(None, "pppttfm", 0.4))
        that = self.chance(0.6)
        verb = self.pick((lex.SAY, lex.SAY, lex.HOPE, lex.KNOW, lex.THINK) if that else (lex.ASK, lex.KNOW))
        tense = "past" if self.chance(0.3) else "present"
        # One knows that, but does not know whether.
        main = Clause(who, verb, tense, negated=verb is lex.KNOW and not that)
        return Meaning((Part(main), ("that", ", dass") if that else ("whether", ", ob"), Part(inner, de="last")))

    def condition(self) -> Meaning:
        """If, when, before or while one thing happens, another does."""
        who, pronoun = self._person_with_pronoun()
        kind = self.pick(("if", "when", "before", "while"))
        past = self.chance(0.3) and kind != "if"
        letters = "t" if past else "p"
        if kind == "if" and self.chance(0.4):
            inner = Clause(NounPhrase("pronoun", "it"), self.pick((lex.RAIN, lex.SNOW)))
            main = self.inflect(self.core(who, "live move intr acc"), "pfm", 0.2)
        elif kind in ("if", "when") and self.chance(0.4):
            inner = self.state(who, "past" if past else "present")
            main = self.inflect(self.core(pronoun, "acc intr live move"), letters, 0.1)
        elif kind == "while":
            frames = "acc acc intr prep"
            inner = self.inflect(self.core_that(lambda c: c.verb.en in _CHORES, who, frames), letters, 0.0)
            main = self.inflect(self.core_that(lambda c: c.verb.en in _PASTIMES, pronoun, frames), letters, 0.0)
        else:
            frames = "acc acc intr prep move"
            inner = self.inflect(self.core_that(_eventful, who, frames), letters, 0.0)
            main = self.inflect(self.core_that(_eventful, pronoun, frames), letters, 0.0)
        # Where "read" hid the past in one clause the tenses clash; where in both, the present it is.
        if past and inner.tense != main.tense:
            return self.condition()
        once = inner.tense == "past"
        de = {"if": "wenn", "when": "als" if once else "wenn", "before": "bevor", "while": "während"}[kind]
        if self.chance(0.6):
            return Meaning(((kind, de), Part(inner, de="last"), (",", ","), Part(main, de="first")))
        if inner.subject.word != "it":
            # The first clause names the person.
            main, inner = replace(main, subject=who), replace(inner, subject=pronoun)
        return Meaning((Part(main), (kind, f", {de}"), Part(inner, de="last")))

    def coordination(self) -> Meaning:
        """Two clauses with "and" or "but": two subjects, or one subject with two actions on the same object."""
        link = self.pick((("and", "und"), (", but", ", aber")))
        return self._contrast(link) if self.chance(0.45) else self._sequence(link)

    def _contrast(self, link: tuple[str, str]) -> Meaning:
        """The same action of two subjects, or two actions without an object."""
        first = self.inflect(self.core(None, "acc acc intr prep give"), "ppttf", 0.0)
        person = first.subject.kind != "noun" or first.subject.noun.person
        classes = ("person",) if person else first.verb.subjects
        while (other := self.subject(classes)) == first.subject:
            pass
        second = self.core(other, "intr") if person and not first.object and link[0] == "and" else first
        second = replace(second, subject=other, tense=first.tense)
        if first.object:
            second = replace(second, object=self.thing(first.verb, other, first.object.noun))
        elif link[0] == ", but":
            second = replace(second, negated=other.determiner not in QUANTIFIERS)
        return Meaning((Part(first), link, Part(second)))

    def _sequence(self, link: tuple[str, str]) -> Meaning:
        """Two actions on one object, which the second clause takes up by a pronoun."""
        noun_class, *names = self.pick(lex.SEQUENCES)
        one, two = (_ACTIONS[name] for name in names)
        noun, who = self.pick(lex.nouns_of(noun_class)), self.subject()
        obj = self.noun_phrase(noun)
        if obj.determiner == "bare" and noun.mass:
            obj = replace(obj, determiner="the")
        taken, again = self.pronoun_of(obj), self.pronoun_of(who)
        if taken is None or again is None or (noun.person and taken.word == again.word):
            return self.coordination()
        tense = "past" if self.chance(0.5) and not (hides_past(one) or hides_past(two)) else "present"
        first, second = Clause(who, one, tense, object=obj), Clause(again, two, tense, object=taken)
        if link[0] == ", but":
            return Meaning((Part(first), link, Part(replace(second, negated=True))))
        if tense == "past":
            return Meaning((Part(first), link, Part(second)))
        return Meaning((Part(first), link, Part(replace(second, subject=who), "drop", "drop")))

    def purpose(self) -> Meaning:
        """An infinitive with "zu": somebody goes somewhere to do something, or tries to do something."""
        who = self.subject()
        if self.chance(0.5):
            place = self.pick([p for p in lex.PLACES if p.noun.en in _PURPOSES])
            action, classes = _PURPOSES[place.noun.en]
            direction = Adverbial("to", place.towards, NounPhrase(noun=place.noun), place.case)
            main = self.inflect(Clause(who, lex.GO, direction=direction), "pptfm", 0.0)
            obj = self.noun_phrase(self.pick(lex.nouns_of(*classes.split())))
            inner = Clause(who, _ACTIONS[action], object=obj)
            return Meaning((Part(main), ("", ", um"), Part(inner, "infinitive", "zu")))
        main = self.inflect(Clause(who, self.pick((lex.TRY, lex.TRY, lex.FORGET))), "pptt", 0.0)
        inner = self.core_that(_eventful, who, "acc dat")
        return Meaning((Part(main), ("", ","), Part(inner, "infinitive", "zu")))

    def imperative(self) -> Meaning:
        """A polite request."""

        def suits(c: Clause) -> bool:
            # "Please greet you" and "Please wash your hat" are no requests.
            own = c.object and (c.object.word == "you" or c.object.determiner == "your")
            return _eventful(c) and not own

        c = self.core_that(suits, NounPhrase("pronoun", "you"), "acc acc dat give put intr")
        # English says "please" of its own accord.
        c = replace(c, frequency=Fixed("", "bitte", ""))
        return Meaning((Part(c, "imperative", "first"),))

    def price(self) -> Meaning:
        """What something costs."""
        noun = self.pick(lex.nouns_of(*lex.COST.subjects))
        what = replace(self.noun_phrase(noun, plain=True, subject=True), plural=False)
        if what.determiner in ("every", "no", "a"):
            what = replace(what, determiner="this")
        n = self.integer(2, 99) if self.chance(0.8) else 100 * self.integer(1, 99)
        amount = Adverbial(f"{english.number(n)} euros", f"{german.number(n)} Euro")
        return _told(Clause(what, lex.COST, direction=amount))

    def topic(self) -> Meaning:
        """A fronted object: "This book I know"."""
        c = self.core(self.subject(), "acc")
        while c.subject.kind == "noun" or c.object.kind != "noun":
            c = self.core(self.subject(), "acc")
        obj = NounPhrase(noun=c.object.noun, determiner="this", plural=c.object.plural)
        return _told(replace(self.inflect(replace(c, object=obj), "pt", 0.5), front="object"))
