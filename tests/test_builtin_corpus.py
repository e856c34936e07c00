"""The built-in corpus: German checked form by form against paradigms written here by hand, then the splits."""

import itertools
import re

import pytest

from vaswani_transformer import builtin_corpus as corpus
from vaswani_transformer.builtin_corpus import english, german, lexicon
from vaswani_transformer.builtin_corpus.meaning import (
    Adverbial,
    Clause,
    Meaning,
    NounPhrase,
    Part,
    Predicate,
)

N, V = lexicon.NOUN, {(v.en, v.case): v for v in lexicon.VERBS}
GIVE = {v.en: v for v in lexicon.GIVE_VERBS}
A = lexicon.ADJECTIVE


def table(text):
    return [line.split() for line in text.strip().splitlines()]


# rows nominative, accusative, dative, genitive; columns masculine, feminine, neuter, plural; "_" is no form
ARTICLES = {
    "der": "der die das die\nden die das die\ndem der dem den\ndes der des der",
    "ein": "ein eine ein _\neinen eine ein _\neinem einer einem _\neines einer eines _",
    "kein": "kein keine kein keine\nkeinen keine kein keine\nkeinem keiner keinem keinen\nkeines keiner keines keiner",
    "mein": "mein meine mein meine\nmeinen meine mein meine\nmeinem meiner meinem meinen\nmeines meiner meines meiner",
    "sein": "sein seine sein seine\nseinen seine sein seine\nseinem seiner seinem seinen\nseines seiner seines seiner",
    "ihr": "ihr ihre ihr ihre\nihren ihre ihr ihre\nihrem ihrer ihrem ihren\nihres ihrer ihres ihrer",
    "Ihr": "Ihr Ihre Ihr Ihre\nIhren Ihre Ihr Ihre\nIhrem Ihrer Ihrem Ihren\nIhres Ihrer Ihres Ihrer",
    "unser": "unser unsere unser unsere\nunseren unsere unser unsere\nunserem unserer unserem unseren\n"
    "unseres unserer unseres unserer",
    "dies": "dieser diese dieses diese\ndiesen diese dieses diese\ndiesem dieser diesem diesen\n"
    "dieses dieser dieses dieser",
    "welch": "welcher welche welches welche\nwelchen welche welches welche\nwelchem welcher welchem welchen\n"
    "welches welcher welches welcher",
}


@pytest.mark.parametrize("word", ARTICLES)
def test_determiners(word):
    rows = table(ARTICLES[word])
    got = [[german.determiner(word, case, column) or "_" for column in "mfnp"] for case in german.CASES]
    assert got == rows


ADJECTIVES = {
    "strong": "roter rote rotes rote\nroten rote rotes rote\nrotem roter rotem roten\nroten roter roten roter",
    "weak": "rote rote rote roten\nroten rote rote roten\nroten roten roten roten\nroten roten roten roten",
    "mixed": "roter rote rotes roten\nroten rote rotes roten\nroten roten roten roten\nroten roten roten roten",
}


@pytest.mark.parametrize("declension", ADJECTIVES)
def test_adjective_endings(declension):
    got = [[german.adjective("rot", declension, case, column) for column in "mfnp"] for case in german.CASES]
    assert got == table(ADJECTIVES[declension])


@pytest.mark.parametrize(
    ("word", "form"),
    [
        ("teuer", "teure"),
        ("dunkel", "dunkle"),
        ("sauer", "saure"),
        ("müde", "müde"),
        ("leise", "leise"),
        ("hoch", "hohe"),
    ],
)
def test_adjective_stems(word, form):
    assert german.adjective(word, "weak", "nom", "f") == form


def test_comparatives():
    words = ["alt", "schwarz", "teuer", "dunkel", "müde", "hoch", "sauber", "nett"]
    forms = ["älter", "schwärzer", "teurer", "dunkler", "müder", "höher", "sauberer", "netter"]
    assert [german.comparative(word) for word in words] == forms


@pytest.mark.parametrize(
    ("word", "column", "declension"),
    [
        ("", "p", "strong"),
        ("ein", "m", "mixed"),
        ("kein", "p", "mixed"),
        ("der", "p", "weak"),
        ("viel", "p", "strong"),
        ("einig", "p", "strong"),
        ("all", "p", "weak"),
        ("jed", "m", "weak"),
        ("unser", "f", "mixed"),
    ],
)
def test_declension_after_a_determiner(word, column, declension):
    assert german.declension_after(word, column) == declension


