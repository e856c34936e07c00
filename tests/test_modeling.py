"""The model against closed forms, torch's own Transformer layers and invariants."""

import inspect
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import nn
from torch.nn import functional as F
from torch.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel, AutoModelForSeq2SeqLM

from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration, VaswaniModel, modeling_vaswani
from vaswani_transformer.modeling_vaswani import (
    ONEDNN_IS_FASTER,
    VaswaniAttention,
    VaswaniDecoderLayer,
    VaswaniEmbeddings,
    VaswaniEncoderLayer,
    VaswaniFeedForward,
    apply_dropout,
    linear,
    shift_tokens_right,
    smoothed_cross_entropy,
)

VOCAB = 53
SMALL = {
    "vocab_size": VOCAB,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_attention_heads": 2,
    "d_ff": 24,
    "dropout": 0.0,
}
NORM = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])


def configure(attention: str = "eager", **overrides: Any) -> VaswaniConfig:
    config = VaswaniConfig(**{**SMALL, **overrides})
    config._attn_implementation = attention
    return config


def randomize(module: nn.Module, seed: int = 0) -> None:
    """Fill every parameter: fresh layer norms (ones) and biases (zeros) would hide that they are used."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(noise * 0.3 + (1.0 if parameter.ndim == 1 else 0.0))


def build(attention: str = "eager", dtype: torch.dtype = torch.float64, **overrides: Any):
    """A small random model without dropout, in float64 and evaluation mode."""
    torch.manual_seed(0)
    model = VaswaniForConditionalGeneration(configure(attention, **overrides))
    randomize(model)
    return model.to(dtype).eval()


def batch(seed: int = 0) -> dict[str, torch.Tensor]:
    """Three pairs of sources of 7, 5 and 2 tokens and targets of 4, 6 and 3, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(4, VOCAB, (3, 7), generator=generator)
    labels = torch.randint(4, VOCAB, (3, 6), generator=generator)
    for row, (source_length, target_length) in enumerate([(7, 4), (5, 6), (2, 3)]):
        source[row, source_length:] = 0
        labels[row, target_length:] = -100
    return {"input_ids": source, "attention_mask": source.ne(0).long(), "labels": labels}


def additive(mask: torch.Tensor) -> torch.Tensor:
    """0 where a boolean `mask` is true, minus infinity elsewhere."""
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -math.inf)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


# Sizes


def test_parameters_of_the_base_model_by_hand() -> None:
    with torch.device("meta"):
        model = VaswaniForConditionalGeneration(VaswaniConfig.base(vocab_size=37000))
    shared = 37000 * 512
    attention = 4 * 512 * 512
    feed_forward = (512 * 2048 + 2048) + (2048 * 512 + 512)
    norm = 2 * 512
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    by_hand = shared + 6 * encoder_layer + 6 * decoder_layer
    assert by_hand == 63_045_632  # the paper's table 3 says 65 million
    assert sum(p.numel() for p in model.parameters()) == by_hand
    assert model.num_parameters() == by_hand


def test_parameters_of_the_big_model_by_hand() -> None:
    with torch.device("meta"):
        model = VaswaniForConditionalGeneration(VaswaniConfig.big(vocab_size=37000))
    shared = 37000 * 1024
    attention = 4 * 1024 * 1024
    feed_forward = (1024 * 4096 + 4096) + (4096 * 1024 + 1024)
    norm = 2 * 1024
    by_hand = shared + 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
    assert by_hand == 214_171_648  # the paper's table 3 says 213 million
    assert sum(p.numel() for p in model.parameters()) == by_hand


