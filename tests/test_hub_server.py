"""The small Hub against the true client: what each of them does, with and without faults."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from hub_git import git_oid, tree_oids
from hub_server import HubServer
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard, RepoFile, constants
from huggingface_hub.errors import (
    BadRequestError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

# The client's HTTP library, `httpx` or its successor.
RemoteProtocolError = sys.modules[huggingface_hub.errors.HTTPError.__module__].RemoteProtocolError
# Since then, the client asks again for a listing's first page, and checks a card where HF_ENDPOINT says.
SINCE_2 = int(huggingface_hub.__version__.partition(".")[0]) >= 2
TOKENS = {"hf_alice": ("alice", "write"), "hf_reader": ("alice", "read"), "hf_bob": ("bob", "write")}
REPO = "alice/model"
CARD = b"---\nlicense: mit\nlanguage: [en, de]\n---\n# A model\n"
WEIGHTS = bytes(range(256)) * 40
RESULT = """\
model-index:
- name: m
  results:
  - {{task: {{type: translation}}, dataset: {{name: WMT, type: wmt14}}, metrics: {}}}
"""
FILES = {"README.md": CARD, "config.json": b"{}", "model.safetensors": WEIGHTS, "onnx/notes.txt": b"notes"}


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer(TOKENS) as server:
        yield server


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds for which the client would have waited before each retry."""
    seconds: list[float] = []
    patched = SimpleNamespace(**vars(time) | {"sleep": seconds.append})
    monkeypatch.setattr(huggingface_hub.utils._http, "time", patched)
    monkeypatch.setattr(huggingface_hub.file_download, "time", patched)
    return seconds


@pytest.fixture
def client(
    hub: HubServer, waits: list[float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str | bool], HfApi]:
    """The client in this very process, which the other tests keep offline."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    return lambda token: HfApi(endpoint=hub.url, token=token)


@pytest.fixture
def api(client: Callable[[str | bool], HfApi]) -> HfApi:
    """Alice's client."""
    return client("hf_alice")


def additions(files: dict[str, bytes]) -> list[CommitOperationAdd]:
    return [CommitOperationAdd(path, data) for path, data in files.items()]


def push(api: HfApi, files: dict[str, bytes] = FILES, **options: Any) -> str:
    return api.create_commit(REPO, additions(files), commit_message="Push", **options).oid


def snapshot(api: HfApi, **options: Any) -> dict[str, bytes]:
    folder = Path(api.snapshot_download(REPO, max_workers=1, **options))
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def methods(hub: HubServer, path: str) -> list[tuple[str, int]]:
    return [(record.method, record.status) for record in hub.requests if path in record.path]


