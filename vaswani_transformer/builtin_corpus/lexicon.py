"""The bilingual lexicon: entry types, and tables of nouns, verbs, adjectives, places and adverbs.

Every English entry has exactly one German one, so that the English sentence fixes the German sentence. The
classes behind a noun ("food", "open", ...) say which verbs, adjectives and prepositions may meet it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun: English singular, German nominative, gender "m", "f" or "n", German plural."""

    en: str
    de: str
    gender: str
    plural: str = ""
    weak: bool = False
    classes: tuple[str, ...] = ()

    @property
    def mass(self) -> bool:
        """Whether the noun has no plural and needs no article (water, bread)."""
        return not self.plural

    @property
    def person(self) -> bool:
        """Whether "who" rather than "that" refers to the noun."""
        return "person" in self.classes


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb and its frame.

    `case` is the case of the object ("acc", "dat"), "prep" for a prepositional object, or "" for none; `prep` is
    then (English preposition or "", German preposition, German case). A `|` in `de` marks a separable prefix.
    """

    en: str
    de: str
    subjects: tuple[str, ...]
    case: str = ""
    objects: tuple[str, ...] = ()
    manners: str = ""
    prep: tuple[str, str, str] | None = None
    separable: bool = False  # an English pronoun stands before the particle: "turns it on"


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective and the noun classes it can describe."""

    en: str
    de: str
    classes: tuple[str, ...]


class Place(NamedTuple):
    """How to be at a noun's place ("at", "an" + dative) and how to go there ("zu", dative)."""

    noun: Noun
    en: str
    de: str
    towards: str
    case: str


class Fixed(NamedTuple):
    """A fixed adverbial and the tenses it goes with."""

    en: str
    de: str
    tenses: str


def _lines(table: str) -> Iterator[list[str]]:
    for line in table.strip().splitlines():
        yield [cell.strip() for cell in line.split("|")]


