"""The way to the Hub and from it: a checked download, an upload in one commit, one clear line for each failure."""

from __future__ import annotations

import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from huggingface_hub import CommitOperationAdd, HfApi, ModelCard, constants, get_token, hf_hub_download
from huggingface_hub import snapshot_download as download_snapshot
from huggingface_hub.errors import (
    BadRequestError,
    HFValidationError,
    HTTPError,  # of httpx or httpx2, whichever this client is built on
    OfflineModeIsEnabled,
    RevisionNotFoundError,
)
from huggingface_hub.utils import get_session, hf_raise_for_status, validate_repo_id
from huggingface_hub.utils.sha import git_hash, sha_fileobj
from yaml import YAMLError

from .configuration_vaswani import VaswaniConfig
from .errors import InputError, is_disk_full, one_line

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

WEIGHTS = "model.safetensors"
# What a model is, beside its weights: the only other files that are ever fetched.
DESCRIPTION = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
# Seconds before each further try, and after how many none begins: the client itself retries some requests for long.
PAUSES = (0.5, 1.0, 2.0)
PATIENCE = 20.0
TIMEOUT = 60.0
# What `from_pretrained` would read beside our files, and which a model that was there before may have left.
OF_OTHER_MODELS = ("adapter_config.json", "added_tokens.json", "special_tokens_map.json")


@dataclass(frozen=True)
class Upload:
    """Where an upload can be looked at, and whether it changed anything."""

    url: str
    changed: bool


def check_repo_id(repo_id: str) -> None:
    """Check that `repo_id` names a repository as `user/name`.

    Raises:
        InputError: If it does not.
    """
    if repo_id.count("/") != 1 or not all(repo_id.split("/")):
        raise InputError(f"{repo_id}: expected a repository as user/name")
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise InputError(f"{repo_id}: no name that a repository can have ({one_line(error)})") from error


def check_model_type(name: str, model_type: str) -> None:
    """Check that the model `name` is one of ours.

    Raises:
        InputError: If its configuration is of another type.
    """
    if model_type != VaswaniConfig.model_type:
        raise InputError(f"{name}: expected a model of type {VaswaniConfig.model_type}, found {model_type}")


def download(repo_id: str, revision: str | None = None) -> Path:
    """Fetch the model `repo_id` into the client's cache, no more of it than is new, and check each file.

    No code of the repository is fetched, and no pickle. What is in the cache serves where the Hub cannot be reached.

    Returns:
        The folder in the cache.

    Raises:
        InputError: If the repository holds no model of ours in safetensors, a file differs from its checksum twice,
            or the disk is full.
        Exception: The client's own, where the Hub does not give the repository.
    """
    try:
        folder = _fetch(repo_id, revision, DESCRIPTION)
        if (folder / "config.json").is_file():
            # Before the weights: those of another model may be large.
            check_model_type(repo_id, _model_type(repo_id, folder))
        folder = _fetch(repo_id, folder.name, (WEIGHTS,))
    except OSError as error:
        if is_disk_full(error):
            raise InputError(
                f"{repo_id}: the disk is full; make room in {constants.HF_HUB_CACHE}, or set HF_HUB_CACHE to a folder "
                "on another disk"
            ) from error
        raise
    if not (folder / WEIGHTS).is_file():
        raise InputError(
            f"{repo_id}: the repository has no {WEIGHTS}; weights in pickles, such as pytorch_model.bin, are not "
            "loaded, for they could run code"
        )
    return folder


def _fetch(repo_id: str, revision: str | None, names: tuple[str, ...]) -> Path:
    """Fetch those of the files that the repository has; the folder's name is that of the commit."""
    folder = Path(_retrying(lambda: download_snapshot(repo_id, revision=revision, allow_patterns=list(names))))
    for name in names:
        path = folder / name
        if not _is_damaged(path):
            continue
        logger.info(f"{repo_id}: {name} differs from its checksum; fetching it again")
        _remove(path)
        try:
            _retrying(lambda: hf_hub_download(repo_id, name, revision=folder.name, force_download=True))  # noqa: B023
        except (HTTPError, OSError, ValueError) as error:
            if is_disk_full(error):
                raise
            raise InputError(
                f"{repo_id}: {name} was damaged and is removed from the cache, and the Hub did not give it again "
                f"({one_line(error)}); try again with a network"
            ) from error
        if _is_damaged(path):
            _remove(path)
            raise InputError(
                f"{repo_id}: {name} differs from its checksum, fetched twice; try again later, or tell the "
                "repository's owner"
            )
    return folder