def run(hub: HubServer, tmp_path: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **hub.environment(tmp_path, token="hf_alice"), **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def test_a_pushed_folder_can_be_listed_and_loaded(hub: HubServer, api: HfApi, tmp_path: Path) -> None:
    hub.page_size = 2
    assert api.whoami()["name"] == "alice"
    assert api.create_repo("model").repo_id == REPO
    assert api.create_repo(REPO, exist_ok=True).url == f"{hub.url}/{REPO}"
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_repo(REPO)
    for path, data in FILES.items():
        (tmp_path / "folder" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / path).write_bytes(data)
    pushed = api.upload_folder(repo_id=REPO, folder_path=tmp_path / "folder", commit_message="Push\n\nAll of it")

    everything = {".gitattributes", *FILES}
    assert hub.files(REPO).keys() == everything
    tree = {entry.path: entry for entry in api.list_repo_tree(REPO, recursive=True, expand=True)}
    assert methods(hub, "/tree/main") == [("GET", 200)] * 3
    assert tree.keys() == {*everything, "onnx"}
    assert tree["config.json"].blob_id == git_oid("blob", b"{}")
    assert tree["model.safetensors"].lfs.size == len(WEIGHTS)
    assert tree["onnx"].last_commit.oid == pushed.oid != tree[".gitattributes"].last_commit.oid
    assert [entry.path for entry in api.list_repo_tree(REPO, "onnx")] == ["onnx/notes.txt"]
    assert [type(info) for info in api.get_paths_info(REPO, ["onnx/notes.txt", "absent"])] == [RepoFile]
    with pytest.raises(EntryNotFoundError):
        list(api.list_repo_tree(REPO, "absent"))
    info = api.model_info(REPO, files_metadata=True)
    assert (info.sha, info.private, info.card_data.license) == (pushed.oid, False, "mit")
    assert {file.rfilename: file.size for file in info.siblings}["onnx/notes.txt"] == 5
    history = api.list_repo_commits(REPO)
    assert [commit.commit_id for commit in history] == [commit.oid for commit in hub.commits(REPO)]
    assert history[0].created_at > history[1].created_at
    assert (len(history), history[0].authors, history[-1].title) == (2, ["alice"], "initial commit")

    assert snapshot(api) == hub.files(REPO)
    blobs = tmp_path / "cache" / "models--alice--model" / "blobs"
    assert {blob.name for blob in blobs.iterdir()} >= {tree["model.safetensors"].lfs.sha256, git_oid("blob", CARD)}
    seen = len(hub.requests)
    assert snapshot(api, revision=pushed.oid) == hub.files(REPO)
    assert hub.requests[seen:] == []


def test_commits_have_the_ids_that_git_gives_them(hub: HubServer, tmp_path: Path) -> None:
    hub.put(REPO, {"a/b/c.txt": b"c", "a.txt": b"a", "a0": b"0", "b.bin": WEIGHTS})
    commit = hub.commits(REPO)[0]
    for path, blob in commit.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(blob.git_data)
    person = {"NAME": "alice", "EMAIL": "alice@localhost", "DATE": f"{int(commit.date.timestamp())} +0000"}
    variables = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in person.items()}

    def git(*arguments: str, message: str = "") -> str:
        call = ["git", "-c", "core.autocrlf=false", *arguments]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1", **variables}
        done = subprocess.run(call, cwd=tmp_path, env=environment, input=message, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    git("init", "-q")
    # The pointers are there already; the filter that would make them need not be installed.
    git("-c", "filter.lfs.clean=cat", "-c", "filter.lfs.process=", "add", "-A")
    assert git("write-tree") == tree_oids(commit.files)[""]
    # Git makes a first commit only without a parent, which it would have to have.
    first = replace(commit, parent=None, message="Why\n")
    assert git("commit-tree", git("write-tree"), message=f"{commit.title}\n\nWhy\n") == first.oid


def test_the_same_push_again_uploads_nothing(hub: HubServer, api: HfApi) -> None:
    api.create_repo(REPO)
    first = push(api)
    seen = len(hub.requests)
    assert push(api) == first
    assert not [record for record in hub.requests[seen:] if record.method == "PUT" or "/commit/" in record.path]
    push(api, FILES | {"config.json": b'{"a": 1}'})
    assert not [record for record in hub.requests[seen:] if record.method == "PUT"]
    assert len(hub.commits(REPO)) == 3


def test_branches_tags_and_pull_requests(hub: HubServer, api: HfApi, client: Callable[[str | bool], HfApi]) -> None:
    api.create_repo(REPO)
    main = push(api)
    api.create_branch(REPO, branch="dev/x")
    api.create_branch(REPO, branch="dev/x", exist_ok=True)
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_branch(REPO, branch="dev/x")
    api.create_tag(REPO, tag="v1")
    dev = push(api, {"config.json": b"[]"}, revision="dev/x")
    assert snapshot(api, revision="dev/x")["config.json"] == b"[]"
    assert snapshot(api, revision="v1") == hub.files(REPO) == hub.files(REPO, main[:8])

    operations = [*additions({"extra.txt": b"from Bob"}), CommitOperationDelete("onnx/")]
    with pytest.raises(HfHubHTTPError, match="403"):
        client("hf_bob").create_commit(REPO, operations, commit_message="Not mine")
    proposed = client("hf_bob").create_commit(REPO, operations, commit_message="Better", create_pr=True)
    hub.put(REPO, {"put.txt": b"put"}, revision="dev/x")
    hub.put(REPO, {"put.txt": b"put"}, revision="new")
    assert hub.commits(REPO, "dev/x")[1:] == [hub.commits(REPO, dev)[0], *hub.commits(REPO)]
    assert [commit.title for commit in hub.commits(REPO, "new")] == ["Put files", "Push", "initial commit"]
    assert (proposed.pr_num, proposed.pr_revision) == (1, "refs/pr/1")
    assert hub.files(REPO, "refs/pr/1").keys() == {".gitattributes", "extra.txt", *FILES} - {"onnx/notes.txt"}
    refs = api.list_repo_refs(REPO, include_pull_requests=True)
    assert {branch.name: branch.target_commit for branch in refs.branches}.items() >= {"main": main}.items()
    assert {branch.ref for branch in refs.branches} == {"refs/heads/main", "refs/heads/dev/x", "refs/heads/new"}
    assert [tag.ref for tag in refs.tags] == ["refs/tags/v1"]
    assert [request.target_commit for request in refs.pull_requests] == [proposed.oid]
    for unknown in ("absent", main[:6]):
        with pytest.raises(RevisionNotFoundError):
            api.model_info(REPO, revision=unknown)


def test_a_commit_is_refused_as_a_whole(hub: HubServer, api: HfApi) -> None:
    start = hub.put(REPO, {"config.json": b"{}"})
    push(api, {"other.txt": b""})
    with pytest.raises(HfHubHTTPError, match="412"):
        push(api, parent_commit=start)
    uploaded = CommitOperationAdd("model.safetensors", b"lost")
    # As if an earlier upload, which never took place, had done this.
    uploaded._upload_mode, uploaded._is_uploaded, uploaded._should_ignore = "lfs", True, False
    lost = [*additions({"new.txt": b"new"}), uploaded]
    with pytest.raises(BadRequestError, match="does not exist"):
        api.create_commit(REPO, lost, commit_message="Lost")
    with pytest.raises(BadRequestError, match="both a file and a folder"):
        push(api, {"new.txt": b"new", "config.json/below": b"x"})
    with pytest.raises(EntryNotFoundError):
        api.create_commit(REPO, [*additions({"new.txt": b"new"}), CommitOperationDelete("absent")], commit_message="?")
    assert len(hub.commits(REPO)) == 3
    assert "new.txt" not in hub.files(REPO)


@pytest.mark.parametrize(
    ("token", "error"),
    [("hf_alice", None), ("hf_reader", None), ("hf_bob", RepositoryNotFoundError), (False, RepositoryNotFoundError)],
)
def test_a_private_repository_is_for_its_owner(
    hub: HubServer, client: Callable[[str | bool], HfApi], token: str | bool, error: type[Exception] | None
) -> None:
    client("hf_alice").create_repo(REPO, private=True)
    push(client("hf_alice"))
    if error is None:
        assert snapshot(client(token), token=token) == hub.files(REPO)
        assert client(token).model_info(REPO).private
    else:
        for call in (client(token).model_info, client(token).list_repo_files, client(token).snapshot_download):
            with pytest.raises(error):
                call(REPO, token=token)
        with pytest.raises(error):
            client(token).hf_hub_download(REPO, "config.json", token=token)
        with pytest.raises(error):
            push(client(token), token=token)


def test_what_a_token_does_not_allow(hub: HubServer, client: Callable[[str | bool], HfApi]) -> None:
    hub.put(REPO, FILES, gated=True)
    with pytest.raises(HfHubHTTPError, match="use a write token"):
        push(client("hf_reader"))
    with pytest.raises(HfHubHTTPError, match="rights"):
        client("hf_bob").create_repo("alice/other")
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        client("hf_wrong").whoami()
    with pytest.raises(GatedRepoError):
        client("hf_bob").hf_hub_download(REPO, "config.json")
    for token, write in (("hf_alice", True), ("hf_reader", False)):
        client(token).auth_check(REPO, write=write)
    for token, write in (("hf_reader", True), ("hf_bob", False)):
        with pytest.raises(HfHubHTTPError, match="403"):
            client(token).auth_check(REPO, write=write)
    with pytest.raises(RepositoryNotFoundError):
        client("hf_bob").model_info("alice/absent")
    with pytest.raises(EntryNotFoundError):
        client("hf_alice").hf_hub_download(REPO, "absent.json")


def test_the_storage_wants_a_signature_and_no_token(hub: HubServer, api: HfApi) -> None:
    hub.put(REPO, FILES)
    location = huggingface_hub.get_hf_file_metadata(f"{hub.url}/{REPO}/resolve/main/model.safetensors").location
    get = huggingface_hub.get_session().get
    assert get(location).content == WEIGHTS
    assert get(location.partition("?")[0]).status_code == 403
    assert get(location, headers={"Authorization": "Bearer hf_alice"}).status_code == 400
    for wanted, content in (("bytes=5-", WEIGHTS[5:]), ("bytes=5-6", WEIGHTS[5:7]), ("bytes=-3", WEIGHTS[-3:])):
        assert get(location, headers={"Range": wanted}).content == content
    assert get(location, headers={"Range": f"bytes={len(WEIGHTS)}-"}).status_code == 416


def test_connections_are_kept_until_the_server_ends() -> None:
    with HubServer(TOKENS) as hub:
        connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=5)
        for path, body in (("/api/validate-yaml", [b'{"content": ', b'"---"}']), ("/api/repos/create", b"no JSON")):
            connection.request("POST", path, body, {"Authorization": "Bearer hf_alice"}, encode_chunked=True)
            connection.getresponse().read()
        assert hub.requests == [("POST", "/api/validate-yaml", 200, 18), ("POST", "/api/repos/create", 400, 7)]
        assert connection.sock is not None
    assert connection.sock.recv(1) == b""
    connection.close()