# What each option adds to the 2 + 2 layers of SMALL, which have 2 + 4 attentions.
@pytest.mark.parametrize(
    ("option", "added"),
    [
        ({"tie_word_embeddings": False}, 2 * VOCAB * 16),
        ({"attention_bias": True}, (2 + 4) * 4 * 16),
        ({"norm_first": True}, 2 * 2 * 16),  # one more norm after each stack
        ({"positional_encoding": "learned", "max_position_embeddings": 30}, 2 * 30 * 16),
        # heads of 5 instead of 8: q, k, v and out are each 16 x (2 * 5)
        ({"head_dim": 5}, (2 + 4) * 4 * 16 * (2 * 5 - 16)),
        ({"head_dim": 5, "attention_bias": True}, (2 + 4) * (4 * 16 * (2 * 5 - 16) + 3 * 2 * 5 + 16)),
        ({"num_attention_heads": 4}, 0),
        ({"d_ff": 25}, 4 * (2 * 16 + 1)),
        ({"encoder_layers": 3}, 4 * 16 * 16 + (16 * 24 + 24 + 24 * 16 + 16) + 2 * 2 * 16),
        ({"decoder_layers": 1}, -(8 * 16 * 16 + (16 * 24 + 24 + 24 * 16 + 16) + 3 * 2 * 16)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_parameters_that_each_option_adds(option: dict[str, Any], added: int) -> None:
    def count(**overrides: Any) -> int:
        return sum(p.numel() for p in VaswaniForConditionalGeneration(configure(**overrides)).parameters())

    encoder = 4 * 16 * 16 + (16 * 24 + 24 + 24 * 16 + 16) + 2 * 2 * 16
    decoder = encoder + 4 * 16 * 16 + 2 * 16
    assert count() == VOCAB * 16 + 2 * encoder + 2 * decoder
    assert count(**option) == count() + added


# Positions and embeddings


def paper_position(position: int, d_model: int) -> list[float]:
    """Section 3.5, written out one dimension at a time."""
    row = []
    for dimension in range(d_model):
        angle = position / 10000 ** (2 * (dimension // 2) / d_model)
        row.append(math.sin(angle) if dimension % 2 == 0 else math.cos(angle))
    return row


POSITIONS = [0, 1, 2, 17, 511, 512, 513, 5000, 123456]


@pytest.mark.parametrize("d_model", [2, 16, 512])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    # float32 holds an angle of 5,000 to about 5,000 * 2^-24 per rounding; bfloat16 rounds the result to 2^-9.
    [(torch.float64, 1e-8), (torch.float32, 3e-3), (torch.bfloat16, 2**-8 + 3e-3)],
)
def test_sinusoids_are_the_paper_s_formula(d_model: int, dtype: torch.dtype, tolerance: float) -> None:
    positions = [p for p in POSITIONS if p <= 5000 or dtype == torch.float64]
    table = modeling_vaswani.VaswaniSinusoidalPositionalEncoding(d_model)(torch.tensor(positions), dtype)
    assert table.dtype == dtype
    expected = torch.tensor([paper_position(p, d_model) for p in positions], dtype=torch.float64)
    torch.testing.assert_close(table.double(), expected, rtol=0, atol=tolerance)


def test_sinusoids_are_not_stored_and_reach_beyond_the_hint() -> None:
    model = build(max_position_embeddings=8, encoder_layers=1, decoder_layers=1)
    assert not [name for name in model.state_dict() if "position" in name]
    assert not list(model.model.encoder.embeddings.buffers())
    source = torch.full((1, 40), 5)
    states = model.model.encoder(source, output_hidden_states=True).hidden_states[0]
    embedding = model.get_input_embeddings().weight[5] * 4.0  # sqrt(d_model)
    expected = torch.tensor([paper_position(p, 16) for p in range(40)], dtype=torch.float64)
    torch.testing.assert_close(states[0] - embedding, expected, rtol=0, atol=1e-12)


def test_embeddings_are_scaled_by_the_root_of_the_width() -> None:
    embeddings = VaswaniEmbeddings(configure(d_model=36, num_attention_heads=4)).eval()
    inputs = torch.randn(2, 5, 36, dtype=torch.float64)
    torch.testing.assert_close(
        embeddings(inputs) - embeddings(torch.zeros_like(inputs)), 6.0 * inputs, rtol=0, atol=1e-12
    )


def test_learned_positions_are_looked_up_and_end_with_the_table() -> None:
    model = build(positional_encoding="learned", max_position_embeddings=9)
    assert model.model.encoder.embeddings.positions.weight.shape == (9, 16)
    source = torch.full((1, 9), 5)
    states = model.model.encoder(source, output_hidden_states=True).hidden_states[0]
    expected = model.get_input_embeddings().weight[5] * 4.0 + model.model.encoder.embeddings.positions.weight
    torch.testing.assert_close(states[0], expected, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"end at 9 .*10 tokens"):
        model.model.encoder(torch.full((1, 10), 5))
    with pytest.raises(ValueError, match=r"end at 9 .*10 tokens"):
        model(source, decoder_input_ids=torch.full((1, 10), 5))
    cache = model(source, decoder_input_ids=source, use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"end at 9 .*10 tokens"):
        model(source, decoder_input_ids=source[:, :1], past_key_values=cache)


# Initialisation


@pytest.mark.parametrize("tied", [True, False])
def test_initialisation(tied: bool) -> None:
    torch.manual_seed(0)
    config = VaswaniConfig(
        vocab_size=400,
        d_model=64,
        d_ff=96,
        encoder_layers=1,
        decoder_layers=1,
        num_attention_heads=4,
        attention_bias=True,
        tie_word_embeddings=tied,
    )
    model = VaswaniForConditionalGeneration(config)
    seen = {"embedding": 0, "matrix": 0, "norm": 0, "bias": 0}
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            assert not module.weight[0].any(), name  # <pad>
            rows = module.weight[1:]
            # the deviation of n samples' standard deviation is about sigma / sqrt(2n): five of those
            assert rows.std().item() == pytest.approx(64**-0.5, rel=5 / math.sqrt(2 * rows.numel())), name
            assert abs(rows.mean().item()) < 5 * 64**-0.5 / math.sqrt(rows.numel()), name
            assert rows.abs().max() > 3 * 64**-0.5, name  # a normal has tails, a uniform ends at 1.73
            seen["embedding"] += 1
        elif isinstance(module, nn.Linear) and not (tied and name == "lm_head"):
            fan_out, fan_in = module.weight.shape
            bound = math.sqrt(6 / (fan_in + fan_out))
            assert module.weight.abs().max() <= bound, name
            # a uniform's variance is bound^2 / 3 = 2 / (fan_in + fan_out); its estimate deviates by sqrt(0.8 / n)
            variance = module.weight.double().square().mean().item()
            assert variance == pytest.approx(2 / (fan_in + fan_out), rel=5 * math.sqrt(0.8 / module.weight.numel()))
            seen["matrix"] += 1
            if module.bias is not None:
                assert not module.bias.any(), name
                seen["bias"] += 1
        elif isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all(), name
            assert not module.bias.any(), name
            assert module.eps == 1e-6
            seen["norm"] += 1
    # 3 attentions of 4 matrices and 2 feed-forward networks of 2, all with biases; 2 + 3 norms
    assert seen == {"embedding": 2, "matrix": 16 if tied else 17, "norm": 5, "bias": 16}


# Attention, layers and stacks against independent code


@pytest.mark.parametrize("head_dim", [8, 5])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_attention_is_equation_1(cross: bool, head_dim: int) -> None:
    attention = VaswaniAttention(configure(head_dim=head_dim)).double()
    randomize(attention)
    torch.manual_seed(0)
    states = torch.randn(2, 5, 16, dtype=torch.float64)
    memory = torch.randn(2, 7, 16, dtype=torch.float64) if cross else states
    mask = torch.rand(2, 1, 5, memory.shape[1]) < 0.6
    mask[..., 0] = True
    output, weights = attention(states, memory if cross else None, attention_mask=additive(mask))

    for row in range(2):
        heads = []
        for head in range(2):
            part = slice(head * head_dim, (head + 1) * head_dim)
            query = states[row] @ attention.q_proj.weight[part].T
            key = memory[row] @ attention.k_proj.weight[part].T
            value = memory[row] @ attention.v_proj.weight[part].T
            exponentials = (query @ key.T / math.sqrt(head_dim)).exp() * mask[row, 0]
            probabilities = exponentials / exponentials.sum(1, keepdim=True)
            torch.testing.assert_close(weights[row, head], probabilities, rtol=0, atol=1e-12)
            heads.append(probabilities @ value)
        expected = torch.cat(heads, dim=1) @ attention.out_proj.weight.T
        torch.testing.assert_close(output[row], expected, rtol=0, atol=1e-12)


def copy_attention(source: VaswaniAttention, target: nn.MultiheadAttention) -> None:
    projections = (source.q_proj, source.k_proj, source.v_proj)
    target.in_proj_weight.data.copy_(torch.cat([p.weight for p in projections]))
    target.in_proj_bias.data.copy_(torch.cat([p.bias for p in projections]))
    target.out_proj.load_state_dict(source.out_proj.state_dict())


def torch_layer(layer: VaswaniEncoderLayer | VaswaniDecoderLayer, norm_first: bool) -> nn.Module:
    """torch's layer with the weights of `layer`, in training mode: its evaluation has another, fused path."""
    is_decoder = isinstance(layer, VaswaniDecoderLayer)
    kind = nn.TransformerDecoderLayer if is_decoder else nn.TransformerEncoderLayer
    oracle = kind(
        16, 2, 24, dropout=0.0, layer_norm_eps=1e-6, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    copy_attention(layer.self_attn, oracle.self_attn)
    norms = [layer.self_attn_layer_norm, layer.final_layer_norm]
    if is_decoder:
        copy_attention(layer.encoder_attn, oracle.multihead_attn)
        norms.insert(1, layer.encoder_attn_layer_norm)
    for number, norm in enumerate(norms, start=1):
        getattr(oracle, f"norm{number}").load_state_dict(norm.state_dict())
    oracle.linear1.load_state_dict(layer.feed_forward.fc1.state_dict())
    oracle.linear2.load_state_dict(layer.feed_forward.fc2.state_dict())
    return oracle.train()


@NORM
def test_encoder_layer_is_torch_s(norm_first: bool) -> None:
    layer = VaswaniEncoderLayer(configure(attention_bias=True, norm_first=norm_first), 0).double()
    randomize(layer)
    torch.manual_seed(0)
    states = torch.randn(3, 7, 16, dtype=torch.float64)
    real = batch()["attention_mask"].bool()
    output = layer(states, additive(real)[:, None, None, :])
    expected = torch_layer(layer, norm_first)(states, src_key_padding_mask=~real)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-11)


@NORM
def test_decoder_layer_is_torch_s(norm_first: bool) -> None:
    layer = VaswaniDecoderLayer(configure(attention_bias=True, norm_first=norm_first), 0).double()
    randomize(layer)
    torch.manual_seed(0)
    states = torch.randn(3, 6, 16, dtype=torch.float64)
    memory = torch.randn(3, 7, 16, dtype=torch.float64)
    real_source, real_target = batch()["attention_mask"].bool(), batch()["labels"].ne(-100)
    causal = torch.ones(6, 6).tril().bool()
    output = layer(
        states,
        additive(causal & real_target[:, None, None, :]),
        memory,
        encoder_attention_mask=additive(real_source)[:, None, None, :],
    )
    expected = torch_layer(layer, norm_first)(
        states,
        memory,
        tgt_mask=~causal,
        tgt_key_padding_mask=~real_target,
        memory_key_padding_mask=~real_source,
    )
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-11)


@NORM
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_whole_model_is_torch_s_stacks(attention: str, norm_first: bool) -> None:
    model = build(attention, attention_bias=True, norm_first=norm_first)
    inputs = batch()
    real = inputs["attention_mask"].bool()
    decoder_input_ids = shift_tokens_right(inputs["labels"], 0, 1)

    def embed(ids: torch.Tensor) -> torch.Tensor:
        table = torch.tensor([paper_position(p, 16) for p in range(ids.shape[1])], dtype=torch.float64)
        return model.get_input_embeddings().weight[ids] * 4.0 + table

    memory = embed(inputs["input_ids"])
    for layer in model.model.encoder.layers:
        memory = torch_layer(layer, norm_first)(memory, src_key_padding_mask=~real)
    if norm_first:
        norm = model.model.encoder.layer_norm
        memory = F.layer_norm(memory, (16,), norm.weight, norm.bias, 1e-6)
    states = embed(decoder_input_ids)
    causal = torch.ones(6, 6).tril().bool()
    for layer in model.model.decoder.layers:
        states = torch_layer(layer, norm_first)(states, memory, tgt_mask=~causal, memory_key_padding_mask=~real)
    if norm_first:
        norm = model.model.decoder.layer_norm
        states = F.layer_norm(states, (16,), norm.weight, norm.bias, 1e-6)
    expected = states @ model.get_input_embeddings().weight.T

    torch.testing.assert_close(model(**inputs).logits, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["relu", "gelu", "silu"])
def test_feed_forward_is_equation_2_with_the_activation_asked_for(name: str) -> None:
    network = VaswaniFeedForward(configure(activation_function=name)).double()
    randomize(network)
    states = torch.randn(4, 16, dtype=torch.float64)
    inner = getattr(F, name)(states @ network.fc1.weight.T + network.fc1.bias)
    expected = inner @ network.fc2.weight.T + network.fc2.bias
    torch.testing.assert_close(network(states), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "unpadded"])
@pytest.mark.parametrize("attention", ["sdpa", "flex_attention"])
def test_attention_back_ends_agree(attention: str, padded: bool) -> None:
    inputs = batch()
    if not padded:  # another path: without a mask, sdpa is told that it is causal
        inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
    # flex_attention does not do float64 on a CPU
    tolerance = 1e-12 if attention == "sdpa" else 2e-5
    model = build(dtype=torch.float64 if attention == "sdpa" else torch.float32)
    with torch.no_grad():
        expected = model(**inputs).logits
        model.set_attn_implementation(attention)
        try:
            logits = model(**inputs).logits
        except (NotImplementedError, RuntimeError) as error:
            # it is compiled, so it needs a C++ compiler and a CPU that torch generates code for
            if attention == "flex_attention":
                pytest.skip(f"flex_attention does not run on this build of torch: {error}")
            raise
    torch.testing.assert_close(logits, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


# Dropout


def dropouts_applied(monkeypatch: pytest.MonkeyPatch, model: nn.Module, probability: float) -> int:
    """How often one call of `model` applies dropout of `probability`."""
    applied = []

    def spy(states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
        if training:
            applied.append(p)
        return apply_dropout(states, p, training)

    with monkeypatch.context() as patch:
        patch.setattr(modeling_vaswani, "apply_dropout", spy)
        model(**batch())
    return applied.count(probability)


@pytest.mark.parametrize(
    ("field", "times"),
    # section 5.4: the 2 sums of embeddings and positions, 2 sublayers of an encoder layer, 3 of a decoder layer
    [("dropout", 2 + 2 * 2 + 2 * 3), ("attention_dropout", 2 + 2 * 2), ("activation_dropout", 2 + 2)],
)
def test_each_dropout_acts_where_it_says_and_only_in_training(
    monkeypatch: pytest.MonkeyPatch, field: str, times: int
) -> None:
    model = build(**{field: 0.25})
    without = build()
    torch.testing.assert_close(model(**batch()).logits, without(**batch()).logits, rtol=0, atol=0)
    assert dropouts_applied(monkeypatch, model, 0.25) == 0
    model.train()
    assert dropouts_applied(monkeypatch, model, 0.25) == times
    assert not torch.equal(model(**batch()).logits, model(**batch()).logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.75])
def test_dropout_drops_and_scales_as_it_says(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    states = torch.full((99, 7, 301), 3.0, dtype=dtype, requires_grad=True)
    dropped = apply_dropout(states, p, True)
    kept = dropped != 0
    # Five standard deviations of the binomial distribution.
    assert abs(kept.double().mean() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / kept.numel())
    for axis in range(3):  # no element shares its fate with its neighbour
        both = kept.narrow(axis, 1, kept.shape[axis] - 1) & kept.narrow(axis, 0, kept.shape[axis] - 1)
        assert abs(both.double().mean() - (1 - p) ** 2) < 0.01
    tolerance = 0.01 if dtype == torch.bfloat16 else 2e-4
    torch.testing.assert_close(dropped, kept * 3.0 / (1 - p), rtol=tolerance, atol=0, check_dtype=False)
    dropped.sum().backward()
    assert torch.equal(states.grad * 3, dropped)
    torch.manual_seed(0)
    assert torch.equal(apply_dropout(states, p, True), dropped)
    assert not torch.equal(apply_dropout(states, p, True), dropped)


def test_no_dropout_and_all_dropout() -> None:
    states = torch.randn(5, 3)
    assert torch.equal(apply_dropout(states, 0.5, False), states)
    assert torch.equal(apply_dropout(states, 0.0, True), states)
    assert not apply_dropout(states, 1.0, True).any()
    assert apply_dropout(states[:0], 0.5, True).shape == (0, 3)
    transposed = apply_dropout(torch.ones(4, 6).t(), 0.5, True)
    assert transposed.shape == (6, 4)
    mapped = torch.func.vmap(lambda row: apply_dropout(row, 0.5, True), randomness="different")(torch.ones(50, 8))
    assert len({tuple(row) for row in mapped.tolist()}) > 1


# The forward pass


def test_decoder_inputs_are_the_labels_shifted_right() -> None:
    labels = torch.tensor([[7, 8, 2], [9, 2, -100]])
    expected = torch.tensor([[1, 7, 8], [1, 9, 2]])
    assert torch.equal(shift_tokens_right(labels, 0, 1), expected)
    padded = torch.tensor([[9, -100, -100]])
    assert torch.equal(shift_tokens_right(padded, 0, 1), torch.tensor([[1, 9, 0]]))
    model = build()
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels), expected)
    source = torch.tensor([[5, 6], [5, 7]])
    explicit = model(source, decoder_input_ids=expected)
    torch.testing.assert_close(model(source, labels=labels).logits, explicit.logits, rtol=0, atol=0)
    assert labels[1, 2] == -100  # the caller's tensor is untouched


@NORM
def test_a_later_target_token_changes_no_earlier_logits(norm_first: bool) -> None:
    model = build("sdpa", norm_first=norm_first)
    source = batch()["input_ids"][:1]
    target = torch.tensor([[1, 10, 11, 12, 13]])
    before = model(source, decoder_input_ids=target).logits
    target[0, 3] = 40
    after = model(source, decoder_input_ids=target).logits
    torch.testing.assert_close(after[:, :3], before[:, :3], rtol=0, atol=1e-13)
    assert ((after - before)[0, 3:].abs().amax(-1) > 1e-3).all()


def test_the_encoder_sees_both_ways_and_no_padding() -> None:
    model = build("sdpa")
    inputs = batch()
    before = model(**inputs).logits
    inputs["input_ids"][2, 2:] = 17  # all of it padding
    torch.testing.assert_close(model(**inputs).logits, before, rtol=0, atol=1e-13)
    states = model.model.encoder(inputs["input_ids"][:1]).last_hidden_state
    inputs["input_ids"][0, -1] = 18
    changed = model.model.encoder(inputs["input_ids"][:1]).last_hidden_state
    assert ((changed - states)[0].abs().amax(-1) > 1e-4).all()


@NORM
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_a_padded_batch_equals_its_sentences_one_by_one(attention: str, positions: str, norm_first: bool) -> None:
    model = build(attention, norm_first=norm_first, positional_encoding=positions, max_position_embeddings=8)
    inputs = batch()
    logits = model(**inputs).logits
    for row in range(3):
        source = inputs["input_ids"][row][inputs["attention_mask"][row].bool()]
        labels = inputs["labels"][row][inputs["labels"][row].ne(-100)]
        alone = model(source[None], labels=labels[None]).logits[0]
        torch.testing.assert_close(logits[row, : len(labels)], alone, rtol=0, atol=1e-11)


def test_hidden_states_and_attentions() -> None:
    model = build(encoder_layers=3, num_attention_heads=4)
    inputs = batch()
    outputs = model(**inputs, output_hidden_states=True, output_attentions=True)
    plain = model(**inputs)
    torch.testing.assert_close(outputs.logits, plain.logits, rtol=0, atol=0)
    assert plain.encoder_attentions is plain.decoder_hidden_states is plain.cross_attentions is None

    assert [tuple(h.shape) for h in outputs.encoder_hidden_states] == [(3, 7, 16)] * (3 + 1)
    assert [tuple(h.shape) for h in outputs.decoder_hidden_states] == [(3, 6, 16)] * (2 + 1)
    assert torch.equal(outputs.encoder_hidden_states[-1], outputs.encoder_last_hidden_state)
    states = outputs.encoder_hidden_states[0]
    mask = additive(inputs["attention_mask"].bool())[:, None, None, :]
    for layer, expected in zip(model.model.encoder.layers, outputs.encoder_hidden_states[1:], strict=True):
        states = layer(states, mask)
        torch.testing.assert_close(states, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        outputs.decoder_hidden_states[-1] @ model.lm_head.weight.T, outputs.logits, rtol=0, atol=1e-12
    )

    assert [tuple(a.shape) for a in outputs.encoder_attentions] == [(3, 4, 7, 7)] * 3
    assert [tuple(a.shape) for a in outputs.decoder_attentions] == [(3, 4, 6, 6)] * 2
    assert [tuple(a.shape) for a in outputs.cross_attentions] == [(3, 4, 6, 7)] * 2
    padding = ~inputs["attention_mask"].bool()[:, None, None, :]
    future = torch.ones(6, 6).triu(1).bool()
    for weights, forbidden in [
        *((a, padding) for a in outputs.encoder_attentions),
        *((a, future) for a in outputs.decoder_attentions),
        *((a, padding) for a in outputs.cross_attentions),
    ]:
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), rtol=0, atol=1e-12)
        assert not weights[forbidden.expand_as(weights)].any()
        assert (weights[~forbidden.expand_as(weights)] > 0).all()


