"""BLEU and chrF++ with their signatures, through the interface of `evaluate`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import datasets
import evaluate
from sacrebleu.metrics import BLEU, CHRF

from .errors import InputError

# How BLEU cuts text into words: sacreBLEU's own, and `compound`.
TOKENIZERS = ("13a", "none", "intl", "zh", "char", "compound")


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

    def _compute(self, predictions: list[str], references: list[str], tokenize: str = "13a") -> dict[str, Any]:
        return score_translations(predictions, references, tokenize)


def score_translations(
    predictions: list[str], references: list[str], tokenize: str = "13a", language: str = "de"
) -> dict[str, Any]:
    """Corpus scores of `predictions` against one reference each: BLEU (cased) and chrF++, with signatures.

    Args:
        predictions: Translations.
        references: As many.
        tokenize: How BLEU cuts text into words, of `TOKENIZERS`. `none` takes the given tokens, as papers do on text
            that is tokenised; `compound` is what the paper's figures on WMT14 are counted in, by its authors' script
            (tensor2tensor's get_ende_bleu.sh, in its first version): Moses tokens, and words with a hyphen cut there.
        language: Of the text, for Moses.

    Raises:
        ValueError: If there are none, or not as many predictions as references.
        InputError: If `compound` lacks its package.
    """
    if not predictions or len(predictions) != len(references):
        raise ValueError(
            f"expected as many predictions ({len(predictions)}) as references ({len(references)}), and at least one"
        )
    chrf = CHRF(word_order=2)
    chrf_score = chrf.corpus_score(predictions, [references]).score
    if tokenize == "compound":
        predictions, references = (list(_split_compounds(texts, language)) for texts in (predictions, references))
    # Forced: text that looks tokenised is what is wanted here.
    bleu = BLEU(tokenize="none" if tokenize == "compound" else tokenize, force=True)
    bleu_score = bleu.corpus_score(predictions, [references]).score
    signature = str(bleu.get_signature())
    return {
        "bleu": bleu_score,
        "chrf++": chrf_score,
        "bleu_signature": signature.replace("tok:none", f"tok:{tokenize}"),
        "chrf++_signature": str(chrf.get_signature()),
        "sentences": len(predictions),
    }


def check_tokenizer(tokenize: str) -> None:
    """Raise [`InputError`] if `tokenize`, of `TOKENIZERS`, lacks its package: before hours of translating."""
    if tokenize == "compound" and find_spec("sacremoses") is None:
        raise InputError("--tokenize compound needs the package sacremoses: pip install sacremoses")


def _split_compounds(texts: list[str], language: str) -> Iterator[str]:
    """Moses tokens, `-` inside of a word one of its own."""
    check_tokenizer("compound")
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    for text in texts:
        yield re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokenizer.tokenize(text, return_str=True))
