import itertools
import math

import pytest
import torch
from torch import nn

from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.optimization import DropoutWarmup, create_optimizer, learning_rate_at

STEPS = [1, 2, 3, 10, 399, 400, 401, 3999, 4000, 4001, 10_000, 100_000, 300_000, 10_000_000]


@pytest.mark.parametrize(("d_model", "warmup_steps"), [(512, 4000), (1024, 4000), (128, 400), (64, 1)])
def test_the_rate_is_equation_3(d_model: int, warmup_steps: int) -> None:
    for step in STEPS:
        # The paper's own form, not the code's rearrangement of it.
        paper = d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
        assert learning_rate_at(step, d_model, warmup_steps) == pytest.approx(paper, rel=1e-12)


def test_the_base_model_peaks_at_the_published_rate() -> None:
    # (512 * 4000)^-0.5 is the 7e-4 that every reimplementation quotes.
    assert learning_rate_at(4000, 512, 4000) == pytest.approx(6.987712429686843e-4, rel=1e-12)


@pytest.mark.parametrize("peak", [None, 0.005])
@pytest.mark.parametrize("warmup_steps", [1, 7, 400])
def test_the_rate_rises_to_the_peak_at_warmup_and_falls_after(warmup_steps: int, peak: float | None) -> None:
    rates = [learning_rate_at(step, 256, warmup_steps, peak) for step in range(1, 3 * warmup_steps + 2)]
    highest = (256 * warmup_steps) ** -0.5 if peak is None else peak
    assert rates[warmup_steps - 1] == pytest.approx(highest, rel=1e-12)
    before, after = rates[:warmup_steps], rates[warmup_steps - 1 :]
    assert all(one < next_one for one, next_one in itertools.pairwise(before))
    assert all(one > next_one for one, next_one in itertools.pairwise(after))


def test_the_rate_is_continuous_at_warmup() -> None:
    warmup_steps = 4000
    peak = learning_rate_at(warmup_steps, 512, warmup_steps)
    for step in (warmup_steps - 1, warmup_steps + 1):
        assert abs(learning_rate_at(step, 512, warmup_steps) - peak) <= peak / warmup_steps * (1 + 1e-9)


def test_a_given_peak_scales_the_schedule_and_makes_the_width_irrelevant() -> None:
    for step in STEPS:
        rate = learning_rate_at(step, 128, 2000, peak=0.005)
        assert rate == learning_rate_at(step, 1024, 2000, peak=0.005)
        assert rate == pytest.approx(0.005 * min(step / 2000, math.sqrt(2000 / step)), rel=1e-12)


@pytest.mark.parametrize(("step", "warmup_steps"), [(0, 4000), (-1, 4000), (1, 0), (1, -5)])
def test_steps_below_one_are_refused_with_their_values(step: int, warmup_steps: int) -> None:
    with pytest.raises(ValueError, match=rf"at least 1, got {step} and {warmup_steps}"):
        learning_rate_at(step, 512, warmup_steps)


def test_the_optimizer_has_the_papers_settings() -> None:
    optimizer = create_optimizer(nn.Linear(3, 2))
    assert isinstance(optimizer, torch.optim.Adam)
    (group,) = optimizer.param_groups
    assert group["betas"] == (0.9, 0.98)
    assert group["eps"] == 1e-9
    # The paper regularises by dropout and label smoothing alone.
    assert group["weight_decay"] == 0
    assert not group["amsgrad"]
    assert not group["maximize"]


def test_other_hyper_parameters_are_passed_on() -> None:
    (group,) = create_optimizer(nn.Linear(3, 2), betas=(0.8, 0.9), epsilon=1e-6).param_groups
    assert (group["betas"], group["eps"]) == ((0.8, 0.9), 1e-6)


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    (group,) = create_optimizer(model).param_groups
    assert [id(parameter) for parameter in group["params"]] == [id(model.weight)]


def test_a_shared_parameter_is_optimized_once() -> None:
    model = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)])
    model[1].weight = model[0].weight
    (group,) = create_optimizer(model).param_groups
    assert len(group["params"]) == 1


def test_without_a_rate_nothing_moves() -> None:
    # The rate is the schedule's alone: forgetting to set it must not train with some default.
    model = nn.Linear(3, 2)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = create_optimizer(model)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_three_steps_equal_adam_by_hand() -> None:
    weight = nn.Parameter(torch.tensor([0.5, -1.25, 2.0], dtype=torch.float64))
    model = nn.Module()
    model.weight = weight
    optimizer = create_optimizer(model)
    gradients = [[0.1, -2.0, 0.0], [1e-4, 0.5, 3.0], [-0.3, 0.25, -1e-8]]

    expected = weight.tolist()
    first, second = [0.0] * 3, [0.0] * 3
    for step, gradient in enumerate(gradients, 1):
        rate = learning_rate_at(step, 16, 2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        # Algorithm 1 of Kingma and Ba, 2015.
        for place, slope in enumerate(gradient):
            first[place] = 0.9 * first[place] + 0.1 * slope
            second[place] = 0.98 * second[place] + 0.02 * slope**2
            mean = first[place] / (1 - 0.9**step)
            variance = second[place] / (1 - 0.98**step)
            expected[place] -= rate * mean / (math.sqrt(variance) + 1e-9)
        assert weight.tolist() == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_dropout_rises_linearly_to_its_own_value() -> None:
    config = VaswaniConfig.tiny(vocab_size=20, dropout=0.4, attention_dropout=0.2, activation_dropout=0.1)
    model = VaswaniForConditionalGeneration(config)

    def found() -> dict[str, set[float]]:
        kinds: dict[str, set[float]] = {}
        for module in model.modules():
            if hasattr(module, "dropout"):
                kinds.setdefault(type(module).__name__, set()).add(module.dropout)
        return kinds

    full = found()
    assert sorted(next(iter(values)) for values in full.values()) == [0.1, 0.2, 0.4, 0.4]
    DropoutWarmup(model, 0).set(1)
    assert found() == full
    warmup = DropoutWarmup(model, 10)
    for step, share in ((1, 0), (2, 0.1), (6, 0.5), (11, 1), (12, 1), (9999, 1)):
        warmup.set(step)
        for kind, values in found().items():
            assert list(values) == pytest.approx([share * next(iter(full[kind]))], rel=1e-12), (step, kind)