def _is_damaged(path: Path) -> bool:
    """Whether a file of the cache differs from the checksum by which the cache calls it.

    That is the SHA-256 of a large file and git's SHA-1 of a small one. A cache without symbolic links keeps none.
    """
    if not path.is_symlink():
        return False
    checksum = Path(os.readlink(path)).name
    if len(checksum) == 64:
        with path.open("rb") as file:
            return sha_fileobj(file).hex() != checksum
    return len(checksum) == 40 and git_hash(path.read_bytes()) != checksum


def _remove(path: Path) -> None:
    """Remove a file of the cache, and the blob that it points to."""
    blob = path.parent / os.readlink(path)
    path.unlink()
    blob.unlink(missing_ok=True)


def _model_type(repo_id: str, folder: Path) -> str:
    try:
        return str(json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type"))
    except (ValueError, AttributeError) as error:
        raise InputError(f"{repo_id}: config.json is no model's configuration ({one_line(error)})") from error


def upload(
    repo_id: str,
    files: Mapping[str, bytes | Path],
    message: str,
    *,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
) -> Upload:
    """Bring `files` to the repository `repo_id` in one commit; what is there already is not sent.

    Args:
        repo_id: The repository, which is made where there is none.
        files: What each file holds, or where it is.
        message: The commit's.
        private: Make the repository private; an existing one must be.
        revision: Branch to commit to, made from `main` where there is none.
        create_pr: Propose the commit as a pull request.

    Raises:
        InputError: If there is no token, the card is not valid, or the Hub or the network fails.
    """
    try:
        if not constants.ENDPOINT.startswith(("http://", "https://")):
            raise InputError(f"HF_ENDPOINT: expected the URL of a Hub, found {constants.ENDPOINT}; mend or unset it")
        if get_token() is None:
            raise InputError("no access token of the Hub: log in with `hf auth login`, or set HF_TOKEN")
        # First of all: an invalid card must not leave an empty repository behind.
        _retrying(lambda: _validate_card(files))
        attempt = _Attempt(repo_id, files, message, private, revision, create_pr)
        # Who sends a pull request twice makes two: after a broken connection nobody knows whether there is one.
        return _retrying(attempt.run, lambda error: not (create_pr and _response_status(error) is None))
    except InputError:
        raise
    except Exception as error:  # the Hub, its storage and the network fail in many ways
        raise InputError(f"{repo_id}: {_explain(error, revision)}") from error


def _validate_card(files: Mapping[str, bytes | Path]) -> None:
    """Ask the Hub, as the client does before a commit; `ModelCard.validate` of version 1 asks huggingface.co alone."""
    card = files["README.md"]
    try:
        text = (card if isinstance(card, bytes) else card.read_bytes()).decode("utf-8")
        ModelCard(text)
    except (YAMLError, TypeError, ValueError) as error:
        raise InputError(f"README.md: the card is not valid ({one_line(error)}); mend its metadata") from error
    try:
        response = get_session().post(
            f"{constants.ENDPOINT}/api/validate-yaml",
            json={"repoType": "model", "content": text},
            timeout=TIMEOUT,
        )
        hf_raise_for_status(response)
    except BadRequestError as error:
        raise InputError(f"README.md: the card is not valid ({_said(error)}); mend its metadata") from error
    for warning in response.json().get("warnings", []):
        logger.warning(f"README.md: {warning.get('message')}")


@dataclass
class _Attempt:
    """An upload that can be run again: what a run before it achieved is found on the Hub, and not repeated."""

    repo_id: str
    files: Mapping[str, bytes | Path]
    message: str
    private: bool
    revision: str | None
    create_pr: bool
    head: str | None = None

    def run(self) -> Upload:
        api = HfApi()
        api.create_repo(self.repo_id, private=self.private or None, exist_ok=True)
        if self.private and not api.model_info(self.repo_id).private:
            raise InputError(
                f"{self.repo_id}: exists and is public; make it private in its settings on the Hub, or leave out "
                "--private"
            )
        try:
            head = api.model_info(self.repo_id, revision=self.revision).sha
        except RevisionNotFoundError:
            if self.create_pr:
                raise
            api.create_branch(self.repo_id, branch=self.revision, exist_ok=True)
            head = api.model_info(self.repo_id, revision=self.revision).sha
        self.head = self.head or head
        strays = sorted({*OF_OTHER_MODELS} & {*api.list_repo_files(self.repo_id, revision=self.revision)})
        if strays:
            raise InputError(
                f"{self.repo_id}: holds {', '.join(strays)} of another model, which from_pretrained would read beside "
                "this one's files; delete what is there, or push to another repository or --revision"
            )
        files = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=file) for name, file in self.files.items()]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warnings while validating metadata")  # told before
            commit = api.create_commit(
                self.repo_id,
                files,
                commit_message=self.message,
                revision=self.revision,
                create_pr=self.create_pr,
            )
        return Upload(commit.pr_url or commit.commit_url, changed=commit.oid != self.head)