def test_large_objects_come_in_parts(hub: HubServer, api: HfApi) -> None:
    hub.part_size = 4000
    api.create_repo(REPO)
    hub.inject("PUT", "/2[?]", "cut")
    push(api)
    assert hub.files(REPO)["model.safetensors"] == WEIGHTS
    sizes = [record.size for record in hub.requests if record.method == "PUT"]
    assert sizes == [4000, 2000, 4000, len(WEIGHTS) - 8000]


@pytest.mark.parametrize(
    ("metadata", "wrong"),
    [
        ("license: mit\nlanguage: [en, de]\npipeline_tag: translation\ntags: [a]", None),
        ("license: MIT", "license"),
        ("language: english", "language"),
        ("language: [no]", "language"),
        ("tags: transformer", "tags"),
        ("- a\n- b", "mapping"),
        ("license: [mit", "invalid"),
        ("model-index:\n- name: m\n  results: []", None),
        ("model-index:\n- name: m\n  results:\n  - task: {type: translation}", "metrics"),
        (RESULT.format("[{type: bleu, value: 1.0}]"), None),
        (RESULT.format("[{type: bleu}]"), "metrics.0..value"),
        (RESULT.format("[]").replace("type: translation", "name: translation"), "task.type"),
        (RESULT.format("[]").replace("name: WMT", "config: WMT"), "dataset.name"),
        ("model-index:\n- results: []", "name"),
        ("model-index: {name: m}", "array"),
    ],
)
def test_metadata_of_a_card(hub: HubServer, api: HfApi, metadata: str, wrong: str | None) -> None:
    hub.put(REPO)
    card = {"README.md": f"---\n{metadata}\n---\n# Title\n".encode()}
    if wrong is None:
        push(api, card)
    else:
        with pytest.raises(ValueError, match=f"Invalid metadata in README.md.\n(.|\n)*{wrong}"):
            push(api, card)
    assert len(hub.commits(REPO)) == 3 - (wrong is not None)


