"""What would leave the machine: the list, every byte of it, and what is refused before anything is sent."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
import torch
from conftest import Refused
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import vaswani_transformer
from vaswani_transformer.checkpoints import RunFolder
from vaswani_transformer.cli import main
from vaswani_transformer.errors import InputError
from vaswani_transformer.model_card import MARKER
from vaswani_transformer.sharing import CODE, prepare

TOKEN = "hf_" + "aBcDeFgHiJkLmNoP" * 2
SENT = {
    *("README.md", "training_curve.png", "config.json", "generation_config.json", "model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json", *CODE),
}


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_run, tmp_path / "my-run"))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("no_network")
def test_a_dry_run_lists_all_that_would_leave(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-account"))
    (run / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["push", str(run), "user/name", "--dry-run", "--private", "--revision", "v2", "--create-pr"]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "Would leave for the private user/name, v2, as a pull request:"
    listed = {name: int(size.replace(",", "")) for size, name in map(str.split, lines)}
    files = prepare(run, "user/name")
    assert listed == {name: len(_bytes(content)) for name, content in files.items()}
    assert set(listed) == SENT
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_tokenizer_in_the_files_of_version_4(run: Path, tmp_path: Path) -> None:
    settings = json.loads((run / "tokenizer_config.json").read_text())
    special = {name: settings.pop(name) for name in list(settings) if name.endswith("_token")}
    assert len(special) == 4
    (run / "tokenizer_config.json").write_text(json.dumps(settings))
    (run / "special_tokens_map.json").write_text(json.dumps(special))
    for name, content in prepare(run, "user/name").items():
        (tmp_path / name).write_bytes(_bytes(content))
    here, there = AutoTokenizer.from_pretrained(run), AutoTokenizer.from_pretrained(tmp_path)
    assert there("Tom") == here("Tom")
    assert there.special_tokens_map == here.special_tokens_map
    assert (there.eos_token, there.pad_token_id) == ("</s>", 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_precision_of_the_weights_is_theirs(run: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    AutoModelForSeq2SeqLM.from_pretrained(run).to(dtype).save_pretrained(run)
    for name, content in prepare(run, "user/name").items():
        (tmp_path / name).write_bytes(_bytes(content))
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path).dtype == dtype


def test_other_tensors_than_the_models_do_not_leave(run: Path) -> None:
    weights = load_file(run / "model.safetensors")
    save_file({**weights, "optimizer.exp_avg": torch.zeros(9)}, run / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"holds 1 tensors that are not the model's, such as optimizer\.exp_avg"):
        prepare(run, "user/name")


def test_a_model_in_several_files(run: Path, refused: Refused) -> None:
    model = AutoModelForSeq2SeqLM.from_pretrained(run)
    (run / "model.safetensors").unlink()
    model.save_pretrained(run, max_shard_size="50KB")
    refused(["push", str(run), "user/name", "--dry-run"], "the weights are in several files", "max_shard_size")


def _bytes(content: bytes | Path) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


@pytest.mark.parametrize("evaluated", [False, True])
def test_nothing_that_leaves_tells_of_this_machine(
    evaluated: bool, run: Path, monkeypatch: pytest.MonkeyPatch, corpus_files: dict[str, Path]
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    # What transformers has been seen to write, and what a user may have left there.
    for name, key in (("config.json", "_name_or_path"), ("tokenizer_config.json", "name_or_path")):
        content = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps({**content, key: str(run), "_commit_hash": "0" * 40}))
    if evaluated:
        assert main(["evaluate", str(run), "--test-file", str(corpus_files["validation"]), "--num-beams", "1"]) == 0
    private = [str(run), str(run.parent), str(corpus_files["train"].parent), f"{Path.home()}/", TOKEN, "0" * 40]
    for name, content in prepare(run, "user/name").items():
        for text in private:
            assert text.encode() not in _bytes(content), (name, text)
    for name in ("config.json", "tokenizer_config.json"):
        assert not {"_name_or_path", "name_or_path"} & set(json.loads(prepare(run, "user/name")[name]))


def test_the_configuration_names_the_code_that_runs_it(run: Path) -> None:
    config = json.loads(prepare(run, "user/name")["config.json"])
    assert {key: value for key, value in config.items() if key not in ("auto_map", "custom_pipelines")} == json.loads(
        (run / "config.json").read_text()
    )
    references = [*config["auto_map"].values(), config["custom_pipelines"]["translation"]["impl"]]
    for reference in references:
        module, name = reference.split(".")
        assert f"{module}.py" in CODE
        assert hasattr(vaswani_transformer, name)


@pytest.mark.parametrize(
    ("what", "text"),
    [("token", TOKEN), ("other", "hf_" + "Q" * 34), ("home", f"{Path.home()}/thesis"), ("folder", "{run}/x")],
)
def test_an_own_card_with_a_secret_is_refused(
    what: str,
    text: str,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: Refused,
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    (run / "README.md").write_text(f"# Mine\n{text.format(run=run.resolve())}\n")
    refused(["push", str(run), "user/name", "--dry-run"], "README.md: holds", "remove it there")


def test_a_secret_in_the_header_of_the_weights_is_refused(run: Path) -> None:
    weights = load_file(run / "model.safetensors")
    save_file(weights, run / "model.safetensors", metadata={"format": "pt", "from": str(run.resolve())})
    with pytest.raises(InputError, match=r"model\.safetensors: holds the path of the model's folder"):
        prepare(run, "user/name")


def test_the_users_own_card_is_sent_as_it_is(run: Path) -> None:
    own = "---\nlicense: mit\n---\n# Mine\n"
    (run / "README.md").write_text(own)
    assert prepare(run, "user/name")["README.md"].decode() == own
    with pytest.raises(InputError, match="your own text"):
        prepare(run, "user/name", license="mit")
    (run / "README.md").unlink()
    card = prepare(run, "user/name", license="mit")["README.md"].decode()
    assert MARKER in card
    assert "license: mit\n" in card
    assert '"user/name"' in card


def test_a_model_that_is_not_whole_is_refused(
    run: Path,
    tmp_path: Path,
    refused: Refused,
) -> None:
    def push(folder: Path | str, *flags: str, name: str = "user/name") -> list[str]:
        return ["push", str(folder), name, "--dry-run", *flags]

    for name in ("name", "/name", "user/", "a/b/c", "user/a b", "user/a--b", "user/" + "a" * 99):
        refused(push(run, name=name), name)
    refused(push(run, "--license", "Free of charge"), "--license", "cc-by-4.0")
    refused(push(tmp_path / "nowhere"), "no such model folder")
    refused(push("someone/else"), "no model folder here")
    refused(push(tmp_path), "no config.json")
    refused(push(run, "--dry"), "did you mean --dry-run?")

    config = (run / "config.json").read_text()
    (run / "config.json").write_text(json.dumps({**json.loads(config), "d_ff": 128}))
    refused(push(run), "the weights do not fit config.json")
    (run / "config.json").write_text(config)
    tokenizer = (run / "tokenizer_config.json").read_text()
    (run / "tokenizer_config.json").write_text(json.dumps({**json.loads(tokenizer), "pad_token": "</s>"}))
    refused(push(run), "the tokenizer does not fit")
    (run / "tokenizer_config.json").write_text(tokenizer)
    data = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(data[:-9])
    refused(push(run), "model.safetensors is damaged")
    (run / "model.safetensors").unlink()
    torch.save({}, run / "pytorch_model.bin")
    refused(push(run), "has not saved its best model yet")
    RunFolder(run).arguments.unlink()
    refused(push(run), "no model.safetensors")


def test_push_to_hub_is_there_and_importing_the_package_does_not_import_it() -> None:
    assert "push_to_hub" in vaswani_transformer.__all__
    assert vaswani_transformer.push_to_hub.__module__ == "vaswani_transformer.sharing"
    with pytest.raises(AttributeError, match="push_to_moon"):
        _ = vaswani_transformer.push_to_moon
