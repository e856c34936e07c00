"""The 2017 Transformer ("Attention Is All You Need", https://arxiv.org/abs/1706.03762) in PyTorch.

Reads from top to bottom as the paper builds it: positions and embeddings, attention, feed-forward, layers,
stacks, models. Where the paper is silent this follows the code of its authors (tensor2tensor's
`transformer_base_v1`); each deviation is stated where it happens. Shapes in the docstrings are
`(batch, length, d_model)` unless they say otherwise.
"""

# No `from __future__ import annotations` here: who inspects `forward`, as transformers' tests do, reads in the type of
# its `kwargs` which arguments it takes, and a string would not tell.
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple, logging
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_vaswani import VaswaniConfig
from .generation_vaswani import VaswaniGenerationMixin

if TYPE_CHECKING:
    # transformers brings and saves the files that this one imports, and the configuration names that one too.
    from .pipeline_vaswani import TranslationPipeline  # noqa: F401

logger = logging.get_logger(__name__)

# tensor2tensor's; the paper does not say.
LAYER_NORM_EPS = 1e-6
# The smoothed loss has the logits of so many positions at a time, which fit a CPU's cache where the vocabulary is
# small; of four times as many elsewhere, where small products leave the device idle.
POSITIONS_PER_CHUNK = 256
ONEDNN_IS_FASTER = torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"


def shift_tokens_right(labels: torch.Tensor, pad_token_id: int, decoder_start_token_id: int) -> torch.Tensor:
    """Decoder inputs for `labels` (batch, length): the start token, then all but the last label.

    Ignored labels (-100) become padding, which no earlier position attends to.
    """
    shifted = labels.new_empty(labels.shape)
    shifted[:, 1:] = labels[:, :-1]
    shifted[:, 0] = decoder_start_token_id
    return shifted.masked_fill_(shifted == -100, pad_token_id)


def linear(layer: nn.Linear, states: torch.Tensor) -> torch.Tensor:
    """`layer(states)`, multiplied with oneDNN in float32 inference on a CPU with AVX-512.

    PyTorch's own choice for float32, MKL, uses AVX-512 on Intel's processors alone: on an AMD EPYC (Zen 5) oneDNN is
    twice as fast. Its product has no gradient, and a layer that anybody has changed or watches is called as it is.
    """
    if ONEDNN_IS_FASTER and type(layer) is nn.Linear and _is_plain_inference(layer, states):
        return torch.ops.mkldnn._linear_pointwise(states, layer.weight, layer.bias, "none", [], "")
    return layer(states)


def _is_plain_inference(layer: nn.Linear, states: torch.Tensor) -> bool:
    """Whether nothing but the product itself in float32 on a CPU is wanted of `layer(states)`."""
    watched = (
        torch.is_grad_enabled()
        or forward_ad._current_level >= 0
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or not torch._C._get_mkldnn_enabled()
        or layer._forward_hooks
        or layer._forward_pre_hooks
        or "forward" in vars(layer)  # accelerate's hooks
    )
    tensors = (states, layer.weight) if layer.bias is None else (states, layer.weight, layer.bias)
    return (
        not watched
        and all(
            type(tensor) in (torch.Tensor, nn.Parameter)
            and tensor.device.type == "cpu"
            and tensor.dtype == torch.float32
            and tensor.layout == torch.strided
            for tensor in tensors
        )
        and states.numel() > 0
        and states.shape[-1] == layer.in_features
    )