@pytest.mark.skipif(not SINCE_2, reason="asks huggingface.co")
def test_a_card_can_be_checked_without_a_push(
    hub: HubServer, client: Callable[[str | bool], HfApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    ModelCard(CARD.decode()).validate()
    with pytest.raises(ValueError, match=r'"license" must be one of .*not "free"'):
        ModelCard("---\nlicense: free\n---\n").validate()


def test_warnings_do_not_stop_a_push(hub: HubServer, api: HfApi) -> None:
    hub.put(REPO)
    with pytest.warns(UserWarning, match="not in the official list"):
        push(api, {"README.md": b"---\npipeline_tag: magic\n---\n"})
    with pytest.warns(UserWarning, match="empty or missing yaml metadata"):
        push(api, {"README.md": b"# Title\n"})


# What the client does when a request goes wrong once. It asks again for what lies between the first request of a
# push and the commit itself, and raises where asking twice might do something twice - nothing then has changed.
@pytest.mark.parametrize("fault", [500, 503, 429, "cut", "drop"])
@pytest.mark.parametrize(
    ("method", "path", "retried"),
    [
        ("POST", "repos/create", False),
        ("POST", "validate-yaml", False),
        ("POST", "/preupload/", True),
        ("POST", "objects/batch", True),
        ("PUT", "/objects/", True),
        ("POST", "lfs/verify", True),
        ("POST", "/commit/", False),
    ],
)
def test_one_fault_in_a_push(
    hub: HubServer, api: HfApi, waits: list[float], method: str, path: str, retried: bool, fault: int | str
) -> None:
    struck = hub.inject(method, path, fault)
    if retried:
        api.create_repo(REPO)
        push(api)
        assert waits == [1]
    else:
        with pytest.raises((HfHubHTTPError, RemoteProtocolError)):
            api.create_repo(REPO)
            push(api)
        assert waits == []
        # An answer that was lost hides a commit which was made; the next push finds nothing to do.
        done = "create" in path and fault == "drop"
        api.create_repo(REPO, exist_ok=done or path != "repos/create")
        made = len(hub.commits(REPO))
        assert made == (2 if fault == "drop" and path == "/commit/" else 1)
        push(api)
    assert struck.times == 0
    assert hub.files(REPO).items() >= FILES.items()
    assert len(hub.commits(REPO)) == 2


@pytest.mark.parametrize("fault", [507, 403, 401, "short", "corrupt"])
def test_an_upload_that_fails_for_good_leaves_the_repository_as_it_was(
    hub: HubServer, api: HfApi, waits: list[float], fault: int | str
) -> None:
    api.create_repo(REPO)
    hub.inject("PUT", "/objects/", fault, message="Out of luck")
    with pytest.raises(RuntimeError, match=r"Error while uploading 'model.safetensors'") as caught:
        push(api)
    assert ("Out of luck" if isinstance(fault, int) else "BadDigest") in str(caught.value.__cause__)
    assert waits == []
    assert hub.files(REPO).keys() == {".gitattributes"}


def test_the_client_gives_up_after_six_attempts(hub: HubServer, api: HfApi, waits: list[float]) -> None:
    api.create_repo(REPO)
    hub.inject("PUT", "/objects/", 500, times=6)
    with pytest.raises(RuntimeError):
        push(api)
    assert waits == [1, 2, 4, 8, 8]
    hub.inject("PUT", "/objects/", 429, headers={"Retry-After": "30"})
    push(api)
    assert waits[5:] == [31]
    hub.inject("POST", "/commit/", 403, after=1)
    push(api, {"config.json": b"1"})
    with pytest.raises(HfHubHTTPError, match="403"):
        push(api, {"config.json": b"2"})


@pytest.mark.parametrize(
    ("method", "path", "fault", "error"),
    [
        # The first request is not asked again, and hides behind an advice about one's connection.
        ("GET", "/revision/", 500, LocalEntryNotFoundError),
        ("GET", "/revision/", "cut", RemoteProtocolError),
        ("GET", "/tree/", 500, None if SINCE_2 else HfHubHTTPError),
        ("GET", "/tree/", "cut", None if SINCE_2 else RemoteProtocolError),
        # A file's headers are asked for again, without a wait, after a status but not after a cut.
        ("HEAD", "config", 500, None),
        ("HEAD", "config", "cut", RemoteProtocolError),
        ("HEAD", "config", 403, LocalEntryNotFoundError),
        ("HEAD", "safetensors", 503, None),
        # A file itself is asked for again after a cut but not after a status, other than 429.
        ("GET", "config", 500, HfHubHTTPError),
        ("GET", "config", 429, None),
        ("GET", "config", "cut", None),
        ("GET", "config", "short", OSError),
        ("GET", "/objects/", 500, HfHubHTTPError),
        ("GET", "/objects/", 429, None),
        ("GET", "/objects/", "drop", None),
        ("GET", "/objects/", "short", OSError),
    ],
)
def test_one_fault_in_a_download(
    hub: HubServer, api: HfApi, tmp_path: Path, method: str, path: str, fault: int | str, error: type[Exception] | None
) -> None:
    hub.put(REPO, FILES)
    struck = hub.inject(method, path, fault)
    if error is not None:
        with pytest.raises(error):
            snapshot(api)
    assert snapshot(api) == hub.files(REPO)
    assert struck.times == 0
    assert not list((tmp_path / "cache").rglob("*.incomplete"))


def test_a_cut_download_goes_on_where_it_was_cut(
    hub: HubServer, api: HfApi, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    hub.put(REPO, FILES)
    hub.inject("GET", "/objects/", "cut")
    # Only whole pieces of this size count, of which the client takes 10 MB ones.
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    assert snapshot(api)["model.safetensors"] == WEIGHTS
    assert methods(hub, "/objects/") == [("GET", 200), ("GET", 206)]
    assert waits == [1]


def test_the_client_does_not_notice_wrong_bytes(hub: HubServer, api: HfApi) -> None:
    hub.put(REPO, FILES)
    hub.inject("GET", "/objects/", "corrupt")
    hub.inject("GET", "config", "corrupt")
    wrong = {"model.safetensors": bytes(255 - byte for byte in WEIGHTS), "config.json": bytes(255 - b for b in b"{}")}
    assert snapshot(api) == hub.files(REPO) | wrong
    # And keeps them.
    assert snapshot(api) == hub.files(REPO) | wrong


def test_a_subprocess_with_a_full_disk_leaves_no_part_of_a_file(hub: HubServer, tmp_path: Path) -> None:
    hub.put(REPO, FILES, private=True)
    load = "from huggingface_hub import snapshot_download; snapshot_download('alice/model', max_workers=1)"
    limit = f"import resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, ({len(WEIGHTS) // 2},) * 2)"
    failed = run(hub, tmp_path, f"{limit}; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); {load}")
    assert "OSError: [Errno 27] File too large" in failed.stderr
    repository = tmp_path / "huggingface/hub/models--alice--model"
    sizes = sorted(path.stat().st_size for path in (repository / "blobs").iterdir())
    assert sizes == sorted(len(data) for data in hub.files(REPO).values() if data != WEIGHTS)
    # Without the Hub, the client knows that something is missing.
    offline = run(hub, tmp_path, load, HF_HUB_OFFLINE="1")
    assert "IncompleteSnapshotError" in offline.stderr
    assert run(hub, tmp_path, load).returncode == 0
    assert run(hub, tmp_path, load, HF_HUB_OFFLINE="1").returncode == 0


def test_without_the_variable_the_client_would_upload_to_xet(hub: HubServer, tmp_path: Path) -> None:
    pytest.importorskip("hf_xet")
    hub.put(REPO)
    upload = "from huggingface_hub import upload_file; upload_file(path_or_fileobj=b'1', path_in_repo='a.bin', "
    assert run(hub, tmp_path, f"{upload} repo_id='{REPO}')", HF_HUB_DISABLE_XET="0").returncode == 1
    assert methods(hub, "xet-write-token") == [("GET", 404)]
    assert run(hub, tmp_path, f"{upload} repo_id='{REPO}')").returncode == 0
    assert hub.files(REPO)["a.bin"] == b"1"
