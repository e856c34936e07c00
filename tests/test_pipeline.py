"""The translation pipeline: the task, what a call takes and gives, sentences of a text, alignments."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pandas
import pytest
import torch
import transformers
from torch.utils.data import Dataset, IterableDataset
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipelines
from transformers.pipelines.pt_utils import KeyDataset

from vaswani_transformer import TranslationPipeline
from vaswani_transformer.pipeline_vaswani import WORD, batches, find_words, language_code, put_together, sentence_spans
from vaswani_transformer.translation import PRETRAINED
from vaswani_transformer.translation_task import register_translation_task

GREEDY = {"num_beams": 1, "max_new_tokens": 6}
TEXTS = ["Tom is here.", "The dog sleeps.", "Yes.", "The old woman opens the window because it is warm."]


@pytest.fixture(scope="module")
def translator(model_folder: Path) -> TranslationPipeline:
    return transformers.pipeline("translation", model=str(model_folder))


@pytest.fixture(scope="module")
def german() -> TranslationPipeline:
    """The shipped model, which really translates."""
    return transformers.pipeline("translation", model=str(PRETRAINED / "tatoeba-en-de"))


def test_the_task_and_the_task_with_languages(model_folder: Path) -> None:
    for task in ("translation", "translation_en_to_de", "translation_zh-CN_to_de"):
        found = transformers.pipeline(task, model=str(model_folder))
        assert isinstance(found, TranslationPipeline)
        assert found.task == task
    for task in ("translation_en", "translation_en_into_de", "translation_"):
        with pytest.raises(KeyError, match="translation_XX_to_YY"):
            transformers.pipeline(task, model=str(model_folder))


def test_without_a_model_version_4s_defaults() -> None:
    def default(task: str) -> tuple[str, str]:
        _, found, options = pipelines.check_task(task)
        return pipelines.get_default_model_and_revision(found, options)

    assert default("translation_en_to_fr") == ("google-t5/t5-base", "a9723ea")
    for task in ("translation", "translation_en_to_it"):
        with pytest.raises(ValueError, match="default"):
            default(task)


def test_registration_changes_nothing_else() -> None:
    script = """
from transformers import pipelines

def picture():
    removed = dict(getattr(pipelines, "REMOVED_TASKS", {}))
    return dict(pipelines.PIPELINE_REGISTRY.supported_tasks), dict(pipelines.TASK_ALIASES), removed

before = picture()
tasks = [*before[0], *before[1]]
resolved = [pipelines.check_task(task) for task in tasks]
try:
    pipelines.pipeline("translation")
    raise SystemExit("transformers has the task itself")
except KeyError:
    pass