# English, German, gender ("mw": n-declension), plural ("-": mass noun), classes.
_NOUNS = """
man Mann m Männer person | boy Junge mw Jungen person | woman Frau f Frauen person
girl Mädchen n Mädchen person | child Kind n Kinder person young | baby Baby n Babys young
father Vater m Väter person kin | mother Mutter f Mütter person kin | brother Bruder m Brüder person kin
sister Schwester f Schwestern person kin | son Sohn m Söhne person kin | daughter Tochter f Töchter person kin
uncle Onkel m Onkel person kin | aunt Tante f Tanten person kin | grandfather Großvater m Großväter person kin
grandmother Großmutter f Großmütter person kin | teacher Lehrer m Lehrer person
student Student mw Studenten person | doctor Arzt m Ärzte person | baker Bäcker m Bäcker person
farmer Bauer mw Bauern person | neighbor Nachbar mw Nachbarn person | colleague Kollege mw Kollegen person
boss Chef m Chefs person | king König m Könige person | queen Königin f Königinnen person
cook Koch m Köche person | policeman Polizist mw Polizisten person | tourist Tourist mw Touristen person
guest Gast m Gäste person | friend Freund m Freunde person | engineer Ingenieur m Ingenieure person
customer Kunde mw Kunden person | lawyer Anwalt m Anwälte person | artist Künstler m Künstler person
journalist Journalist mw Journalisten person | musician Musiker m Musiker person
nurse Krankenschwester f Krankenschwestern person | waitress Kellnerin f Kellnerinnen person
actress Schauspielerin f Schauspielerinnen person
dog Hund m Hunde animal pet dog | cat Katze f Katzen animal pet | horse Pferd n Pferde animal pet
bird Vogel m Vögel animal pet | mouse Maus f Mäuse animal | cow Kuh f Kühe animal
pig Schwein n Schweine animal | rabbit Kaninchen n Kaninchen animal pet | bear Bär mw Bären animal
lion Löwe mw Löwen animal | elephant Elefant mw Elefanten animal | monkey Affe mw Affen animal
duck Ente f Enten animal | wolf Wolf m Wölfe animal | snake Schlange f Schlangen animal
goat Ziege f Ziegen animal
apple Apfel m Äpfel food fruit | egg Ei n Eier food boil | potato Kartoffel f Kartoffeln food boil fruit
tomato Tomate f Tomaten food fruit | cake Kuchen m Kuchen food bake cut | sausage Wurst f Würste food cut
banana Banane f Bananen food fruit | pear Birne f Birnen food fruit | orange Orange f Orangen food fruit
pizza Pizza f Pizzas food bake cut | cookie Keks m Kekse food bake | strawberry Erdbeere f Erdbeeren food fruit
roll Brötchen n Brötchen food bake cut | bread Brot n - food bake cut | cheese Käse m - food cut
meat Fleisch n - food boil cut | rice Reis m - food boil | butter Butter f - food | soup Suppe f - food boil
honey Honig m - food | chocolate Schokolade f - food | salad Salat m - food | ham Schinken m - food cut
water Wasser n - drink | milk Milch f - drink | coffee Kaffee m - drink | tea Tee m - drink | juice Saft m - drink
beer Bier n - drink | wine Wein m - drink | lemonade Limonade f - drink
book Buch n Bücher read write flat | newspaper Zeitung f Zeitungen read flat | letter Brief m Briefe read write flat
magazine Zeitschrift f Zeitschriften read flat | novel Roman m Romane read write flat
report Bericht m Berichte read write flat | message Nachricht f Nachrichten read write
article Artikel m Artikel read write | poem Gedicht n Gedichte read write learn
story Geschichte f Geschichten read write tale | list Liste f Listen read write flat
car Auto n Autos ride motor | bicycle Fahrrad n Fahrräder ride | bus Bus m Busse transit motor
train Zug m Züge transit motor | motorcycle Motorrad n Motorräder ride motor | truck Lastwagen m Lastwagen ride motor
ship Schiff n Schiffe ride | boat Boot n Boote ride
key Schlüssel m Schlüssel thing flat | bag Tasche f Taschen thing upright open
suitcase Koffer m Koffer thing upright open | umbrella Regenschirm m Regenschirme thing open
lamp Lampe f Lampen thing upright device | picture Bild n Bilder thing art | cup Tasse f Tassen thing upright dish
glass Glas n Gläser thing upright dish | plate Teller m Teller thing dish upright
bottle Flasche f Flaschen thing upright open | knife Messer n Messer thing flat dish
spoon Löffel m Löffel thing flat dish | fork Gabel f Gabeln thing flat dish | pencil Bleistift m Bleistifte thing flat
gift Geschenk n Geschenke thing present | ball Ball m Bälle thing toy | doll Puppe f Puppen thing toy
flower Blume f Blumen flora present | rose Rose f Rosen flora present | tree Baum m Bäume plant
camera Kamera f Kameras thing device flat | telephone Telefon n Telefone thing upright
computer Computer m Computer thing upright device | radio Radio n Radios thing upright device
television Fernseher m Fernseher thing upright device | guitar Gitarre f Gitarren thing
piano Klavier n Klaviere instrument | violin Geige f Geigen thing | vase Vase f Vasen thing upright
mirror Spiegel m Spiegel thing | carpet Teppich m Teppiche thing
blanket Decke f Decken thing flat | ticket Fahrkarte f Fahrkarten thing flat paper | photo Foto n Fotos thing flat art
stamp Briefmarke f Briefmarken thing flat paper
coat Mantel m Mäntel wear | dress Kleid n Kleider wear | hat Hut m Hüte wear | shirt Hemd n Hemden wear
shoe Schuh m Schuhe wear | sweater Pullover m Pullover wear | jacket Jacke f Jacken wear
skirt Rock m Röcke wear | glove Handschuh m Handschuhe wear | scarf Schal m Schals wear | tie Krawatte f Krawatten wear
door Tür f Türen open fixture | window Fenster n Fenster open fixture
table Tisch m Tische furniture | chair Stuhl m Stühle furniture seat | bed Bett n Betten furniture seat
shelf Regal n Regale furniture | sofa Sofa n Sofas furniture seat | bench Bank f Bänke furniture seat
desk Schreibtisch m Schreibtische furniture | drawer Schublade f Schubladen open
box Kiste f Kisten thing open upright | basket Korb m Körbe thing upright
house Haus n Häuser place home | garden Garten m Gärten place | park Park m Parks place
school Schule f Schulen place public | church Kirche f Kirchen place sight
hospital Krankenhaus n Krankenhäuser place public
hotel Hotel n Hotels place public home | restaurant Restaurant n Restaurants place public
museum Museum n Museen place public sight | library Bibliothek f Bibliotheken place public
theater Theater n Theater place public | cinema Kino n Kinos place public | kitchen Küche f Küchen room
bathroom Badezimmer n Badezimmer room | office Büro n Büros room
factory Fabrik f Fabriken place public | station Bahnhof m Bahnhöfe place public
airport Flughafen m Flughäfen place public | market Markt m Märkte place
supermarket Supermarkt m Supermärkte place public | forest Wald m Wälder place nature
beach Strand m Strände place nature | lake See m Seen place nature | city Stadt f Städte place home
village Dorf n Dörfer place home | bridge Brücke f Brücken sight place | castle Schloss n Schlösser sight place home
tower Turm m Türme sight | zoo Zoo m Zoos place | bakery Bäckerei f Bäckereien place public
pharmacy Apotheke f Apotheken place public
question Frage f Fragen idea | answer Antwort f Antworten idea | sentence Satz m Sätze idea learn
word Wort n Wörter idea learn | mistake Fehler m Fehler fault | problem Problem n Probleme fault
song Lied n Lieder song learn | film Film m Filme show | concert Konzert n Konzerte show
party Party f Partys event | exercise Übung f Übungen idea work | work Arbeit f - work labor
bill Rechnung f Rechnungen paper bill | journey Reise f Reisen event
"""