def test_pre_norm_hidden_states_end_with_the_normalised_ones() -> None:
    model = build(norm_first=True)
    outputs = model(**batch(), output_hidden_states=True)
    assert torch.equal(outputs.encoder_hidden_states[-1], outputs.encoder_last_hidden_state)
    torch.testing.assert_close(
        outputs.decoder_hidden_states[-1] @ model.lm_head.weight.T, outputs.logits, rtol=0, atol=1e-12
    )


def test_other_ways_to_pass_the_inputs() -> None:
    model = build()
    inputs = batch()
    source, mask, labels = inputs["input_ids"], inputs["attention_mask"], inputs["labels"]
    target = shift_tokens_right(labels, 0, 1)
    expected = model(**inputs).logits
    embed = model.get_input_embeddings()
    embedded = model(
        inputs_embeds=embed(source), attention_mask=mask, decoder_inputs_embeds=embed(target), labels=labels
    )
    encoded = model.get_encoder()(source, mask)
    for other in (
        embedded.logits,
        model(encoder_outputs=encoded, attention_mask=mask, decoder_input_ids=target).logits,
        model(encoder_outputs=(encoded.last_hidden_state,), attention_mask=mask, decoder_input_ids=target).logits,
        model(source, mask, decoder_input_ids=target, return_dict=False)[0],
    ):
        torch.testing.assert_close(other, expected, rtol=0, atol=1e-12)
    for bad in ({}, {"input_ids": source, "inputs_embeds": embed(source)}):
        with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
            model(**bad, labels=labels)
    with pytest.raises(ValueError, match="exactly one of decoder_input_ids and decoder_inputs_embeds"):
        model(source)