import vaswani_transformer
after = picture()
assert after[0].pop("translation")["impl"] is vaswani_transformer.TranslationPipeline
before[2].pop("translation", None)
assert after == before
assert [pipelines.check_task(task) for task in tasks] == resolved
for task in ("summarization", "no-such-task"):
    try:
        pipelines.check_task(task)
        raise SystemExit(task)
    except KeyError as error:
        assert "translation_XX" not in str(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_registration_leaves_a_task_that_exists_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = pipelines.PIPELINE_REGISTRY
    theirs = {"impl": object, "pt": (), "default": {}, "type": "text"}
    monkeypatch.setitem(registry.supported_tasks, "translation", theirs)
    before = registry.check_task
    register_translation_task()
    assert registry.supported_tasks["translation"] is theirs
    assert registry.check_task == before


def test_a_saved_pipeline_is_a_model_folder_without_code(translator: TranslationPipeline, tmp_path: Path) -> None:
    translator.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.py"))
    again = transformers.pipeline("translation", model=str(tmp_path))
    assert again(TEXTS, **GREEDY) == translator(TEXTS, **GREEDY)


def test_a_text_and_a_list_of_texts(translator: TranslationPipeline) -> None:
    single = [translator(text, **GREEDY) for text in TEXTS]
    assert all(len(result) == 1 and set(result[0]) == {"translation_text"} for result in single)
    assert len({result[0]["translation_text"] for result in single}) > 1
    for batched in ({}, {"batch_size": 1}, {"batch_size": 2}, {"batch_tokens": 1}, {"batch_tokens": 10_000}):
        assert translator(TEXTS, **batched, **GREEDY) == [result[0] for result in single]
    assert translator([], **GREEDY) == []
    assert translator(tuple(TEXTS), **GREEDY) == translator(TEXTS, **GREEDY)
    column = datasets.Dataset.from_dict({"en": TEXTS})["en"]
    assert translator(column, **GREEDY) == translator(TEXTS, **GREEDY)


def test_generators_and_data_sets_are_streams(translator: TranslationPipeline) -> None:
    class Texts(Dataset):
        def __len__(self) -> int:
            return len(TEXTS)

        def __getitem__(self, index: int) -> str:
            return TEXTS[index]

    taken = []

    def generator() -> Iterator[str]:
        for text in TEXTS:
            taken.append(text)
            yield text

    single = [translator(text, **GREEDY) for text in TEXTS]
    stream = translator(generator(), **GREEDY)
    assert next(stream) == single[0]
    assert taken == TEXTS[:1]
    assert [single[0], *stream] == single
    assert list(translator(generator(), batch_size=3, **GREEDY)) == single
    assert list(translator(Texts(), batch_size=2, **GREEDY)) == single
    assert list(translator(Texts(), **GREEDY)) == single


def test_batches_hold_similar_lengths() -> None:
    lengths = [3, 9, 4, 10, 1]
    assert list(batches(lengths, None, 20)) == [[3, 1], [2, 0, 4]]
    assert list(batches(lengths, 2, 20)) == [[3, 1], [2, 0], [4]]
    assert list(batches(lengths, None, 1)) == [[3], [1], [2], [0], [4]]
    assert list(batches([], None, 20)) == []


def test_settings_of_all_calls_and_of_one(model_folder: Path, translator: TranslationPipeline) -> None:
    fixed = transformers.pipeline(
        "translation", model=str(model_folder), batch_size=2, batch_tokens=50, return_tensors=True, **GREEDY
    )
    assert len(fixed("Tom.")[0]["translation_token_ids"]) == 7
    assert len(fixed("Tom.", max_new_tokens=2)[0]["translation_token_ids"]) == 3
    assert fixed("Tom.", return_tensors=False) == translator("Tom.", **GREEDY)


def test_device_and_dtype(model_folder: Path) -> None:
    half = transformers.pipeline("translation", model=str(model_folder), dtype=torch.bfloat16, device="cpu")
    assert half.model.dtype == torch.bfloat16
    assert half.device.type == "cpu"
    assert set(half("Tom.", **GREEDY)[0]) == {"translation_text"}


def test_arguments_of_generate_reach_it(translator: TranslationPipeline) -> None:
    several = translator(["Tom.", "The dog sleeps.", " "], num_beams=3, num_return_sequences=3, max_new_tokens=4)
    assert [len(translations) for translations in several] == [3, 3, 3]
    assert several[2] == [{"translation_text": ""}] * 3
    with pytest.raises(ValueError, match="no_such_argument"):
        translator("Tom.", no_such_argument=1)


def test_the_models_own_limit_holds(translator: TranslationPipeline) -> None:
    source = len(translator.tokenizer("Tom.")["input_ids"])
    ids = translator("Tom.", return_tensors=True, min_new_tokens=500)[0]["translation_token_ids"]
    assert len(ids) == 1 + source + 50


def test_token_ids_do_not_decode_the_text(translator: TranslationPipeline) -> None:
    record = translator("Tom is here.", return_tensors=True, **GREEDY)[0]
    assert set(record) == {"translation_token_ids"}
    text = translator.tokenizer.decode(record["translation_token_ids"], skip_special_tokens=True)
    assert [{"translation_text": text}] == translator("Tom is here.", **GREEDY)


def test_clean_up_reaches_the_tokenizer(translator: TranslationPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(type(translator.tokenizer), "decode", lambda *_, **options: seen.append(options) or "x")
    translator("Tom.", clean_up_tokenization_spaces=True, **GREEDY)
    assert seen[0]["clean_up_tokenization_spaces"] is True


def test_a_text_without_words_has_no_translation(translator: TranslationPipeline) -> None:
    for text in ("", " ", "\n\t"):
        assert translator(text) == [{"translation_text": ""}]
        assert translator(text, return_alignments=True) == [{"translation_text": "", "alignments": []}]
        assert len(translator(text, return_tensors=True)[0]["translation_token_ids"]) == 0


def test_truncation_cuts_to_what_the_model_knows(
    translator: TranslationPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    long = "a b c d e " * 20
    count = len(translator.tokenizer(long)["input_ids"])
    assert translator.longest_source == 40
    translator([long, "Tom."], **GREEDY)
    assert [record.getMessage().split(",")[0] for record in caplog.records if "trained on" in record.getMessage()] == [
        f"a text of {count} tokens is longer than the 40 that the model was trained on"
    ]
    caplog.clear()
    translator(long, truncation=True, **GREEDY)
    assert "trained on" not in caplog.text
    ids = translator.preprocess([long], truncation=True)["input_ids"][0]
    assert len(ids) == 40
    assert ids[-1] == translator.model.config.eos_token_id


def test_other_iterables_are_streams(translator: TranslationPipeline) -> None:
    class Endless(IterableDataset):
        def __len__(self) -> int:
            return 10**9

        def __iter__(self) -> Iterator[str]:
            while True:
                yield from TEXTS

    single = [translator(text, **GREEDY) for text in TEXTS]
    assert list(islice(translator(Endless(), batch_size=2, **GREEDY), 4)) == single
    assert list(translator(dict.fromkeys(TEXTS).keys(), **GREEDY)) == single
    assert list(translator(pandas.Series(TEXTS, index=[7, 5, 3, 1]), **GREEDY)) == single
    column = KeyDataset(datasets.Dataset.from_dict({"en": TEXTS}), "en")
    assert list(translator(column, num_workers=2, **GREEDY)) == single


def test_the_limit_of_our_models_holds_inside_a_wrapper(translator: TranslationPipeline) -> None:
    peft = pytest.importorskip("peft")
    model = AutoModelForSeq2SeqLM.from_pretrained(translator.model.name_or_path)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules="all-linear", task_type="SEQ_2_SEQ_LM"))
    settings = {"return_tensors": True, "min_new_tokens": 500}
    found = TranslationPipeline(wrapped, tokenizer=translator.tokenizer)("Tom.", **settings)
    assert len(found[0]["translation_token_ids"]) == len(translator("Tom.", **settings)[0]["translation_token_ids"])


def test_a_dictionary_from_generate(translator: TranslationPipeline) -> None:
    found = translator(TEXTS, return_dict_in_generate=True, output_scores=True, **GREEDY)
    assert found == translator(TEXTS, **GREEDY)


@pytest.mark.parametrize("wrong", [3, None, b"Tom.", {"text": "Tom."}, ["Tom.", 3], [["Tom."]], [None]])
def test_what_is_no_text_is_refused(translator: TranslationPipeline, wrong: Any) -> None:
    with pytest.raises(ValueError, match="expected a text or a list of texts to translate, got"):
        translator(wrong)


@pytest.mark.parametrize("name", ["batch_size", "batch_tokens"])
def test_a_batch_of_nothing_is_refused(translator: TranslationPipeline, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        translator("Tom.", **{name: 0})


def test_a_model_without_a_tokenizer(model_folder: Path) -> None:
    with pytest.raises(ValueError, match="expected a tokenizer beside the model"):
        TranslationPipeline(AutoModelForSeq2SeqLM.from_pretrained(model_folder))


def test_a_tokenizer_that_cannot_pad(model_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    tokenizer.pad_token = None
    translator = TranslationPipeline(AutoModelForSeq2SeqLM.from_pretrained(model_folder), tokenizer=tokenizer)
    with pytest.raises(ValueError, match="expected a tokenizer with a pad token"):
        translator("Tom.")


PARAGRAPHS = "  Where is the book?  It is here.\n\n\tDr. Brown is a doctor, e.g. here.\r\nYes \n"


def test_sentences_and_what_is_between_them() -> None:
    pytest.importorskip("sentencex")

    def sentences(text: str, language: str) -> list[str]:
        return [text[start:end] for start, end in sentence_spans(text, language)]

    assert sentences(PARAGRAPHS, "en") == [
        "Where is the book?",
        "It is here.",
        "Dr. Brown is a doctor, e.g. here.",
        "Yes",
    ]
    german = "Das war am 3. Oktober. Gut."
    assert sentences(german, "de") == ["Das war am 3. Oktober.", "Gut."]
    assert sentences(german, "en") != sentences(german, "de")
    assert sentences("你好。我很好！", "zh") == ["你好。", "我很好！"]
    # Blanks of other widths make sentencex 1.0.32 panic.
    assert sentences("Take vitamin A\u00a0. Tom\u3000is here.", "en")[-1].endswith("here.")
    for nothing in ("", " \n\n ", "\u2028"):
        assert sentences(nothing, "en") == []


def test_a_text_by_its_sentences(german: TranslationPipeline) -> None:
    pytest.importorskip("sentencex")
    parts = ["Where is the book?", "It is here.", "Dr. Brown is a doctor, e.g. here.", "Yes"]
    one, two, three, four = (german(part)[0]["translation_text"] for part in parts)
    whole = f"  {one}  {two}\n\n\t{three}\r\n{four} \n"
    assert german(PARAGRAPHS, split_sentences=True) == [{"translation_text": whole}]
    assert german(["Yes", PARAGRAPHS, " \n"], split_sentences=True, batch_size=3) == [
        {"translation_text": four},
        {"translation_text": whole},
        {"translation_text": " \n"},
    ]
    assert list(german(iter([PARAGRAPHS]), split_sentences=True)) == [[{"translation_text": whole}]]
    always = TranslationPipeline(german.model, tokenizer=german.tokenizer, split_sentences=True)
    assert always(PARAGRAPHS) == [{"translation_text": whole}]
    assert always("Yes", split_sentences=False) == [{"translation_text": four}]


def test_the_rules_of_the_source_language(translator: TranslationPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    sentencex = pytest.importorskip("sentencex")
    asked = []
    segment = sentencex.segment
    monkeypatch.setattr(sentencex, "segment", lambda language, text: asked.append(language) or segment(language, text))
    task = TranslationPipeline(translator.model, tokenizer=translator.tokenizer, task="translation_de_to_en")
    task("Gut.", split_sentences=True, **GREEDY)
    translator("Gut.", split_sentences=True, **GREEDY)
    translator("Gut.", split_sentences=True, src_lang="fr", tgt_lang="en", **GREEDY)
    translator("Gut.", split_sentences="nl", src_lang="fr", tgt_lang="en", **GREEDY)
    assert asked == ["de", "en", "fr", "nl"]


def test_codes_of_languages(translator: TranslationPipeline, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("sentencex")
    assert [language_code(code) for code in ("de", "de_DE", "zh-CN")] == ["de", "de", "zh"]
    assert not caplog.text
    assert language_code("deu_Latn") == "deu"
    assert 'unless there are rules for "deu", those for English hold' in caplog.text


def test_sentences_of_a_script_without_blanks() -> None:
    def together(translations: list[str]) -> str:
        text = "你好。我来了。"
        records = [{"translation_text": translation} for translation in translations]
        return put_together(text, sentence_spans(text, "zh"), records, with_alignments=False)["translation_text"]

    pytest.importorskip("sentencex")
    assert together(["Hello.", "I came."]) == "Hello. I came."
    assert together(["こんにちは。", "来た。"]) == "こんにちは。来た。"


def test_what_does_not_go_with_sentences(translator: TranslationPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="leave num_return_sequences out"):
        translator("Tom.", split_sentences=True, num_return_sequences=2)
    with pytest.raises(ValueError, match="leave return_tensors out"):
        translator("Tom.", split_sentences=True, return_tensors=True)
    real_import = builtins.__import__

    def without_sentencex(name: str, *args: Any) -> Any:
        if name == "sentencex":
            raise ImportError(name)
        return real_import(name, *args)

    monkeypatch.setattr(builtins, "__import__", without_sentencex)
    with pytest.raises(ImportError, match="pip install sentencex"):
        translator("Tom.", split_sentences=True)


# By hand; words that have no one partner are left out.
ALIGNED = {
    "Where is the book?": {"Wo": "Where", "ist": "is", "das": "the", "Buch": "book"},
    "My father drinks coffee every morning.": {
        "Mein": "My",
        "Vater": "father",
        "trinkt": "drinks",
        "jeden": "every",
        "Morgen": "morning",
        "Kaffee": "coffee",
    },
    "Tom has three children and two dogs.": {
        "Tom": "Tom",
        "hat": "has",
        "drei": "three",
        "Kinder": "children",
        "und": "and",
        "zwei": "two",
        "Hunde": "dogs",
    },
    "Yesterday I saw your sister at school.": {
        "Gestern": "Yesterday",
        "ich": "I",
        "deine": "your",
        "Schwester": "sister",
        "Schule": "school",
    },
    "The old man was very tired.": {"alte": "old", "Mann": "man", "war": "was", "sehr": "very", "müde": "tired"},
}


def test_words_are_aligned_with_their_sources(german: TranslationPipeline) -> None:
    right = total = 0
    for text, links in ALIGNED.items():
        record = german(text, return_alignments=True)[0]
        for word in record["alignments"]:
            assert text[word["source_start"] : word["source_end"]] == word["source"]
            assert record["translation_text"][word["target_start"] : word["target_end"]] == word["target"]
            if word["target"] in links:
                total += 1
                right += links[word["target"]] == word["source"]
    assert total > 20
    assert right / total > 0.85


def test_threads_share_a_pipeline(german: TranslationPipeline) -> None:
    texts = list(ALIGNED)[:2]
    plain, aligned = german(texts), german(texts, return_alignments=True)
    before = german.model.config._attn_implementation
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda job: german(texts, return_alignments=job % 2 == 1), range(8)))
    assert found == [plain, aligned] * 4
    assert german.model.config._attn_implementation == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Tom's old-fashioned 3,5 €", ["Tom's", "old-fashioned", "3", ",", "5", "€"]),
        ("我来了。", ["我", "来", "了", "。"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("cafe\u0301 au lait", ["cafe\u0301", "au", "lait"]),
    ],
)
def test_what_a_word_is(text: str, words: list[str]) -> None:
    assert WORD.findall(text) == words


def test_words_that_the_tokenizer_changes_are_left_out(german: TranslationPipeline) -> None:
    text = "It is  12:30, said cafe\u0301 Tom to the house of Tom."  # NFC makes one character of é
    ids = german.tokenizer(text)["input_ids"]
    words = find_words(german.tokenizer, ids, text)
    expected = ["It", "is", "12", ":", "30", ",", "said", "Tom", "to", "the", "house", "of", "Tom", "."]
    assert [text[word.start : word.end] for word in words] == [word.text for word in words] == expected
    assert [german.tokenizer.decode([ids[i] for i in word.tokens]).strip() for word in words] == expected


def test_a_word_has_all_the_bytes_of_its_characters(german: TranslationPipeline) -> None:
    text = "Naïve 東京 €5"
    ids = german.tokenizer(text)["input_ids"]
    words = find_words(german.tokenizer, ids, text)
    assert [word.text for word in words] == ["Naïve", "東", "京", "€", "5"]
    assert [german.tokenizer.decode([ids[i] for i in word.tokens]).strip() for word in words] == [
        w.text for w in words
    ]


def test_alignments_of_several_translations_and_of_sentences(german: TranslationPipeline) -> None:
    texts = ["Tom has three children.", "I am here!"]
    alone = [german(text, return_alignments=True)[0] for text in texts]
    together = german(texts, return_alignments=True)
    # Padding has no part in them.
    for one, other in zip(alone, together, strict=True):
        assert one["translation_text"] == other["translation_text"]
        for word, same in zip(one["alignments"], other["alignments"], strict=True):
            assert word.pop("score") == pytest.approx(same.pop("score"), abs=2e-3)
            assert word == same
    several = german(texts[0], num_return_sequences=2, return_alignments=True)
    assert several[0]["alignments"] != several[1]["alignments"]
    pytest.importorskip("sentencex")
    text = f" {texts[0]}\n\n{texts[1]}"
    whole = german(text, split_sentences=True, return_alignments=True)[0]
    assert whole["translation_text"] == f" {alone[0]['translation_text']}\n\n{alone[1]['translation_text']}"
    assert len(whole["alignments"]) == sum(len(record["alignments"]) for record in alone)
    for word in whole["alignments"]:
        assert text[word["source_start"] : word["source_end"]] == word["source"]
        assert whole["translation_text"][word["target_start"] : word["target_end"]] == word["target"]
