"""The model among its neighbours: the Auto classes, Trainer, PEFT, accelerate, torch.compile, transformers' caches."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from accelerate import infer_auto_device_map, init_empty_weights, load_checkpoint_and_dispatch
from conftest import VOCAB, sources
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache

from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration, VaswaniModel, modeling_vaswani
from vaswani_transformer.builtin_corpus import generate_pairs

IGNORED = -100


def build(attention: str = "sdpa", dtype: torch.dtype = torch.float64, **overrides: Any):
    """A small random model whose every weight counts, in evaluation mode."""
    small = {"vocab_size": VOCAB, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "d_ff": 24}
    torch.manual_seed(0)
    model = VaswaniForConditionalGeneration(VaswaniConfig(**{**small, "num_attention_heads": 2, **overrides}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    model.set_attn_implementation(attention)
    return model.to(dtype).eval()


def pairs() -> dict[str, torch.Tensor]:
    """`sources()` and targets of 4, 6 and 3 tokens."""
    labels = torch.randint(4, VOCAB, (3, 6), generator=torch.Generator().manual_seed(1))
    labels[0, 4:] = IGNORED
    labels[2, 3:] = IGNORED
    return {**sources(), "labels": labels}


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def is_tied(model: VaswaniForConditionalGeneration) -> bool:
    source = model.model.encoder.embed_tokens.weight
    return source is model.model.decoder.embed_tokens.weight and source is model.lm_head.weight


# The Auto classes (loading weights through them: test_modeling)


def test_the_auto_classes_find_model_and_tokenizer_in_a_folder(model_folder: Path) -> None:
    config = AutoConfig.from_pretrained(model_folder)
    assert type(config) is type(AutoConfig.for_model("vaswani")) is VaswaniConfig
    assert type(AutoModel.from_config(config)) is VaswaniModel
    fresh = AutoModelForSeq2SeqLM.from_config(config)
    assert type(fresh) is VaswaniForConditionalGeneration
    assert is_tied(fresh)

    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(model_folder), AutoTokenizer.from_pretrained(model_folder)
    assert tokenizer.is_fast
    special = ("pad_token_id", "bos_token_id", "eos_token_id")
    assert [getattr(tokenizer, name) for name in special] == [getattr(config, name) for name in special]
    batch = tokenizer(["Where is the old house?", "Tom"], return_tensors="pt", padding=True)
    assert tokenizer.batch_decode(batch["input_ids"], skip_special_tokens=True) == ["Where is the old house?", "Tom"]
    assert set(batch) == {"input_ids", "attention_mask"}  # `generate` refuses token types
    assert model.generate(**batch, num_beams=1, max_new_tokens=3, suppress_tokens=[2]).shape == (2, 4)


# Trainer


@pytest.fixture(scope="module")
def examples(tokenizer: PreTrainedTokenizerBase) -> list[dict[str, list[int]]]:
    """120 encoded pairs of the built-in corpus."""
    return [
        dict(tokenizer(pair["en"], text_target=pair["de"], return_attention_mask=True))
        for pair in generate_pairs("train", 120)
    ]


def trainer(
    model: VaswaniForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    examples: list[dict[str, list[int]]],
    folder: Path,
    **options: Any,
) -> Seq2SeqTrainer:
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_steps": 1}
    return Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(output_dir=str(folder), **{**quiet, **options}),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        train_dataset=examples[:100],
        eval_dataset=examples[100:],
        processing_class=tokenizer,
    )


def losses(run: Seq2SeqTrainer) -> list[float]:
    return [entry["loss"] for entry in run.state.log_history if "loss" in entry]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_seq2seq_trainer_fine_tunes_and_evaluates_with_translations(
    model_folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    examples: list[dict[str, list[int]]],
    tmp_path: Path,
    label_smoothing: float,
) -> None:
    model = AutoModelForSeq2SeqLM.from_pretrained(model_folder)
    translations = []

    def keep(prediction: Any) -> dict[str, float]:
        translations.extend(tokenizer.batch_decode(prediction.predictions.clip(min=0), skip_special_tokens=True))
        return {}

    run = trainer(
        model,
        tokenizer,
        examples,
        tmp_path,
        max_steps=40,
        learning_rate=1e-2,
        per_device_train_batch_size=16,
        label_smoothing_factor=label_smoothing,
        predict_with_generate=True,
        generation_max_length=12,
        generation_num_beams=2,
    )
    run.compute_metrics = keep
    before = run.evaluate()["eval_loss"]
    run.train()
    after = run.evaluate()["eval_loss"]
    first, last = losses(run)[0], sum(losses(run)[-5:]) / 5
    assert first == pytest.approx(before, abs=0.3)  # both of the untrained model
    assert last < first - 1.2
    assert after < before - 1.2
    assert len(translations) == 2 * 20
    assert any(translations[20:])
    assert translations[20:] != translations[:20]
    assert is_tied(model)


def test_the_trainer_s_label_smoothing_is_its_own_formula(
    model_folder: Path, tokenizer: PreTrainedTokenizerBase, examples: list[dict[str, list[int]]], tmp_path: Path
) -> None:
    model = AutoModelForSeq2SeqLM.from_pretrained(model_folder)
    run = trainer(model, tokenizer, examples, tmp_path, label_smoothing_factor=0.3, per_device_eval_batch_size=20)
    batch = run.data_collator([dict(example) for example in examples[100:]])
    labels = batch["labels"]
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).logits
    # torch's formula spreads the mass over all classes, as the Trainer's does
    expected = F.cross_entropy(logits.transpose(1, 2), labels, label_smoothing=0.3)
    assert run.evaluate()["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)
    run.label_smoother = None
    plain = F.cross_entropy(logits.transpose(1, 2), labels)
    assert run.evaluate()["eval_loss"] == pytest.approx(plain.item(), rel=1e-5)
    assert plain.item() != pytest.approx(expected.item(), rel=1e-3)


def test_accumulated_gradients_are_those_of_one_large_batch(
    model_folder: Path, tokenizer: PreTrainedTokenizerBase, examples: list[dict[str, list[int]]], tmp_path: Path
) -> None:
    longest_first = sorted(examples, key=lambda example: -len(example["labels"]))
    # a mean of the two halves' means is not the mean of the whole
    uneven = [*longest_first[:8], *longest_first[-8:]]
    results = {}
    for size, accumulation in ((16, 1), (8, 2), (2, 8)):
        model = AutoModelForSeq2SeqLM.from_pretrained(model_folder, dropout=0.0)
        run = trainer(
            model,
            tokenizer,
            examples,
            tmp_path,
            max_steps=1,
            optim="sgd",
            learning_rate=1.0,
            lr_scheduler_type="constant",
            max_grad_norm=0.0,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
        )
        run.train_dataset = uneven
        run.train()
        results[size] = (losses(run), {name: p.detach().clone() for name, p in model.named_parameters()})
    loss, weights = results.pop(16)
    untrained = AutoModelForSeq2SeqLM.from_pretrained(model_folder)
    for name, parameter in untrained.named_parameters():
        assert (weights[name] - parameter).abs().max() > 1e-4, name
    for other_loss, other_weights in results.values():
        assert other_loss == pytest.approx(loss, rel=1e-4)
        for name, weight in other_weights.items():
            torch.testing.assert_close(weight, weights[name], rtol=1e-5, atol=1e-6, msg=name)


def test_the_trainer_saves_resumes_and_keeps_the_best(
    model_folder: Path, tokenizer: PreTrainedTokenizerBase, examples: list[dict[str, list[int]]], tmp_path: Path
) -> None:
    options = {
        "max_steps": 6,
        "learning_rate": 5e-3,
        "per_device_train_batch_size": 8,
        "save_strategy": "steps",
        "eval_strategy": "steps",
        "save_steps": 2,
        "eval_steps": 2,
    }
    whole = trainer(AutoModelForSeq2SeqLM.from_pretrained(model_folder), tokenizer, examples, tmp_path, **options)
    whole.train()
    resumed = trainer(
        AutoModelForSeq2SeqLM.from_pretrained(model_folder), tokenizer, examples, tmp_path / "resumed", **options
    )
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert losses(resumed) == losses(whole)
    assert is_tied(resumed.model)
    for (name, one), other in zip(whole.model.named_parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other), name

    best = trainer(
        AutoModelForSeq2SeqLM.from_pretrained(model_folder),
        tokenizer,
        examples,
        tmp_path / "best",
        **options,
        load_best_model_at_end=True,
        greater_is_better=True,  # the worst loss, which is not the last one
        metric_for_best_model="loss",
    )
    best.train()
    assert best.state.best_model_checkpoint == str(tmp_path / "best" / "checkpoint-2")
    stored = load_file(tmp_path / "best" / "checkpoint-2" / "model.safetensors")
    assert stored.keys() == dict(best.model.named_parameters()).keys()  # one matrix for all three
    for name, parameter in best.model.named_parameters():
        assert torch.equal(parameter, stored[name]), name
    assert is_tied(best.model)

    best.save_model(str(tmp_path / "final"))
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "final")
    assert is_tied(loaded)
    for (name, one), other in zip(best.model.named_parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, other), name
    assert AutoTokenizer.from_pretrained(tmp_path / "final")("Tom") == tokenizer("Tom")


# PEFT


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["q_proj", "v_proj", "fc1", "fc2"]], ids=len)
def test_lora_trains_adapters_alone(targets: list[str], tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    build().float().save_pretrained(tmp_path / "base")

    def load() -> VaswaniForConditionalGeneration:
        return AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "base")

    base = load()
    frozen = {name: p.detach().clone() for name, p in base.named_parameters()}
    expected = base(**pairs()).logits
    settings = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", r=4, target_modules=targets, lora_dropout=0.0)
    model = peft.get_peft_model(base, settings)
    assert torch.equal(model(**pairs()).logits, expected)

    # 2 encoder and 2 decoder layers with 1 and 2 attentions, and a feed-forward network each
    adapted = {name.split(".lora_")[0] for name, _ in model.named_parameters() if ".lora_" in name}
    assert len(adapted) == (2 * 1 + 2 * 2) * 2 + (4 * 2 if "fc1" in targets else 0)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-2)
    progress = []
    for step in range(30):
        optimizer.zero_grad()
        loss = model(**pairs(), label_smoothing=0.1 if step % 2 else None).loss
        loss.backward()
        if step == 2:  # the first step moves only the B matrices, as the A's gradients are products with B = 0
            assert {name.split(".lora_")[0] for name in gradients(model)} == adapted
            assert all(gradient.any() for gradient in gradients(model).values())
        optimizer.step()
        progress.append(loss.item())
    assert progress[-2] < 0.9 * progress[0]  # of the steps without smoothing
    for name, parameter in model.get_base_model().named_parameters():
        if "lora_" not in name:
            assert torch.equal(parameter, frozen[name.replace("base_layer.", "")]), name

    model.eval()
    with torch.no_grad():
        trained = model(**pairs()).logits
    assert not torch.allclose(trained, expected, atol=1e-2)
    options = {"num_beams": 3, "max_new_tokens": 6}
    translations = model.generate(**sources(), **options)
    model.save_pretrained(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    for loaded in (
        peft.PeftModel.from_pretrained(load(), tmp_path / "adapter").eval(),
        peft.AutoPeftModelForSeq2SeqLM.from_pretrained(tmp_path / "adapter").eval(),
    ):
        with torch.no_grad():
            assert torch.equal(loaded(**pairs()).logits, trained)
        assert torch.equal(loaded.generate(**sources(), **options), translations)

    merged = model.merge_and_unload()
    assert type(merged) is VaswaniForConditionalGeneration
    assert merged.state_dict().keys() == load().state_dict().keys()
    assert is_tied(merged)
    with torch.no_grad():
        torch.testing.assert_close(merged(**pairs()).logits, trained, rtol=1e-4, atol=1e-3)
    assert torch.equal(merged.generate(**sources(), **options), translations)


# accelerate's loading of large models


@pytest.fixture(scope="module")
def deep_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 3 + 3 layers."""
    folder = tmp_path_factory.mktemp("deep")
    build(encoder_layers=3, decoder_layers=3).save_pretrained(folder)
    return folder