# English, then singular nom acc dat gen, then plural nom acc dat gen
NOUNS = """
man Mann Mann Mann Mannes Männer Männer Männern Männer
boy Junge Jungen Jungen Jungen Jungen Jungen Jungen Jungen
woman Frau Frau Frau Frau Frauen Frauen Frauen Frauen
girl Mädchen Mädchen Mädchen Mädchens Mädchen Mädchen Mädchen Mädchen
child Kind Kind Kind Kindes Kinder Kinder Kindern Kinder
baby Baby Baby Baby Babys Babys Babys Babys Babys
father Vater Vater Vater Vaters Väter Väter Vätern Väter
student Student Studenten Studenten Studenten Studenten Studenten Studenten Studenten
neighbor Nachbar Nachbarn Nachbarn Nachbarn Nachbarn Nachbarn Nachbarn Nachbarn
farmer Bauer Bauern Bauern Bauern Bauern Bauern Bauern Bauern
colleague Kollege Kollegen Kollegen Kollegen Kollegen Kollegen Kollegen Kollegen
boss Chef Chef Chef Chefs Chefs Chefs Chefs Chefs
queen Königin Königin Königin Königin Königinnen Königinnen Königinnen Königinnen
doctor Arzt Arzt Arzt Arztes Ärzte Ärzte Ärzten Ärzte
teacher Lehrer Lehrer Lehrer Lehrers Lehrer Lehrer Lehrern Lehrer
dog Hund Hund Hund Hundes Hunde Hunde Hunden Hunde
lion Löwe Löwen Löwen Löwen Löwen Löwen Löwen Löwen
bear Bär Bären Bären Bären Bären Bären Bären Bären
book Buch Buch Buch Buches Bücher Bücher Büchern Bücher
house Haus Haus Haus Hauses Häuser Häuser Häusern Häuser
car Auto Auto Auto Autos Autos Autos Autos Autos
apple Apfel Apfel Apfel Apfels Äpfel Äpfel Äpfeln Äpfel
bus Bus Bus Bus Busses Busse Busse Bussen Busse
table Tisch Tisch Tisch Tisches Tische Tische Tischen Tische
museum Museum Museum Museum Museums Museen Museen Museen Museen
park Park Park Park Parks Parks Parks Parks Parks
hand-made Schloss Schloss Schloss Schlosses Schlösser Schlösser Schlössern Schlösser
newspaper Zeitung Zeitung Zeitung Zeitung Zeitungen Zeitungen Zeitungen Zeitungen
garden Garten Garten Garten Gartens Gärten Gärten Gärten Gärten
""".replace("hand-made", "castle")


@pytest.mark.parametrize("row", table(NOUNS), ids=lambda row: row[0])
def test_noun_declension(row):
    forms = [german.decline(N[row[0]], case, plural) for plural in (False, True) for case in german.CASES]
    assert forms == row[1:]


