"""The same weights in other engines: transformers' `MarianMTModel`, and CTranslate2."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import GenerationConfig, MarianConfig, MarianMTModel, PreTrainedTokenizerBase

from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.errors import InputError
from vaswani_transformer.modeling_vaswani import LAYER_NORM_EPS, VaswaniAttention, VaswaniStack

if TYPE_CHECKING:
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
    from ctranslate2.specs.common_spec import LayerNormSpec, LinearSpec
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

# Sequences that a twin takes where our sinusoids reach any length.
POSITIONS = 1024
INSTALL_CTRANSLATE2 = "CTranslate2 is not installed; pip install 'vaswani-transformer[bench]' brings it"

# Parameters whose columns, or none of whose axes, run over d_model; of all others it is the rows.
_D_MODEL_COLUMNS = tuple(
    f"{name}.weight" for name in ("embed_tokens", "lm_head", "q_proj", "k_proj", "v_proj", "feed_forward.fc1")
)
_NO_D_MODEL = tuple(f"{name}.bias" for name in ("q_proj", "k_proj", "v_proj", "feed_forward.fc1"))

# CTranslate2's names of transformers' activations.
_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_python": "GELU",
    "gelu_new": "GELUTanh",
    "gelu_fast": "GELUTanh",
    "gelu_pytorch_tanh": "GELUTanh",
    "quick_gelu": "GELUSigmoid",
    "silu": "SWISH",
    "swish": "SWISH",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}


def marian_config(config: VaswaniConfig, positions: int = POSITIONS) -> MarianConfig:
    """The configuration of a `MarianMTModel` of the same shape.

    Args:
        config: Our configuration.
        positions: Rows of Marian's table of sinusoids.

    Raises:
        InputError: If Marian has no such architecture.
    """
    heads = config.num_attention_heads
    for found, fits in (
        (f"norm_first={config.norm_first}", not config.norm_first),
        (f"positional_encoding={config.positional_encoding}", config.positional_encoding == "sinusoidal"),
        (
            f"head_dim={config.head_dim}, {heads} heads, d_model={config.d_model}",
            config.head_dim * heads == config.d_model,
        ),
    ):
        if not fits:
            raise InputError(
                f"MarianMTModel cannot hold this model: it has post-norm layers, sinusoids, and heads that share "
                f"d_model among them, found {found}"
            )
    return MarianConfig(
        vocab_size=config.vocab_size,
        d_model=config.d_model,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        activation_function=config.activation_function,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=config.activation_dropout,
        scale_embedding=True,
        max_position_embeddings=positions,
        share_encoder_decoder_embeddings=config.tie_word_embeddings,
        tie_word_embeddings=config.tie_word_embeddings,
        pad_token_id=config.pad_token_id,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        decoder_start_token_id=config.decoder_start_token_id,
        forced_eos_token_id=None,
    )


@torch.no_grad()
def marian_twin(model: VaswaniForConditionalGeneration, positions: int = POSITIONS) -> MarianMTModel:
    """A `MarianMTModel` that computes what `model` computes, in its precision and on its device.

    Marian's sinusoids are the paper's with all sines before all cosines, so d_model is permuted wherever it occurs;
    heads and d_ff stay as they are. `generate()` of the twin starts and stops with our special tokens, and its other
    settings are transformers' own.

    Args:
        model: The model; it is left as it is.
        positions: The longest sequence that the twin takes.

    Raises:
        InputError: If Marian has no such architecture.
    """
    config = model.config
    twin = MarianMTModel(marian_config(config, positions)).to(model.device, model.dtype)
    order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)]).to(model.device)

    # Zero are the biases that our projections do not have, and Marian's bias of the logits.
    weights = {name: torch.zeros_like(weight) for name, weight in twin.state_dict().items()}
    for name, weight in model.state_dict().items():
        if name.endswith(_D_MODEL_COLUMNS):
            weight = weight[:, order]
        elif not name.endswith(_NO_D_MODEL):
            weight = weight[order]
        weights[name.replace("feed_forward.", "")] = weight
    if config.tie_word_embeddings:
        weights["model.shared.weight"] = weights["lm_head.weight"]
    for side in ("encoder", "decoder"):
        table = position_table(getattr(model.model, side), positions, model.dtype)
        weights[f"model.{side}.embed_positions.weight"] = table[:, order]
    twin.load_state_dict(weights)

    for module in twin.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = LAYER_NORM_EPS
    special_tokens = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    twin.generation_config = GenerationConfig(**{name: getattr(config, name) for name in special_tokens})
    return twin.eval()


def position_table(stack: VaswaniStack, positions: int, dtype: torch.dtype) -> torch.Tensor:
    """The encodings (positions, d_model) that `stack` adds to its first `positions` tokens."""
    return stack.embeddings.positions(torch.arange(positions, device=stack.device), dtype)


@torch.no_grad()
def ctranslate2_twin(
    model: VaswaniForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    quantization: str | None = None,
) -> None:
    """Write the weights and the vocabulary of `model` as a CTranslate2 model, with the tokenizer's own files.

    `ctranslate2.Translator(folder)` takes and gives the tokens of `tokenizer`; a source ends in `</s>`, as the
    tokenizer encodes it. CTranslate2's own sinusoids are not the paper's, so the table of ours goes along: sequences
    end at 1,024 tokens, or where learned positions do.

    Args:
        model: The model; it is left as it is.
        tokenizer: Its tokenizer.
        folder: Where to write; must not exist.
        quantization: A storage type of CTranslate2, such as `"int8"` or `"float16"`; `None` is float32.

    Raises:
        InputError: If CTranslate2 is not installed or lacks the activation, `folder` exists, or the tokenizer has
            more entries than the model.
        ValueError: If CTranslate2 does not know `quantization`.
    """
    try:
        from ctranslate2.specs import common_spec, transformer_spec
    except ImportError as error:
        raise InputError(INSTALL_CTRANSLATE2) from error

    config = model.config
    folder = Path(folder)
    if folder.exists():
        raise InputError(f"{folder}: exists already; choose another folder")
    if config.activation_function not in _ACTIVATIONS:
        raise InputError(
            f"CTranslate2 has no activation {config.activation_function}; it has {', '.join(_ACTIVATIONS)}"
        )
    if len(tokenizer) > config.vocab_size:
        raise InputError(
            f"the tokenizer has {len(tokenizer):,} entries and the model {config.vocab_size:,}; the two must come "
            "from one model"
        )

    shape = {
        "pre_norm": config.norm_first,
        "activation": common_spec.Activation[_ACTIVATIONS[config.activation_function]],
        "head_dim": config.head_dim,
    }
    heads = config.num_attention_heads
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(config.encoder_layers, heads, **shape),
        transformer_spec.TransformerDecoderSpec(config.decoder_layers, heads, **shape),
    )
    _set_stack(spec.encoder, model.model.encoder)
    _set_stack(spec.decoder, model.model.decoder)
    _set_linear(spec.decoder.projection, model.lm_head)

    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    tokens += [f"<unused {number}>" for number in range(len(tokens), config.vocab_size)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.layer_norm_epsilon = LAYER_NORM_EPS
    spec.config.bos_token = tokenizer.bos_token
    spec.config.eos_token = tokenizer.eos_token
    spec.config.unk_token = tokenizer.unk_token
    spec.config.decoder_start_token = tokens[config.decoder_start_token_id]

    spec.validate()
    spec.optimize(quantization)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    tokenizer.save_pretrained(folder)


def _set_stack(spec: TransformerEncoderSpec | TransformerDecoderSpec, stack: VaswaniStack) -> None:
    config = stack.config
    learned = config.positional_encoding == "learned"
    positions = config.max_position_embeddings if learned else POSITIONS
    spec.position_encodings.encodings = _copy(position_table(stack, positions, torch.float32))
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = _copy(stack.embed_tokens.weight)
    if config.norm_first:
        _set_layer_norm(spec.layer_norm, stack.layer_norm)
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        _set_attention(layer_spec.self_attention, layer.self_attn, layer.self_attn_layer_norm)
        if hasattr(layer, "encoder_attn"):
            _set_attention(layer_spec.attention, layer.encoder_attn, layer.encoder_attn_layer_norm)
        _set_linear(layer_spec.ffn.linear_0, layer.feed_forward.fc1)
        _set_linear(layer_spec.ffn.linear_1, layer.feed_forward.fc2)
        _set_layer_norm(layer_spec.ffn.layer_norm, layer.final_layer_norm)


def _set_attention(spec: MultiHeadAttentionSpec, attention: VaswaniAttention, layer_norm: nn.LayerNorm) -> None:
    """Self-attention's queries, keys and values are one matrix; over the encoder's output the queries have theirs."""
    queries, rest = [attention.q_proj], [attention.k_proj, attention.v_proj]
    projections = [queries + rest] if len(spec.linear) == 2 else [queries, rest]
    for linear, fused in zip(spec.linear, [*projections, [attention.out_proj]], strict=True):
        _set_linear(linear, *fused)
    _set_layer_norm(spec.layer_norm, layer_norm)


def _set_linear(spec: LinearSpec, *layers: nn.Linear) -> None:
    """The layers side by side as one."""
    spec.weight = _copy(torch.cat([layer.weight for layer in layers]))
    if layers[0].bias is not None:
        spec.bias = _copy(torch.cat([layer.bias for layer in layers]))


def _set_layer_norm(spec: LayerNormSpec, layer_norm: nn.LayerNorm) -> None:
    spec.gamma = _copy(layer_norm.weight)
    spec.beta = _copy(layer_norm.bias)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    # CTranslate2 quantizes in place what it is given.
    return tensor.detach().to("cpu", torch.float32, copy=True)
