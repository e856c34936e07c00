"""What several test files share: a small corpus, its tokenizer, a small model, a small run, a refused command."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"
# The prepared corpora of the tests do not go into the user's cache.
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="vaswani-tests-")

from accelerate.state import AcceleratorState, GradientState, PartialState
from transformers import PreTrainedTokenizerBase

from vaswani_transformer import TranslationPipeline, VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.builtin_corpus import generate_pairs
from vaswani_transformer.cli import main
from vaswani_transformer.corpora import load_corpus, sentences
from vaswani_transformer.demo_translation import DemoTranslator
from vaswani_transformer.tokenization import train_tokenizer
from vaswani_transformer.translation import load_model

atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)
VOCAB = 53
# What `trained` says for `sources()`: sentences of different lengths, as random weights repeat one token for ever.
TRANSLATIONS = [[31, 7, 19, 44, 2], [12, 50, 7, 7, 23, 9, 38, 2], [27, 5, 2]]

TATOEBA_TEST = Path(__file__).parents[2] / "shared" / "data" / "tatoeba-en-de" / "test.tsv.gz"
needs_tatoeba = pytest.mark.skipif(not TATOEBA_TEST.is_file(), reason="Tatoeba is not in ../shared/data")

Refused = Callable[..., str]


def sources() -> dict[str, torch.Tensor]:
    """Sources of 7, 5 and 2 tokens, padded on the right."""
    ids = torch.randint(4, VOCAB, (3, 7), generator=torch.Generator().manual_seed(0))
    ids[1, 5:] = 0
    ids[2, 2:] = 0
    return {"input_ids": ids, "attention_mask": ids.ne(0).long()}


def tatoeba_test(count: int | None = None) -> tuple[list[str], list[str]]:
    """The first `count` sentences of Tatoeba's test set, or all, in English and German."""
    corpus = load_corpus([str(TATOEBA_TEST)], source_lang="en", target_lang="de")
    source, target = (list(sentences(corpus, language))[:count] for language in ("en", "de"))
    return source, target


def reset_accelerate() -> None:
    """Accelerate keeps its precision for a whole process; each run in these tests chooses its own."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


@pytest.fixture(autouse=True)
def fresh_accelerate_state() -> Iterator[None]:
    """Leave nothing of one test's Accelerate to the next."""
    yield
    reset_accelerate()


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """No test leaves torch on another number of threads than it found: sums are rounded by thread."""
    threads = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == threads


@pytest.fixture(scope="session")
def corpus_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """TSV files of the built-in corpus: 400 training and 30 validation pairs."""
    folder = tmp_path_factory.mktemp("corpus")
    files = {}
    for split, size in (("train", 400), ("validation", 30)):
        files[split] = folder / f"{split}.tsv"
        lines = [f"{pair['en']}\t{pair['de']}\n" for pair in generate_pairs(split, size)]
        files[split].write_text("".join(lines), encoding="utf-8")
    return files


@pytest.fixture(scope="session")
def tokenizer(corpus_files: dict[str, Path]) -> PreTrainedTokenizerBase:
    """500 byte pairs of the small corpus."""
    text = corpus_files["train"].read_text(encoding="utf-8")
    return train_tokenizer(text.replace("\t", "\n").splitlines(), 500)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerBase) -> Path:
    """A small untrained model with its tokenizer, as `from_pretrained` loads it."""
    torch.manual_seed(0)
    config = VaswaniConfig.tiny(
        vocab_size=len(tokenizer), d_model=32, d_ff=64, encoder_layers=1, decoder_layers=1, max_position_embeddings=40
    )
    folder = tmp_path_factory.mktemp("model")
    VaswaniForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def shipped() -> tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase]:
    """The checkpoint `tatoeba-en-de` with its tokenizer; not to be changed."""
    return load_model("tatoeba-en-de")


@pytest.fixture(scope="session")
def pipeline(shipped: tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase]) -> TranslationPipeline:
    """The same as a pipeline."""
    model, tokenizer = shipped
    return TranslationPipeline(model, tokenizer=tokenizer)


@pytest.fixture(scope="session")
def translator(pipeline: TranslationPipeline) -> DemoTranslator:
    """The same as the demo translates."""
    return DemoTranslator(pipeline)


@pytest.fixture(scope="session")
def small_run(corpus_files: dict[str, Path]) -> list[str]:
    """Flags of a training run of seconds, without output_dir and a limit."""
    shape = "--preset tiny --d-model 32 --d-ff 64 --encoder-layers 1 --decoder-layers 1 --num-attention-heads 2"
    pace = "--vocab-size 500 --batch-tokens 400 --warmup-steps 20 --mixed-precision no --eval-sentences 4"
    intervals = "--logging-steps 1 --eval-steps 1000 --save-steps 1000"
    files = ["--train-file", str(corpus_files["train"]), "--validation-file", str(corpus_files["validation"])]
    return [*shape.split(), *pace.split(), *intervals.split(), *files]


@pytest.fixture(scope="session")
def trained_run(small_run: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run with two validations and two checkpoints; not to be changed."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    intervals = ["--max-steps", "6", "--eval-steps", "3", "--save-steps", "3", "--max-length", "40"]
    assert main(["train", *small_run, *intervals, "--output-dir", str(folder)]) == 0
    reset_accelerate()
    return folder


@pytest.fixture(scope="module")
def trained() -> VaswaniForConditionalGeneration:
    """A small model that says `TRANSLATIONS` for `sources()`."""
    torch.manual_seed(0)
    config = VaswaniConfig(
        vocab_size=VOCAB, d_model=32, encoder_layers=1, decoder_layers=2, num_attention_heads=2, d_ff=32, dropout=0.0
    )
    model = VaswaniForConditionalGeneration(config)
    labels = torch.tensor([row + [-100] * (8 - len(row)) for row in TRANSLATIONS])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(80):
        optimizer.zero_grad()
        model(**sources(), labels=labels).loss.backward()
        optimizer.step()
    return model.double().eval()


def assert_damage_is_told(
    exported: Path, damages: list[tuple[str, bytes | None]], room: Path, refused: Refused
) -> None:
    """Each of `damages`, a file of an exported model and what becomes of it, ends in one line."""
    for file, content in damages:
        folder = room / "damaged"
        shutil.copytree(exported, folder)
        (folder / file).unlink()
        if content is not None:
            (folder / file).write_bytes(content)
        refused(["translate", str(folder)], f"{folder}: the exported model cannot be loaded (", "export again")
        shutil.rmtree(folder)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a command that must fail: exit code 2 and one line that holds each of the given texts."""

    def run(arguments: list[str], *texts: str) -> str:
        capsys.readouterr()
        assert main(arguments) == 2
        captured = capsys.readouterr()
        lines = [line for line in captured.err.splitlines() if line.startswith("vaswani-transformer: ")]
        assert len(lines) == 1, captured.err
        assert lines[0] == captured.err.splitlines()[-1]
        assert "Traceback" not in captured.err
        for text in texts:
            assert text in lines[0]
        return lines[0]

    return run
