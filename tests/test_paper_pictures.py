"""The pictures of the position table and of the learning rate, against the paper's formulas."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib.image
import pytest
import torch

from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.cli import main
from vaswani_transformer.errors import InputError
from vaswani_transformer.paper_pictures import draw_positions, draw_schedules, read_positions, read_schedule

RECIPES = Path(__file__).parents[1] / "scripts" / "recipes"


def create(**changes: object) -> VaswaniForConditionalGeneration:
    config = VaswaniConfig.tiny(vocab_size=300, encoder_layers=1, decoder_layers=1, d_model=32, **changes)
    return VaswaniForConditionalGeneration(config)


def test_the_positions_are_those_of_the_formula() -> None:
    encodings = read_positions(create(max_position_embeddings=20))
    assert encodings.shape == (20, 32)
    for position in (0, 1, 7, 19):
        for i in range(16):
            angle = position / 10000 ** (2 * i / 32)
            assert encodings[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert encodings[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    # They go on for ever.
    longer = read_positions(create(max_position_embeddings=20), 40)
    assert longer.shape == (40, 32)
    torch.testing.assert_close(longer[:20], encodings)
    shown = torch.as_tensor(draw_positions(encodings).axes[0].images[0].get_array().data)
    torch.testing.assert_close(shown, encodings, check_dtype=False)


def test_learned_positions_are_the_table_and_end_where_it_does() -> None:
    model = create(max_position_embeddings=20, positional_encoding="learned")
    table = model.model.encoder.embeddings.positions.weight
    torch.testing.assert_close(read_positions(model), table.detach())
    torch.testing.assert_close(read_positions(model, 5), table.detach()[:5])
    with pytest.raises(InputError, match="learned 20 positions, got a length of 21"):
        read_positions(model, 21)


def test_the_schedule_is_equation_3() -> None:
    schedule = dict(read_schedule(RECIPES / "wmt14-en-de-base.yaml"))
    for update, rate in schedule.items():
        assert rate == pytest.approx(512**-0.5 * min(update**-0.5, update * 4000**-1.5))
    assert {1, 4000, 100_000} <= set(schedule)
    assert max(schedule, key=schedule.get) == 4000


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_has_a_schedule(recipe: Path) -> None:
    schedule = read_schedule(recipe)
    updates, rates = zip(*schedule, strict=True)
    assert list(updates) == sorted(set(updates))
    assert updates[0] == 1
    assert all(rate > 0 for rate in rates)
    line = draw_schedules({"one": schedule}).axes[0].lines[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == (list(updates), list(rates))
    assert line.get_label() == "one"


def test_the_commands_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "positions.png"
    assert main(["positions", "tatoeba-en-de", "--output", str(file)]) == 0
    assert str(file) in capsys.readouterr().err
    whole = matplotlib.image.imread(file)
    assert main(["positions", "tatoeba-en-de", "--length", "10", "--output", str(file)]) == 0
    assert (matplotlib.image.imread(file) != whole).any()
    recipes = [str(RECIPES / f"{name}.yaml") for name in ("wmt14-en-de-base", "tatoeba-de-en")]
    file = tmp_path / "schedule.svg"
    assert main(["schedule", *recipes, "--output", str(file)]) == 0
    text = file.read_text()
    assert all(recipe in text for recipe in recipes)
    assert main(["schedule", *recipes, "--output", str(file)]) == 0
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["positions", "./nothing", "--output", "a.png"], "no such model folder"),
        (["positions", "tatoeba-en-de", "--output", "a.html"], "ends in .png, .svg"),
        (["positions", "tatoeba-en-de", "--output", "a.png", "--length", "0"], "at least 1"),
        (["schedule", "nothing.yaml", "--output", "a.png"], "no such recipe"),
        (["schedule", "broken.yaml", "--output", "a.png"], "unknown key max_step"),
        (["schedule", "--output", "a.png"], "RECIPE"),
        (["schedule", "broken.yaml", "--output", "nowhere/a.png"], "there is no folder"),
    ],
)
def test_mistakes_end_in_one_line(
    arguments: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.yaml").write_text("max_step: 3\n")
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert text in error
    assert not (tmp_path / "a.png").exists()


def test_without_matplotlib_a_line_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vaswani_transformer.pictures.find_spec", lambda name: None)
    for arguments in (["positions", "tatoeba-en-de"], ["schedule", str(RECIPES / "tatoeba-en-de.yaml")]):
        assert main([*arguments, "--output", "a.png"]) == 2
        assert "pip install matplotlib" in capsys.readouterr().err