def _noun(entry: str) -> Noun:
    en, de, gender, plural, *classes = entry.split()
    return Noun(en, de, gender[0], plural.strip("-"), gender.endswith("w"), tuple(classes))


NOUNS = tuple(_noun(entry) for line in _lines(_NOUNS) for entry in line)
NOUN = {noun.en: noun for noun in NOUNS}


@cache
def nouns_of(*classes: str) -> tuple[Noun, ...]:
    """Return the nouns that carry any of `classes`, or are named there, in the order of the lexicon."""
    return tuple(noun for noun in NOUNS if set(classes) & {noun.en, *noun.classes})


# English | German | subjects | object case, or "prep: English German case" | objects | manners (keys of MANNERS)
_VERBS = """
buy | kaufen | person | acc | food drink read thing wear ride flora furniture paper |
sell | verkaufen | person | acc | food drink read thing wear ride furniture |
read | lesen | person | acc | read | ts
write | schreiben | person | acc | write | qs
eat | essen | person | acc | food | qs
eat | fressen | animal | acc | fruit | qs
drink | trinken | person | acc | drink | qs
drink | trinken | animal | acc | water |
see | sehen | person | acc | person animal sight ride plant show |
see | sehen | animal | acc | person animal |
know | kennen | person | acc | person song sight |
love | lieben | person | acc | person pet nature |
like | mögen | person | acc | person animal food drink song |
visit | besuchen | person | acc | person sight concert kin |
find | finden | person | acc | thing wear paper pet fault |
look for | suchen | person | acc | thing wear paper pet person place |
lose | verlieren | person | acc | thing wear paper |
need | brauchen | person | acc | thing wear ride furniture |
have | haben | person | acc | thing wear ride pet kin fault |
bring | mit|bringen | person | acc | food drink present thing |
open | auf|machen | person | acc | open | qstc
close | zu|machen | person | acc | open | qstc
turn +on | ein|schalten | person | acc | device |
turn +off | aus|schalten | person | acc | device |
pick +up | ab|holen | person | acc | person |
call | an|rufen | person | acc | person |
invite | ein|laden | person | acc | person |
repair | reparieren | person | acc | device motor ride | qsc
clean | putzen | person | acc | room fixture motor | qc
wash | waschen | person | acc | wear dish motor fruit | qc
wear | tragen | person | acc | wear |
put +on | an|ziehen | person | acc | wear | qs
take +off | aus|ziehen | person | acc | wear | qs
draw | zeichnen | person | acc | person animal sight plant flora home | qw
paint | malen | person | acc | art animal sight plant flora | qw
photograph | fotografieren | person | acc | person animal sight nature flora |
hear | hören | person | acc | person animal song |
learn | lernen | person | acc | learn | qs
understand | verstehen | person | acc | idea read | w
answer | beantworten | person | acc | question letter message | qw
forget | vergessen | person | acc | thing wear paper idea |
bake | backen | person | acc | bake |
cook | kochen | person | acc | boil |
cut | schneiden | person | acc | cut | cq
order | bestellen | person | acc | food drink |
pay for | bezahlen | person | acc | bill drink food |
sing | singen | person | acc | song | tlw
feed | füttern | person | acc | animal young |
greet | begrüßen | person | acc | person |
meet | treffen | person | acc | person |
ask | fragen | person | acc | person | t
begin | beginnen | person | acc | work journey |
watch | beobachten | person | acc | animal person |
help | helfen | person | dat | person |
thank | danken | person | dat | person |
follow | folgen | person animal | dat | person animal | qs
trust | vertrauen | person | dat | person |
congratulate | gratulieren | person | dat | person |
forgive | verzeihen | person | dat | person |
listen | zu|hören | person | dat: to | person |
believe | glauben | person | dat | person |
belong | gehören | thing wear ride pet home read | dat: to | person |
wait | warten | person | for auf acc | person transit letter |
think | denken | person | of an acc | person fault work event |
speak | sprechen | person | with mit dat | person | tl
laugh | lachen | person | about über acc | tale film fault | lt
dream | träumen | person | of von dat | nature pet home event ride |
ask | bitten | person | for um acc | dish drink bill labor |
talk | reden | person | about über acc | show fault work read event |
take care | sich kümmern | person | of um acc | person animal young |
remember | sich erinnern | person | : an acc | person tale event song |
look forward | sich freuen | person | to auf acc | event show letter gift |
fall in love | sich verlieben | person | with in acc | man woman actress artist musician student neighbor nurse doctor |
play | spielen | person pet | with mit dat | toy pet |
begin | an|fangen | person | with mit dat | exercise report |
sleep | schlafen | person animal young | | | w
work | arbeiten | person | | | qsw
laugh | lachen | person | | | lt
cry | weinen | person young | | | lt
dance | tanzen | person | | | sw
swim | schwimmen | person pet | | | sqw
sing | singen | person bird | | | ltw
cook | kochen | person | | | w
smoke | rauchen | person | | |
hike | wandern | person | | |
smile | lächeln | person | | |
bark | bellen | dog | | | l
get up | auf|stehen | person animal | | | sq
fall asleep | ein|schlafen | person animal young | | | q
wake up | auf|wachen | person animal young | | |
arrive | an|kommen | person transit | | |
depart | ab|fahren | transit | | |
leave | ab|reisen | person | | |
come back | zurück|kommen | person pet | | |
go shopping | ein|kaufen | person | | |
clean up | auf|räumen | person | | | q
watch television | fern|sehen | person | | |
rest | sich aus|ruhen | person | | |
hurry | sich beeilen | person | | |
"""  # noqa: E501
# Verbs that take a person in the dative and a thing in the accusative.
_GIVE = """
give | geben | present thing read food drink
show | zeigen | thing wear ride art sight read
send | schicken | letter message present report photo
lend | leihen | thing ride
bring | mit|bringen | present drink food
tell | erzählen | tale
read | vor|lesen | tale letter poem
buy | kaufen | toy wear ride present
write | schreiben | letter message poem
"""


