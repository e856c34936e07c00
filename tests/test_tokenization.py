import json
import os
import random
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from vaswani_transformer.configuration_vaswani import VaswaniConfig
from vaswani_transformer.tokenization import SPECIAL_TOKENS, train_tokenizer

VOCAB_SIZE = 340
# Unicode's White_Space property, spelled out: what the tokenizer promises to turn into single blanks.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

NOUNS = {"house": "Haus", "dog": "Hund", "table": "Tisch", "door": "Tür", "street": "Straße", "tree": "Baum"}
ADJECTIVES = {"old": "alt", "big": "groß", "small": "klein", "new": "neu", "beautiful": "schön", "green": "grün"}

TEXTS = {
    "plain": "The old dog sleeps.",
    "umlauts": "Äpfel, Öl, Übermut, Straße, ſ, ẞ",
    "German quotes": "„Guten Tag“, sagte sie – ‚na ja‘ … »so«",
    "emoji with joiners": "family 👨‍👩‍👧‍👦, flag 🏳️‍🌈, skin 👍🏽, keycap 1️⃣",
    "CJK": "我昨天買了一本書。これは本です。한국어",
    "Arabic": "اَلسَّلَامُ عَلَيْكُمْ ١٢٣",
    "Hebrew and Devanagari": "שָׁלוֹם नमस्ते क्षत्रिय",
    "digits": "3.14159 1,000,000 ½ ² ٣ 12:30",
    "a long number": "1234567890" * 30,
    "a long word": "Donaudampfschifffahrtsgesellschaft" * 20,
    "composed": "café Å",
    "combining characters": "e\u0301 a\u030a o\u0308\u0304 q\u0323\u0307",
    "a combining character first": "\u0301a",
    "singletons": "\u212b \u2126 \u1fef",
    "NUL": "a\0b\0",
    "control characters": "".join(map(chr, [*range(1, 9), *range(14, 32), 127])),
    "C1 control characters": "x\x80y\x9fz",
    "format characters": "soft\u00adhyphen zero\u200bwidth \ufeffmark \u202eright\u202c",
    "end of sentence": "</s>",
    "special tokens": "a <pad> b<s>c </s> <unk></s>",
    "metaspace": "▁ ▁a ▁▁",
    "byte alphabet": "Ġ Ġa Ċ ĉ Ħ",
    "replacement characters": "a \ufffd b \U0010ffff",
    "beyond the basic plane": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🜁",
    "punctuation": "don't -- !?... 'tis [x] {y} <z> \\n \"q\"",
    "empty": "",
}
SPACES = [
    "  a  b  ",
    "a\tb\r\nc",
    "\n",
    "a\u2028b\x85c\u3000d\xa0e",
    " . , !  ?",
    "x \u0301y",
]


def texts() -> Iterator[str]:
    """A small deterministic parallel corpus, in both languages."""
    for adjective, german_adjective in ADJECTIVES.items():
        for noun, german_noun in NOUNS.items():
            yield f"The {noun} is {adjective}, but the {adjective} {noun}s were 10 in 2017."
            yield f"{german_noun} ist {german_adjective}, „aber“ {german_noun} war {german_adjective}er; 10 in 2017."


def normal(text: str) -> str:
    return re.sub(f"[{WHITE_SPACE}]+", " ", unicodedata.normalize("NFC", text)).strip(" ")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(texts(), VOCAB_SIZE)