# infinitive: ich du er wir ihr sie, participle, auxiliary
VERBS = """
lernen: lerne lernst lernt lernen lernt lernen gelernt haben
arbeiten: arbeite arbeitest arbeitet arbeiten arbeitet arbeiten gearbeitet haben
antworten: antworte antwortest antwortet antworten antwortet antworten geantwortet haben
öffnen: öffne öffnest öffnet öffnen öffnet öffnen geöffnet haben
tanzen: tanze tanzt tanzt tanzen tanzt tanzen getanzt haben
lächeln: lächle lächelst lächelt lächeln lächelt lächeln gelächelt haben
wandern: wandere wanderst wandert wandern wandert wandern gewandert sein
zeichnen: zeichne zeichnest zeichnet zeichnen zeichnet zeichnen gezeichnet haben
lesen: lese liest liest lesen lest lesen gelesen haben
essen: esse isst isst essen esst essen gegessen haben
sehen: sehe siehst sieht sehen seht sehen gesehen haben
geben: gebe gibst gibt geben gebt geben gegeben haben
fahren: fahre fährst fährt fahren fahrt fahren gefahren sein
laufen: laufe läufst läuft laufen lauft laufen gelaufen sein
schlafen: schlafe schläfst schläft schlafen schlaft schlafen geschlafen haben
waschen: wasche wäschst wäscht waschen wascht waschen gewaschen haben
treffen: treffe triffst trifft treffen trefft treffen getroffen haben
helfen: helfe hilfst hilft helfen helft helfen geholfen haben
finden: finde findest findet finden findet finden gefunden haben
gehen: gehe gehst geht gehen geht gehen gegangen sein
bleiben: bleibe bleibst bleibt bleiben bleibt bleiben geblieben sein
schwimmen: schwimme schwimmst schwimmt schwimmen schwimmt schwimmen geschwommen sein
bringen: bringe bringst bringt bringen bringt bringen gebracht haben
denken: denke denkst denkt denken denkt denken gedacht haben
reparieren: repariere reparierst repariert reparieren repariert reparieren repariert haben
verkaufen: verkaufe verkaufst verkauft verkaufen verkauft verkaufen verkauft haben
vergessen: vergesse vergisst vergisst vergessen vergesst vergessen vergessen haben
verstehen: verstehe verstehst versteht verstehen versteht verstehen verstanden haben
besuchen: besuche besuchst besucht besuchen besucht besuchen besucht haben
begrüßen: begrüße begrüßt begrüßt begrüßen begrüßt begrüßen begrüßt haben
gratulieren: gratuliere gratulierst gratuliert gratulieren gratuliert gratulieren gratuliert haben
gehören: gehöre gehörst gehört gehören gehört gehören gehört haben
sein: bin bist ist sind seid sind gewesen sein
haben: habe hast hat haben habt haben gehabt haben
werden: werde wirst wird werden werdet werden geworden haben
wissen: weiß weißt weiß wissen wisst wissen gewusst haben
mögen: mag magst mag mögen mögt mögen gemocht haben
auf|machen: mache machst macht machen macht machen aufgemacht haben
an|fangen: fange fängst fängt fangen fangt fangen angefangen haben
bitten: bitte bittest bittet bitten bittet bitten gebeten haben
bellen: belle bellst bellt bellen bellt bellen gebellt haben
an|rufen: rufe rufst ruft rufen ruft rufen angerufen haben
ein|laden: lade lädst lädt laden ladet laden eingeladen haben
auf|stehen: stehe stehst steht stehen steht stehen aufgestanden sein
an|kommen: komme kommst kommt kommen kommt kommen angekommen sein
ein|schlafen: schlafe schläfst schläft schlafen schlaft schlafen eingeschlafen sein
fern|sehen: sehe siehst sieht sehen seht sehen ferngesehen haben
mit|bringen: bringe bringst bringt bringen bringt bringen mitgebracht haben
ein|kaufen: kaufe kaufst kauft kaufen kauft kaufen eingekauft haben
"""


@pytest.mark.parametrize("row", table(VERBS), ids=lambda row: row[0])
def test_verb_conjugation(row):
    verb = row[0].rstrip(":")
    assert [german.present(verb, person) for person in german.PERSONS] == row[1:7]
    assert german.participle(verb) == row[7]
    if verb != "werden":
        assert german.auxiliary(verb) == row[8]


@pytest.mark.parametrize(
    ("modal", "present", "preterite"),
    [
        ("können", "kann kannst kann können könnt können", "konnte konntest konnte konnten konntet konnten"),
        ("müssen", "muss musst muss müssen müsst müssen", "musste musstest musste mussten musstet mussten"),
        ("wollen", "will willst will wollen wollt wollen", "wollte wolltest wollte wollten wolltet wollten"),
        ("dürfen", "darf darfst darf dürfen dürft dürfen", None),
        ("möchten", "möchte möchtest möchte möchten möchtet möchten", None),
        ("sein", "bin bist ist sind seid sind", "war warst war waren wart waren"),
        ("haben", "habe hast hat haben habt haben", "hatte hattest hatte hatten hattet hatten"),
    ],
)
def test_modals_and_preterites(modal, present, preterite):
    assert [german.present(modal, person) for person in german.PERSONS] == present.split()
    got = [german.preterite(modal, person) for person in german.PERSONS]
    assert got == (preterite.split() if preterite else [None] * 6)