SOME_ON_DISK = {
    "model.encoder.embed_tokens": "cpu",
    "model.encoder.embeddings": "cpu",
    "model.encoder.layers.0": "cpu",
    "model.encoder.layers.1": "disk",
    "model.encoder.layers.2": "cpu",
    "model.encoder.layer_norm": "cpu",
    "model.decoder.embed_tokens": "cpu",
    "model.decoder.embeddings": "cpu",
    "model.decoder.layers.0": "disk",
    "model.decoder.layers.1": "cpu",
    "model.decoder.layers.2": "disk",
    "model.decoder.layer_norm": "cpu",
    "lm_head": "cpu",
}
OTHERS_ON_DISK = {name: "disk" if device == "cpu" else "cpu" for name, device in SOME_ON_DISK.items()}


@pytest.mark.parametrize(
    ("loader", "device_map"),
    # accelerate alone cannot put a tied matrix on disk: the checkpoint has it under one of its names
    [("accelerate", SOME_ON_DISK), ("from_pretrained", SOME_ON_DISK), ("from_pretrained", OTHERS_ON_DISK)],
    ids=["accelerate-layers", "layers", "layers-and-embeddings"],
)
def test_layers_offloaded_to_disk_give_the_same_numbers(
    deep_folder: Path, tmp_path: Path, loader: str, device_map: dict[str, str]
) -> None:
    whole = AutoModelForSeq2SeqLM.from_pretrained(deep_folder)
    if loader == "accelerate":
        with init_empty_weights():
            empty = AutoModelForSeq2SeqLM.from_config(whole.config, dtype=torch.float64)
        empty.tie_weights()
        assert {p.device.type for p in empty.parameters()} == {"meta"}
        model = load_checkpoint_and_dispatch(
            empty, str(deep_folder), device_map=device_map, offload_folder=str(tmp_path)
        ).eval()
    else:
        model = AutoModelForSeq2SeqLM.from_pretrained(deep_folder, device_map=device_map, offload_folder=str(tmp_path))
    prefixes = tuple(f"{name}." for name, device in device_map.items() if device == "disk")
    on_disk = {name for name, p in model.named_parameters() if p.device.type == "meta"}
    on_disk -= {"model.decoder.embed_tokens.weight", "lm_head.weight"}  # other names of the source embedding
    assert on_disk == {name for name, _ in whole.named_parameters() if name.startswith(prefixes)}
    assert 0 < len(on_disk) < len(dict(whole.named_parameters()))
    with torch.no_grad():
        torch.testing.assert_close(model(**pairs()).logits, whole(**pairs()).logits, rtol=0, atol=1e-11)
    options = {"num_beams": 2, "max_new_tokens": 5}
    assert torch.equal(model.generate(**sources(), **options), whole.generate(**sources(), **options))


