"""Models for CTranslate2, an engine in C++ for CPUs and GPUs: writing them, and translating with them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from .configuration_vaswani import VaswaniConfig
from .errors import InputError
from .exported_model import ExportedModel, check_length, check_new, write_folder
from .generation_vaswani import MORE_THAN_THE_SOURCE, GNMTLengthPenalty, check_search
from .modeling_vaswani import LAYER_NORM_EPS, VaswaniAttention, VaswaniForConditionalGeneration, VaswaniStack

if TYPE_CHECKING:
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
    from ctranslate2.specs.common_spec import LayerNormSpec, LinearSpec
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

INSTALL_CTRANSLATE2 = "CTranslate2 is not installed; pip install 'vaswani-transformer[ctranslate2]' brings it"
WEIGHTS = "model.bin"
# The types that CTranslate2 stores weights in.
QUANTIZATIONS = (
    *("int8", "int8_float32", "int8_float16", "int8_bfloat16"),
    *("int16", "float16", "bfloat16", "float32"),
)
# CTranslate2's own sinusoids are not the paper's and its models have a table of positions, where ours are computed.
POSITIONS = 1024
# The length of a translation at which CTranslate2's penalty is made to rise as the paper's does.
TYPICAL_LENGTH = 10
# What `generate()` of an exported model can be told.
SETTINGS = ("num_beams", "num_return_sequences", "length_penalty", "length_penalty_type", "max_new_tokens")

# CTranslate2's names of transformers' activations.
ACTIVATIONS = {
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


def ctranslate2_length_penalty(alpha: float) -> float:
    """The `length_penalty` of CTranslate2 that comes near the paper's penalty with `alpha`.

    CTranslate2 divides by n^length_penalty, the paper by ((5 + n) / 6)^alpha. The two rise alike, which is what
    decides between translations of different lengths, where length_penalty = alpha n / (n + 5): here for
    translations of 10 tokens.
    """
    return alpha * TYPICAL_LENGTH / (TYPICAL_LENGTH + 5)


@torch.no_grad()
def export_ctranslate2(
    model: VaswaniForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    quantization: str | None = None,
) -> None:
    """Write a model as a folder for CTranslate2, with the tokenizer and the configurations.

    `ctranslate2.Translator(folder)` takes and gives the tokens of `tokenizer`; a source ends in `</s>`, as the
    tokenizer encodes it. Sequences end at 1,024 tokens, or where learned positions do.

    Args:
        model: The model; it is left as it is.
        tokenizer: Its tokenizer.
        folder: Where to write; must not exist.
        quantization: Of [`QUANTIZATIONS`]; `None` is float32.

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
    check_new(folder)
    if config.activation_function not in ACTIVATIONS:
        raise InputError(
            f"CTranslate2 has no activation {config.activation_function}; it has {', '.join(ACTIVATIONS)}"
        )
    if len(tokenizer) > config.vocab_size:
        raise InputError(
            f"the tokenizer has {len(tokenizer):,} entries and the model {config.vocab_size:,}; the two must come "
            "from one model"
        )

    shape = {
        "pre_norm": config.norm_first,
        "activation": common_spec.Activation[ACTIVATIONS[config.activation_function]],
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
    # CTranslate2's configuration has the name that ours has, and it minds no more keys.
    for key, value in config.to_dict().items():
        spec.config.add_attribute(key, value)

    spec.validate()
    spec.optimize(quantization)
    write_folder(folder, model, tokenizer, lambda aside: spec.save(str(aside)))


def position_table(stack: VaswaniStack, positions: int, dtype: torch.dtype) -> torch.Tensor:
    """The encodings (positions, d_model) that `stack` adds to its first `positions` tokens."""
    return stack.embeddings.positions(torch.arange(positions, device=stack.device), dtype)


def _longest(config: VaswaniConfig) -> int:
    """The most tokens that an exported model reads or writes."""
    return config.max_position_embeddings if config.positional_encoding == "learned" else POSITIONS


def _set_stack(spec: TransformerEncoderSpec | TransformerDecoderSpec, stack: VaswaniStack) -> None:
    spec.position_encodings.encodings = _copy(position_table(stack, _longest(stack.config), torch.float32))
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = _copy(stack.embed_tokens.weight)
    if stack.config.norm_first:
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


class CTranslate2Model(ExportedModel):
    """A folder of [`export_ctranslate2`], translating as our models do, and choosing by the paper's length penalty.

    CTranslate2 searches, as its own rules say: it ends when `num_beams` translations are complete. Their scores are
    sums of log-probabilities, which are divided by the penalty here.

    Raises:
        InputError: If CTranslate2 is not installed.
        RuntimeError: If it cannot read the folder.
    """

    def __init__(self, folder: Path, config: VaswaniConfig, tokenizer: PreTrainedTokenizerBase) -> None:
        try:
            from ctranslate2 import Translator, get_cuda_device_count
        except ImportError as error:
            raise InputError(INSTALL_CTRANSLATE2) from error

        super().__init__(folder, config, tokenizer)
        self.translator = Translator(
            str(folder),
            device="cuda" if get_cuda_device_count() else "cpu",
            # It would set the number for torch too.
            intra_threads=torch.get_num_threads(),
        )

    # Its presence tells the pipeline that each source has a limit of its own.
    default_generation_settings = staticmethod(VaswaniForConditionalGeneration.default_generation_settings)

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **settings: Any) -> torch.Tensor:
        """The best translations (sources * num_return_sequences, length) of `input_ids` (sources, source length).

        Args:
            input_ids: Sources, padded.
            attention_mask: 1 for a source token, 0 for padding.
            **settings: Of [`SETTINGS`]; the model's own where not given. `max_new_tokens` is the limit of all
                sources, 50 more than the longest has if not given.

        Raises:
            ValueError: If a setting is another, or out of its range, or a source is too long for the model's table
                of positions.
        """
        if unknown := sorted(set(settings) - set(SETTINGS)):
            raise InputError(f"an exported model can be told {', '.join(SETTINGS)}; leave {', '.join(unknown)} out")
        config = copy.deepcopy(self.generation_config)
        config.update(**settings)
        check_search(config)
        config.validate()  # num_return_sequences against num_beams
        beams, penalty = config.num_beams, config.length_penalty
        if config.length_penalty_type == "gnmt":
            penalty = GNMTLengthPenalty(penalty)
        sources = [ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True)]
        longest, limit = max(map(len, sources)), _longest(self.config)
        check_length(longest, limit)
        results = self.translator.translate_batch(
            [self.tokenizer.convert_ids_to_tokens(source) for source in sources],
            beam_size=beams,
            num_hypotheses=beams,
            # Sums of log-probabilities, of as many translations as there are beams.
            length_penalty=0,
            return_scores=True,
            max_input_length=0,
            max_decoding_length=min(config.max_new_tokens or longest + MORE_THAN_THE_SOURCE, limit),
        )
        sequences = []
        for result in results:
            # A translation has its end too.
            scores = [
                score / (len(tokens) + 1) ** penalty
                for tokens, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            best = sorted(range(len(scores)), key=lambda index: -scores[index])[: config.num_return_sequences or 1]
            sequences += [self._sequence(result.hypotheses[index]) for index in best]
        return pad_sequence(sequences, batch_first=True, padding_value=self.config.pad_token_id).to(input_ids.device)

    def _sequence(self, tokens: list[str]) -> torch.Tensor:
        ids = self.tokenizer.convert_tokens_to_ids(tokens)
        return torch.tensor([self.config.decoder_start_token_id, *ids, self.config.eos_token_id])