# Proofread by hand, so that a new verb in the lexicon needs a line here.
PARTICIPLES = """
ab|fahren abgefahren / ab|holen abgeholt / ab|reisen abgereist / an|fangen angefangen / an|kommen
angekommen / an|rufen angerufen / an|ziehen angezogen / arbeiten gearbeitet / auf|machen aufgemacht /
auf|räumen aufgeräumt / auf|stehen aufgestanden / auf|wachen aufgewacht / aus|schalten ausgeschaltet /
aus|ziehen ausgezogen / backen gebacken / beantworten beantwortet / beginnen begonnen / begrüßen begrüßt
/ bellen gebellt / beobachten beobachtet / bestellen bestellt / besuchen besucht / bezahlen bezahlt /
bitten gebeten / bleiben geblieben / brauchen gebraucht / danken gedankt / denken gedacht / ein|kaufen
eingekauft / ein|laden eingeladen / ein|schalten eingeschaltet / ein|schlafen eingeschlafen / erzählen
erzählt / essen gegessen / fahren gefahren / fern|sehen ferngesehen / finden gefunden / fliegen geflogen
/ folgen gefolgt / fotografieren fotografiert / fragen gefragt / fressen gefressen / füttern gefüttert /
geben gegeben / gehen gegangen / gehören gehört / glauben geglaubt / gratulieren gratuliert / haben
gehabt / helfen geholfen / hoffen gehofft / hören gehört / kaufen gekauft / kennen gekannt / kochen
gekocht / kommen gekommen / kosten gekostet / lachen gelacht / laufen gelaufen / legen gelegt / leihen
geliehen / lernen gelernt / lesen gelesen / lieben geliebt / liegen gelegen / lächeln gelächelt / malen
gemalt / mit|bringen mitgebracht / mögen gemocht / putzen geputzt / rauchen geraucht / reden geredet /
regnen geregnet / reisen gereist / reparieren repariert / sagen gesagt / schicken geschickt / schlafen
geschlafen / schneiden geschnitten / schneien geschneit / schreiben geschrieben / schwimmen geschwommen /
sehen gesehen / sein gewesen / aus|ruhen ausgeruht / beeilen beeilt / erinnern erinnert / freuen gefreut
/ kümmern gekümmert / verlieben verliebt / singen gesungen / sitzen gesessen / spielen gespielt /
sprechen gesprochen / stehen gestanden / stellen gestellt / suchen gesucht / tanzen getanzt / tragen
getragen / treffen getroffen / trinken getrunken / träumen geträumt / vergessen vergessen / verkaufen
verkauft / verlieren verloren / verstehen verstanden / versuchen versucht / vertrauen vertraut /
verzeihen verziehen / vor|lesen vorgelesen / wandern gewandert / warten gewartet / waschen gewaschen /
weinen geweint / wissen gewusst / wohnen gewohnt / zeichnen gezeichnet / zeigen gezeigt / zurück|kommen
zurückgekommen / zu|hören zugehört / zu|machen zugemacht
"""


def test_participle_of_every_verb_in_the_lexicon():
    expected = dict(entry.split() for entry in " ".join(PARTICIPLES.split()).split(" / "))
    single = [entry for entry in vars(lexicon).values() if isinstance(entry, lexicon.Verb)]
    verbs = {verb.de.removeprefix("sich ") for verb in (*lexicon.VERBS, *lexicon.GIVE_VERBS, *single)}
    assert {verb: german.participle(verb) for verb in verbs} == expected


def test_infinitives():
    verbs = ("auf|machen", "an|rufen", "lesen", "sich erinnern", "mit|bringen")
    assert [german.infinitive(v) for v in verbs] == ["aufmachen", "anrufen", "lesen", "erinnern", "mitbringen"]
    zu = ["aufzumachen", "anzurufen", "zu lesen", "zu erinnern", "mitzubringen"]
    assert [german.infinitive(v, zu=True) for v in verbs] == zu


UNITS = ["", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
TEENS = ["zehn", "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"]
TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]


def test_numbers():
    expected = ["null", *UNITS[1:], *TEENS]
    for ten in TENS:
        expected += [ten, *(("ein" if unit == "eins" else unit) + "und" + ten for unit in UNITS[1:])]
    assert [german.number(n) for n in range(100)] == expected
    some = {
        100: "einhundert", 101: "einhunderteins", 116: "einhundertsechzehn", 121: "einhunderteinundzwanzig",
        130: "einhundertdreißig", 777: "siebenhundertsiebenundsiebzig", 1000: "eintausend", 1001: "eintausendeins",
        2017: "zweitausendsiebzehn", 21_000: "einundzwanzigtausend", 101_000: "einhunderteintausend",
        999_999: "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
    }  # fmt: skip
    assert {n: german.number(n) for n in some} == some
    assert [english.number(n) for n in (0, 13, 21, 40, 121, 2017)] == [
        "zero", "thirteen", "twenty-one", "forty", "one hundred twenty-one", "two thousand seventeen",
    ]  # fmt: skip
    for number, n in itertools.product((german.number, english.number), (-1, 1_000_000)):
        with pytest.raises(ValueError, match=f"expected a number from 0 to 999999, found {n}"):
            number(n)


def test_pronouns():
    rows = "ich mich mir\nSie Sie Ihnen\ner ihn ihm\nsie sie ihr\nes es ihm\nwir uns uns\nsie sie ihnen"
    keys = ["I", "you", "he", "she", "it", "we", "they"]
    assert [[german.pronoun(key, case) for case in german.CASES[:3]] for key in keys] == table(rows)


def test_relative_pronouns():
    rows = "der die das die\nden die das die\ndem der dem denen\ndessen deren dessen deren"
    assert [[german.relative_pronoun(case, c) for c in "mfnp"] for case in german.CASES] == table(rows)


