"""The recurrent baseline against its equations in plain loops, and its comparison with the Transformer."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TRANSLATIONS, VOCAB, sources
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

import compare_recurrent
from recurrent import AdditiveAttention, MultiplicativeAttention, RecurrentConfig, RecurrentForConditionalGeneration
from vaswani_transformer.optimization import DropoutWarmup
from vaswani_transformer.pipeline_vaswani import TranslationPipeline
from vaswani_transformer.training import TranslationTrainer
from vaswani_transformer.training_arguments import parse_training_arguments
from vaswani_transformer.translation import translate

KINDS = {
    "additive": {"attention": "additive"},
    "multiplicative": {"attention": "multiplicative"},
    "input feeding": {"attention": "multiplicative", "input_feeding": True},
}
TARGETS = torch.tensor([[1, *row[:-1]] + [0] * (8 - len(row)) for row in TRANSLATIONS])
LABELS = torch.tensor([row + [-100] * (8 - len(row)) for row in TRANSLATIONS])


def create(kind: str, layers: int = 1, **options: float) -> RecurrentForConditionalGeneration:
    torch.manual_seed(0)
    shape = {"vocab_size": VOCAB, "d_model": 10, "hidden_size": 6, "encoder_layers": layers, "decoder_layers": layers}
    config = RecurrentConfig(**{**shape, **KINDS[kind], "dropout": 0.0, **options})
    return RecurrentForConditionalGeneration(config)


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> RecurrentForConditionalGeneration:
    """Two layers on each side, weights of no particular scale, in double precision."""
    model = create(request.param, layers=2).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=1.0)
    return model


def lstm_step(
    lstm: nn.LSTM, name: str, inputs: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of one layer of `lstm` on `inputs` (width,), by the equations."""
    weights = {part: getattr(lstm, f"{part}_{name}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    gates = weights["weight_ih"] @ inputs + weights["bias_ih"] + weights["weight_hh"] @ state[0] + weights["bias_hh"]
    take, forget, candidate, give = gates.chunk(4)
    cell = forget.sigmoid() * state[1] + take.sigmoid() * candidate.tanh()
    return give.sigmoid() * cell.tanh(), cell


def attend(
    model: RecurrentForConditionalGeneration, state: torch.Tensor, annotations: list[torch.Tensor]
) -> torch.Tensor:
    """The mean of the annotations by the attention of one decoder state, number by number."""
    attention, scores = model.decoder.attention, []
    for annotation in annotations:
        if isinstance(attention, AdditiveAttention):
            inner = attention.query.weight @ state + attention.query.bias + attention.key.weight @ annotation
            scores.append(sum(v * math.tanh(x) for v, x in zip(attention.score.weight[0], inner, strict=True)))
        else:
            scores.append(sum(h * k for h, k in zip(state, attention.key.weight @ annotation, strict=True)))
    exponentials = [math.exp(score) for score in scores]
    return sum(e / sum(exponentials) * annotation for e, annotation in zip(exponentials, annotations, strict=True))


@torch.no_grad()
def reference_logits(model: RecurrentForConditionalGeneration, source: list[int], target: list[int]) -> torch.Tensor:
    """Logits (target length, vocabulary) of one pair, word by word and layer by layer."""
    config, decoder, zeros = model.config, model.decoder, torch.zeros(model.config.hidden_size).double()
    embeddings = model.lm_head.weight * math.sqrt(config.d_model)
    annotations = [embeddings[token] for token in source]
    for layer in range(config.encoder_layers):
        directions = []
        for suffix, order in (("", 1), ("_reverse", -1)):
            state, states = (zeros, zeros), []
            for inputs in annotations[::order]:
                state = lstm_step(model.encoder.lstm, f"l{layer}{suffix}", inputs, state)
                states.append(state[0])
            directions.append(states[::order])
        annotations = [torch.cat(pair) for pair in zip(*directions, strict=True)]
    first = torch.tanh(decoder.first_state.weight @ annotations[0][config.hidden_size :] + decoder.first_state.bias)
    states = [(hidden, zeros) for hidden in first.chunk(config.decoder_layers)]
    logits, fed = [], torch.zeros(config.d_model).double()
    for token in target:
        inputs = embeddings[token]
        if config.attention == "additive":
            context = attend(model, states[-1][0], annotations)
            inputs = torch.cat((inputs, context))
        elif config.input_feeding:
            inputs = torch.cat((inputs, fed))
        for layer in range(config.decoder_layers):
            states[layer] = lstm_step(decoder.lstm, f"l{layer}", inputs, states[layer])
            inputs = states[layer][0]
        if config.attention == "additive":
            pairs = decoder.readout.weight @ torch.cat((embeddings[token], inputs, context)) + decoder.readout.bias
            predicting = torch.stack([max(pairs[i], pairs[i + 1]) for i in range(0, len(pairs), 2)])
        else:
            context = attend(model, inputs, annotations)
            predicting = fed = torch.tanh(decoder.combine.weight @ torch.cat((context, inputs)))
        logits.append(model.lm_head.weight @ predicting)
    return torch.stack(logits)


@torch.no_grad()
@pytest.mark.parametrize("kind", [AdditiveAttention, MultiplicativeAttention])
def test_attention_is_a_mean_by_the_scores(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    attention = kind(RecurrentConfig(hidden_size=2)).double()
    states, annotations = torch.randn(1, 3, 2).double(), torch.randn(1, 4, 4).double()
    padding = torch.tensor([[False, False, False, True]])
    found = attention(states, attention.key(annotations), annotations, padding)
    keys = annotations[0] @ attention.key.weight.T
    for place in range(3):
        weights = []
        for source in range(3):
            if kind is AdditiveAttention:
                query = attention.query.weight @ states[0, place] + attention.query.bias
                score = sum(attention.score.weight[0, i] * math.tanh(query[i] + keys[source, i]) for i in range(2))
            else:
                score = sum(states[0, place, i] * keys[source, i] for i in range(2))
            weights.append(math.exp(score))
        expected = sum(weight * annotations[0, source] for source, weight in enumerate(weights)) / sum(weights)
        torch.testing.assert_close(found[0, place], expected)


def test_the_model_is_its_equations(model: RecurrentForConditionalGeneration) -> None:
    found = model(**sources(), decoder_input_ids=TARGETS).logits
    for row, (source, target) in enumerate(zip(sources()["input_ids"].tolist(), TRANSLATIONS, strict=True)):
        expected = reference_logits(model, [token for token in source if token], [1, *target[:-1]])
        torch.testing.assert_close(found[row, : len(target)], expected)


def test_padding_and_neighbours_change_nothing(model: RecurrentForConditionalGeneration) -> None:
    inputs = sources()
    together = model(**inputs, decoder_input_ids=TARGETS).logits
    for row, length in enumerate(inputs["attention_mask"].sum(dim=1)):
        alone = model(inputs["input_ids"][row : row + 1, :length], decoder_input_ids=TARGETS[row : row + 1]).logits
        torch.testing.assert_close(together[row], alone[0])
    inputs["input_ids"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, 9)
    torch.testing.assert_close(model(**inputs, decoder_input_ids=TARGETS).logits, together)
    annotations = model.encoder(**inputs).last_hidden_state
    assert not annotations[inputs["attention_mask"] == 0].any()


def test_step_by_step_is_all_at_once(model: RecurrentForConditionalGeneration) -> None:
    inputs, state, steps = sources(), None, []
    expected = model(**inputs, decoder_input_ids=TARGETS, use_cache=False)
    assert expected.past_key_values is None
    for tokens in TARGETS.split(1, dim=1):
        outputs = model(**inputs, decoder_input_ids=tokens, past_key_values=state)
        state = outputs.past_key_values
        steps.append(outputs.logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), expected.logits)


def test_several_targets_share_a_source(model: RecurrentForConditionalGeneration) -> None:
    inputs, targets = sources(), torch.cat((TARGETS, TARGETS.flip(1)))
    order = [0, 3, 1, 4, 2, 5]
    shared = model(**inputs, decoder_input_ids=targets[order]).logits
    repeated = model(**{name: tensor.repeat(2, 1) for name, tensor in inputs.items()}, decoder_input_ids=targets)
    torch.testing.assert_close(shared, repeated.logits[order])


@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_cache_changes_no_translation(model: RecurrentForConditionalGeneration, num_beams: int) -> None:
    settings = {"num_beams": num_beams, "max_new_tokens": 9, "num_return_sequences": num_beams}
    found = model.generate(**sources(), **settings)
    assert found.tolist() == model.generate(**sources(), **settings, use_cache=False).tolist()
    assert len({tuple(row) for row in found.tolist()}) >= num_beams


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_loss_is_smoothed_cross_entropy(model: RecurrentForConditionalGeneration, epsilon: float) -> None:
    logits = model(**sources(), decoder_input_ids=TARGETS).logits.flatten(0, 1)
    # torch spreads epsilon over all classes, and we over the others.
    expected = F.cross_entropy(logits, LABELS.flatten(), label_smoothing=epsilon * VOCAB / (VOCAB - 1))
    torch.testing.assert_close(model(**sources(), labels=LABELS, label_smoothing=epsilon).loss, expected)
    total = model(**sources(), labels=LABELS, label_smoothing=epsilon, num_items_in_batch=1).loss
    torch.testing.assert_close(total, expected * LABELS.ne(-100).sum())
    if not epsilon:
        torch.testing.assert_close(model(**sources(), labels=LABELS).loss, expected)
    with pytest.raises(ValueError, match="label_smoothing must be"):
        model(**sources(), labels=LABELS, label_smoothing=1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_what_it_is_taught(kind: str, tmp_path: Path) -> None:
    model = create(kind, d_model=32, hidden_size=32, dropout=0.05)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        model(**sources(), labels=LABELS).loss.backward()
        optimizer.step()
    assert all(parameter.grad.any() for parameter in model.parameters())
    model.save_pretrained(tmp_path)
    loaded = RecurrentForConditionalGeneration.from_pretrained(tmp_path).eval()
    for num_beams in (1, 4):
        found = loaded.generate(**sources(), num_beams=num_beams).tolist()
        assert [row[1 : len(target) + 1] for row, target in zip(found, TRANSLATIONS, strict=True)] == TRANSLATIONS
    # The paper's beam search, with its limit, as the Transformer's.
    assert loaded.generation_config.length_penalty_type == "gnmt"


def test_a_translation_has_its_sources_limit(tokenizer: PreTrainedTokenizerBase) -> None:
    model = create("additive", vocab_size=len(tokenizer)).eval()
    with torch.no_grad():
        model.lm_head.weight[2] = 0.0  # it never ends
        model.decoder.readout.bias.fill_(1.0)
        model.lm_head.weight[7] = 1.0
    pipeline = TranslationPipeline(model, tokenizer=tokenizer)
    texts = ["The dog", "The dog sleeps in the old house"]
    found = pipeline(texts, num_beams=1, return_tensors=True)
    for text, record in zip(texts, found, strict=True):
        tokens = record["translation_token_ids"].tolist()
        assert sum(token == 7 for token in tokens) == len(tokenizer(text)["input_ids"]) + 50
    assert list(translate(pipeline, ["", " "])) == ["", ""]


def test_a_mistaken_configuration_is_refused() -> None:
    for options in (
        {"attention": "none"},
        {"attention": "additive", "input_feeding": True},
        {"hidden_size": 0},
        {"dropout": 1.0},
        {"tie_word_embeddings": False},
    ):
        with pytest.raises(StrictDataclassError):
            RecurrentConfig(**options)


def test_an_interrupted_comparison_goes_on(
    small_run: list[str],
    corpus_files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = [*small_run, "--max-steps", "3", "--output-dir", str(tmp_path), "--models", "multiplicative"]
    flags += ["--test-file", str(corpus_files["validation"]), "--num-beams", "1", "--eval-sentences", "0"]
    flags += ["--metric-for-best-model", "loss", "--max-minutes", "9"]
    update = TranslationTrainer.update

    def interrupt(self: TranslationTrainer, *arguments: Any) -> torch.Tensor:
        if self.state.step == 1:
            signal.raise_signal(signal.SIGTERM)
        return update(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TranslationTrainer, "update", interrupt)
        assert compare_recurrent.main(flags) == 128 + signal.SIGTERM
    assert "stopped; the same command goes on" in capsys.readouterr().err
    assert not (tmp_path / "multiplicative" / "finished.json").exists()
    assert compare_recurrent.main(flags) == 0
    records = [json.loads(line) for line in (tmp_path / "multiplicative" / "metrics.jsonl").open()]
    assert [record["step"] for record in records if "loss" in record] == [1, 2, 3]


def test_groups_of_lengths() -> None:
    texts = ["a", "a b", "a b c", "", "a b c d e"]
    # What has no word belongs to no group.
    assert compare_recurrent.length_groups(texts, [2, 3]) == {"1–2": [0, 1], "3–3": [2], "4+": [4]}


@pytest.mark.parametrize("name", ["additive", "multiplicative"])
def test_the_models_have_as_many_parameters(name: str, small_run: list[str], tmp_path: Path) -> None:
    settings = parse_training_arguments([*small_run, "--max-steps", "1", "--output-dir", str(tmp_path)])
    options = compare_recurrent.create_parser().parse_strictly(["--test-file", "test.tsv"])
    shape = compare_recurrent.recurrent_shape(name, settings, options)
    create_model, width = compare_recurrent.create_model, shape["hidden_size"]
    most = create_model("transformer", settings, {}).num_parameters()
    assert create_model(name, settings, shape).num_parameters() <= most
    assert create_model(name, settings, {**shape, "hidden_size": width + 8}).num_parameters() > most


def test_the_comparison(
    small_run: list[str], corpus_files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, record = tmp_path / "runs", tmp_path / "record.json"
    files = ["--test-file", str(corpus_files["validation"]), "--output-dir", str(runs), "--json", str(record)]
    options = "--eval-steps 2 --num-beams 2 --length-limits 4 8 --input-feeding"
    flags = [*small_run, *files, *options.split()]
    assert compare_recurrent.main([*flags, "--max-steps", "4"]) == 0
    output = capsys.readouterr().out
    figures = json.loads(record.read_text())
    names = ["transformer", "additive", "multiplicative"]
    assert list(figures["rows"]) == [line.split()[0] for line in output.splitlines()[2:5]] == names
    counts = figures["sentences_by_length"]
    assert list(counts) == ["1–4", "5–8", "9+"]
    assert sum(counts.values()) == 30
    for row in figures["rows"].values():
        assert row["updates"] == 4
        assert row["target_tokens_per_second"] > 0
        assert [sorted(each) for each in row["validations"]] == [["loss", "minutes"]] * 2
        assert row["validation_loss"] == row["validations"][-1]["loss"] < math.log(500) + 1
        assert row["minutes_to_target_loss"] is not None
        assert 0 <= row["bleu"] <= 100
        assert [score is None for score in row["bleu_by_length"].values()] == [not n for n in counts.values()]
    assert figures["rows"]["additive"]["input_feeding"] is False
    assert figures["rows"]["multiplicative"]["input_feeding"] is True
    config = RecurrentConfig.from_pretrained(runs / "multiplicative")
    assert (config.attention, config.input_feeding, config.vocab_size) == ("multiplicative", True, 500)

    # What is trained is not trained again; a longer training goes on where it ended.
    written = {name: (runs / name / "metrics.jsonl").read_bytes() for name in names}
    assert compare_recurrent.main([*flags, "--max-steps", "4", "--target-loss", "0.1"]) == 0
    assert {name: (runs / name / "metrics.jsonl").read_bytes() for name in names} == written
    again = json.loads(record.read_text())["rows"]
    assert [again[name]["bleu"] for name in names] == [figures["rows"][name]["bleu"] for name in names]
    assert {row["minutes_to_target_loss"] for row in again.values()} == {None}
    longer = [*flags, "--max-steps", "6", "--models", "additive"]
    assert compare_recurrent.main(longer) == 0
    assert (runs / "additive" / "metrics.jsonl").read_bytes().startswith(written["additive"])
    assert json.loads(record.read_text())["rows"]["additive"]["updates"] == 6
    capsys.readouterr()
    assert compare_recurrent.main([*longer, "--hidden-size", "9"]) == 2
    assert "hidden_size was" in capsys.readouterr().err
    assert compare_recurrent.main([*longer, "--recurrent-learning-rate", "0.05"]) == 2
    assert "learning_rate was 0.001 and is 0.05" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (["--test-file", "nowhere.tsv"], "nowhere.tsv"),
        (["--length-limits", "8", "4"], "--length-limits must rise"),
        (["--bpe-dropout", "0.1"], "bpe_dropout: the comparison has none"),
        (["--recurrent-learning-rate", "0"], "learning_rate must be above 0"),
        (["--models", "quadratic"], "invalid choice: 'quadratic'"),
        (["--max-step", "4"], "did you mean --max-steps?"),
        (["--json", "nowhere/record.json"], "there is no folder"),
        (["--json", "."], "is a folder, expected a file to write"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    mistake: list[str],
    text: str,
    small_run: list[str],
    corpus_files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = [*small_run, "--max-steps", "1", "--output-dir", str(tmp_path / "runs")]
    test_file = ["--test-file", str(corpus_files["validation"])]
    assert compare_recurrent.main([*flags, *test_file, "--models", "additive", *mistake]) == 2
    error = capsys.readouterr().err
    assert error.startswith("compare_recurrent.py: ")
    assert text in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["additive", "multiplicative"])
def test_dropout_rises_in_recurrent_models_too(name: str) -> None:
    shape = {"attention": name, "vocab_size": 20, "d_model": 8, "hidden_size": 8, "encoder_layers": 2}
    model = RecurrentForConditionalGeneration(RecurrentConfig(**shape, dropout=0.5)).train()
    source, labels = torch.arange(4, 14).reshape(2, 5), torch.arange(4, 14).reshape(2, 5)
    warmup = DropoutWarmup(model, 4)

    def differs(step: int) -> bool:
        warmup.set(step)
        with torch.no_grad():
            first, second = (model(input_ids=source, labels=labels, label_smoothing=0.1).loss for _ in range(2))
        return not torch.equal(first, second)

    assert [differs(1), differs(3), differs(5)] == [False, True, True]
    assert {module.dropout for module in model.modules() if hasattr(module, "dropout")} <= {0.0, 0.5}
