import doctest
import socket
import sys

import evaluate
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

from vaswani_transformer import evaluation
from vaswani_transformer.errors import InputError
from vaswani_transformer.evaluation import TranslationMetric, score_translations

REFERENCES = [
    "Der alte Hund schläft heute unter dem großen Tisch.",
    "Wir haben gestern ein neues Haus gekauft, nicht wahr?",
    "„Guten Morgen“, sagte die Ärztin zu den beiden Kindern.",
    "Es kostet 1.234,50 Euro im Monat.",
]
PREDICTIONS = [
    "Der alte hund schläft heute unter dem Tisch.",
    "Wir haben gestern ein neues Haus gekauft.",
    "„Guten Morgen“, sagte der Arzt zu den Kindern.",
    "",
]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("scoring must not open a connection")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


def test_scores_are_those_of_sacrebleu() -> None:
    scores = score_translations(PREDICTIONS, REFERENCES)
    bleu, chrf = BLEU(), CHRF(word_order=2)
    assert scores["bleu"] == bleu.corpus_score(PREDICTIONS, [REFERENCES]).score
    assert scores["chrf++"] == chrf.corpus_score(PREDICTIONS, [REFERENCES]).score
    assert scores["bleu_signature"] == str(bleu.get_signature())
    assert scores["chrf++_signature"] == str(chrf.get_signature())
    assert scores["sentences"] == 4
    # Neither end of the scale, or the equalities above would say little.
    assert 10 < scores["bleu"] < 90
    assert 10 < scores["chrf++"] < 90


def test_predictions_and_references_are_not_mixed_up() -> None:
    # chrF and the brevity penalty tell one from the other.
    forward, backward = score_translations(PREDICTIONS, REFERENCES), score_translations(REFERENCES, PREDICTIONS)
    assert forward["bleu"] != pytest.approx(backward["bleu"])
    assert forward["chrf++"] != pytest.approx(backward["chrf++"])


def test_signatures_name_everything_that_a_score_depends_on() -> None:
    scores = score_translations(PREDICTIONS, REFERENCES)
    assert {"nrefs:1", "case:mixed", "tok:13a", "smooth:exp", f"version:{sacrebleu.__version__}"} <= set(
        scores["bleu_signature"].split("|")
    )
    assert {"nrefs:1", "case:mixed", "nc:6", "nw:2", "space:no", f"version:{sacrebleu.__version__}"} <= set(
        scores["chrf++_signature"].split("|")
    )


def test_perfect_is_100_and_nothing_right_is_0() -> None:
    scores = score_translations(REFERENCES, REFERENCES)
    assert (scores["bleu"], scores["chrf++"]) == pytest.approx((100, 100))
    scores = score_translations([""] * 4, REFERENCES)
    assert (scores["bleu"], scores["chrf++"]) == (0, 0)


def test_case_counts() -> None:
    lowered = [reference.lower() for reference in REFERENCES]
    scores = score_translations(lowered, REFERENCES)
    assert scores["bleu"] < 100
    assert scores["chrf++"] < 100


def test_it_is_corpus_bleu_not_the_mean_of_sentences() -> None:
    scores = score_translations(PREDICTIONS, REFERENCES)
    sentences = [
        score_translations([prediction], [reference])["bleu"]
        for prediction, reference in zip(PREDICTIONS, REFERENCES, strict=True)
    ]
    assert scores["bleu"] != pytest.approx(sum(sentences) / len(sentences), abs=0.1)


def test_works_as_a_metric_of_evaluate() -> None:
    metric = TranslationMetric()
    assert isinstance(metric, evaluate.Metric)
    assert set(metric.features) == {"predictions", "references"}
    metric.add_batch(predictions=PREDICTIONS[:3], references=REFERENCES[:3])
    metric.add(prediction=PREDICTIONS[3], reference=REFERENCES[3])
    assert metric.compute() == score_translations(PREDICTIONS, REFERENCES)
    # A metric forgets what it has scored.
    assert metric.compute(predictions=REFERENCES, references=REFERENCES)["sentences"] == 4


def test_metrics_combine() -> None:
    # The point of the interface: `evaluate.combine` takes ours beside others.
    combined = evaluate.combine([TranslationMetric()])
    assert combined.compute(predictions=PREDICTIONS, references=REFERENCES) == score_translations(
        PREDICTIONS, REFERENCES
    )


@pytest.mark.parametrize(("predictions", "references"), [(1, 2), (2, 1), (0, 1), (3, 0)])
def test_unequal_lengths_are_refused_with_both_counts(predictions: int, references: int) -> None:
    with pytest.raises(ValueError, match=rf"predictions \({predictions}\) as references \({references}\)"):
        score_translations(REFERENCES[:predictions], REFERENCES[:references])


def test_nothing_to_score_raises() -> None:
    # A mean over nothing must not come out as a score.
    with pytest.raises((ValueError, IndexError)):
        score_translations([], [])


def test_the_examples_in_the_docstrings_hold() -> None:
    results = doctest.testmod(evaluation, optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0
    assert results.failed == 0


TOKENS = ["die ärzte-kammer , sagte er .", "ein e-mail-konto", "我们今天去学校"]


@pytest.mark.parametrize("tokenize", ["none", "intl", "zh", "char"])
def test_bleu_over_other_words(tokenize: str) -> None:
    predictions = ["die ärzte-kammer sagte er.", "ein e-mail-konto", "我们今天上学校"]
    scores = score_translations(predictions, TOKENS, tokenize)
    bleu = BLEU(tokenize=tokenize)
    assert scores["bleu"] == bleu.corpus_score(predictions, [TOKENS]).score
    assert scores["bleu_signature"] == str(bleu.get_signature())
    assert f"tok:{tokenize}" in scores["bleu_signature"]
    plain = score_translations(predictions, TOKENS)
    assert scores["chrf++"] == plain["chrf++"]
    assert scores["bleu"] != plain["bleu"]
    assert TranslationMetric().compute(predictions=predictions, references=TOKENS, tokenize=tokenize) == scores


def test_bleu_with_compounds_split_is_that_of_the_papers_script() -> None:
    pytest.importorskip("sacremoses")
    predictions = ["Er hat ein E-Mail-Konto, sagte sie.", 'Die 1990-er Jahre - und "mehr"']
    references = ["Er hatte ein E-Mail-Konto, sagt sie.", 'Die 1990er - und "viel mehr" Jahre']
    # tokenizer.perl -l de, then perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g', written out by hand.
    cut = [
        "Er hat ein E ##AT##-##AT## Mail ##AT##-##AT## Konto , sagte sie .",
        "Die 1990 ##AT##-##AT## er Jahre - und &quot; mehr &quot;",
    ]
    cut_references = [
        "Er hatte ein E ##AT##-##AT## Mail ##AT##-##AT## Konto , sagt sie .",
        "Die 1990er - und &quot; viel mehr &quot; Jahre",
    ]
    scores = score_translations(predictions, references, "compound")
    assert scores["bleu"] == BLEU(tokenize="none", force=True).corpus_score(cut, [cut_references]).score
    assert "tok:compound" in scores["bleu_signature"]
    assert scores["chrf++"] == score_translations(predictions, references)["chrf++"]


def test_compounds_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(InputError, match="pip install sacremoses"):
        score_translations(PREDICTIONS, REFERENCES, "compound")
