"""The same weights in transformers' `MarianMTModel`."""

from __future__ import annotations

import torch
from torch import nn
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.ctranslate2_export import POSITIONS, position_table
from vaswani_transformer.errors import InputError
from vaswani_transformer.modeling_vaswani import LAYER_NORM_EPS

# Parameters whose columns, or none of whose axes, run over d_model; of all others it is the rows.
_D_MODEL_COLUMNS = tuple(
    f"{name}.weight" for name in ("embed_tokens", "lm_head", "q_proj", "k_proj", "v_proj", "feed_forward.fc1")
)
_NO_D_MODEL = tuple(f"{name}.bias" for name in ("q_proj", "k_proj", "v_proj", "feed_forward.fc1"))


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