@pytest.mark.parametrize(
    ("preposition", "noun", "case", "text"),
    [
        ("in", "garden", "dat", "im Garten"),
        ("in", "garden", "acc", "in den Garten"),
        ("in", "cinema", "acc", "ins Kino"),
        ("an", "lake", "dat", "am See"),
        ("an", "window", "acc", "ans Fenster"),
        ("zu", "station", "dat", "zum Bahnhof"),
        ("zu", "bakery", "dat", "zur Bäckerei"),
        ("bei", "doctor", "dat", "beim Arzt"),
        ("von", "boss", "dat", "vom Chef"),
        ("auf", "table", "acc", "auf den Tisch"),
        ("in", "city", "dat", "in der Stadt"),
        ("mit", "boy", "dat", "mit dem Jungen"),
    ],
)
def test_contractions(preposition, noun, case, text):
    assert german.prepositional(preposition, NounPhrase(noun=N[noun]), case) == text


def test_determiner_rejects_an_unknown_word():
    with pytest.raises(ValueError, match="found 'manch'"):
        german.determiner("manch", "nom", "m")


def test_english_forms():
    assert [english.plural(w) for w in ["box", "city", "boy", "knife", "child", "potato"]] == (
        ["boxes", "cities", "boys", "knives", "children", "potatoes"]
    )
    assert [english.third_person(w) for w in ["watch", "carry", "play", "have", "go"]] == [
        "watches",
        "carries",
        "plays",
        "has",
        "goes",
    ]
    assert [english.past(w) for w in ["cry", "play", "bake", "buy", "be", "leave"]] == [
        "cried",
        "played",
        "baked",
        "bought",
        "was",
        "left",
    ]
    assert [english.participle(w) for w in ["write", "eat", "work"]] == ["written", "eaten", "worked"]
    assert [english.article(w) for w in ["apple", "hour", "university", "old", "book"]] == ["an", "an", "a", "an", "a"]
    assert [english.comparative(w) for w in ["big", "happy", "nice", "modern", "sad"]] == (
        ["bigger", "happier", "nicer", "more modern", "sadder"]
    )


# ------------------------------------------------------------------------------------------- whole sentences


def np(noun, determiner="the", *adjectives, **kw):
    return NounPhrase(noun=N[noun], determiner=determiner, adjectives=tuple(A[a] for a in adjectives), **kw)


def pro(word, noun=None, plural=False):
    return NounPhrase("pronoun", word, N[noun] if noun else None, plural=plural)


def who(word="who"):
    return NounPhrase("wh", word)


def rel(noun, plural=False):
    return NounPhrase("relative", noun=N[noun], plural=plural)


def do(subject, verb, obj=None, case="acc", **kw):
    return Clause(subject, V[verb, case if obj else ""], object=obj, **kw)


def say(*parts, mark="."):
    return Meaning(parts, mark)


def main(clause):
    return say(Part(clause))


def ask(clause, order="first"):
    return say(Part(clause, "question", order), mark="?")


I, YOU, HE, SHE, WE, THEY = map(pro, ("I", "you", "he", "she", "we", "they"))  # noqa: E741
ANNA = NounPhrase("name", "Anna")
MAN, WOMAN, WINDOW, BOOK = np("man"), np("woman"), np("window"), np("book")
TODAY, YESTERDAY = Adverbial("today", "heute"), Adverbial("yesterday", "gestern")
GARDEN = Adverbial("in", "in", np("garden"))
WEIL, DASS, OB = ("because", ", weil"), ("that", ", dass"), ("whether", ", ob")
OPEN = do(SHE, "open", WINDOW)
KNOWS = Clause(SHE, lexicon.KNOW)
BE = lexicon.BE


def be(subject, adjective=None, degree="", than=None, **kw):
    predicate = Predicate(A[adjective] if adjective else None, degree, than, kw.pop("years", 0))
    return Clause(subject, BE, predicate=predicate, **kw)