# The losses


def test_the_plain_loss_is_the_cross_entropy_of_the_logits() -> None:
    model = build()
    inputs = batch()
    outputs = model(**inputs)
    expected = F.cross_entropy(outputs.logits.transpose(1, 2), inputs["labels"], ignore_index=-100)
    torch.testing.assert_close(outputs.loss.double(), expected, rtol=1e-6, atol=0)
    assert outputs.past_key_values is None  # training has no next step


@pytest.mark.parametrize("label_smoothing", [None, 0.1])
def test_num_items_in_batch_divides_the_sum(label_smoothing: float | None) -> None:
    model = build()
    inputs = batch()
    mean = model(**inputs, label_smoothing=label_smoothing).loss
    for items in (50, torch.tensor(50)):
        loss = model(**inputs, label_smoothing=label_smoothing, num_items_in_batch=items).loss
        torch.testing.assert_close(loss, mean * (4 + 6 + 3) / 50, rtol=1e-6, atol=0)
    # micro-batches of different sizes add up to the whole batch
    parts = [{name: tensor[rows] for name, tensor in inputs.items()} for rows in (slice(0, 1), slice(1, 3))]
    total = sum(model(**part, label_smoothing=label_smoothing, num_items_in_batch=13).loss for part in parts)
    torch.testing.assert_close(total, mean, rtol=1e-6, atol=0)