def _verb(en: str, de: str, subjects: str, frame: str, objects: str, manners: str) -> Verb:
    prep, case = None, frame
    if frame.startswith("dat:"):
        case, prep = "dat", (frame[4:].strip(), "", "dat")
    elif len(frame.split()) == 3:
        first, de_prep, de_case = frame.split()
        case, prep = "prep", (first.strip(":"), de_prep, de_case)
    return Verb(
        en.replace("+", ""), de, tuple(subjects.split()), case, tuple(objects.split()), manners, prep, "+" in en
    )


def _verb_line(line: str) -> Verb:
    # The bar of a separable prefix has no spaces around it, the bar between cells has.
    return _verb(*(cell.strip() for cell in (line + " ").split(" |")))


VERBS = tuple(_verb_line(line) for line in _VERBS.strip().splitlines())
GIVE_VERBS = tuple(
    Verb(en, de, ("person",), "acc", tuple(objects.split()))
    for en, de, objects in ([cell.strip() for cell in line.split(" | ")] for line in _GIVE.strip().splitlines())
)
BELONG = next(verb for verb in VERBS if verb.en == "belong")
BE = Verb("be", "sein", ("person",))
LIVE, STAY = Verb("live", "wohnen", ("person",)), Verb("stay", "bleiben", ("person",))
SIT, STAND, LIE = Verb("sit", "sitzen", ("person",)), Verb("stand", "stehen", ()), Verb("lie", "liegen", ())
LAY, PLACE = (
    Verb("lay", "legen", ("person",), "acc", ("flat",)),
    Verb("place", "stellen", ("person",), "acc", ("upright",)),
)
GO, COME = Verb("go", "gehen", ("person",)), Verb("come", "kommen", ("person",))
RUN, DRIVE, FLY = (
    Verb("run", "laufen", ("person",)),
    Verb("drive", "fahren", ("person",)),
    Verb("fly", "fliegen", ("person",)),
)
TRAVEL = Verb("travel", "reisen", ("person",))
RAIN, SNOW = Verb("rain", "regnen", ()), Verb("snow", "schneien", ())
COST = Verb("cost", "kosten", ("read", "wear", "ride", "thing"), "acc")
SAY, HOPE, KNOW = (
    Verb("say", "sagen", ("person",)),
    Verb("hope", "hoffen", ("person",)),
    Verb("know", "wissen", ("person",)),
)
THINK, ASK = Verb("think", "denken", ("person",)), Verb("ask", "fragen", ("person",))
TRY, FORGET = Verb("try", "versuchen", ("person",)), Verb("forget", "vergessen", ("person",))

