"""Models for ONNX Runtime, for machines and languages without PyTorch: writing them, and translating with them."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import Cache, DynamicCache, EncoderDecoderCache, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from .configuration_vaswani import VaswaniConfig
from .errors import InputError
from .exported_model import ExportedModel, check_length, check_new, write_folder
from .generation_vaswani import VaswaniGenerationMixin
from .modeling_vaswani import VaswaniForConditionalGeneration

INSTALL_ONNX = "ONNX is not installed; pip install 'vaswani-transformer[onnx]' brings it"
ENCODER, DECODER = "encoder_model.onnx", "decoder_model.onnx"


class EncoderGraph(nn.Module):
    """What is computed once for a source: the encoder, and the keys and values that the decoder attends to."""

    def __init__(self, model: VaswaniForConditionalGeneration) -> None:
        super().__init__()
        self.encoder = model.model.encoder
        self.attentions = nn.ModuleList(layer.encoder_attn for layer in model.model.decoder.layers)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The states (batch, source, d_model); key and value (batch, heads, source, head_dim) of each layer."""
        states = self.encoder(input_ids, attention_mask).last_hidden_state
        projections = (layer for attention in self.attentions for layer in (attention.k_proj, attention.v_proj))
        return states, *(self.attentions[0].split_heads(layer(states)) for layer in projections)


class DecoderGraph(nn.Module):
    """What is computed for each step: the decoder after its cache, and the output projection."""

    def __init__(self, model: VaswaniForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_attention_mask: torch.Tensor,
        encoder_key_values: Sequence[torch.Tensor],
        past_key_values: Sequence[torch.Tensor],
    ) -> tuple[torch.Tensor, ...]:
        """Logits (batch, target, vocabulary) of `input_ids` (batch, target); key and value with theirs of each layer.

        `encoder_key_values` are those of [`EncoderGraph`], `past_key_values` (batch, heads, past, head_dim) those of
        the last step, of no length before the first.
        """
        config = self.model.config
        target, source = DynamicCache(config=config), DynamicCache(config=config)
        for cache, tensors in ((target, past_key_values), (source, encoder_key_values)):
            for layer in range(config.decoder_layers):
                cache.update(tensors[2 * layer], tensors[2 * layer + 1], layer)
        states = self.model.model.decoder(
            input_ids=input_ids,
            # Of the encoder's states the decoder needs only the shape: their keys and values are in the cache.
            encoder_hidden_states=encoder_attention_mask[..., None].float(),
            encoder_attention_mask=encoder_attention_mask,
            past_key_values=EncoderDecoderCache(target, source),
            use_cache=True,
        ).last_hidden_state
        return self.model.lm_head(states), *(part for layer in target.layers for part in (layer.keys, layer.values))


def export_onnx(
    model: VaswaniForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, folder: str | Path
) -> None:
    """Write a model as two ONNX graphs in float32, with the tokenizer and the configurations.

    [`EncoderGraph`] and [`DecoderGraph`] tell their inputs and outputs; those of layer `i` are called
    `encoder.i.key`, `past.i.key` and `present.i.key`, and likewise `value`.

    Args:
        model: The model; it is left as it is.
        tokenizer: Its tokenizer.
        folder: Where to write; must not exist.

    Raises:
        InputError: If ONNX is not installed, or `folder` exists.
    """
    check_installed("onnx", "onnxscript")
    folder = Path(folder)
    check_new(folder)
    # In float32, and with plain products for attention, which every runtime has.
    model = copy.deepcopy(model).to("cpu", torch.float32).eval()
    model.set_attn_implementation("eager")
    config = model.config

    # Any sizes will do but 0 and 1, which the exporter takes for constants.
    batch, source, target, past = 3, 7, 2, 4
    shape = (batch, config.num_attention_heads)
    # And tensors of their own, for it takes equal ones for one.
    ids, mask, target_ids = (torch.ones(batch, length, dtype=torch.long) for length in (source, source, target))
    encoded = [torch.zeros(*shape, source, config.head_dim) for _ in range(2 * config.decoder_layers)]
    cached = [torch.zeros(*shape, past, config.head_dim) for _ in range(2 * config.decoder_layers)]
    sources, targets = {0: "batch", 1: "source"}, {0: "batch", 1: "target"}
    keys = {name: {0: "batch", 2: name} for name in ("source", "past")}
    names = {
        name: [f"{name}.{layer}.{part}" for layer in range(config.decoder_layers) for part in ("key", "value")]
        for name in ("encoder", "past", "present")
    }

    def write(aside: Path) -> None:
        _write_graph(
            aside / ENCODER,
            EncoderGraph(model),
            (ids, mask),
            (sources, sources),
            ["input_ids", "attention_mask"],
            ["last_hidden_state", *names["encoder"]],
        )
        _write_graph(
            aside / DECODER,
            DecoderGraph(model),
            (target_ids, mask, encoded, cached),
            (targets, sources, [keys["source"]] * len(encoded), [keys["past"]] * len(cached)),
            ["input_ids", "encoder_attention_mask", *names["encoder"], *names["past"]],
            ["logits", *names["present"]],
        )
        config.save_pretrained(aside)

    write_folder(folder, model, tokenizer, write)