@pytest.mark.parametrize("device_map", ["auto", "balanced", {"": "cpu"}], ids=str)
def test_a_device_map_leaves_weights_tied(deep_folder: Path, device_map: str | dict[str, str]) -> None:
    whole = AutoModelForSeq2SeqLM.from_pretrained(deep_folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(deep_folder, device_map=device_map)
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert is_tied(model)
    with torch.no_grad():
        assert torch.equal(model(**pairs()).logits, whole(**pairs()).logits)


@pytest.mark.parametrize("tied", [True, False])
def test_an_inferred_device_map_splits_no_layer_and_no_tied_matrix(tied: bool) -> None:
    with init_empty_weights():
        model = VaswaniForConditionalGeneration(
            VaswaniConfig.tiny(vocab_size=500, d_model=64, d_ff=96, tie_word_embeddings=tied)
        )
    model.tie_weights()
    size = 4 * model.num_parameters()
    layers = [name for name, module in model.named_modules() if type(module).__name__ in model._no_split_modules]
    assert len(layers) == 3 + 3
    seen = set()
    for tenth in range(1, 10):
        device_map = infer_auto_device_map(
            model,
            max_memory={"cpu": size * tenth // 10, "disk": 10 * size},
            no_split_module_classes=model._no_split_modules,
        )
        seen |= {device for name, device in device_map.items() if name in layers}
        for layer in layers:
            assert not [name for name in device_map if name.startswith(f"{layer}.")], (tenth, layer)
        if tied:
            embeddings = [name for name in device_map if name.endswith("embed_tokens") or name == "lm_head"]
            assert len({device_map[name] for name in embeddings}) <= 1, tenth
    assert seen == {"cpu", "disk"}  # the border did run between layers


# torch.compile


@pytest.fixture
def fresh_compiler() -> None:
    torch._dynamo.reset()


def training_step(
    model: VaswaniForConditionalGeneration, call: Callable, batch: dict[str, torch.Tensor], **options: Any
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad(set_to_none=True)
    loss = call(**batch, **options).loss
    loss.backward()
    return loss.detach(), gradients(model)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("label_smoothing", [None, 0.1])
def test_the_training_step_compiles_without_a_break(label_smoothing: float | None) -> None:
    model = build(encoder_layers=1, decoder_layers=1, dropout=0.0).train()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    loss, expected = training_step(model, model, pairs(), label_smoothing=label_smoothing)
    compiled_loss, actual = training_step(model, compiled, pairs(), label_smoothing=label_smoothing)
    torch.testing.assert_close(compiled_loss, loss, rtol=1e-12, atol=0)
    assert actual.keys() == expected.keys() == dict(model.named_parameters()).keys()
    for name, gradient in actual.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12, msg=name)


def test_each_copy_of_the_model_s_file_has_its_own_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    # the Hub's copy of the file is loaded beside the package's, from a folder of any name
    spec = importlib.util.spec_from_file_location(
        "vaswani_transformer.é 1-modeling", Path(modeling_vaswani.__file__).resolve()
    )
    duplicate = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, duplicate)
    spec.loader.exec_module(duplicate)
    operators = [module.compiled_smoothed_loss_and_gradients for module in (modeling_vaswani, duplicate)]
    assert operators[0]._qualname != operators[1]._qualname
    states, weight = torch.randn(6, 16), torch.randn(VOCAB, 16)
    labels = torch.tensor([5, IGNORED, 7, 8, IGNORED, 9])
    for needs_gradient in (True, False):
        arguments = (states, weight, labels, 0.1, needs_gradient)
        expected = modeling_vaswani.smoothed_loss_and_gradients(*arguments)
        for operator in operators:
            for actual, tensor in zip(operator(*arguments), expected, strict=True):
                assert torch.equal(actual, tensor)
            # what it tells the compiler of its outputs is true
            torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.usefixtures("fresh_compiler")
def test_batches_of_any_shape_share_a_compiled_training_step() -> None:
    model = build(encoder_layers=1, decoder_layers=1, dropout=0.0).train()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for rows, source_length, target_length in ((3, 7, 6), (2, 5, 4), (6, 13, 11), (4, 9, 21)):
        batch = {
            "input_ids": torch.randint(4, VOCAB, (rows, source_length)),
            "labels": torch.randint(4, VOCAB, (rows, target_length)),
        }
        batch["labels"][0, target_length // 2 :] = IGNORED  # another number of targets, too
        loss, expected = training_step(model, model, batch, label_smoothing=0.1)
        compiled_loss, actual = training_step(model, compiled, batch, label_smoothing=0.1)
        torch.testing.assert_close(compiled_loss, loss, rtol=1e-12, atol=0)
        for name, gradient in actual.items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12, msg=name)
    # one for the first shape, one for all others
    assert counter.frame_count == 2


@pytest.mark.usefixtures("fresh_compiler")
def test_the_training_step_compiles_under_autocast_with_dropout_and_checkpointing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = build(dtype=torch.float32, encoder_layers=1, decoder_layers=1, dropout=0.1).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    # the "eager" back end would draw other dropout when it computes a checkpointed layer again
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    results = []
    for call in (model, compiled):
        torch.manual_seed(0)
        with monkeypatch.context() as patch, torch.autocast("cpu", dtype=torch.bfloat16):
            if call is model:  # the compiled step draws its dropout as F.dropout does
                patch.setattr(modeling_vaswani, "apply_dropout", F.dropout)
            results.append(training_step(model, call, pairs(), label_smoothing=0.1, num_items_in_batch=13))
    (loss, expected), (compiled_loss, actual) = results
    torch.testing.assert_close(compiled_loss, loss, rtol=1e-3, atol=0)
    assert actual.keys() == expected.keys()
    for name, gradient in actual.items():  # bfloat16 sums depend on the order of their addends
        assert (gradient - expected[name]).norm() < 0.05 * expected[name].norm(), name


def decode(model: VaswaniForConditionalGeneration, call: Callable, target: torch.Tensor) -> torch.Tensor:
    """Logits of `target` (3, length), one token at a time, with a static cache."""
    cache = EncoderDecoderCache(
        StaticCache(config=model.config, max_cache_len=target.shape[1] + 2),
        StaticCache(config=model.config, max_cache_len=7),
    )
    encoded = model.get_encoder()(**sources())
    steps = [
        call(
            encoder_outputs=encoded,
            attention_mask=sources()["attention_mask"],
            decoder_input_ids=token,
            past_key_values=cache,
        ).logits
        for token in target.split(1, dim=1)
    ]
    return torch.cat(steps, dim=1)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_decoding_step_compiles_without_a_break(attention: str) -> None:
    model = build(attention)
    target = torch.randint(4, VOCAB, (3, 6), generator=torch.Generator().manual_seed(1))
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    with torch.no_grad():
        expected = model(**sources(), decoder_input_ids=target, use_cache=False).logits
        torch.testing.assert_close(decode(model, model, target), expected, rtol=0, atol=1e-11)
        torch.testing.assert_close(decode(model, compiled, target), expected, rtol=0, atol=1e-11)
    # the first step stores the encoder's keys and values, all later ones are one graph
    assert counter.frame_count == 2


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_generated_code_gives_the_same_numbers() -> None:
    model = build(dtype=torch.float32, dropout=0.0).train()
    compiled = torch.compile(model, fullgraph=True)
    for label_smoothing in (None, 0.1):
        loss, expected = training_step(model, model, pairs(), label_smoothing=label_smoothing)
        compiled_loss, actual = training_step(model, compiled, pairs(), label_smoothing=label_smoothing)
        torch.testing.assert_close(compiled_loss, loss, rtol=1e-5, atol=0)
        for name, gradient in actual.items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-4, msg=name)
    model.eval()
    target = torch.randint(4, VOCAB, (3, 6), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(decode(model, compiled, target), decode(model, model, target), rtol=1e-4, atol=1e-3)


# Attention back ends and caches in generate()


BEAMS = {"num_return_sequences": 4, "num_beams": 4}


@pytest.mark.parametrize(
    ("attention", "beams"),
    [
        ("eager", {"num_beams": 1}),
        ("eager", BEAMS),
        pytest.param("flex_attention", {"num_beams": 1}, marks=pytest.mark.slow),
        pytest.param("flex_attention", BEAMS, marks=pytest.mark.slow),
    ],
    ids=["eager-greedy", "eager-beams", "flex-greedy", "flex-beams"],
)
def test_generate_gives_the_same_tokens_with_each_attention(
    trained: VaswaniForConditionalGeneration, attention: str, beams: dict[str, int]
) -> None:
    options = {**beams, "max_new_tokens": 9}
    assert trained.config._attn_implementation == "sdpa"
    expected = trained.generate(**sources(), **options)
    other = copy.deepcopy(trained).float()  # flex_attention does not do float64 on a CPU
    other.set_attn_implementation(attention)
    assert torch.equal(other.generate(**sources(), **options), expected)


@pytest.mark.parametrize("beams", [{"num_beams": 1}, BEAMS], ids=["greedy", "beams"])
@pytest.mark.parametrize("kind", ["dynamic", "static", "given-dynamic", "given-static"])
def test_generate_gives_the_same_tokens_with_each_cache(
    trained: VaswaniForConditionalGeneration, kind: str, beams: dict[str, int]
) -> None:
    options = {**beams, "max_new_tokens": 9}
    expected = trained.generate(**sources(), **options, use_cache=False)
    assert len({tuple(row) for row in expected.tolist()}) == 3 * beams["num_beams"]
    if kind == "given-dynamic":
        chosen = {"past_key_values": EncoderDecoderCache(DynamicCache(), DynamicCache())}
    elif kind == "given-static":
        parts = [StaticCache(config=trained.config, max_cache_len=length) for length in (16, 7)]
        chosen = {"past_key_values": EncoderDecoderCache(*parts)}
    else:
        chosen = {"cache_implementation": kind}
    assert torch.equal(trained.generate(**sources(), **options, **chosen), expected)
