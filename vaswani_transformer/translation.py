"""Loading a model and translating many sentences: sorted by length, batched by tokens, returned in order."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from .ctranslate2_export import WEIGHTS as CTRANSLATE2_WEIGHTS
from .ctranslate2_export import CTranslate2Model
from .errors import InputError, one_line
from .exported_model import ExportedModel
from .hub import check_model_type, download
from .modeling_vaswani import VaswaniForConditionalGeneration
from .onnx_export import DECODER as ONNX_DECODER
from .onnx_export import OnnxModel
from .pipeline_vaswani import TranslationPipeline

logger = logging.getLogger(__name__)

# Sentences that are sorted together: enough to fill batches of one length.
WINDOW = 4096
# The checkpoints that ship with the package, a folder each.
PRETRAINED = Path(__file__).parent / "pretrained"


def translate(
    pipeline: TranslationPipeline,
    sentences: Iterable[str],
    *,
    window: int = WINDOW,
    split_sentences: str | None = None,
    **settings: Any,
) -> Iterator[str]:
    """Yield one translation, without line breaks, for each sentence, in order.

    A sentence of nothing but white space gives an empty translation. A sentence longer than the model's
    `max_position_embeddings`, the longest that it saw in training, is cut to that length with a warning.

    Args:
        pipeline: Translates.
        sentences: Any number of sentences.
        window: Sentences read, and sorted by length, before the first is translated.
        split_sentences: The texts are no single sentences; the code of the language by whose rules to split them.
            Then none is cut, and what is too long has a warning.
        **settings: Arguments of a call of the pipeline, such as `batch_tokens` and those of `generate()`.
    """
    sentences = iter(sentences)
    first = 1
    while chunk := list(islice(sentences, window)):
        if not split_sentences:
            _warn_of_long(pipeline, chunk, first)
        results = pipeline(chunk, truncation=not split_sentences, split_sentences=split_sentences, **settings)
        yield from (" ".join(result["translation_text"].split()) for result in results)
        first += len(chunk)


def _warn_of_long(pipeline: TranslationPipeline, sentences: list[str], first: int) -> None:
    longest = pipeline.longest_source
    for number, ids in enumerate(pipeline.tokenizer(sentences)["input_ids"], first):
        if len(ids) > longest:
            logger.warning(
                f"sentence {number}: cut from {len(ids):,} to {longest:,} tokens, the longest that the model was "
                "trained on"
            )


def load_model(
    name: str, dtype: torch.dtype | str = torch.float32
) -> tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase]:
    """Load a run folder, a model on the Hub, or a checkpoint that ships with the package.

    The weights are brought to `dtype`, whatever they are on the disk.

    Raises:
        InputError: If there is no such model, or a part of it is missing, damaged or of another kind.
    """
    source = str(_model_folder(name))
    try:
        # Safetensors alone and no code of the model's own: nothing that is downloaded runs.
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        check_model_type(name, config.model_type)
        model, loading = VaswaniForConditionalGeneration.from_pretrained(
            source,
            config=config,
            dtype=dtype,
            # Beams are few queries at a time, for which plain products beat the fused kernel on a CPU.
            attn_implementation="sdpa" if torch.accelerator.is_available() else "eager",
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except InputError:
        raise
    except SafetensorError as error:
        raise InputError(f"{name}: model.safetensors is damaged ({error}); copy or download it again") from error
    except Exception as error:  # transformers, tokenizers and the Hub fail in many ways
        raise InputError(f"{name}: the model cannot be loaded ({one_line(error)})") from error
    for problem in ("missing_keys", "mismatched_keys"):
        if loading[problem]:
            raise InputError(
                f"{name}: the weights do not fit config.json ({len(loading[problem])} {problem.split('_')[0]}, such "
                f"as {sorted(map(str, loading[problem]))[0]}); the two must come from one model"
            )
    special = [(tokenizer.pad_token_id, config.pad_token_id), (tokenizer.eos_token_id, config.eos_token_id)]
    if len(tokenizer) > config.vocab_size or any(found != expected for found, expected in special):
        raise InputError(
            f"{name}: the tokenizer does not fit the model: it has {len(tokenizer):,} entries for "
            f"{config.vocab_size:,} embeddings, and (pad, eos) {[found for found, _ in special]} where the model has "
            f"{[expected for _, expected in special]}; the two must come from one model"
        )
    return model.eval(), tokenizer


def shipped_checkpoints() -> list[str]:
    """The names of the checkpoints that ship with the package."""
    return sorted(path.name for path in PRETRAINED.glob("*") if path.is_dir())


def local_folder(name: str) -> Path | None:
    """The folder on this machine that `name` means, or `None` where it can only be a model on the Hub.

    Raises:
        InputError: If it is a path to nothing, or a file is missing in the folder.
    """
    if Path(name).is_dir():
        folder = Path(name)
    elif name in shipped_checkpoints():
        folder = PRETRAINED / name
    elif name.count("/") > 1 or name.startswith((".", "/")) or Path(name).exists():
        raise InputError(f"{name}: no such model folder")
    else:
        return None
    _check_files(name, folder)
    return folder


def _model_folder(name: str) -> Path:
    """The folder that `name` means, downloaded if it is a model on the Hub."""
    folder = local_folder(name)
    if folder is not None:
        return folder
    logger.info(f"Looking for {name} on the Hub")
    try:
        folder = download(name)
    except InputError:
        raise
    except Exception as error:  # the Hub and the network fail in many ways
        if constants.HF_HUB_OFFLINE:
            raise InputError(
                f"{name}: not a folder, not a checkpoint of this package ({', '.join(shipped_checkpoints())}), and "
                "not in the cache; HF_HUB_OFFLINE is set, unset it to look on the Hub"
            ) from error
        raise InputError(
            f"{name}: not a folder, not a checkpoint of this package ({', '.join(shipped_checkpoints())}), and the "
            f"Hub did not give it; check the name and the network ({one_line(error)})"
        ) from error
    _check_files(name, folder)
    return folder


def _check_files(name: str, folder: Path) -> None:
    for file, what in (
        ("config.json", "configuration"),
        ("tokenizer.json", "tokenizer"),
        ("tokenizer_config.json", "tokenizer's settings"),
        ("model.safetensors", "weights"),
    ):
        if file == "model.safetensors" and (folder / f"{file}.index.json").is_file():
            raise InputError(f"{name}: the weights are in several files; save the model with a higher max_shard_size")
        if not (folder / file).is_file():
            raise InputError(f"{name}: no {file}, the model's {what}; a model folder needs one")


def export_engine(folder: Path) -> type[ExportedModel] | None:
    """What translates with a folder that `vaswani-transformer export` wrote; `None` for any other."""
    engines = {CTRANSLATE2_WEIGHTS: CTranslate2Model, ONNX_DECODER: OnnxModel}
    return next((engine for file, engine in engines.items() if (folder / file).is_file()), None)


def load_exported(folder: Path) -> tuple[ExportedModel, PreTrainedTokenizerBase]:
    """Load what `vaswani-transformer export` wrote.

    Raises:
        InputError: If its engine is not installed, or a part is missing or damaged.
    """
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        check_model_type(str(folder), config.model_type)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        return export_engine(folder)(folder, config, tokenizer), tokenizer
    except InputError:
        raise
    except Exception as error:  # each engine fails in its own ways
        raise InputError(f"{folder}: the exported model cannot be loaded ({one_line(error)}); export again") from error


def load_pipeline(name: str, dtype: torch.dtype | str = torch.float32) -> TranslationPipeline:
    """A pipeline of [`load_model`]'s model, on the GPU where there is one, or of [`load_exported`]'s.

    Raises:
        InputError: As those, or if `dtype` is not float32 for an exported model.
    """
    if Path(name).is_dir() and export_engine(Path(name)):
        if dtype not in (torch.float32, "float32"):
            raise InputError(f"{name}: an exported model has the precision of its files; leave --dtype out")
        model, tokenizer = load_exported(Path(name))
        return TranslationPipeline(model, tokenizer=tokenizer, device="cpu")
    model, tokenizer = load_model(name, dtype)
    return TranslationPipeline(model, tokenizer=tokenizer)