def check_round_trip(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer(text)["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id
    # Text never becomes a special token, whatever it spells, and is never unknown.
    assert all(len(SPECIAL_TOKENS) <= token < VOCAB_SIZE for token in ids[:-1])
    decoded = tokenizer.decode(ids, skip_special_tokens=True)
    # The tokenizer's tables are of an older Unicode than Python's: it may leave combining marks that it does not know
    # in another order. The text is canonically the same then, and exactly the same for the older characters.
    assert unicodedata.normalize("NFC", decoded) == normal(text)
    if all(unicodedata.ucd_3_2_0.category(character) != "Cn" for character in text):
        assert decoded == normal(text)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_text_survives_encoding_and_decoding(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    check_round_trip(tokenizer, text)


@pytest.mark.parametrize("text", SPACES)
def test_white_space_becomes_single_blanks(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert normal(text) != text or "  " not in text
    check_round_trip(tokenizer, text)
    assert tokenizer(text)["input_ids"] == tokenizer(normal(text))["input_ids"]


def test_composed_and_decomposed_text_are_encoded_alike(tokenizer: PreTrainedTokenizerFast) -> None:
    text = "Äpfel für Zoë, café"
    decomposed = unicodedata.normalize("NFD", text)
    assert decomposed != text
    assert tokenizer(decomposed)["input_ids"] == tokenizer(text)["input_ids"]


def random_texts(count: int) -> Iterator[str]:
    generator = random.Random(2017)
    blocks = [(0, 0x7F), (0, 0x2FF), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x2FFF), (0x3000, 0xFFFF)]
    blocks += [(0x10000, 0x10FFFF), (0x1F300, 0x1FAFF)]
    for _ in range(count):
        characters = []
        for _ in range(generator.randrange(1, 40)):
            character = chr(generator.randint(*generator.choice(blocks)))
            # Surrogates are no text. Two versions of Unicode may differ in characters that one of them does not have.
            if unicodedata.category(character) not in ("Cs", "Cn"):
                characters.append(character)
            if generator.random() < 0.1:
                characters.append(generator.choice(["</s>", "<pad>", "<s>", "<unk>", "  ", "\n", "Ġ", "▁", "\u0308"]))
        yield "".join(characters)


def test_random_text_survives_encoding_and_decoding(tokenizer: PreTrainedTokenizerFast) -> None:
    for text in random_texts(3000):
        check_round_trip(tokenizer, text)


def test_a_batch_is_decoded_like_its_sentences(tokenizer: PreTrainedTokenizerFast) -> None:
    batch = list(random_texts(50))
    ids = tokenizer(batch, padding=True)["input_ids"]
    decoded = tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert decoded == [tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) for text in batch]


def test_special_tokens_have_the_ids_that_the_configuration_expects(tokenizer: PreTrainedTokenizerFast) -> None:
    assert SPECIAL_TOKENS == ("<pad>", "<s>", "</s>", "<unk>")
    ids = [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id]
    assert ids == [0, 1, 2, 3]
    assert tokenizer.convert_ids_to_tokens(ids) == list(SPECIAL_TOKENS)
    assert sorted(tokenizer.all_special_ids) == ids
    configuration = VaswaniConfig()
    assert (configuration.pad_token_id, configuration.bos_token_id, configuration.eos_token_id) == (0, 1, 2)
    assert configuration.decoder_start_token_id == 1


def test_sources_and_targets_end_in_the_end_token_once(tokenizer: PreTrainedTokenizerFast) -> None:
    encoded = tokenizer("The house", text_target="Das Haus </s>")
    for ids in (encoded["input_ids"], encoded["labels"], tokenizer("")["input_ids"]):
        assert ids.count(tokenizer.eos_token_id) == 1
        assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer("")["input_ids"] == [tokenizer.eos_token_id]
    assert tokenizer.eos_token_id not in tokenizer("The house", add_special_tokens=False)["input_ids"]


def test_the_end_token_can_be_shown(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.decode(tokenizer("the house")["input_ids"], skip_special_tokens=False) == "the house</s>"


def test_both_languages_share_what_was_learned(tokenizer: PreTrainedTokenizerFast) -> None:
    words = [*NOUNS, *NOUNS.values()]
    pieces = [len(tokenizer(word, add_special_tokens=False)["input_ids"]) for word in words]
    letters = [len(word.encode()) for word in words]
    # Far fewer pieces than bytes, in either language.
    assert sum(pieces[: len(NOUNS)]) < sum(letters[: len(NOUNS)]) * 0.6
    assert sum(pieces[len(NOUNS) :]) < sum(letters[len(NOUNS) :]) * 0.6


def test_a_word_is_the_same_at_the_start_and_within(tokenizer: PreTrainedTokenizerFast) -> None:
    alone = tokenizer("Haus", add_special_tokens=False)["input_ids"]
    assert tokenizer("Das Haus", add_special_tokens=False)["input_ids"][-len(alone) :] == alone


@pytest.mark.parametrize("size", [260, 261, 300, VOCAB_SIZE])
def test_the_vocabulary_has_exactly_the_size_asked_for(size: int) -> None:
    tokenizer = train_tokenizer(texts(), size)
    assert len(tokenizer) == tokenizer.vocab_size == size
    assert sorted(tokenizer.get_vocab().values()) == list(range(size))


@pytest.mark.parametrize("size", [259, 4, 0, -1])
def test_a_vocabulary_without_room_for_the_bytes_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=rf"at least 260 .*got {size}$"):
        train_tokenizer(texts(), size)


def test_a_vocabulary_that_the_text_cannot_fill_is_refused_with_what_it_can() -> None:
    with pytest.raises(ValueError, match=r"a vocabulary of \d+ at most, got vocab_size=30000") as caught:
        train_tokenizer(texts(), 30_000)
    most = int(re.search(r"lower vocab_size to (\d+)", str(caught.value)).group(1))
    # The number is right: so many can be had, and not one more.
    assert len(train_tokenizer(texts(), most)) == most
    with pytest.raises(ValueError, match=f"of {most} at most, got vocab_size={most + 1}"):
        train_tokenizer(texts(), most + 1)


def test_training_is_deterministic(tokenizer: PreTrainedTokenizerFast) -> None:
    for source in (texts(), list(texts()), tuple(texts())):
        again = train_tokenizer(source, VOCAB_SIZE)
        assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_a_batch_is_padded_on_the_right_with_a_mask(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.padding_side == "right"
    sentences = ["The old dog sleeps.", "Dog", ""]
    single = [tokenizer(sentence)["input_ids"] for sentence in sentences]
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    assert set(batch) == {"input_ids", "attention_mask"}
    width = max(map(len, single))
    assert batch["input_ids"].tolist() == [ids + [0] * (width - len(ids)) for ids in single]
    assert batch["attention_mask"].tolist() == [[1] * len(ids) + [0] * (width - len(ids)) for ids in single]


# What runs elsewhere: transformers alone, with this package out of reach even where it is installed.
ELSEWHERE = """
import json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "vaswani_transformer":
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
from transformers import AutoTokenizer

sys.stdin.reconfigure(encoding="utf-8")
texts = json.loads(sys.stdin.read())
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer(texts)["input_ids"]
result = {
    "ids": ids,
    "decoded": tokenizer.batch_decode(ids, skip_special_tokens=True),
    "inputs": sorted(tokenizer(texts[:1])),
    "side": tokenizer.padding_side,
    "special": tokenizer.convert_tokens_to_ids(["<pad>", "<s>", "</s>", "<unk>"]),
    "package": any(name.split(".")[0] == "vaswani_transformer" for name in sys.modules),
}
print(json.dumps(result))
"""


def test_the_saved_folder_is_loaded_without_this_package(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path / "saved")
    assert {"tokenizer.json", "tokenizer_config.json"} <= {file.name for file in (tmp_path / "saved").iterdir()}
    batch = [*TEXTS.values(), *SPACES, *random_texts(200)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # -I: neither the working directory nor PYTHONPATH is searched.
    process = subprocess.run(
        [sys.executable, "-I", "-c", ELSEWHERE, str(tmp_path / "saved")],
        input=json.dumps(batch),
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={**environment, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["package"] is False
    assert result["ids"] == tokenizer(batch)["input_ids"]
    assert result["decoded"] == tokenizer.batch_decode(result["ids"], skip_special_tokens=True)
    assert result["inputs"] == ["attention_mask", "input_ids"]
    assert result["side"] == "right"
    assert result["special"] == [0, 1, 2, 3]