def _retrying(act: Callable[[], Result], may_repeat: Callable[[BaseException], bool] = lambda _: True) -> Result:
    """What `act` returns; it is called again a few times where the Hub or the network had a passing fault."""
    started = time.monotonic()
    for pause in PAUSES:
        try:
            return act()
        except Exception as error:
            if not (_is_transient(error) and may_repeat(error)) or time.monotonic() - started > PATIENCE:
                raise
            logger.info(f"A fault of the Hub or on the way to it ({one_line(error)}); trying again")
            time.sleep(pause)
    return act()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__


def _http_error(error: BaseException) -> HTTPError | None:
    return next((link for link in _chain(error) if isinstance(link, HTTPError)), None)


def _response_status(error: BaseException) -> int | None:
    """The status that the Hub answered; `None` where it gave no answer."""
    response = getattr(_http_error(error), "response", None)
    return None if response is None else response.status_code


def _is_transient(error: BaseException) -> bool:
    http_error, status = _http_error(error), _response_status(error)
    return http_error is not None and (status is None or status in (408, 500, 502, 503, 504))


def _said(error: HTTPError) -> str:
    """What the Hub said about an error, in one line of at most 200 characters."""
    return " ".join(str(getattr(error, "server_message", None) or error).split())[:200]


def _explain(error: BaseException, revision: str | None) -> str:
    """What went wrong with the Hub, and what to do about it."""
    http_error, status = _http_error(error), _response_status(error)
    if any(isinstance(link, OfflineModeIsEnabled) for link in _chain(error)):
        return "HF_HUB_OFFLINE is set, so nothing is sent; unset it to push"
    if any(map(is_disk_full, _chain(error))):
        return "the disk is full; make room, and push again"
    if isinstance(error, UnicodeEncodeError):
        return "the access token is malformed; log in with `hf auth login`, or set HF_TOKEN anew"
    if http_error is None and isinstance(error, ValueError):
        return f"the connection cannot be made ({one_line(error)}); look at HTTP_PROXY and HTTPS_PROXY"
    if http_error is None:
        return f"the client failed ({type(error).__name__}: {one_line(error)})"
    if status is None:
        return f"the connection to the Hub failed ({one_line(http_error)}); check the network, and push again"
    said = _said(http_error)
    if isinstance(http_error, RevisionNotFoundError):
        return f"there is no revision {revision} to make a pull request for; leave out --revision, or --create-pr"
    known = {
        401: "the Hub does not take the access token (401); log in with `hf auth login`, or set HF_TOKEN anew",
        403: f"the access token may not do this (403: {said}); use one with the role `write` for this namespace",
        404: f"the Hub does not find it (404: {said}); check the name and the rights of the access token",
        409: f"the Hub reports a conflict (409: {said}), such as a commit at the same time; push again",
        412: f"the repository has changed meanwhile (412: {said}); push again",
        429: f"too many requests for the Hub (429: {said}); push again later",
    }
    if status >= 500:
        return f"the Hub has a fault ({status}: {said}); push again later"
    return known.get(status, f"the Hub refused it ({status}: {said})")