MANNERS = {
    "q": ("quickly", "schnell"),
    "s": ("slowly", "langsam"),
    "t": ("quietly", "leise"),
    "l": ("loudly", "laut"),
    "c": ("carefully", "vorsichtig"),
    "w": ("well", "gut"),
}

_ADJECTIVES = """
old alt person animal read ride thing wear furniture place sight home plant art | young jung person animal plant
tall groß man woman boy girl plant sight | small klein young animal thing ride place home room furniture gift
friendly freundlich person pet | happy glücklich person kin | sad traurig person show tale song
tired müde person animal | sick krank person animal | rich reich man woman king queen lawyer neighbor farmer
poor arm man woman farmer boy girl artist student
famous berühmt artist actress musician journalist cook sight show lawyer
intelligent klug person animal | hungry hungrig person animal | lazy faul person pet
strong stark man boy horse bear lion | brave mutig person lion | angry wütend person | polite höflich person
curious neugierig person monkey cat | nice nett person
new neu read ride thing wear furniture public home room show transit
big groß animal thing place furniture ride home room cake sausage
beautiful schön thing wear flora sight nature home song woman | ugly hässlich wear furniture thing
expensive teuer ride wear thing furniture hotel restaurant cheese wine
cheap billig wear thing ride furniture hotel wine | heavy schwer upright furniture book
light leicht suitcase bag jacket coat | red rot wear flora apple tomato ride upright pencil ball
blue blau wear ride upright pencil | green grün wear apple ride upright pear plant
white weiß wear flora upright horse cat house | black schwarz wear horse cat dog ride upright
yellow gelb wear flora upright banana pencil | broken kaputt device ride toy instrument dish fixture
clean sauber wear dish room beach water hotel | dirty schmutzig wear dish room ride fixture water
modern modern public room device furniture | empty leer glass bottle box basket bag cup drawer bus
fresh frisch food milk water juice | sweet süß fruit bake tea wine juice
hot heiß coffee tea soup milk water | cold kalt drink soup | delicious lecker bake fruit soup salad cheese ham sausage
sour sauer apple orange milk | interesting interessant read show journey sight work
boring langweilig read show party work | exciting spannend tale novel film journey book
important wichtig letter report message idea work fault | long lang read journey sentence bridge dress coat
short kurz read journey sentence dress skirt | funny lustig tale film song poem picture
difficult schwierig idea work fault | easy einfach question exercise sentence word
fast schnell ride horse dog transit | dangerous gefährlich bear lion wolf snake journey
wild wild duck horse monkey elephant | warm warm wear blanket bread room | quiet ruhig place child guest neighbor
dark dunkel forest room park house
"""