SENTENCES = [
    (main(OPEN), "She opens the window.", "Sie macht das Fenster auf."),
    (main(do(SHE, "open", WINDOW, tense="past")), "She opened the window.", "Sie hat das Fenster aufgemacht."),
    (main(do(SHE, "open", WINDOW, modal="must")), "She must open the window.", "Sie muss das Fenster aufmachen."),
    (main(do(SHE, "open", WINDOW, tense="will")), "She will open the window.", "Sie wird das Fenster aufmachen."),
    (main(do(SHE, "open", WINDOW, negated=True)), "She does not open the window.", "Sie macht das Fenster nicht auf."),
    (say(Part(be(MAN, "happy")), WEIL, Part(OPEN, de="last")), "The man is happy because she opens the window.",
     "Der Mann ist glücklich, weil sie das Fenster aufmacht."),
    (say(Part(KNOWS), DASS, Part(do(HE, "open", WINDOW, tense="past"), de="last")),
     "She knows that he opened the window.", "Sie weiß, dass er das Fenster aufgemacht hat."),
    (say(Part(Clause(SHE, lexicon.ASK)), OB, Part(do(HE, "open", WINDOW, modal="can"), de="last")),
     "She asks whether he can open the window.", "Sie fragt, ob er das Fenster aufmachen kann."),
    (say(Part(Clause(SHE, lexicon.TRY)), ("", ","), Part(OPEN, "infinitive", "zu")),
     "She tries to open the window.", "Sie versucht, das Fenster aufzumachen."),
    (say(Part(do(YOU, "open", WINDOW, frequency=lexicon.Fixed("", "bitte", "")), "imperative", "first")),
     "Please open the window.", "Machen Sie bitte das Fenster auf."),
    (ask(do(YOU, "open", WINDOW)), "Do you open the window?", "Machen Sie das Fenster auf?"),
    (main(do(MAN, "buy", np("car", "a", "new"), negated=True)), "The man does not buy a new car.",
     "Der Mann kauft kein neues Auto."),
    (main(do(MAN, "buy", np("book", "bare", plural=True), negated=True, tense="past")), "The man did not buy books.",
     "Der Mann hat keine Bücher gekauft."),
    (main(do(MAN, "drink", np("water", "bare"), negated=True)), "The man does not drink water.",
     "Der Mann trinkt kein Wasser."),
    (main(do(MAN, "drink", np("tea", "bare", "hot"), time=TODAY, front="time")), "Today the man drinks hot tea.",
     "Heute trinkt der Mann heißen Tee."),
    (main(do(np("boy"), "read", np("novel", "a", "exciting"), place=GARDEN, time=TODAY)),
     "The boy reads an exciting novel in the garden today.",
     "Der Junge liest heute im Garten einen spannenden Roman."),
    (main(do(np("boy"), "read", BOOK, place=GARDEN, time=TODAY)), "The boy reads the book in the garden today.",
     "Der Junge liest heute das Buch im Garten."),
    (main(do(WOMAN, "help", np("student", "the", "young"), "dat")), "The woman helps the young student.",
     "Die Frau hilft dem jungen Studenten."),
    (main(do(np("child", "this", plural=True), "thank", np("grandmother", "their"), "dat")),
     "These children thank their grandmother.", "Diese Kinder danken ihrer Großmutter."),
    (main(do(I, "wait", np("bus"), "prep")), "I wait for the bus.", "Ich warte auf den Bus."),
    (ask(do(I, "wait", who(), "prep", front="object"), "second"), "Whom do I wait for?", "Auf wen warte ich?"),
    (ask(do(HE, "dream", who("what"), "prep", front="object"), "second"), "What does he dream of?",
     "Wovon träumt er?"),
    (ask(do(HE, "think", who("what"), "prep", front="object"), "second"), "What does he think of?", "Woran denkt er?"),
    (ask(do(who(), "open", WINDOW, tense="past"), "second"), "Who opened the window?",
     "Wer hat das Fenster aufgemacht?"),
    (ask(do(ANNA, "help", who(), "dat", front="object"), "second"), "Whom does Anna help?", "Wem hilft Anna?"),
    (ask(do(ANNA, "see", who(), front="object"), "second"), "Whom does Anna see?", "Wen sieht Anna?"),
    (ask(do(ANNA, "buy", np("hat", "which"), front="object"), "second"), "Which hat does Anna buy?",
     "Welchen Hut kauft Anna?"),
    (ask(do(ANNA, "buy", np("book", "how many", plural=True), front="object"), "second"),
     "How many books does Anna buy?", "Wie viele Bücher kauft Anna?"),
    (ask(do(ANNA, "work", place=Adverbial("where", "wo"), front="place"), "second"), "Where does Anna work?",
     "Wo arbeitet Anna?"),
    (ask(do(np("train"), "arrive", time=Adverbial("when", "wann"), front="time", tense="will"), "second"),
     "When will the train arrive?", "Wann wird der Zug ankommen?"),
    (ask(do(np("child"), "cry", reason=Adverbial("why", "warum"), front="reason"), "second"),
     "Why does the child cry?", "Warum weint das Kind?"),
    (main(Clause(WOMAN, GIVE["give"], recipient=np("child"), object=np("apple", "a"), tense="past")),
     "The woman gave the child an apple.", "Die Frau hat dem Kind einen Apfel gegeben."),
    (main(Clause(WOMAN, GIVE["show"], recipient=pro("I"), object=np("picture", "the", "old"), time=TODAY)),
     "The woman shows me the old picture today.", "Die Frau zeigt mir heute das alte Bild."),
    (main(Clause(np("teacher"), GIVE["read"], recipient=np("child", plural=True), object=np("story", "a"))),
     "The teacher reads the children a story.", "Der Lehrer liest den Kindern eine Geschichte vor."),
    (main(be(np("man", relative=do(rel("man"), "read", BOOK)), "old")), "The man who reads the book is old.",
     "Der Mann, der das Buch liest, ist alt."),
    (main(be(np("coat", relative=do(ANNA, "buy", rel("coat"), tense="past", front="object")), "warm")),
     "The coat that Anna bought is warm.", "Der Mantel, den Anna gekauft hat, ist warm."),
    (main(be(np("child", plural=True, relative=do(ANNA, "help", rel("child", True), "dat", front="object")), "happy")),
     "The children whom Anna helps are happy.", "Die Kinder, denen Anna hilft, sind glücklich."),
    (main(do(I, "know", np("woman", relative=do(HE, "wait", rel("woman"), "prep", front="object")))),
     "I know the woman whom he waits for.", "Ich kenne die Frau, auf die er wartet."),
    (main(be(np("house", "this"), "old", "comparative", np("church"))), "This house is older than the church.",
     "Dieses Haus ist älter als die Kirche."),
    (main(be(np("dog"), "big", "equal", np("wolf"))), "The dog is as big as the wolf.",
     "Der Hund ist so groß wie der Wolf."),
    (main(be(SHE, degree="years", years=37)), "She is thirty-seven years old.", "Sie ist siebenunddreißig Jahre alt."),
    (main(be(WE, "tired", tense="past", negated=True)), "We were not tired.", "Wir waren nicht müde."),
    (main(do(HE, "find", np("key", "number", "old", plural=True, count=21))), "He finds twenty-one old keys.",
     "Er findet einundzwanzig alte Schlüssel."),
    (main(Clause(I, lexicon.LAY, object=BOOK, direction=Adverbial("on", "auf", np("table"), "acc"))),
     "I lay the book on the table.", "Ich lege das Buch auf den Tisch."),
    (main(Clause(BOOK, lexicon.LIE, place=Adverbial("on", "auf", np("table")))), "The book lies on the table.",
     "Das Buch liegt auf dem Tisch."),
    (main(do(np("man"), "remember", np("journey", "his"), "prep", time=TODAY, front="time")),
     "Today the man remembers his journey.", "Heute erinnert sich der Mann an seine Reise."),
    (main(do(I, "look forward", np("letter", "your"), "prep")), "I look forward to your letter.",
     "Ich freue mich auf Ihren Brief."),
    (say(Part(do(MAN, "buy", np("hat", "a"))), ("and", "und"),
         Part(do(MAN, "wear", pro("it", "hat")), "drop", "drop")),
     "The man buys a hat and wears it.", "Der Mann kauft einen Hut und trägt ihn."),
    (say(("if", "wenn"), Part(Clause(pro("it"), lexicon.RAIN), de="last"), (",", ","),
         Part(Clause(WE, lexicon.STAY, place=Adverbial("at home", "zu Hause")), de="first")),
     "If it rains, we stay at home.", "Wenn es regnet, bleiben wir zu Hause."),
    (say(Part(Clause(ANNA, lexicon.GO, tense="past", direction=Adverbial("to", "in", np("supermarket"), "acc"))),
         ("", ", um"), Part(do(ANNA, "buy", np("bread", "bare")), "infinitive", "zu")),
     "Anna went to the supermarket to buy bread.", "Anna ist in den Supermarkt gegangen, um Brot zu kaufen."),
    (main(do(HE, "find", np("hat", "the", owner=np("boy")))), "He finds the boy's hat.",
     "Er findet den Hut des Jungen."),
    (main(do(HE, "wear", np("coat", "name", "old", word="Peter"))), "He wears Peter's old coat.",
     "Er trägt Peters alten Mantel."),
    (main(do(HE, "turn on", pro("it", "lamp"))), "He turns it on.", "Er schaltet sie ein."),
]  # fmt: skip


