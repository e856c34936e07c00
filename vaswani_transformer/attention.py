"""What each position of a sentence and of its translation attends to, as the paper's last pages show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from .configuration_vaswani import VaswaniConfig
from .errors import InputError
from .exported_model import TRANSLATIONS_ALONE, ExportedModel
from .pipeline_vaswani import TranslationPipeline, Word, aligning_layer, compute_attentions, find_words

# Of each kind of attention, whose positions attend and to whose.
SIDES = {"encoder": ("source", "source"), "decoder": ("written", "read"), "cross": ("written", "source")}

# The bytes for which the characters of a byte-level token stand.
BYTES = {character: byte for byte, character in bytes_to_unicode().items()}


@dataclass(frozen=True)
class Attention:
    """The attention weights of one translation. A row is what one position attends to, and sums to 1.

    Args:
        sentence: What was translated.
        translation: By the model's own search.
        source: Labels of the source's positions, its end included.
        read: Of the decoder's inputs, which begin with the start of the translation.
        written: Of what the decoder writes at each of these positions, and so one further.
        encoder: Self-attention of the source (layers, heads, source, source).
        decoder: Self-attention of the translation (layers, heads, written, read).
        cross: Attention of the translation to the source (layers, heads, written, source).
    """

    sentence: str
    translation: str
    source: list[str]
    read: list[str]
    written: list[str]
    encoder: torch.Tensor
    decoder: torch.Tensor
    cross: torch.Tensor

    def alignment(self) -> torch.Tensor:
        """The mean over the heads of the layer that aligns best (written, source); see [`aligning_layer`]."""
        return self.cross[aligning_layer(len(self.cross))].mean(dim=0)


def read_attention(
    pipeline: TranslationPipeline, text: str, *, words: bool = False, **generate_kwargs: Any
) -> Attention:
    """Translate `text` with a model of this package, and read the attention weights of the translation.

    Args:
        pipeline: The model and its tokenizer.
        text: A sentence.
        words: Take the pieces of a word together: a word attends as its pieces do on average, and gets what they get.
        **generate_kwargs: Arguments of `generate()`, such as `num_beams`.

    Raises:
        InputError: If the model is another, or `text` is empty or longer than what it was trained on.
    """
    check_model(pipeline.model)
    if not text.strip():
        raise InputError("expected a sentence, got an empty one; give some words")
    tokenizer = pipeline.tokenizer
    ids = tokenizer(text)["input_ids"]
    if pipeline.longest_source is not None and len(ids) > pipeline.longest_source:
        raise InputError(
            f"a sentence of {len(ids):,} tokens is longer than the {pipeline.longest_source:,} that the model was "
            "trained on; give a shorter one"
        )
    sequence = pipeline(text, return_tensors=True, **generate_kwargs)[0]["translation_token_ids"].tolist()
    translation = tokenizer.decode(sequence, skip_special_tokens=True)
    device = pipeline.model.device
    with torch.no_grad():
        outputs = compute_attentions(
            pipeline.model,
            input_ids=torch.tensor([ids], device=device),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long, device=device),
            decoder_input_ids=torch.tensor([sequence[:-1]], device=device),
        )
    source = _groups(find_words(tokenizer, ids, text) if words else [], len(ids))
    target = _groups(find_words(tokenizer, sequence, translation) if words else [], len(sequence))
    # The decoder reads all but the last token, and writes all but the first.
    last = len(sequence) - 1
    read = [kept for group in target if (kept := [place for place in group if place < last])]
    written = [[place - 1 for place in group] for group in target if group != [0]]
    return Attention(
        sentence=text,
        translation=translation,
        source=[_label(tokenizer, [ids[place] for place in group], words) for group in source],
        read=[_label(tokenizer, [sequence[place] for place in group], words) for group in read],
        written=[_label(tokenizer, [sequence[place + 1] for place in group], words) for group in written],
        encoder=_merge(outputs.encoder_attentions, source, source),
        decoder=_merge(outputs.decoder_attentions, written, read),
        cross=_merge(outputs.cross_attentions, written, source),
    )


def check_model(model: PreTrainedModel) -> None:
    """Raise [`InputError`] unless `model` gives its attention weights, and its tokens are known."""
    if isinstance(model, ExportedModel):
        raise InputError(TRANSLATIONS_ALONE)
    if (found := model.config.model_type) != VaswaniConfig.model_type:
        raise InputError(f"expected a model of this package, whose tokens are known, found one of the type {found}")


def _groups(words: list[Word], count: int) -> list[list[int]]:
    """The places 0 to `count` - 1 in their order, those of a word together; one of two words is the first's."""
    owners: dict[int, int] = {}
    for number, word in enumerate(words):
        for place in word.tokens:
            owners.setdefault(place, number)
    groups: list[list[int]] = []
    for place in range(count):
        if place in owners and owners.get(place - 1) == owners[place]:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _merge(layers: Sequence[torch.Tensor], rows: list[list[int]], columns: list[list[int]]) -> torch.Tensor:
    """The weights (1, heads, rows, columns) of all layers: the mean of each group of rows, the sum of columns."""
    weights = torch.stack([layer[0] for layer in layers]).float().cpu()
    averaged = torch.stack([weights[..., group, :].mean(dim=-2) for group in rows], dim=-2)
    return torch.stack([averaged[..., group].sum(dim=-1) for group in columns], dim=-1)


def _label(tokenizer: PreTrainedTokenizerBase, ids: list[int], word: bool) -> str:
    """How a position is named: a word, or a piece that shows with ▁ that a word begins."""
    if ids[0] in tokenizer.all_special_ids:
        return tokenizer.convert_ids_to_tokens(ids[0])
    piece = bytes(BYTES[character] for token in tokenizer.convert_ids_to_tokens(ids) for character in token)
    try:
        text = piece.decode("utf-8")
    except UnicodeDecodeError:  # a part of a character
        return "".join(f"<{byte:02X}>" for byte in piece)
    return text.strip() or "▁" if word else text.replace(" ", "▁")