def _adjective(entry: str) -> Adjective:
    en, de, *classes = entry.split()
    return Adjective(en, de, tuple(classes))


ADJECTIVES = tuple(_adjective(entry) for line in _lines(_ADJECTIVES) for entry in line)
ADJECTIVE = {adjective.en: adjective for adjective in ADJECTIVES}
# What people are for a while, and why they do things.
STATES = tuple(ADJECTIVE[en] for en in ("sad", "tired", "sick", "hungry", "angry"))

# noun, English preposition, German preposition, German preposition and case of direction
_PLACES = """
house in in in acc | garden in in in acc | park in in in acc | school at in in acc | church in in in acc
hospital in in in acc | hotel in in in acc | restaurant in in in acc | museum in in in acc | library in in in acc
theater in in in acc | cinema in in in acc | kitchen in in in acc | bathroom in in in acc | office in in in acc
factory in in in acc | station at an zu dat | airport at an zu dat | market at auf auf acc | supermarket in in in acc
forest in in in acc | beach on an an acc | lake at an an acc | city in in in acc | village in in in acc
bridge on auf zu dat | castle in in zu dat | zoo in in in acc | bakery in in zu dat | pharmacy in in zu dat
"""
PLACES = tuple(
    Place(NOUN[noun], en, de, towards, case)
    for line in _lines(_PLACES)
    for noun, en, de, towards, case in (entry.split() for entry in line)
)
CITIES = (("Berlin", "Berlin"), ("Hamburg", "Hamburg"), ("Munich", "München"), ("Vienna", "Wien"), ("Paris", "Paris"))
CITIES += (("Rome", "Rom"), ("Germany", "Deutschland"), ("Italy", "Italien"), ("France", "Frankreich"))
# The places that suit a verb; the empty key is for every verb that has no line of its own.
_SUITABLE = """
live: house hotel city village castle
stay: house hotel city village castle garden park hospital school office museum library
cook bake: kitchen restaurant hotel house bakery
buy sell go_shopping: market supermarket city village
eat drink order: restaurant hotel kitchen garden park cinema beach station airport
pay_for: restaurant hotel market supermarket bakery
swim: lake hotel
hike: forest
draw paint photograph: park zoo museum forest beach lake garden church castle city village bridge
read write learn answer: library school park garden hotel kitchen office house beach
repair: factory garden house office
work: hospital hotel restaurant museum library theater office factory airport supermarket bakery pharmacy zoo school garden
sleep fall_asleep wake_up: hotel house garden theater cinema school library hospital
feed watch: zoo park garden forest village
sing dance: church theater garden park hotel kitchen restaurant school
watch_television: hotel house kitchen hospital
find lose forget: hotel park garden school church museum library theater cinema office station airport restaurant
wash clean_up: kitchen bathroom garden house
arrive: station airport hotel village city
: park garden school hotel restaurant museum library theater cinema station airport market beach lake city village zoo
"""  # noqa: E501
_PLACE_OF = {place.noun.en: place for place in PLACES}
SUITABLE = {
    verb.replace("_", " "): tuple(_PLACE_OF[noun] for noun in nouns.split())
    for verbs, nouns in (line.split(":") for line in _SUITABLE.strip().splitlines())
    for verb in (verbs.split() or [""])
}
# noun class, and two things that one does to it in a row
SEQUENCES = tuple(
    (noun, first.strip().replace("_", " "), second.replace("_", " "))
    for noun, first, second in (
        entry.split()
        for line in _lines("""
read buy read | read find read | read read understand | read read sell | read read forget | food order eat
food buy eat | boil cook eat | bake bake eat | bake bake sell | fruit wash eat | cut cut eat | drink buy drink
drink order drink | wear buy wear | wear wash wear | wear find put_on | wear wash put_on | wear buy lose
wear lose look_for | device buy repair | device repair turn_on | device repair sell | device buy turn_on
ride buy wash | ride repair sell | thing find sell | thing lose look_for | thing forget look_for | thing lose find
pet feed photograph | pet see draw | animal watch photograph | person meet greet | person see greet
person call invite | ride buy repair | song hear learn | poem write learn | letter read answer | plant see draw
""")
        for entry in line
    )
)
# Two-way prepositions that a piece of furniture or a container allows.
_SIDES = (("next to", "neben"), ("behind", "hinter"), ("in front of", "vor"))
SPOTS = {
    **{
        NOUN[en]: (("on", "auf"), ("under", "unter"), *_SIDES[:1]) for en in ("table", "desk", "bed", "chair", "bench")
    },
    **{NOUN[en]: (("on", "auf"), *_SIDES) for en in ("shelf", "sofa")},
    **{NOUN[en]: (("in", "in"),) for en in ("drawer", "box", "basket")},
}
OUTSIDE = tuple(
    NOUN[en] for en in ["house", "church", "museum", "hotel", "castle", "station", "tower", "theater", "tree"]
)

