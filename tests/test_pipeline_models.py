"""The translation pipeline with other models of transformers: small ones, taught three sentences, from folders."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
    pipeline,
)
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

from vaswani_transformer import TranslationPipeline
from vaswani_transformer.pipeline_vaswani import find_words

sentencepiece = pytest.importorskip("sentencepiece", reason="the tokenizers of Marian and M2M100 need sentencepiece")

TEXTS = ["Tom is here.", "The old woman opens the window because it is warm.", "Yes."]
TRANSLATIONS = ["Tom ist hier.", "Die alte Frau macht das Fenster auf, weil es warm ist.", "Ja."]
SHAPE = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 300,
    "dropout": 0.0,
}


@pytest.fixture(scope="module")
def pieces(corpus_files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A SentencePiece model of the small corpus, as a file and as lists for tokenizers that take no file."""
    prefix = tmp_path_factory.mktemp("pieces") / "pieces"
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus_files["train"]), model_prefix=str(prefix), vocab_size=200, minloglevel=2
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    scored = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(len(processor))]
    return {"file": f"{prefix}.model", "scored": [(piece, score) for piece, score in scored if piece[0] != "<"]}


def vocabulary(folder: Path, pieces: dict[str, Any], special: list[str]) -> Path:
    """A vocabulary file of Marian or M2M100."""
    names = [*special, *(piece for piece, _ in pieces["scored"])]
    path = folder / "vocab.json"
    path.write_text(json.dumps({name: index for index, name in enumerate(names)}), encoding="utf-8")
    return path


def teach(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, prefix: str = "", language: str = ""
) -> str:
    """Teach a model `TRANSLATIONS` of `TEXTS` into the language of a token, and save it."""
    start = [tokenizer.convert_tokens_to_ids(language)] if language else []
    assert tokenizer.unk_token_id not in start
    batch = tokenizer([prefix + text for text in TEXTS], padding=True, return_tensors="pt")
    rows = [[*start, *tokenizer(text, add_special_tokens=False)["input_ids"]] for text in TRANSLATIONS]
    longest = max(map(len, rows))
    labels = torch.tensor([[*row, tokenizer.eos_token_id, *[-100] * (longest - len(row))] for row in rows])
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(400):
        optimizer.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        if loss < 0.003:
            break
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def marian(pieces: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("marian")
    vocab = vocabulary(folder, pieces, ["</s>", "<unk>", "<pad>"])
    tokenizer = MarianTokenizer(source_spm=pieces["file"], target_spm=pieces["file"], vocab=str(vocab))
    torch.manual_seed(0)
    special = {"pad_token_id": 2, "eos_token_id": 0, "decoder_start_token_id": 2, "forced_eos_token_id": 0}
    return teach(MarianMTModel(MarianConfig(vocab_size=len(tokenizer), **SHAPE, **special)), tokenizer, folder)


@pytest.fixture(scope="module")
def m2m100(pieces: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("m2m100")
    vocab = vocabulary(folder, pieces, ["<s>", "<pad>", "</s>", "<unk>"])
    # As the files of the published models do.
    special = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    tokenizer = M2M100Tokenizer(
        vocab_file=str(vocab), spm_file=pieces["file"], src_lang="en", additional_special_tokens=special
    )
    torch.manual_seed(0)
    model = M2M100ForConditionalGeneration(M2M100Config(vocab_size=tokenizer.get_lang_id("zu") + 1, **SHAPE))
    return teach(model, tokenizer, folder, language="__de__")


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("nllb")
    characters = dict.fromkeys(character for text in [*TEXTS, *TRANSLATIONS] for character in text)
    names = ["<s>", "<pad>", "</s>", "<unk>", "▁", *(character for character in characters if character != " ")]
    tokenizer = NllbTokenizer(vocab={name: index for index, name in enumerate(names)}, merges=[], src_lang="eng_Latn")
    torch.manual_seed(0)
    model = M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(tokenizer), **SHAPE))
    return teach(model, tokenizer, folder, language="deu_Latn")