@pytest.mark.parametrize(("meaning", "en", "de"), SENTENCES, ids=[en for _, en, _ in SENTENCES])
def test_sentences(meaning, en, de):
    assert (meaning.en, meaning.de) == (en, de)


# ---------------------------------------------------------------------------------------------------- corpus


@pytest.fixture(scope="module")
def examples():
    sizes = {"train": 50_000, "validation": 2_000, "test": 2_000}
    return {split: list(corpus.generate_examples(split, sizes[split])) for split in corpus.SPLITS}


def test_one_german_sentence_for_each_english_one(examples):
    german_of = {}
    for example in itertools.chain.from_iterable(examples.values()):
        assert german_of.setdefault(example.en, example.de) == example.de


def test_splits_share_no_sentence_and_no_held_out_combination(examples):
    sentences = {split: {example.en for example in examples[split]} for split in corpus.SPLITS}
    pairs = {split: {c for example in examples[split] for c in example.combinations} for split in corpus.SPLITS}
    assert all(len(sentences[split]) == len(examples[split]) for split in corpus.SPLITS)
    assert not sentences["train"] & (sentences["test"] | sentences["validation"])
    assert not sentences["validation"] & sentences["test"]
    for example in examples["test"]:
        unseen = [c for c in example.combinations if corpus.combination_split(c) == "test"]
        assert unseen and not set(unseen) & (pairs["train"] | pairs["validation"])
    for example in examples["validation"]:
        assert any(c not in pairs["train"] for c in example.combinations)