def dense_smoothed_loss(logits: torch.Tensor, labels: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Mean cross-entropy against 1 - epsilon at the label and epsilon / (V - 1) elsewhere, position by position."""
    losses = []
    for row, label in zip(logits.flatten(0, 1), labels.flatten().tolist(), strict=True):
        if label == -100:
            continue
        target = torch.full_like(row, epsilon / (len(row) - 1))
        target[label] = 1 - epsilon
        log_probabilities = row - row.exp().sum().log()
        losses.append(-(target * log_probabilities).sum())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("rows", [1, 4, 13, 1000])  # 13 positions: single ones, an uneven rest, exactly, at once
def test_the_smoothed_loss_and_its_gradients_are_the_dense_formula_s(
    monkeypatch: pytest.MonkeyPatch, rows: int, epsilon: float, tied: bool
) -> None:
    model = build(tie_word_embeddings=tied)
    inputs = batch()
    expected = dense_smoothed_loss(model(**inputs).logits, inputs["labels"], epsilon)
    expected.backward()
    expected_gradients = gradients(model)
    model.zero_grad(set_to_none=True)

    monkeypatch.setattr(modeling_vaswani, "POSITIONS_PER_CHUNK", rows)
    outputs = model(**inputs, label_smoothing=epsilon)
    assert outputs.logits is None
    torch.testing.assert_close(outputs.loss, expected, rtol=1e-12, atol=0)
    (outputs.loss * 3).backward()  # the gradient that arrives from above counts too
    assert gradients(model).keys() == expected_gradients.keys() == dict(model.named_parameters()).keys()
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient / 3, expected_gradients[name], rtol=1e-9, atol=1e-11, msg=name)


def test_smoothing_of_zero_is_the_plain_loss() -> None:
    model = build()
    plain = model(**batch())
    smoothed = model(**batch(), label_smoothing=0.0)
    assert plain.logits is not None
    torch.testing.assert_close(smoothed.loss, plain.loss.double(), rtol=1e-6, atol=0)


def test_the_smoothed_loss_without_gradients() -> None:
    model = build()
    inputs = batch()
    with torch.no_grad():
        loss = model(**inputs, label_smoothing=0.1).loss
        expected = dense_smoothed_loss(model(**inputs).logits, inputs["labels"], 0.1)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


class Recorder(TorchDispatchMode):
    """Shapes of all tensors that are made, in the backward pass too."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.shapes += [tuple(t.shape) for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        return result


def test_ignored_positions_contribute_nothing() -> None:
    torch.manual_seed(0)
    weight = torch.randn(VOCAB, 16, dtype=torch.float64, requires_grad=True)
    labels = batch()["labels"]
    states = torch.randn(3, 6, 16, dtype=torch.float64)
    expected = 13 * dense_smoothed_loss(states @ weight.T, labels, 0.1)
    states[labels == -100] = math.nan  # whatever touches these becomes NaN
    states.requires_grad_()
    loss = smoothed_cross_entropy(states, weight, labels, 0.1)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    loss.backward()
    assert not states.grad[labels == -100].any()
    assert weight.grad.isfinite().all()


def test_the_smoothed_loss_never_holds_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeling_vaswani, "POSITIONS_PER_CHUNK", 4)
    # 160 positions: their logits outgrow the weights, the states and the attention weights
    source, labels = torch.randint(4, VOCAB, (32, 3)), torch.randint(4, VOCAB, (32, 5))
    all_logits = labels.numel() * VOCAB
    model = build()
    with Recorder() as recorder:
        model(source, labels=labels, label_smoothing=0.1).loss.backward()
    with_vocabulary = [shape for shape in recorder.shapes if VOCAB in shape]
    assert max(math.prod(shape) for shape in recorder.shapes) < all_logits
    assert max(math.prod(shape) for shape in with_vocabulary) == VOCAB * 16  # the matrix's own gradient
    assert (4, VOCAB) in with_vocabulary
    with Recorder() as recorder:  # the plain loss does hold them, so the recorder would have seen it
        model(source, labels=labels).loss.backward()
    assert max(math.prod(shape) for shape in recorder.shapes) == all_logits