@pytest.fixture(scope="module")
def mbart(pieces: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("mbart")
    special = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    tokenizer = MBartTokenizer(vocab=[*special, *pieces["scored"]], src_lang="en_XX")
    torch.manual_seed(0)
    config = MBartConfig(vocab_size=len(tokenizer), **SHAPE, decoder_start_token_id=2)
    return teach(MBartForConditionalGeneration(config), tokenizer, folder, language="de_DE")


@pytest.fixture(scope="module")
def t5(pieces: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("t5")
    special = [(name, 0.0) for name in ("<pad>", "</s>", "<unk>")]
    tokenizer = T5Tokenizer(vocab=[*special, *pieces["scored"]], extra_ids=0, model_max_length=60)
    prefix = "translate English to German: "
    settings = {"prefix": prefix, "max_length": 70, "num_beams": 3}
    shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
    torch.manual_seed(0)
    config = T5Config(
        decoder_start_token_id=0,
        vocab_size=len(tokenizer),
        **shape,
        task_specific_params={"translation_en_to_de": settings},
    )
    return teach(T5ForConditionalGeneration(config), tokenizer, folder, prefix=prefix)


def expected(translator: TranslationPipeline, text: str, **settings: Any) -> dict[str, str]:
    """What `generate()` itself gives for one text."""
    batch = translator.tokenizer(text, return_tensors="pt")
    ids = translator.model.generate(batch["input_ids"], attention_mask=batch["attention_mask"], **settings)
    return {"translation_text": translator.tokenizer.decode(ids[0], skip_special_tokens=True)}


def translations(records: list[dict[str, str]]) -> list[str]:
    return [record["translation_text"] for record in records]


def test_marian(marian: str) -> None:
    translator = pipeline("translation", model=marian)
    assert isinstance(translator, TranslationPipeline)
    assert translations(translator(TEXTS)) == TRANSLATIONS
    assert [translator(text)[0]["translation_text"] for text in TEXTS] == TRANSLATIONS


def test_what_version_4_set_where_a_model_says_nothing(marian: str) -> None:
    translator = pipeline("translation", model=marian)

    def length(**settings: Any) -> int:
        record = translator("Tom.", return_tensors=True, min_new_tokens=300, forced_eos_token_id=None, **settings)[0]
        return len(record["translation_token_ids"])

    assert length(num_beams=1) == 1 + 256
    assert length(num_beams=1, max_length=30) == 30
    assert length(num_beams=1, max_new_tokens=30) == 31
    assert translator("Tom.") == [expected(translator, "Tom.", num_beams=4, max_new_tokens=256)]
    several = translator("Tom.", num_return_sequences=4)
    assert len(several) == 4  # of four beams
    translator.model.generation_config.num_beams = 2
    translator.model.generation_config.max_length = 12
    assert length() == 12
    with pytest.raises(ValueError, match="num_return_sequences"):
        translator("Tom.", num_return_sequences=4)


def test_a_generation_configuration_of_the_caller(marian: str, m2m100: str, caplog: pytest.LogCaptureFixture) -> None:
    translator = pipeline("translation", model=marian)
    kept = {"return_tensors": True, "min_new_tokens": 300, "forced_eos_token_id": None}
    given = GenerationConfig(max_new_tokens=5)
    assert len(translator("Tom.", generation_config=given, **kept)[0]["translation_token_ids"]) == 6
    given = GenerationConfig(num_beams=1)
    assert len(translator("Tom.", generation_config=given, **kept)[0]["translation_token_ids"]) == 1 + 256
    assert given.max_new_tokens is None
    assert len(translator("Tom.", generation_config=GenerationConfig(num_beams=4, num_return_sequences=4))) == 4
    assert translator(TEXTS, generation_config=None) == translator(TEXTS)
    multilingual = pipeline("translation_en_to_de", model=m2m100)
    caplog.clear()
    assert translations(multilingual(TEXTS, generation_config=GenerationConfig(num_beams=2))) == TRANSLATIONS
    assert "deprecated" not in caplog.text


def test_tokenizers_of_another_make(marian: str) -> None:
    translator = pipeline("translation", model=marian)
    translator.tokenizer.padding_side = "left"
    assert translations(translator(TEXTS)) == TRANSLATIONS
    translator.tokenizer.model_input_names = ["input_ids"]
    assert translations(translator(TEXTS)) == TRANSLATIONS


def test_version_4_did_not_clean_up(marian: str) -> None:
    translator = pipeline("translation", model=marian)
    translator.tokenizer.clean_up_tokenization_spaces = True
    sequence = translator.tokenizer("Tom . Ja", add_special_tokens=False, return_tensors="pt")["input_ids"]
    assert translator.postprocess({"sequences": sequence}) == [{"translation_text": "Tom . Ja"}]
    cleaned = translator.postprocess({"sequences": sequence}, clean_up_tokenization_spaces=True)
    assert cleaned == [{"translation_text": "Tom. Ja"}]


def test_assisted_decoding_has_no_beams(marian: str, caplog: pytest.LogCaptureFixture) -> None:
    translator = pipeline("translation", model=marian)
    assert translations(translator(TEXTS[:1], assistant_model=translator.model)) == TRANSLATIONS[:1]
    assert "assist" not in caplog.text


@pytest.mark.parametrize(
    ("family", "languages"),
    [("m2m100", ("en", "de")), ("nllb", ("eng_Latn", "deu_Latn")), ("mbart", ("en_XX", "de_DE"))],
)
def test_multilingual_tokenizers(family: str, languages: tuple[str, str], request: pytest.FixtureRequest) -> None:
    source, target = languages
    translator = pipeline("translation", model=request.getfixturevalue(family), src_lang=source, tgt_lang=target)
    assert translations(translator(TEXTS)) == TRANSLATIONS
    assert translator(iter(TEXTS), batch_size=2).__next__()[0]["translation_text"] == TRANSLATIONS[0]
    # A call may name other languages: both change what the model gets.
    there = translator(TEXTS[0], return_tensors=True)[0]["translation_token_ids"]
    back = translator(TEXTS[0], src_lang=target, tgt_lang=source, return_tensors=True)[0]["translation_token_ids"]
    token = "__{}__" if family == "m2m100" else "{}"
    forced = translator.tokenizer.convert_tokens_to_ids([token.format(target), token.format(source)])
    assert [int(there[1]), int(back[1])] == forced
    encoded = [translator.preprocess(TEXTS, src_lang=a, tgt_lang=b) for a, b in (languages, languages[::-1])]
    assert encoded[0]["input_ids"] != encoded[1]["input_ids"]


@pytest.mark.parametrize("family", ["m2m100", "nllb"])
def test_a_language_that_the_tokenizer_does_not_know(family: str, request: pytest.FixtureRequest) -> None:
    translator = pipeline("translation", model=request.getfixturevalue(family), src_lang="en", tgt_lang="xx")
    with pytest.raises(ValueError, match="the tokenizer does not know the language"):
        translator("Tom is here.")


def test_a_multilingual_tokenizer_without_languages(m2m100: str) -> None:
    with pytest.raises(ValueError, match="Translation requires a `src_lang` and a `tgt_lang`"):
        pipeline("translation", model=m2m100)("Tom is here.")


def test_languages_in_the_name_of_the_task(m2m100: str, mbart: str) -> None:
    assert translations(pipeline("translation_en_to_de", model=m2m100)(TEXTS)) == TRANSLATIONS
    # Arguments win over the name.
    translator = pipeline("translation_en_to_de", model=mbart, src_lang="en_XX", tgt_lang="de_DE")
    assert translations(translator(TEXTS)) == TRANSLATIONS


def test_t5_has_its_prefix_and_settings(t5: str) -> None:
    translator = pipeline("translation_en_to_de", model=t5)
    assert translations(translator(TEXTS)) == TRANSLATIONS
    long = {"return_tensors": True, "min_new_tokens": 100}
    assert len(translator("Yes.", **long)[0]["translation_token_ids"]) == 70
    assert len(translator("Yes.", max_new_tokens=80, **long)[0]["translation_token_ids"]) == 81
    # Without languages the model's first pair; with others, nothing.
    plain = pipeline("translation", model=t5)
    assert translations(plain(TEXTS)) == TRANSLATIONS
    assert len(plain("Yes.", **long)[0]["translation_token_ids"]) == 70
    assert len(plain("Yes.", src_lang="en", tgt_lang="de", **long)[0]["translation_token_ids"]) == 70
    assert len(plain("Yes.", src_lang="en", tgt_lang="fr", **long)[0]["translation_token_ids"]) == 1 + 256
    other = translator.preprocess(TEXTS, src_lang="en", tgt_lang="fr")["input_ids"]
    assert other == plain.tokenizer(TEXTS)["input_ids"]


@pytest.mark.parametrize("family", ["marian", "m2m100", "nllb", "mbart", "t5"])
def test_words_are_aligned_where_the_decoder_looks(family: str, request: pytest.FixtureRequest) -> None:
    languages = {"nllb": ("eng_Latn", "deu_Latn"), "mbart": ("en_XX", "de_DE")}.get(family, ("en", "de"))
    translator = pipeline(
        "translation", model=request.getfixturevalue(family), src_lang=languages[0], tgt_lang=languages[1]
    )
    before = translator.model.config._attn_implementation
    records = translator(TEXTS, return_alignments=True)
    assert translator.model.config._attn_implementation == before
    for text, record in zip(TEXTS, records, strict=True):
        words = [word["target"] for word in record["alignments"]]
        assert words == re.findall(r"\w+|[.,]", record["translation_text"])
        for word in record["alignments"]:
            assert text[word["source_start"] : word["source_end"]] == word["source"]
            assert record["translation_text"][word["target_start"] : word["target_end"]] == word["target"]
            assert 0 <= word["score"] <= 1


def test_a_table_of_positions_cannot_be_left(marian: str) -> None:
    translator = pipeline("translation", model=marian)
    assert translator.longest_source == 300
    with pytest.raises(ValueError, match="longer than the 300 that the model can read; split_sentences=True"):
        translator("the window " * 200)
    assert len(translator("the window " * 200, truncation=True, num_beams=1)) == 1


def test_the_prefix_has_no_part_in_the_alignment(t5: str) -> None:
    translator = pipeline("translation_en_to_de", model=t5)
    text = "Translate to German, Yes."
    ids = translator.preprocess([text])["input_ids"][0]
    words = find_words(translator.tokenizer, ids, text)
    assert [word.text for word in words] == ["Translate", "to", "German", ",", "Yes", "."]
    tokens = translator.tokenizer.convert_ids_to_tokens(ids)
    for word in words:
        assert word.text in "".join(tokens[index] for index in word.tokens)
    assert words[-2].tokens[0] > words[2].tokens[-1] > len(translator.tokenizer("translate English to German:"))


def test_a_source_beyond_the_models_length(t5: str, caplog: pytest.LogCaptureFixture) -> None:
    translator = pipeline("translation", model=t5)
    long = "the window " * 60
    count = len(translator.tokenizer(f"translate English to German: {long}")["input_ids"])
    translator(long, num_beams=1, max_new_tokens=2)
    assert f"a text of {count} tokens is longer than the 60 that the model was trained on" in caplog.text
    caplog.clear()
    translator(long, truncation=True, num_beams=1, max_new_tokens=2)
    assert "longer" not in caplog.text
    assert [len(ids) for ids in translator.preprocess([long], truncation=True)["input_ids"]] == [60]


def test_a_model_that_is_no_sequence_to_sequence_model(t5: str) -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=10, n_embd=8, n_layer=1, n_head=1))
    with pytest.raises(ValueError, match="expected a sequence-to-sequence model, found GPT2LMHeadModel"):
        pipeline("translation", model=model, tokenizer=t5)