def check_installed(*packages: str) -> None:
    """Raise [`InputError`] if one of the packages of the extra is missing."""
    if any(find_spec(package) is None for package in packages):
        raise InputError(INSTALL_ONNX)


@torch.no_grad()
def _write_graph(
    path: Path, graph: nn.Module, arguments: tuple, shapes: tuple, inputs: list[str], outputs: list[str]
) -> None:
    with _quiet():
        program = torch.onnx.export(
            graph.eval(),
            arguments,
            dynamic_shapes=shapes,
            input_names=inputs,
            output_names=outputs,
            dynamo=True,
            verbose=False,
        )
    program.save(str(path))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on packages that it does not find and names that it merges."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@dataclass
class EncoderOutput(BaseModelOutput):
    """The encoder's output, with the keys and values that the decoder attends to."""

    encoder_key_values: tuple[np.ndarray, ...] | None = None


class OnnxEncoder(nn.Module):
    """[`EncoderGraph`] on ONNX Runtime."""

    main_input_name = "input_ids"

    def __init__(self, path: Path, config: VaswaniConfig) -> None:
        super().__init__()
        self.config = config
        self.session = _session(path)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs: Any) -> EncoderOutput:
        """Encode `input_ids` (batch, source).

        Raises:
            InputError: If learned positions end before them.
        """
        if self.config.positional_encoding == "learned":
            check_length(input_ids.shape[1], self.config.max_position_embeddings)
        states, *key_values = self.session.run(
            None, {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
        )
        return EncoderOutput(last_hidden_state=torch.from_numpy(states), encoder_key_values=tuple(key_values))


class OnnxModel(ExportedModel, VaswaniGenerationMixin):
    """A folder of [`export_onnx`], which `generate()` decodes like any model of transformers.

    Raises:
        InputError: If ONNX Runtime is not installed.
    """

    def __init__(self, folder: Path, config: VaswaniConfig, tokenizer: PreTrainedTokenizerBase) -> None:
        check_installed("onnxruntime")
        super().__init__(folder, config, tokenizer)
        self.encoder = OnnxEncoder(folder / ENCODER, config)
        self.session = _session(folder / DECODER)
        self.inputs = [one.name for one in self.session.get_inputs()]

    def get_encoder(self, *args: Any, **kwargs: Any) -> OnnxEncoder:
        """What `generate()` encodes with."""
        return self.encoder

    def forward(
        self,
        decoder_input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        encoder_outputs: EncoderOutput | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Logits (batch, target, vocabulary) of `decoder_input_ids`, after what `past_key_values` holds.

        Raises:
            InputError: If it is called by anything but `generate()`, which brings both.
        """
        if encoder_outputs is None or past_key_values is None:
            return super().forward()
        rows = len(decoder_input_ids)
        if not past_key_values.is_updated.get(0):
            # A row for each beam.
            beams = rows // len(encoder_outputs.last_hidden_state)
            keys = [torch.from_numpy(array) for array in encoder_outputs.encoder_key_values]
            _set(past_key_values.cross_attention_cache, [tensor.repeat_interleave(beams, dim=0) for tensor in keys])
            past_key_values.is_updated[0] = True
        empty = np.zeros((rows, self.config.num_attention_heads, 0, self.config.head_dim), dtype=np.float32)
        past = _get(past_key_values.self_attention_cache) or [empty] * (2 * self.config.decoder_layers)
        mask = attention_mask.repeat_interleave(rows // len(attention_mask), dim=0)
        arguments = [decoder_input_ids.numpy(), mask.numpy(), *_get(past_key_values.cross_attention_cache), *past]
        logits, *present = self.session.run(None, dict(zip(self.inputs, arguments, strict=True)))
        _set(past_key_values.self_attention_cache, [torch.from_numpy(array) for array in present])
        return Seq2SeqLMOutput(logits=torch.from_numpy(logits), past_key_values=past_key_values)

    def _beams_can_share(self, *args: Any) -> bool:
        """Never: the graph has a row for each beam."""
        return False


def _session(path: Path) -> Any:
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    return InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _get(cache: Cache) -> list[np.ndarray]:
    """Keys and values of all layers, none before the first step."""
    layers = [layer for layer in cache.layers if layer.is_initialized]
    return [tensor.contiguous().numpy() for layer in layers for tensor in (layer.keys, layer.values)]


def _set(cache: Cache, tensors: list[torch.Tensor]) -> None:
    """Have `cache` hold keys and values of all layers, in place of those before."""
    for number, (keys, values) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        if number < len(cache.layers) and cache.layers[number].is_initialized:
            cache.layers[number].keys, cache.layers[number].values = keys, values
        else:
            cache.update(keys, values, number)