# tenses: p present, t past, f future; h marks a habit, which negation and future do not fit
TIMES = tuple(
    Fixed(*entry)
    for entry in (
        ("today", "heute", "ptf"), ("now", "jetzt", "p"), ("tomorrow", "morgen", "f"), ("soon", "bald", "f"),
        ("yesterday", "gestern", "t"), ("this evening", "heute Abend", "pf"), ("every day", "jeden Tag", "pth"),
        ("every morning", "jeden Morgen", "pth"), ("every evening", "jeden Abend", "pth"),
        ("every week", "jede Woche", "pth"), ("in the morning", "am Morgen", "ptf"),
        ("in the afternoon", "am Nachmittag", "ptf"), ("in the evening", "am Abend", "ptf"),
        ("at night", "in der Nacht", "pt"), ("at noon", "am Mittag", "ptf"), ("last week", "letzte Woche", "t"),
        ("last year", "letztes Jahr", "t"), ("next week", "nächste Woche", "f"), ("next year", "nächstes Jahr", "f"),
        ("on the weekend", "am Wochenende", "ptf"), ("in summer", "im Sommer", "pt"), ("in winter", "im Winter", "pt"),
        ("on Monday", "am Montag", "ptf"), ("on Tuesday", "am Dienstag", "ptf"),
        ("on Wednesday", "am Mittwoch", "ptf"), ("on Thursday", "am Donnerstag", "ptf"),
        ("on Friday", "am Freitag", "ptf"), ("on Saturday", "am Samstag", "ptf"), ("on Sunday", "am Sonntag", "ptf"),
        ("during the break", "während der Pause", "pt"),
    )
)  # fmt: skip
FREQUENCIES = (
    Fixed("often", "oft", "pt"), Fixed("always", "immer", "pt"), Fixed("sometimes", "manchmal", "pt"),
    Fixed("never", "nie", "pt"), Fixed("rarely", "selten", "pt"), Fixed("usually", "meistens", "p"),
)  # fmt: skip
NAMES = {"Anna": "f", "Peter": "m", "Maria": "f", "Paul": "m", "Clara": "f", "Martin": "m", "Julia": "f", "David": "m"}
