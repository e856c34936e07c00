"""BLEU and chrF++ with their signatures, through the interface of `evaluate`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate
from sacrebleu.metrics import BLEU, CHRF


class TranslationMetric(evaluate.Metric):
    """sacreBLEU's BLEU (13a, cased) and chrF++ as an `evaluate.Metric`; higher is better, 100 is most.

    `evaluate.load("sacrebleu")` fetches a script from the Hub; this needs no network.

    Example:
        >>> text = ["Sie macht das Fenster auf."]
        >>> round(TranslationMetric().compute(predictions=text, references=text)["bleu"], 2)
        100.0
    """

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description="BLEU (13a, cased) and chrF++ of sacreBLEU, with their signatures.",
            citation="Post, 2018. A Call for Clarity in Reporting BLEU Scores. https://aclanthology.org/W18-6319",
            features=datasets.Features({"predictions": text, "references": text}),
        )

    def _compute(self, predictions: list[str], references: list[str]) -> dict[str, Any]:
        return score_translations(predictions, references)


def score_translations(predictions: list[str], references: list[str]) -> dict[str, Any]:
    """Corpus scores of `predictions` against one reference each: BLEU (13a, cased) and chrF++, with signatures.

    Raises:
        ValueError: If there are none, or not as many predictions as references.
    """
    if not predictions or len(predictions) != len(references):
        raise ValueError(
            f"expected as many predictions ({len(predictions)}) as references ({len(references)}), and at least one"
        )
    bleu, chrf = BLEU(), CHRF(word_order=2)
    return {
        "bleu": bleu.corpus_score(predictions, [references]).score,
        "chrf++": chrf.corpus_score(predictions, [references]).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf++_signature": str(chrf.get_signature()),
        "sentences": len(predictions),
    }