@pytest.mark.parametrize("value", [-0.1, 1, 1.0, 1.5, math.nan])
def test_smoothing_outside_its_range_is_an_error(value: float) -> None:
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below 1"):
        build()(**batch(), label_smoothing=value)


def test_smoothing_without_labels_is_an_error() -> None:
    with pytest.raises(ValueError, match="label_smoothing needs labels"):
        build()(torch.tensor([[5]]), decoder_input_ids=torch.tensor([[1]]), label_smoothing=0.1)


def test_the_smoothed_loss_under_autocast() -> None:
    torch.manual_seed(0)
    weight = torch.randn(VOCAB, 16, requires_grad=True)
    states = torch.randn(3, 6, 16, requires_grad=True)
    results = []
    for context in (nullcontext(), torch.autocast("cpu", dtype=torch.bfloat16)):
        with context:
            loss = smoothed_cross_entropy(states, weight, batch()["labels"], 0.1)
        results.append((loss.detach(), *torch.autograd.grad(loss, (states, weight))))
    for full, mixed in zip(*results, strict=True):
        assert mixed.dtype == torch.float32
        assert not torch.equal(mixed, full)  # half precision was at work
        assert (mixed - full).norm() < 0.02 * full.norm()


def test_many_chunks_do_not_wear_the_gradient_down_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    weight = torch.randn(VOCAB, 16, dtype=torch.bfloat16, requires_grad=True)
    # 4,000 equal addends: a sum in bfloat16 stops growing after some hundreds
    states, labels = torch.randn(16, dtype=torch.bfloat16).expand(1, 4000, 16), torch.full((1, 4000), 7)
    monkeypatch.setattr(modeling_vaswani, "POSITIONS_PER_CHUNK", 1)
    (chunked,) = torch.autograd.grad(smoothed_cross_entropy(states, weight, labels, 0.1), weight)
    exact_weight = weight.detach().double().requires_grad_()
    exact_loss = 4000 * dense_smoothed_loss(states[:, :1].double() @ exact_weight.T, labels[:, :1], 0.1)
    (exact,) = torch.autograd.grad(exact_loss, exact_weight)
    assert (chunked - exact).norm() < 0.02 * exact.norm()


def test_the_model_s_smoothed_loss_under_autocast() -> None:
    torch.manual_seed(0)
    model = VaswaniForConditionalGeneration(configure("sdpa"))
    results = []
    for context in (nullcontext(), torch.autocast("cpu", dtype=torch.bfloat16)):
        model.zero_grad(set_to_none=True)
        with context:
            loss = model(**batch(), label_smoothing=0.1).loss
        loss.backward()
        results.append((loss, gradients(model)))
    (full, full_gradients), (mixed, mixed_gradients) = results
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, full, rtol=0.01, atol=0)
    assert mixed_gradients.keys() == full_gradients.keys()
    for name, gradient in mixed_gradients.items():
        assert gradient.dtype == torch.float32
        # loose: a rounded input flips a few of the 24 ReLUs
        assert F.cosine_similarity(gradient.flatten(), full_gradients[name].flatten(), dim=0) > 0.95, name


# Training


@NORM
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("label_smoothing", [None, 0.1])
def test_every_parameter_gets_a_gradient_and_moves(
    label_smoothing: float | None, positions: str, tied: bool, norm_first: bool
) -> None:
    torch.manual_seed(0)
    model = VaswaniForConditionalGeneration(
        configure("sdpa", norm_first=norm_first, positional_encoding=positions, tie_word_embeddings=tied)
    )
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss = model(**batch(), label_smoothing=label_smoothing).loss
    loss.backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert parameter.grad.any(), name
        assert not torch.equal(parameter, before[name]), name
    assert model(**batch(), label_smoothing=label_smoothing).loss < loss


@NORM
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_changes_nothing(use_reentrant: bool, norm_first: bool) -> None:
    model = build("sdpa", dropout=0.2, norm_first=norm_first).train()
    calls = []
    model.model.encoder.layers[0].feed_forward.register_forward_hook(lambda *_: calls.append("encoder"))
    model.model.decoder.layers[0].feed_forward.register_forward_hook(lambda *_: calls.append("decoder"))
    results = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        calls.clear()
        model.zero_grad(set_to_none=True)
        torch.manual_seed(0)  # the same dropout
        loss = model(**batch(), label_smoothing=0.1).loss
        loss.backward()
        results.append((loss, gradients(model), sorted(calls)))
    (loss, expected, once), (checkpointed_loss, checkpointed, twice) = results
    assert once == ["decoder", "encoder"]
    assert twice == ["decoder", "decoder", "encoder", "encoder"]  # or it was not switched on
    torch.testing.assert_close(checkpointed_loss, loss, rtol=1e-12, atol=0)
    assert checkpointed.keys() == expected.keys()
    for name, gradient in checkpointed.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-10, atol=1e-12, msg=name)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("label_smoothing", [None, 0.1])
def test_a_bfloat16_model_runs(label_smoothing: float | None, attention: str) -> None:
    torch.manual_seed(0)
    model = VaswaniForConditionalGeneration(configure(attention))
    full = model(**batch(), label_smoothing=label_smoothing)
    model.to(torch.bfloat16)
    half = model(**batch(), label_smoothing=label_smoothing)
    assert half.loss.dtype == torch.float32
    torch.testing.assert_close(half.loss, full.loss, rtol=0.02, atol=0)
    if label_smoothing is None:
        assert half.logits.dtype == torch.bfloat16
        assert half.logits.isfinite().all()
    half.loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


