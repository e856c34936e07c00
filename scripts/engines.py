"""Three engines that decode with the same weights, behind one interface."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol, TypeVar

import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from peers import marian_twin
from vaswani_transformer.ctranslate2_export import export_ctranslate2
from vaswani_transformer.translation import load_model, load_pipeline, translate

Result = TypeVar("Result")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Engine(Protocol):
    """A loaded model that decodes in one precision."""

    def __init__(self, model: str, precision: str) -> None:
        """Load `model`, a folder or the name of a shipped checkpoint."""

    def generate(self, sources: list[list[int]], num_beams: int, target_tokens: int) -> list[list[int]]:
        """The best target of exactly `target_tokens` tokens for each of `sources`, which are equally long."""

    def translate(self, sentences: list[str]) -> list[str]:
        """A translation of each sentence, in order."""


class VaswaniEngine:
    """This package: `generate()`, and `translate` at its default settings."""

    def __init__(self, model: str, precision: str) -> None:
        self.pipeline = load_pipeline(model)
        self.pipeline.model.to(getattr(torch, precision))

    def generate(self, sources: list[list[int]], num_beams: int, target_tokens: int) -> list[list[int]]:
        """`generate()` on one batch."""
        return _generate(self.pipeline.model, sources, num_beams, target_tokens)

    def translate(self, sentences: list[str]) -> list[str]:
        """`translate`, which sorts and batches by itself."""
        return list(translate(self.pipeline, sentences))


class StockPenaltyEngine(VaswaniEngine):
    """This package with the length penalty that the other engines have, n^alpha, in place of the paper's."""

    def __init__(self, model: str, precision: str) -> None:
        super().__init__(model, precision)
        self.pipeline.model.generation_config.length_penalty_type = "transformers"


class MarianEngine:
    """transformers' `MarianMTModel`: `generate()`, and the plain loop over batches of 32 sentences in their order."""

    def __init__(self, model: str, precision: str) -> None:
        vaswani, self.tokenizer = load_model(model)
        self.max_source_length, self.search = vaswani.config.max_position_embeddings, vaswani.generation_config
        self.model = marian_twin(vaswani.to(DEVICE, getattr(torch, precision)))

    def generate(self, sources: list[list[int]], num_beams: int, target_tokens: int) -> list[list[int]]:
        """`generate()` on one batch."""
        return _generate(self.model, sources, num_beams, target_tokens)

    def translate(self, sentences: list[str]) -> list[str]:
        """The loop, with the beam, the length penalty and the limits that this package's models have."""
        translations = []
        for start in range(0, len(sentences), 32):
            batch = self.tokenizer(
                sentences[start : start + 32],
                padding=True,
                truncation=True,
                max_length=self.max_source_length,
                return_tensors="pt",
            ).to(DEVICE)
            sequences = self.model.generate(
                **batch,
                num_beams=self.search.num_beams,
                length_penalty=self.search.length_penalty,
                max_new_tokens=batch["input_ids"].shape[1] + 50,
            )
            translations += self.tokenizer.batch_decode(sequences, skip_special_tokens=True)
        return translations


class CTranslate2Engine:
    """CTranslate2's `Translator` on as many threads as torch has; it sorts and batches by itself."""

    def __init__(self, model: str, precision: str) -> None:
        import ctranslate2

        vaswani, self.tokenizer = load_model(model)
        self.max_source_length, self.search = vaswani.config.max_position_embeddings, vaswani.generation_config
        with tempfile.TemporaryDirectory() as room:
            folder = Path(room) / "ctranslate2"
            export_ctranslate2(vaswani, self.tokenizer, folder, quantization=precision)
            self.translator = ctranslate2.Translator(
                str(folder),
                device=DEVICE,
                compute_type=precision,
                inter_threads=1,
                intra_threads=torch.get_num_threads(),
            )

    def generate(self, sources: list[list[int]], num_beams: int, target_tokens: int) -> list[list[int]]:
        """`translate_batch` on one batch."""
        results = self.translator.translate_batch(
            [self.tokenizer.convert_ids_to_tokens(source) for source in sources],
            beam_size=num_beams,
            min_decoding_length=target_tokens,
            max_decoding_length=target_tokens,
        )
        return [self.tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]

    def translate(self, sentences: list[str]) -> list[str]:
        """`translate_batch` with batches of 2,048 tokens, and the beam and length penalty of this package's models."""
        sources = _encode(self.tokenizer, sentences, self.max_source_length)
        results = self.translator.translate_batch(
            [self.tokenizer.convert_ids_to_tokens(source) for source in sources],
            max_batch_size=2048,
            batch_type="tokens",
            beam_size=self.search.num_beams,
            length_penalty=self.search.length_penalty,
            max_decoding_length=max(map(len, sources)) + 50,
        )
        targets = [self.tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
        return self.tokenizer.batch_decode(targets)


ENGINES: dict[str, type[Engine]] = {
    "vaswani_transformer": VaswaniEngine,
    "vaswani_transformer*": StockPenaltyEngine,
    "MarianMTModel": MarianEngine,
    "CTranslate2": CTranslate2Engine,
}


def load_engine(engine: str, model: str, precision: str) -> Engine:
    """An engine of [`ENGINES`] with the weights of `model`, loaded without a progress bar.

    Raises:
        InputError: If there is no such model, or the engine cannot hold it.
    """
    transformers.utils.logging.disable_progress_bar()
    return ENGINES[engine](model, precision)


class EngineProcess:
    """An engine in a process of its own, for the OpenMP runtimes of two engines in one slow each other down.

    Args:
        load: Loads the engine; picklable, like all that is asked of it.

    Raises:
        InputError: As [`load_engine`].
    """

    def __init__(self, load: Callable[[], Engine]) -> None:
        self.pool = ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))
        self.pool.submit(_load, load, torch.get_num_threads()).result()

    def run(self, work: Callable[[Engine], Result]) -> Result:
        """What `work` gives for the engine."""
        return self.pool.submit(_run, work).result()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.pool.shutdown()


def _load(load: Callable[[], Engine], threads: int) -> None:
    global _engine
    torch.set_num_threads(threads)
    _engine = load()


def _run(work: Callable[[Engine], Result]) -> Result:
    return work(_engine)


def _generate(model: PreTrainedModel, sources: list[list[int]], num_beams: int, target_tokens: int) -> list[list[int]]:
    input_ids = torch.tensor(sources, device=model.device)
    limits = {"min_new_tokens": target_tokens, "max_new_tokens": target_tokens}
    sequences = model.generate(
        input_ids=input_ids, attention_mask=torch.ones_like(input_ids), num_beams=num_beams, **limits
    )
    return sequences[:, 1:].tolist()


def _encode(tokenizer: PreTrainedTokenizerBase, sentences: list[str], max_length: int) -> list[list[int]]:
    return tokenizer(sentences, truncation=True, max_length=max_length)["input_ids"]
