"""The paper's optimizer and learning-rate schedule (section 5.3), and a schedule of dropout that it does not have."""

from __future__ import annotations

from torch import nn
from torch.optim import Adam


def learning_rate_at(step: int, d_model: int, warmup_steps: int, peak: float | None = None) -> float:
    """Equation 3: d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5).

    Args:
        step: Number of the update, from 1.
        d_model: Width of the model.
        warmup_steps: Updates of linear rise, after which the rate falls with the square root of the step.
        peak: The rate at `step == warmup_steps` in place of the paper's (d_model * warmup_steps)^-0.5.

    Raises:
        ValueError: If `step` or `warmup_steps` is below 1.
    """
    if step < 1 or warmup_steps < 1:
        raise ValueError(f"step and warmup_steps must be at least 1, got {step} and {warmup_steps}")
    if peak is None:
        peak = (d_model * warmup_steps) ** -0.5
    return peak * min((warmup_steps / step) ** 0.5, step / warmup_steps)


def create_optimizer(model: nn.Module, betas: tuple[float, float] = (0.9, 0.98), epsilon: float = 1e-9) -> Adam:
    """Adam with the paper's beta_1 = 0.9, beta_2 = 0.98 and epsilon = 1e-9; the schedule sets the rate."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return Adam(parameters, lr=0.0, betas=betas, eps=epsilon, fused=True)


class DropoutWarmup:
    """Raises all dropout of a model linearly from none to what it was built with.

    The paper has no such schedule. Post-norm models that are small and drop much attend to nothing useful for many
    updates; begun without dropout they learn that first, and are regularised as much in the end. Of the kind that
    Morerio et al. 2017 ("Curriculum Dropout") propose.

    Args:
        model: Holds its probabilities in the attribute `dropout` of its modules.
        warmup_steps: Updates of rise; with 0 the dropout stays as it is.
    """

    def __init__(self, model: nn.Module, warmup_steps: int) -> None:
        self.warmup_steps = warmup_steps
        modules = [module for module in model.modules() if isinstance(getattr(module, "dropout", None), float | int)]
        self.full = [(module, module.dropout) for module in modules]

    def set(self, step: int) -> None:
        """Give the model the dropout of update `step`, counted from 1."""
        if not self.warmup_steps or step > self.warmup_steps + 1:
            return
        share = (step - 1) / self.warmup_steps
        for module, full in self.full:
            module.dropout = share * full