def test_combinations_are_listed():
    meaning = main(do(np("woman", "the", "old"), "read", np("book", "a", "new")))
    assert sorted(meaning.combinations()) == ["new+book", "old+woman", "read>book", "woman~read"]


def test_sentences_are_well_formed(examples):
    for example in examples["train"]:
        for text in (example.en, example.de):
            assert re.fullmatch(r"[A-ZÄÖÜ][\w'-]*(,? [\w'-]+)*[.?]", text), text
        assert 1 <= example.en.count(" ") < 16


def test_every_entry_of_the_lexicon_is_used(examples):
    text = " ".join(example.en.lower().rstrip(".?") for example in examples["train"])
    words = set(re.findall(r"[a-z'-]+", text))
    assert [n.en for n in lexicon.NOUNS if not {n.en, english.plural(n.en)} & words] == []
    assert [a.en for a in lexicon.ADJECTIVES if a.en not in words] == []
    used = {
        re.split("[~>]", c)[0 if ">" in c else 1] for e in examples["train"] for c in e.combinations if "+" not in c
    }
    assert [v.en for v in (*lexicon.VERBS, *lexicon.GIVE_VERBS) if v.en not in used] == []
    assert [entry.en for entry in (*lexicon.TIMES, *lexicon.FREQUENCIES) if entry.en.lower() not in text] == []


def test_same_seed_same_pairs_and_prefix():
    for split in corpus.SPLITS:
        hundred = list(corpus.generate_pairs(split, 100, seed=3))
        assert list(corpus.generate_pairs(split, 40, seed=3)) == hundred[:40]
        assert list(corpus.generate_pairs(split, 100, seed=4)) != hundred


FROZEN = {
    "train": [
        ("Does this shirt belong to this artist?", "Gehört dieses Hemd diesem Künstler?"),
        ("He is in the hotel.", "Er ist im Hotel."),
        ("The meat is fresh.", "Das Fleisch ist frisch."),
    ],
    "validation": [
        ("The magazines lie behind this sofa.", "Die Zeitschriften liegen hinter diesem Sofa."),
        (
            "The engineer whom your aunt forgives buys my cake.",
            "Der Ingenieur, dem Ihre Tante verzeiht, kauft meinen Kuchen.",
        ),
        (
            "The tourist buys the cook's radio and turns it on.",
            "Der Tourist kauft das Radio des Koches und schaltet es ein.",
        ),
    ],
    "test": [
        ("When does the journalist remember a girl?", "Wann erinnert sich der Journalist an ein Mädchen?"),
        ("Do these boxes belong to the brave daughter?", "Gehören diese Kisten der mutigen Tochter?"),
        ("This student tried to listen to a girl.", "Dieser Student hat versucht, einem Mädchen zuzuhören."),
    ],
}


@pytest.mark.parametrize("split", corpus.SPLITS)
def test_frozen_pairs(split):
    assert [(pair["en"], pair["de"]) for pair in corpus.generate_pairs(split, 3)] == FROZEN[split]


def test_errors():
    with pytest.raises(ValueError, match="expected a split out of train, validation, test, found 'dev'"):
        corpus.generate_pairs("dev", 1)
    with pytest.raises(ValueError, match="expected a size of 0 or more, found -1"):
        corpus.generate_pairs("train", -1)
    assert list(corpus.generate_pairs("train", 0)) == []


def test_an_exhausted_grammar_says_so(monkeypatch):
    meaning = main(OPEN)
    monkeypatch.setattr(corpus.Generator, "meaning", lambda self: meaning)
    with pytest.raises(ValueError, match=r"gave 1 distinct pairs .* 2 were asked for: ask for fewer"):
        list(corpus.generate_pairs("train", 2))