# Tied weights, resizing, saving


def matrices(model: VaswaniForConditionalGeneration) -> list[nn.Parameter]:
    return [model.model.encoder.embed_tokens.weight, model.model.decoder.embed_tokens.weight, model.lm_head.weight]


def assert_shared(model: VaswaniForConditionalGeneration) -> None:
    source, target, output = matrices(model)
    assert source is target is output
    with torch.no_grad():
        source[5, 3] += 1.0
    assert target[5, 3] == output[5, 3] == source[5, 3]


def test_one_matrix_three_ways(tmp_path: Path) -> None:
    model = build()
    assert_shared(model)
    assert len([p for p in model.parameters() if p.shape == (VOCAB, 16)]) == 1
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        shapes = [tuple(file.get_slice(key).get_shape()) for key in file.keys()]  # noqa: SIM118 - not a dict
    assert shapes.count((VOCAB, 16)) == 1
    assert sum(math.prod(shape) for shape in shapes) == model.num_parameters()
    for loaded in (
        VaswaniForConditionalGeneration.from_pretrained(tmp_path),
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path),
    ):
        assert_shared(loaded)
    base = VaswaniModel.from_pretrained(tmp_path)
    assert base.encoder.embed_tokens.weight is base.decoder.embed_tokens.weight


def test_untied_matrices_are_three(tmp_path: Path) -> None:
    model = build(tie_word_embeddings=False)
    assert len({id(matrix) for matrix in matrices(model)}) == 3
    model.save_pretrained(tmp_path)
    loaded = VaswaniForConditionalGeneration.from_pretrained(tmp_path)
    assert len({id(matrix) for matrix in matrices(loaded)}) == 3
    for saved, read in zip(matrices(model), matrices(loaded), strict=True):
        assert torch.equal(saved, read)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [40, 61])
def test_resizing_the_vocabulary(tmp_path: Path, size: int, tied: bool) -> None:
    model = build(dtype=torch.float32, tie_word_embeddings=tied)
    inputs = {**batch(), "input_ids": batch()["input_ids"].clamp(max=39), "labels": batch()["labels"].clamp(max=39)}
    before = [matrix.detach().clone() for matrix in matrices(model)]
    logits = model(**inputs).logits
    model.resize_token_embeddings(size)
    kept = min(size, VOCAB)
    assert model.config.vocab_size == model.lm_head.out_features == size
    for matrix, old in zip(matrices(model), before, strict=True):
        assert matrix.shape == (size, 16)
        assert torch.equal(matrix[:kept], old[:kept])
    assert len({id(matrix) for matrix in matrices(model)}) == (1 if tied else 3)
    resized = model(**inputs)
    torch.testing.assert_close(resized.logits[..., :kept], logits[..., :kept])
    assert resized.logits.shape[-1] == size

    model.save_pretrained(tmp_path)
    loaded = VaswaniForConditionalGeneration.from_pretrained(tmp_path, attn_implementation="eager")
    assert len({id(matrix) for matrix in matrices(loaded)}) == (1 if tied else 3)
    assert torch.equal(loaded(**inputs).logits, resized.logits)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [40, 61])
def test_resizing_the_model_without_output_projection(size: int, tied: bool) -> None:
    model = VaswaniModel(configure(tie_word_embeddings=tied))
    old = model.decoder.embed_tokens.weight.detach().clone()
    model.resize_token_embeddings(size)
    kept = min(size, VOCAB)
    assert model.config.vocab_size == size
    assert model.encoder.embed_tokens.weight.shape == model.decoder.embed_tokens.weight.shape == (size, 16)
    assert torch.equal(model.decoder.embed_tokens.weight[:kept], old[:kept])
    assert (model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight) == tied


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "norm_first": True,
            "attention_bias": True,
            "head_dim": 5,
            "positional_encoding": "learned",
            "max_position_embeddings": 20,
            "tie_word_embeddings": False,
        },
    ],
    ids=["paper", "options"],
)
def test_saving_and_loading_through_the_auto_classes(tmp_path: Path, options: dict[str, Any]) -> None:
    model = build(dtype=torch.float32, **options)
    model.save_pretrained(tmp_path)
    expected = model(**batch())

    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, attn_implementation="eager")
    assert type(loaded) is VaswaniForConditionalGeneration
    assert not loaded.training
    assert torch.equal(loaded(**batch()).logits, expected.logits)

    base = AutoModel.from_pretrained(tmp_path, attn_implementation="eager")
    assert type(base) is VaswaniModel
    inputs = {name: batch()[name] for name in ("input_ids", "attention_mask")}
    states = base(**inputs, decoder_input_ids=shift_tokens_right(batch()["labels"], 0, 1)).last_hidden_state
    assert torch.equal(states @ model.lm_head.weight.T, expected.logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_on_disk_loads_as_float32_where_asked(tmp_path: Path, dtype: torch.dtype) -> None:
    model = build(dtype=torch.float32)
    model.to(dtype).save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert {file.get_tensor(key).dtype for key in file.keys()} == {dtype}  # noqa: SIM118 - not a dict
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    # as exact as the file: the model rounded to `dtype` and widened again
    assert torch.equal(loaded(**batch()).logits, model.float()(**batch()).logits)


def test_a_device_map_may_leave_weights_on_disk(tmp_path: Path) -> None:
    model = build(dtype=torch.float32)
    model.save_pretrained(tmp_path)
    room = 0.7 * sum(parameter.nbytes for parameter in model.parameters())
    offloaded = VaswaniForConditionalGeneration.from_pretrained(
        tmp_path,
        device_map="auto",
        max_memory={"cpu": int(room)},
        offload_folder=tmp_path,
        attn_implementation="eager",
    )
    assert set(offloaded.hf_device_map.values()) == {"cpu", "disk"}
    torch.testing.assert_close(offloaded(**batch()).logits, model(**batch()).logits, rtol=0, atol=0)


def test_forward_tells_which_common_arguments_it_takes() -> None:
    for model_class in (VaswaniModel, VaswaniForConditionalGeneration):
        (arguments,) = inspect.signature(model_class.forward).parameters["kwargs"].annotation.__args__
        assert "output_attentions" in arguments.__annotations__


# Linear layers, several targets of a source, positions


def sources() -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in batch().items() if name != "labels"}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 5), (2, 7, 5), (1, 5), (5,), (0, 5)])
def test_linear_is_torch_s_with_and_without_gradients(shape: tuple[int, ...], bias: bool) -> None:
    layer = nn.Linear(5, 9, bias=bias)
    states = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    expected = F.linear(states.double(), layer.weight.double(), layer.bias.double() if bias else None)
    with torch.no_grad():
        torch.testing.assert_close(linear(layer, states).double(), expected, rtol=0, atol=1e-6)
        if len(shape) > 1:
            turned = linear(layer, states.transpose(0, -2)).double()
            torch.testing.assert_close(turned, expected.transpose(0, -2), rtol=0, atol=1e-6)
    output = linear(layer, states)
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=1e-6)
    output.sum().backward()
    expected = states.reshape(-1, 5).sum(0).expand(9, 5)
    torch.testing.assert_close(layer.weight.grad, expected, rtol=1e-5, atol=1e-5)


