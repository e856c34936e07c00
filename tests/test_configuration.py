"""The configuration: the paper's numbers, the checks, and what survives a round trip through JSON."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from vaswani_transformer import VaswaniConfig

# `strict` wraps what its validators raise; what `__post_init__` raises arrives bare.
INVALID = (ValueError, StrictDataclassError)

# Table 3 of the paper, rows "base" and "big", with d_k; dropout 0.3 is the big model's English-German setting.
PRESETS = {
    "base": {"layers": 6, "d_model": 512, "d_ff": 2048, "heads": 8, "d_k": 64, "dropout": 0.1, "vocab_size": 37000},
    "big": {"layers": 6, "d_model": 1024, "d_ff": 4096, "heads": 16, "d_k": 64, "dropout": 0.3, "vocab_size": 37000},
    "tiny": {"layers": 3, "d_model": 256, "d_ff": 1024, "heads": 4, "d_k": 64, "dropout": 0.1, "vocab_size": 8000},
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_hold_the_published_values(name: str) -> None:
    config = getattr(VaswaniConfig, name)()
    assert {
        "layers": config.encoder_layers,
        "d_model": config.d_model,
        "d_ff": config.d_ff,
        "heads": config.num_attention_heads,
        "d_k": config.head_dim,
        "dropout": config.dropout,
        "vocab_size": config.vocab_size,
    } == PRESETS[name]
    assert config.decoder_layers == config.encoder_layers
    assert (config.attention_dropout, config.activation_dropout) == (0.0, 0.0)
    assert (config.attention_bias, config.norm_first, config.tie_word_embeddings) == (False, False, True)
    assert (config.activation_function, config.positional_encoding) == ("relu", "sinusoidal")
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (0, 1, 2)
    assert config.decoder_start_token_id == 1
    assert config.is_encoder_decoder


def test_the_default_is_the_base_preset() -> None:
    assert VaswaniConfig().to_dict() == VaswaniConfig.base().to_dict()


@pytest.mark.parametrize("name", PRESETS)
def test_overrides_change_a_preset(name: str) -> None:
    config = getattr(VaswaniConfig, name)(vocab_size=99, d_model=128, dropout=0.2, num_attention_heads=2)
    assert (config.vocab_size, config.d_model, config.dropout, config.num_attention_heads) == (99, 128, 0.2, 2)
    assert config.head_dim == 64
    assert config.d_ff == PRESETS[name]["d_ff"]


def test_head_dim_is_derived_or_free() -> None:
    assert VaswaniConfig(d_model=48, num_attention_heads=6).head_dim == 8
    # rows (A) and (B) of table 3: h = 1 with d_k = 512, and d_k = 16 with h = 8
    assert VaswaniConfig(num_attention_heads=1).head_dim == 512
    assert VaswaniConfig(head_dim=16).head_dim == 16
    assert VaswaniConfig(d_model=50, num_attention_heads=8, head_dim=7).head_dim == 7


def test_a_width_that_the_heads_do_not_divide_needs_head_dim() -> None:
    with pytest.raises(INVALID, match=r"head_dim.*d_model=50 and num_attention_heads=8"):
        VaswaniConfig(d_model=50, num_attention_heads=8)


SIZES = [
    "vocab_size",
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "num_attention_heads",
    "head_dim",
    "d_ff",
    "max_position_embeddings",
]


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("field", SIZES)
def test_sizes_below_one_are_errors(field: str, value: int) -> None:
    # -8 heads would divide d_model, so that no other check answers first
    value *= 8
    with pytest.raises(INVALID, match=rf"{field} must be at least 1, got {value}"):
        VaswaniConfig(**{field: value})


@pytest.mark.parametrize("field", SIZES)
def test_sizes_of_one_are_allowed(field: str) -> None:
    odd = {"positional_encoding": "learned", "num_attention_heads": 1} if field == "d_model" else {}
    assert getattr(VaswaniConfig(**{field: 1, **odd}), field) == 1


@pytest.mark.parametrize("value", [-0.1, 1, 1.0, 1.5, math.nan])
@pytest.mark.parametrize("field", ["dropout", "attention_dropout", "activation_dropout"])
def test_dropouts_outside_their_range_are_errors(field: str, value: float) -> None:
    with pytest.raises(INVALID, match=rf"\b{field} must be at least 0 and below 1"):
        VaswaniConfig(**{field: value})


@pytest.mark.parametrize("value", [0, 0.0, 0.999])
@pytest.mark.parametrize("field", ["dropout", "attention_dropout", "activation_dropout"])
def test_dropouts_inside_their_range_are_allowed(field: str, value: float) -> None:
    assert getattr(VaswaniConfig(**{field: value}), field) == value


def test_an_odd_width_needs_learned_positions() -> None:
    with pytest.raises(INVALID, match="d_model must be even with sinusoidal positions"):
        VaswaniConfig(d_model=15, num_attention_heads=3)
    assert VaswaniConfig(d_model=15, num_attention_heads=3, positional_encoding="learned").d_model == 15


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("d_model", "x"),
        ("d_model", 512.0),
        ("vocab_size", "37000"),
        ("encoder_layers", None),
        ("num_attention_heads", "8"),
        ("head_dim", "64"),
        ("dropout", "0.1"),
        ("dropout", None),
        ("norm_first", "no"),
        ("tie_word_embeddings", "false"),
        ("activation_function", 1),
        ("positional_encoding", "rotary"),
        ("positional_encoding", None),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error_that_names_the_field(field: str, value: Any) -> None:
    with pytest.raises(INVALID, match=field):
        VaswaniConfig(**{field: value})


def test_assigning_a_value_of_the_wrong_type_is_an_error() -> None:
    config = VaswaniConfig()
    with pytest.raises(INVALID, match="positional_encoding"):
        config.positional_encoding = "rotary"


def test_the_common_names_read_write_and_construct() -> None:
    config = VaswaniConfig(hidden_size=64, num_hidden_layers=2, decoder_layers=5, num_attention_heads=4)
    assert (config.d_model, config.encoder_layers, config.decoder_layers) == (64, 2, 5)
    assert (config.hidden_size, config.num_hidden_layers) == (64, 2)
    config.hidden_size = 128
    assert config.d_model == 128
    assert not {"hidden_size", "num_hidden_layers"} & config.to_dict().keys()


def test_head_dim_follows_a_width_given_by_its_common_name() -> None:
    assert VaswaniConfig(hidden_size=64, num_attention_heads=4).head_dim == 16
    with pytest.raises(INVALID, match=r"head_dim.*d_model=50 and num_attention_heads=8"):
        VaswaniConfig(hidden_size=50, num_attention_heads=8)


def test_json_round_trip(tmp_path: Path) -> None:
    # every field away from its default, so that none can pass by being left out
    fields: dict[str, Any] = {
        "vocab_size": 53,
        "d_model": 15,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "num_attention_heads": 4,
        "head_dim": 5,
        "d_ff": 7,
        "activation_function": "gelu",
        "dropout": 0.25,
        "attention_dropout": 0.125,
        "activation_dropout": 0.0625,
        "attention_bias": True,
        "norm_first": True,
        "positional_encoding": "learned",
        "tie_word_embeddings": False,
        "max_position_embeddings": 33,
        "pad_token_id": 3,
        "bos_token_id": 4,
        "eos_token_id": 5,
        "decoder_start_token_id": 6,
        "use_cache": False,
    }
    defaults = VaswaniConfig()
    assert all(getattr(defaults, name) != value for name, value in fields.items())
    config = VaswaniConfig(**fields)
    config.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert {name: written[name] for name in fields} == fields
    assert written["model_type"] == "vaswani"
    for loaded in (VaswaniConfig.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert type(loaded) is VaswaniConfig
        assert {name: getattr(loaded, name) for name in fields} == fields
        # where it was loaded from is all that a round trip may add
        assert loaded.to_dict() | {"_name_or_path": ""} == config.to_dict()


def test_a_config_file_with_a_bad_value_is_an_error(tmp_path: Path) -> None:
    VaswaniConfig().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"d_ff": 0}))
    with pytest.raises(INVALID, match="d_ff must be at least 1, got 0"):
        AutoConfig.from_pretrained(tmp_path)


def test_the_installed_package_needs_no_code_of_a_repository(tmp_path: Path) -> None:
    config = VaswaniConfig.tiny()
    config.auto_map = {"AutoConfig": "evil.Config"}
    config.custom_pipelines = {"translation": {"impl": "evil.Pipeline", "pt": ["AutoModelForSeq2SeqLM"]}}
    config.save_pretrained(tmp_path)
    assert "evil" in (tmp_path / "config.json").read_text()
    for loaded in (AutoConfig.from_pretrained(tmp_path), VaswaniConfig.from_pretrained(tmp_path)):
        assert loaded.to_diff_dict() == VaswaniConfig.tiny().to_diff_dict()
        loaded.save_pretrained(tmp_path / "again")
        assert "evil" not in (tmp_path / "again" / "config.json").read_text()
