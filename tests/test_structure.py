"""The rules about which room may import which, and about what the repository holds."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from vaswani_transformer.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vaswani_transformer"


def imports(path: Path) -> set[str]:
    """Modules that a file imports, those of the package with a leading dot."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found |= {f".{node.module}"} if node.module else {f".{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("name", ["configuration", "modeling", "generation", "pipeline"])
def test_files_that_travel_to_the_hub_stand_alone(name: str) -> None:
    allowed = sys.stdlib_module_names | {"torch", "transformers", "huggingface_hub"}
    # An extra, where it is used.
    if name == "pipeline":
        allowed |= {"sentencex"}
    for module in imports(PACKAGE / f"{name}_vaswani.py"):
        assert module.endswith("_vaswani") if module.startswith(".") else module in allowed


def test_nothing_imports_the_command_line() -> None:
    users = {path.name for path in PACKAGE.rglob("*.py") if ".cli" in imports(path)}
    assert users == {"__main__.py"}
    commands = {path.stem for path in (PACKAGE / "commands").glob("*.py")} - {"__init__", "options"}
    assert commands == set(COMMANDS)
    users = {path for path in PACKAGE.rglob("*.py") if any("commands" in module for module in imports(path))}
    assert not users


def test_training_imports_neither_decoding_nor_evaluation() -> None:
    others = {".translation", ".evaluation", ".pipeline_vaswani", ".model_card", ".sharing", ".cli"}
    assert not imports(PACKAGE / "training.py") & others


def test_what_ships_is_small_and_holds_no_pickle() -> None:
    files = [path for path in PACKAGE.glob("pretrained/*/*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 20_000_000
    assert {path.suffix for path in files} <= {".json", ".md", ".safetensors"}
