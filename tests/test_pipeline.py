"""The translation pipeline: what a call takes and gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vaswani_transformer import TranslationPipeline

GREEDY = {"num_beams": 1, "max_new_tokens": 6}


@pytest.fixture(scope="module")
def pipeline(model_folder: Path) -> TranslationPipeline:
    model = AutoModelForSeq2SeqLM.from_pretrained(model_folder)
    return TranslationPipeline(model, tokenizer=AutoTokenizer.from_pretrained(model_folder))


def test_a_text_and_a_list_of_texts(pipeline: TranslationPipeline) -> None:
    texts = ["Tom is here.", "The dog sleeps."]
    single = [pipeline(text, **GREEDY) for text in texts]
    assert all(len(result) == 1 and set(result[0]) == {"translation_text"} for result in single)
    assert pipeline(texts, **GREEDY) == single
    assert pipeline(texts, batch_size=2, **GREEDY) == single


def test_arguments_of_generate_reach_it(pipeline: TranslationPipeline) -> None:
    several = pipeline(
        ["Tom.", "The dog sleeps."], batch_size=2, num_beams=3, num_return_sequences=3, max_new_tokens=4
    )
    assert [len(translations) for translations in several] == [3, 3]
    with pytest.raises(ValueError, match="no_such_argument"):
        pipeline("Tom.", no_such_argument=1)


def test_truncation_cuts_the_source(pipeline: TranslationPipeline) -> None:
    ids = pipeline.preprocess("a b c d e f g h", truncation=True, max_source_length=5)["input_ids"]
    assert ids.shape == (1, 5)
    assert ids[0, -1] == pipeline.model.config.eos_token_id
    assert pipeline.preprocess("a b c d e f g h")["input_ids"].shape[1] > 5


def test_clean_up_reaches_the_tokenizer(pipeline: TranslationPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(type(pipeline.tokenizer), "decode", lambda *_, **options: seen.append(options) or "x")
    pipeline("Tom.", clean_up_tokenization_spaces=True, **GREEDY)
    assert seen[0]["clean_up_tokenization_spaces"] is True


def test_what_is_no_text_is_refused(pipeline: TranslationPipeline) -> None:
    with pytest.raises(ValueError, match="expected a text or a list of texts to translate, got int"):
        pipeline(3)
