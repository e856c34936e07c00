"""What of a model leaves for the Hub: an allowlist, each file made or checked here, and a look at all before."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import get_token
from safetensors import safe_open
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from .checkpoints import RunFolder
from .configuration_vaswani import VaswaniConfig
from .errors import InputError
from .hub import WEIGHTS, Upload, check_repo_id, upload
from .model_card import card_path, own_text, render_card, save_card
from .translation import load_model, local_folder

logger = logging.getLogger(__name__)

# The package's own files that run where the package is not installed.
CODE = ("configuration_vaswani.py", "generation_vaswani.py", "modeling_vaswani.py", "pipeline_vaswani.py")
# With trust_remote_code=True: which class of them stands for which of transformers' own, and for which task.
AUTO_MAP = {
    "AutoConfig": "configuration_vaswani.VaswaniConfig",
    "AutoModel": "modeling_vaswani.VaswaniModel",
    "AutoModelForSeq2SeqLM": "modeling_vaswani.VaswaniForConditionalGeneration",
}
CUSTOM_PIPELINES = {
    "translation": {"impl": "pipeline_vaswani.TranslationPipeline", "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}
}
# What transformers writes into tokenizer_config.json about this machine and this moment, or as a call for code.
LOCAL_TOKENIZER_KEYS = (
    "_commit_hash _name_or_path auto_map is_local local_files_only name_or_path special_tokens_map_file "
    "tokenizer_file vocab_file"
)


def push_to_hub(
    model: str | Path,
    repo_id: str,
    *,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
    license: str | None = None,
) -> Upload:
    """Publish a model on the Hub, in one commit: weights, configuration, tokenizer, card and the four code files.

    Nothing else of the folder leaves the machine. A second push sends only what has changed.

    Args:
        model: A run folder, any folder that `from_pretrained` loads, or a checkpoint that ships with the package.
        repo_id: The repository, as `user/name`; it is made where there is none.
        private: Make the repository private.
        revision: Branch to push to; it is made where there is none.
        create_pr: Propose the push as a pull request.
        license: The Hub's identifier of the licence of the weights, such as `cc-by-4.0`, for the card.

    Returns:
        The URL of the commit or the pull request, and whether anything was new.

    Raises:
        InputError: If the model is not whole, a name or the card is not valid, there is no access token, or the Hub or
            the network fails.
    """
    if revision is not None and not revision.strip():
        raise InputError("--revision: expected the name of a branch, found nothing; leave it out for main")
    files = prepare(model, repo_id, license)
    done = upload(
        repo_id,
        files,
        f"Push {repo_id.split('/')[-1]} with vaswani-transformer",
        private=private,
        revision=revision,
        create_pr=create_pr,
    )
    folder = local_folder(str(model))
    if RunFolder(folder).is_run() and own_text(folder) is None:
        try:
            save_card(folder, files["README.md"].decode("utf-8"))
        except OSError as error:
            logger.info(f"{card_path(folder)}: the card was pushed, and cannot be written here ({error.strerror})")
    return done


def prepare(model: str | Path, repo_id: str, license: str | None = None) -> dict[str, bytes | Path]:
    """All that would leave for the repository: what each file holds, or where it is. Needs no network.

    Raises:
        InputError: If the model is not whole, a name is not valid, or a file holds what must stay here.
    """
    check_repo_id(repo_id)
    if license is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", license):
        raise InputError(f"--license: expected an identifier of the Hub such as cc-by-4.0, got {license}")
    run = RunFolder(model)
    if run.is_run() and not any(run.path.glob("model*.safetensors")):
        raise InputError(f"{model}: the run has not saved its best model yet; it does at its first validation")
    folder = local_folder(str(model))
    if folder is None:
        raise InputError(f"{model}: no model folder here, and no checkpoint that ships with the package")
    # What does not load here is not published.
    loaded, tokenizer = load_model(str(folder))
    _check_weights(folder, set(loaded.state_dict()))
    card = own_text(folder)
    if card is not None and license is not None:
        raise InputError(f"{card_path(folder)}: is your own text; write `license: {license}` into its metadata")
    files = {
        "README.md": (card or render_card(folder, repo_id, license)).encode("utf-8"),
        # Not that of `loaded`, which is in float32 whatever the weights are.
        "config.json": _configuration(VaswaniConfig.from_pretrained(folder)),
        "generation_config.json": _as_json(json.loads(loaded.generation_config.to_json_string())),
        WEIGHTS: folder / WEIGHTS,
        **_tokenizer_files(tokenizer),
        **{name: Path(__file__).with_name(name).read_bytes() for name in CODE},
    }
    if card is None and run.curve.is_file():
        files[run.curve.name] = run.curve.read_bytes()  # the card shows it
    _keep_private(files, folder)
    return files


def _configuration(config: PreTrainedConfig) -> bytes:
    """The fields that the configuration declares, and nothing that came along with them."""
    declared = {field.name for field in fields(VaswaniConfig)} | {"model_type"}
    values = {name: value for name, value in json.loads(config.to_json_string()).items() if name in declared}
    return _as_json({**values, "auto_map": AUTO_MAP, "custom_pipelines": CUSTOM_PIPELINES})


def _tokenizer_files(tokenizer: PreTrainedTokenizerBase) -> dict[str, bytes]:
    """The tokenizer in two files, whatever files transformers read it from."""
    with TemporaryDirectory() as aside:
        tokenizer.save_pretrained(aside)
        tokens = Path(aside, "tokenizer.json").read_bytes()
        settings = json.loads(Path(aside, "tokenizer_config.json").read_text(encoding="utf-8"))
    kept = {name: value for name, value in settings.items() if name not in LOCAL_TOKENIZER_KEYS.split()}
    return {"tokenizer.json": tokens, "tokenizer_config.json": _as_json(kept)}


def _check_weights(folder: Path, names: set[str]) -> None:
    """Check that the weights hold no other tensors than the model's, such as an optimizer's.

    Raises:
        InputError: If they do.
    """
    with safe_open(folder / WEIGHTS, "pt") as file:
        others = sorted(set(file.keys()) - names)
    if others:
        raise InputError(
            f"{folder / WEIGHTS}: holds {len(others)} tensors that are not the model's, such as {others[0]}; save the "
            "model anew with save_pretrained"
        )


def _as_json(values: Mapping[str, object]) -> bytes:
    return (json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")


def _keep_private(files: Mapping[str, bytes | Path], folder: Path) -> None:
    """Look for this machine's paths and access tokens in all that would leave.

    Raises:
        InputError: If a file holds one.
    """
    private = {"the path of the model's folder": str(folder.resolve())}
    if len(Path.home().parts) > 1:
        private["a path in your home folder"] = f"{Path.home()}{os.sep}"
    if len(token := (get_token() or "")) > 8:
        private["your access token of the Hub"] = token
    for name, content in files.items():
        if isinstance(content, Path):
            with safe_open(content, "pt") as file:
                content = json.dumps(file.metadata() or {}, ensure_ascii=False).encode("utf-8")
        for what, text in private.items():
            if text.encode("utf-8") in content:
                raise InputError(f"{name}: holds {what}, which must not be published; remove it there")
        if re.search(rb"\b(hf|api_org)_[A-Za-z0-9]{30,}\b", content):
            raise InputError(f"{name}: holds what looks like an access token of the Hub; remove it there")