def apply_dropout(states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """`F.dropout`, with four elements to each random number of 64 bits on a CPU.

    PyTorch draws a number for each element there, one after the other on one core, and spends a tenth of the time of
    training on it. The probability is rounded to a multiple of 2^-16, and the kept are scaled by what it then is.
    """
    dropped = round(p * 2**16)
    if (
        not (training and states.device.type == "cpu" and 0 < dropped < 2**16)
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
    ):
        return F.dropout(states, p, training)
    numbers = torch.empty(-(-states.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = numbers[: states.numel()].view(states.shape) >= dropped - 2**15
    return states * kept.view(torch.uint8).to(states.dtype).mul_(2**16 / (2**16 - dropped))


class VaswaniSinusoidalPositionalEncoding(nn.Module):
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) the cosine of the same angle.

    Computed for the positions asked for, so any length works and nothing is stored in a checkpoint.
    Deviates from tensor2tensor, which concatenates the sines and the cosines and spaces the wavelengths by
    d_model/2 - 1: this is the paper's formula.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, position_ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Encodings (..., length, d_model) in `dtype` of `position_ids` (..., length)."""
        # A half-precision angle would be off by whole radians at position 1,000.
        precise = torch.promote_types(dtype, torch.float32)
        even = torch.arange(0, self.d_model, 2, device=position_ids.device, dtype=precise)
        frequencies = torch.exp(even * (-math.log(10000.0) / self.d_model))
        angles = position_ids.to(precise)[..., None] * frequencies
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).to(dtype)


class VaswaniLearnedPositionalEncoding(nn.Embedding):
    """Row (E) of table 3: one learned vector for each position up to `max_position_embeddings`."""

    def forward(self, position_ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Encodings (..., length, d_model) in `dtype` of `position_ids` (..., length)."""
        return super().forward(position_ids).to(dtype)


class VaswaniEmbeddings(nn.Module):
    """Sum of the scaled token embeddings (section 3.4) and the positions (3.5), with dropout (5.4)."""

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.dropout = config.dropout
        if config.positional_encoding == "learned":
            self.positions = VaswaniLearnedPositionalEncoding(config.max_position_embeddings, config.d_model)
        else:
            self.positions = VaswaniSinusoidalPositionalEncoding(config.d_model)

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        first_position: int | torch.Tensor = 0,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Hidden states for token embeddings `inputs_embeds` that begin at `first_position`, or at `position_ids`."""
        if position_ids is None:
            length = inputs_embeds.shape[1]
            if isinstance(self.positions, nn.Embedding) and isinstance(first_position, int):
                table_size = self.positions.num_embeddings
                if first_position + length > table_size:
                    raise ValueError(
                        f"the learned positions end at {table_size} (max_position_embeddings), got a sequence of "
                        f"{first_position + length} tokens; cut it, or train with sinusoidal positions"
                    )
            position_ids = torch.arange(length, device=inputs_embeds.device) + first_position
        hidden_states = inputs_embeds * self.scale + self.positions(position_ids, inputs_embeds.dtype)
        return apply_dropout(hidden_states, self.dropout, self.training)


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Equation 1: softmax(Q K^T / sqrt(d_k)) V.

    Queries, keys and values are (batch, heads, length, head_dim), the additive `attention_mask`
    (batch, 1, query length, key length). Returns (batch, query length, heads, head_dim) and the weights
    (batch, heads, query length, key length).
    """
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = F.softmax(scores, dim=-1)
    weights = apply_dropout(weights, dropout, module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class VaswaniAttention(nn.Module):
    """Section 3.2.2: multi-head attention, over the states themselves or over the encoder's output."""

    def __init__(self, config: VaswaniConfig, layer_idx: int | None = None, is_causal: bool = False) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.scaling = config.head_dim**-0.5
        self.dropout = config.attention_dropout
        self.is_causal = is_causal
        inner = config.num_attention_heads * config.head_dim
        self.q_proj = nn.Linear(config.d_model, inner, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.d_model, inner, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.d_model, inner, bias=config.attention_bias)
        self.out_proj = nn.Linear(inner, config.d_model, bias=config.attention_bias)

    def split_heads(self, states: torch.Tensor) -> torch.Tensor:
        """(batch, length, heads * head_dim) to (batch, heads, length, head_dim)."""
        return states.view(*states.shape[:-1], -1, self.head_dim).transpose(1, 2)

    def forward(
        self,
        hidden_states: torch.Tensor,
        key_value_states: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend from `hidden_states` to `key_value_states`, or to themselves where those are `None`.

        There may be several targets of each source, one after the other in the batch, as beams and samples are:
        they are queries over the one set of keys and values of their source.
        Returns the output, of the shape of `hidden_states`, and the weights
        (batch, heads, query length, key length) where the attention back end gives them.
        """
        is_cross_attention = key_value_states is not None
        cache = past_key_values
        if isinstance(past_key_values, EncoderDecoderCache):
            if is_cross_attention:
                cache = past_key_values.cross_attention_cache
            else:
                cache = past_key_values.self_attention_cache

        if is_cross_attention and cache is not None and past_key_values.is_updated.get(self.layer_idx):
            # The encoder's keys and values do not change from one target position to the next.
            key, value = cache.layers[self.layer_idx].keys, cache.layers[self.layer_idx].values
        else:
            states = key_value_states if is_cross_attention else hidden_states
            key, value = (self.split_heads(linear(layer, states)) for layer in (self.k_proj, self.v_proj))
            if cache is not None:
                key, value = cache.update(key, value, self.layer_idx)
                if is_cross_attention:
                    past_key_values.is_updated[self.layer_idx] = True

        batch, length = hidden_states.shape[:2]
        query = self.split_heads(linear(self.q_proj, hidden_states.reshape(key.shape[0], -1, hidden_states.shape[2])))
        attention: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        output, weights = attention(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.dropout if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        if weights is not None and weights.shape[0] != batch:
            weights = weights.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return linear(self.out_proj, output.reshape(batch, length, -1)), weights


class VaswaniFeedForward(nn.Module):
    """Section 3.3, equation 2: max(0, x W_1 + b_1) W_2 + b_2."""

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.d_model, config.d_ff)
        self.fc2 = nn.Linear(config.d_ff, config.d_model)
        self.activation = ACT2FN[config.activation_function]
        self.dropout = config.activation_dropout

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Apply the two layers to each position on its own."""
        hidden_states = self.activation(linear(self.fc1, hidden_states))
        hidden_states = apply_dropout(hidden_states, self.dropout, self.training)
        return linear(self.fc2, hidden_states)


class VaswaniSublayerConnection(nn.LayerNorm):
    """Sections 3.1 and 5.4: LayerNorm(x + Dropout(Sublayer(x))).

    With `norm_first` the norm moves to the sublayer's input, x + Dropout(Sublayer(LayerNorm(x))): the option
    that the paper does not have.
    """

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__(config.d_model, eps=LAYER_NORM_EPS)
        self.norm_first = config.norm_first
        self.dropout = config.dropout

    def forward(self, hidden_states: torch.Tensor, sublayer: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Run `sublayer` inside the residual connection.

        `sublayer` is a function, not a module: accelerate's hooks move whatever module they find among the
        arguments to this one's device, and weights that a device map left on disk cannot be moved.
        """
        if self.norm_first:
            output = sublayer(super().forward(hidden_states))
            return hidden_states + apply_dropout(output, self.dropout, self.training)
        output = apply_dropout(sublayer(hidden_states), self.dropout, self.training)
        return super().forward(hidden_states + output)


class VaswaniEncoderLayer(GradientCheckpointingLayer):
    """Section 3.1: self-attention, then a feed-forward network, each inside a sublayer connection."""

    def __init__(self, config: VaswaniConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = VaswaniAttention(config, layer_idx)
        self.self_attn_layer_norm = VaswaniSublayerConnection(config)
        self.feed_forward = VaswaniFeedForward(config)
        self.final_layer_norm = VaswaniSublayerConnection(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """States after the layer, of the shape of `hidden_states`."""
        hidden_states = self.self_attn_layer_norm(
            hidden_states, lambda states: self.self_attn(states, attention_mask=attention_mask, **kwargs)[0]
        )
        return self.final_layer_norm(hidden_states, lambda states: self.feed_forward(states))


class VaswaniDecoderLayer(GradientCheckpointingLayer):
    """Section 3.1: masked self-attention, attention over the encoder's output, then a feed-forward network."""

    def __init__(self, config: VaswaniConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = VaswaniAttention(config, layer_idx, is_causal=True)
        self.self_attn_layer_norm = VaswaniSublayerConnection(config)
        self.encoder_attn = VaswaniAttention(config, layer_idx)
        self.encoder_attn_layer_norm = VaswaniSublayerConnection(config)
        self.feed_forward = VaswaniFeedForward(config)
        self.final_layer_norm = VaswaniSublayerConnection(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """States after the layer, of the shape of `hidden_states`."""
        hidden_states = self.self_attn_layer_norm(
            hidden_states,
            lambda states: self.self_attn(
                states, attention_mask=attention_mask, past_key_values=past_key_values, **kwargs
            )[0],
        )
        hidden_states = self.encoder_attn_layer_norm(
            hidden_states,
            lambda states: self.encoder_attn(
                states,
                key_value_states=encoder_hidden_states,
                attention_mask=encoder_attention_mask,
                past_key_values=past_key_values,
                **kwargs,
            )[0],
        )
        return self.final_layer_norm(hidden_states, lambda states: self.feed_forward(states))


class VaswaniPreTrainedModel(PreTrainedModel):
    """Base class: initialisation, loading and saving."""

    config: VaswaniConfig
    config_class = VaswaniConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True
    _no_split_modules = ("VaswaniEncoderLayer", "VaswaniDecoderLayer")

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Embeddings N(0, d_model^-0.5) with a zero row for padding, other matrices Glorot uniform.

        Post-norm does not train without this; the paper does not give it, tensor2tensor does.
        """
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, mean=0.0, std=self.config.d_model**-0.5)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)

    def _resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        # One vocabulary serves both sides, so an untied target embedding follows the source's size.
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        decoder = getattr(self.base_model, "decoder", None)
        if decoder is not None and not self.config.tie_word_embeddings:
            decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, embeddings.num_embeddings)
        return embeddings


class VaswaniStack(VaswaniPreTrainedModel):
    """What encoder and decoder share: embeddings, a stack of layers and, with `norm_first`, a norm after it."""

    def __init__(self, config: VaswaniConfig, layers: list[nn.Module]) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embeddings = VaswaniEmbeddings(config)
        self.layers = nn.ModuleList(layers)
        self.layer_norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS) if config.norm_first else nn.Identity()
        self.gradient_checkpointing = False
        self.post_init()

    def embed(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        first_position: int = 0,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Hidden states for tokens (batch, length), or for their embeddings, not yet scaled by sqrt(d_model)."""
        if (input_ids is None) == (inputs_embeds is None):
            side = "decoder_" if isinstance(self, VaswaniDecoder) else ""
            raise ValueError(f"pass exactly one of {side}input_ids and {side}inputs_embeds")
        shape = (input_ids if inputs_embeds is None else inputs_embeds).shape[:2]
        if 0 in shape:
            raise ValueError(f"expected at least one sequence of at least one token, got {tuple(shape)}")
        return self.embeddings(
            self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds, first_position, position_ids
        )


class VaswaniEncoder(VaswaniStack):
    """Section 3.1: the stack of encoder layers over the embedded source."""

    _can_record_outputs = {"hidden_states": VaswaniEncoderLayer, "attentions": VaswaniAttention}  # noqa: RUF012

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__(config, [VaswaniEncoderLayer(config, i) for i in range(config.encoder_layers)])

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Encode `input_ids` (batch, length) or `inputs_embeds`, not yet scaled by sqrt(d_model)."""
        hidden_states = self.embed(input_ids, inputs_embeds)
        attention_mask = create_bidirectional_mask(
            config=self.config, inputs_embeds=hidden_states, attention_mask=attention_mask
        )
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask, **kwargs)
        return BaseModelOutput(last_hidden_state=self.layer_norm(hidden_states))


class VaswaniDecoder(VaswaniStack):
    """Section 3.1: the stack of decoder layers over the target so far and the encoder's output."""

    _can_record_outputs = {  # noqa: RUF012
        "hidden_states": VaswaniDecoderLayer,
        "attentions": OutputRecorder(VaswaniAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(VaswaniAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__(config, [VaswaniDecoderLayer(config, i) for i in range(config.decoder_layers)])

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        position_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode `input_ids` (batch, length) or `inputs_embeds`, after what `past_key_values` holds.

        The batch may hold several targets of each row of `encoder_hidden_states`, one after the other.
        """
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        first_position = past_key_values.get_seq_length() if past_key_values is not None else 0
        hidden_states = self.embed(input_ids, inputs_embeds, first_position, position_ids)
        if 0 in encoder_hidden_states.shape or hidden_states.shape[0] % encoder_hidden_states.shape[0]:
            raise ValueError(
                f"expected one target, or equally many, for each of {encoder_hidden_states.shape[0]} sources, "
                f"got {hidden_states.shape[0]}"
            )
        attention_mask = create_causal_mask(
            config=self.config,
            inputs_embeds=hidden_states,
            attention_mask=attention_mask,
            past_key_values=getattr(past_key_values, "self_attention_cache", past_key_values),
        )
        encoder_attention_mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=hidden_states.reshape(encoder_hidden_states.shape[0], -1, hidden_states.shape[2]),
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                attention_mask,
                encoder_hidden_states,  # positional, as gradient checkpointing wants it
                encoder_attention_mask=encoder_attention_mask,
                past_key_values=past_key_values,
                use_cache=use_cache,
                **kwargs,
            )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.layer_norm(hidden_states), past_key_values=past_key_values
        )


class VaswaniModel(VaswaniPreTrainedModel):
    """Encoder and decoder without the output projection."""

    _tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__(config)
        self.encoder = VaswaniEncoder(config)
        self.decoder = VaswaniDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The source embedding, which is also the target's where they are tied."""
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the source embedding, and the target's with it where they are tied."""
        self.encoder.embed_tokens = value
        if self.config.tie_word_embeddings:
            self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        decoder_position_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """States of the decoder (batch, target length, d_model) for a source and a target.

        Args:
            input_ids: Source tokens (batch, source length).
            attention_mask: 1 for a source token, 0 for padding.
            decoder_input_ids: Target tokens (batch, target length), beginning with `decoder_start_token_id`.
            decoder_attention_mask: 1 for a target token, 0 for padding.
            encoder_outputs: The encoder's output, where it is known already.
            past_key_values: Keys and values of earlier target positions.
            inputs_embeds: Source embeddings in place of `input_ids`, not yet scaled by sqrt(d_model).
            decoder_inputs_embeds: Target embeddings in place of `decoder_input_ids`, likewise.
            use_cache: Whether to return `past_key_values`.
            decoder_position_ids: Positions of the target tokens (target length,) or (batch, target length), where
                they are not those after `past_key_values`.
            **kwargs: transformers' common arguments (`output_attentions`, `output_hidden_states`, ...).
        """
        if encoder_outputs is None:
            # The configuration's use_cache is the decoder's: with checkpointing, the encoder would warn of it.
            encoder_outputs = self.encoder(input_ids, attention_mask, inputs_embeds, use_cache=False, **kwargs)
        elif not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            position_ids=decoder_position_ids,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


def smoothed_loss_and_gradients(
    states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, epsilon: float, needs_gradient: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The loss of [`SmoothedCrossEntropy`] and its gradients for `states` and `weight`, empty unless needed."""
    vocab_size = weight.shape[0]
    others = epsilon / (vocab_size - 1) if vocab_size > 1 else 0.0
    extra = 1.0 - epsilon - others
    precise = torch.promote_types(states.dtype, torch.float32)
    loss = states.new_zeros((), dtype=precise)
    states_gradient = torch.empty_like(states) if needs_gradient else states.new_empty(0)
    weight_gradient = torch.zeros_like(weight, dtype=precise) if needs_gradient else weight.new_empty(0)
    size = min(len(labels), POSITIONS_PER_CHUNK * (1 if states.device.type == "cpu" else 4))
    # One room for all chunks: memory of this size goes back to the system when it is freed, and returns page by page.
    logits = states.new_empty(size, vocab_size)
    room = logits if logits.dtype == precise else logits.new_empty(logits.shape, dtype=precise)
    for start in range(0, len(labels), size or 1):
        target = labels[start : start + size, None]
        # Ignored positions are masked and not left out: to count the others would be to wait for the device.
        ignored = target == -100
        target, chunk = target.masked_fill(ignored, 0), states[start : start + size].masked_fill(ignored, 0.0)
        rows = logits[: len(chunk)]
        torch.matmul(chunk, weight.t(), out=rows)
        log_probabilities = room[: len(chunk)].copy_(rows)
        torch.log_softmax(log_probabilities, dim=-1, out=log_probabilities)
        losses = extra * log_probabilities.gather(1, target) + others * log_probabilities.sum(dim=1, keepdim=True)
        loss -= losses.masked_fill_(ignored, 0.0).sum()
        if needs_gradient:
            gradient = log_probabilities.exp_().sub_(others)
            gradient.scatter_add_(1, target, gradient.new_full(target.shape, -extra))
            gradient = rows.copy_(gradient)
            # An ignored position is zero in the chunk, and so gives the weight nothing.
            torch.matmul(gradient, weight, out=states_gradient[start : start + size]).masked_fill_(ignored, 0.0)
            weight_gradient += torch.matmul(gradient.t(), chunk).to(precise)
    return loss, states_gradient, weight_gradient.to(weight.dtype)


# torch.compile cannot unroll a loop over as many chunks as the labels ask for: it takes the function as one operator.
# Each copy of this file registers its own, whatever the folder that it was loaded from is called.
compiled_smoothed_loss_and_gradients = torch.library.custom_op(
    f"vaswani_{__name__.encode().hex()}::smoothed_loss_and_gradients",
    smoothed_loss_and_gradients,
    mutates_args=(),
)


@compiled_smoothed_loss_and_gradients.register_fake
def _(
    states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, epsilon: float, needs_gradient: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    loss = states.new_empty((), dtype=torch.promote_types(states.dtype, torch.float32))
    if not needs_gradient:
        return loss, states.new_empty(0), weight.new_empty(0)
    return loss, torch.empty_like(states), torch.empty_like(weight)


class SmoothedCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy against smoothed targets that holds a chunk of the logits at a time.

    The target distribution of tensor2tensor: 1 - epsilon for the label y and epsilon / (V - 1) for each of
    the V - 1 other classes (section 5.4), so the loss of one position is
    -(1 - epsilon) log p(y) - epsilon / (V - 1) * sum over k != y of log p(k).
    Deviates from tensor2tensor in not subtracting the constant entropy of that distribution.
    The gradient, p - q, is taken while a chunk's logits are at hand, so nothing is computed twice and nothing
    of size V is kept for the backward pass but the gradient of the projection itself.
    """

    @staticmethod
    def forward(
        ctx: Any, states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, epsilon: float
    ) -> torch.Tensor:
        """Loss summed over `states` (positions, d_model) against `labels` (positions,); `weight` (V, d_model)."""
        needs_gradient = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        compute = smoothed_loss_and_gradients
        if torch.compiler.is_compiling():
            compute = compiled_smoothed_loss_and_gradients
        loss, states_gradient, weight_gradient = compute(states, weight, labels, epsilon, needs_gradient)
        ctx.save_for_backward(states_gradient, weight_gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, loss_gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Scale the gradients that `forward` took."""
        states_gradient, weight_gradient = ctx.saved_tensors
        return (
            states_gradient * loss_gradient.to(states_gradient.dtype),
            weight_gradient * loss_gradient.to(weight_gradient.dtype),
            None,
            None,
        )


def smoothed_cross_entropy(
    hidden_states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """[`SmoothedCrossEntropy`] summed over the positions of `labels` that are not -100.

    Args:
        hidden_states: Decoder states (batch, length, d_model).
        weight: Output projection (vocab_size, d_model).
        labels: Target tokens (batch, length), -100 where there is none.
        epsilon: The label smoothing, from 0 to below 1.

    Raises:
        ValueError: If `epsilon` lies outside its range.
    """
    if not 0 <= epsilon < 1:
        raise ValueError(f"label_smoothing must be at least 0 and below 1, got {epsilon}")
    states = hidden_states.flatten(0, 1)
    if not torch.is_grad_enabled():
        weight = weight.detach()  # or the parameter would ask for its gradient all the same
    device_type = states.device.type
    if torch.is_autocast_enabled(device_type):
        dtype = torch.get_autocast_dtype(device_type)
        states, weight = states.to(dtype), weight.to(dtype)
    with torch.autocast(device_type, enabled=False):
        return SmoothedCrossEntropy.apply(states, weight, labels.flatten(), epsilon)


class VaswaniLossKwargs(TransformersKwargs, total=False):
    """transformers' common arguments and `label_smoothing`.

    It is no named parameter: the Trainer takes every one with "label" in its name for labels that a batch must hold.
    """

    label_smoothing: float | None


class VaswaniForConditionalGeneration(VaswaniPreTrainedModel, VaswaniGenerationMixin):
    """The whole model: encoder, decoder and the output projection, tied to the embeddings (section 3.4)."""

    _tied_weights_keys = {"lm_head.weight": "model.encoder.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__(config)
        self.model = VaswaniModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        # transformers drops settings that it does not know from a generation configuration made of the model's.
        vars(self.generation_config).update(self.default_generation_settings(), _from_model_config=False)
        self.post_init()

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Decoder inputs for `labels`, as transformers' collators ask for them."""
        return shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        decoder_position_ids: torch.LongTensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs: Unpack[VaswaniLossKwargs],
    ) -> Seq2SeqLMOutput:
        """Logits (batch, target length, vocab_size), and the loss where `labels` are given.

        Args:
            input_ids: Source tokens (batch, source length).
            attention_mask: 1 for a source token, 0 for padding.
            decoder_input_ids: Target tokens (batch, target length); made from `labels` where they are absent.
            decoder_attention_mask: 1 for a target token, 0 for padding.
            encoder_outputs: The encoder's output, where it is known already.
            past_key_values: Keys and values of earlier target positions.
            inputs_embeds: Source embeddings in place of `input_ids`, not yet scaled by sqrt(d_model).
            decoder_inputs_embeds: Target embeddings in place of `decoder_input_ids`, likewise.
            labels: Target tokens to predict (batch, target length), -100 where there is none.
            use_cache: Whether to return `past_key_values`.
            num_items_in_batch: Divides the summed loss, where the mean runs over more than this call's labels
                (gradient accumulation, several devices); `None` is the number of this call's labels.
            decoder_position_ids: Positions of the target tokens (target length,) or (batch, target length), where
                they are not those after `past_key_values`.
            logits_to_keep: Logits of the last so many target positions, or of the positions in a tensor; 0 is all.
            **kwargs: transformers' common arguments (`output_attentions`, `output_hidden_states`, ...), and
                `label_smoothing`: `None` gives the plain cross-entropy and the logits. A number from 0 to below 1
                gives the loss of [`SmoothedCrossEntropy`] and no logits, which saves their memory: training
                asks for it.

        Raises:
            ValueError: If `label_smoothing` comes without `labels`, or lies outside its range.
        """
        label_smoothing = kwargs.pop("label_smoothing", None)
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        elif label_smoothing is not None:
            raise ValueError("label_smoothing needs labels")
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            decoder_position_ids=decoder_position_ids,
            **kwargs,
        )
        loss = logits = None
        if label_smoothing is None:
            kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = linear(self.lm_head, outputs.last_hidden_state[:, kept])
            if labels is not None:
                loss = F.cross_entropy(
                    logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32)),
                    labels.flatten().to(logits.device),
                    reduction="sum",
                )
        else:
            loss = smoothed_cross_entropy(outputs.last_hidden_state, self.lm_head.weight, labels, label_smoothing)
        if loss is not None:
            loss = loss / (labels.ne(-100).sum() if num_items_in_batch is None else num_items_in_batch)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )


__all__ = ["VaswaniForConditionalGeneration", "VaswaniModel", "VaswaniPreTrainedModel"]