def uses_onednn(layer: nn.Module, states: torch.Tensor) -> bool:
    with profile() as profiler:
        linear(layer, states)
    return "mkldnn::_linear_pointwise" in {event.name for event in profiler.events()}


@pytest.mark.skipif(not ONEDNN_IS_FASTER, reason="this processor has no AVX-512, for which oneDNN is chosen")
@torch.no_grad()
def test_linear_multiplies_with_onednn_in_plain_float32_inference_alone() -> None:
    states = torch.randn(4, 8)
    assert uses_onednn(nn.Linear(8, 8), states)
    with torch.inference_mode():
        assert uses_onednn(nn.Linear(8, 8), torch.randn(4, 8))
    with torch.enable_grad():
        assert not uses_onednn(nn.Linear(8, 8), states)
    with torch.autocast("cpu", torch.bfloat16):
        assert not uses_onednn(nn.Linear(8, 8), states)
    with torch.backends.mkldnn.flags(enabled=False):
        assert not uses_onednn(nn.Linear(8, 8), states)
    with FlopCounterMode(display=False) as counter:
        assert not uses_onednn(nn.Linear(8, 8), states)
    assert counter.get_total_flops() == 2 * 4 * 8 * 8
    assert not uses_onednn(nn.Linear(8, 8).double(), states.double())

    class Doubled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    layer = Doubled(8, 8)
    assert torch.equal(linear(layer, states), 2 * F.linear(states, layer.weight, layer.bias))
    layer = nn.Linear(8, 8)
    layer.register_forward_hook(lambda module, inputs, output: output + 1)
    assert torch.equal(linear(layer, states), F.linear(states, layer.weight, layer.bias) + 1)
    layer = nn.Linear(8, 8)
    layer.forward = lambda input: input
    assert linear(layer, states) is states


@torch.no_grad()
def test_linear_fails_and_derives_as_torch_s_does() -> None:
    layer, states = nn.Linear(8, 8), torch.randn(4, 8)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        linear(layer, torch.randn(4, 7))
    assert linear(nn.Linear(8, 8, device="meta"), states.to("meta")).device.type == "meta"
    tangent = torch.func.jvp(lambda value: linear(layer, value), (states,), (torch.ones_like(states),))[1]
    torch.testing.assert_close(tangent, F.linear(torch.ones_like(states), layer.weight))


def test_dynamic_quantisation_finds_the_linear_layers() -> None:
    model = build(dtype=torch.float32)
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    kinds = [type(module).__module__ for module in quantised.modules() if type(module).__name__ == "Linear"]
    assert len(kinds) == 2 * (4 + 2) + 2 * (8 + 2) + 1
    assert all("quantized" in kind for kind in kinds)
    with torch.no_grad():
        assert quantised(**sources(), decoder_input_ids=torch.ones(3, 2).long()).logits.shape == (3, 2, VOCAB)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_several_targets_share_their_source(attention: str) -> None:
    model = build(attention, torch.float32)
    source = sources()
    targets = torch.randint(4, VOCAB, (3 * len(source["input_ids"]), 5), generator=torch.Generator().manual_seed(2))
    repeated = {name: tensor.repeat_interleave(3, dim=0) for name, tensor in source.items()}
    with torch.no_grad():
        shared = model(**source, decoder_input_ids=targets, output_attentions=attention == "eager")
        expected = model(**repeated, decoder_input_ids=targets, output_attentions=attention == "eager")
    torch.testing.assert_close(shared.logits, expected.logits, rtol=0, atol=1e-5)
    if attention == "eager":
        for found, wanted in zip(shared.cross_attentions, expected.cross_attentions, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


def test_targets_that_cannot_be_shared_out_are_an_error() -> None:
    model = build(dtype=torch.float32)
    source = sources()
    with pytest.raises(ValueError, match="equally many, for each of 3 sources, got 4"):
        model(**source, decoder_input_ids=torch.full((4, 3), 5))


@pytest.mark.parametrize("shape", [(0, 4), (2, 0)])
def test_no_tokens_are_an_error(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least one sequence of at least one token"):
        build(dtype=torch.float32)(
            input_ids=torch.zeros(shape, dtype=torch.long), decoder_input_ids=torch.ones(1, 1).long()
        )


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_decoder_positions_may_be_given(positions: str) -> None:
    model = build(dtype=torch.float32, positional_encoding=positions)
    source = sources()
    targets = torch.full((3, 4), 7)
    with torch.no_grad():
        expected = model(**source, decoder_input_ids=targets).logits
        same = model(**source, decoder_input_ids=targets, decoder_position_ids=torch.arange(4)).logits
        rows = model(**source, decoder_input_ids=targets, decoder_position_ids=torch.arange(4).expand(3, -1)).logits
        other = model(**source, decoder_input_ids=targets, decoder_position_ids=torch.arange(4) + 1).logits
    assert torch.equal(same, expected)
    assert torch.equal(rows, expected)
    assert not torch.allclose(other, expected)


def test_logits_to_keep() -> None:
    model = build(dtype=torch.float32)
    source = sources()
    targets = torch.randint(4, VOCAB, (3, 6), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        every = model(**source, decoder_input_ids=targets).logits
        last = model(**source, decoder_input_ids=targets, logits_to_keep=2).logits
        some = model(**source, decoder_input_ids=targets, logits_to_keep=torch.tensor([0, 4])).logits
    torch.testing.assert_close(last, every[:, -2:], rtol=0, atol=1e-5)
    torch.testing.assert_close(some, every[:, [0, 4]], rtol=0, atol=1e-5)
