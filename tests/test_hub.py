"""Pushing to a Hub and loading from it: the true client in processes of their own, with faults and enemies."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer
from hub_worker import Done, Worker
from huggingface_hub import ModelCard

from vaswani_transformer import VaswaniConfig

TOKENS = {"hf_anna_writes": ("anna", "write"), "hf_anna_reads": ("anna", "read"), "hf_bob_writes": ("bob", "write")}
PUSHED = {
    *("README.md", "training_curve.png", "config.json", "generation_config.json", "model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json"),
    *("configuration_vaswani.py", "generation_vaswani.py", "modeling_vaswani.py", "pipeline_vaswani.py"),
}
OFFLINE = "import huggingface_hub.constants as constants; constants.HF_HUB_OFFLINE = True"
LOADED = (".json", ".safetensors")
TEXTS = ["Tom is here.", "The old woman opens the window because it is warm."]


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    with HubServer(TOKENS) as server:
        yield server


@pytest.fixture(autouse=True)
def no_faults_are_left(hub: HubServer) -> Iterator[None]:
    yield
    hub.faults.clear()


@pytest.fixture(scope="module")
def worker(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Has this package."""
    folder = tmp_path_factory.mktemp("with-package")
    package = str(Path(__file__).parents[1])
    environment = {**os.environ, **hub.environment(folder, "hf_anna_writes"), "PYTHONPATH": package}
    # What transformers prepares at its first loading of any model is most of the time that loading takes.
    preparation = "import datasets, vaswani_transformer.sharing as sharing; sharing.load_model('tatoeba-en-de')"
    worker = Worker(sys.executable, environment, folder, preparation)
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def stranger(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Has all libraries, and not this package."""
    folder = tmp_path_factory.mktemp("without-package")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # A folder that a .pth adds is not searched for .pth files of its own, such as that of an editable install.
    (folder / "venv" / "lib" / name / "site-packages" / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {**os.environ, **hub.environment(folder)}
    environment.pop("PYTHONPATH", None)
    worker = Worker(python, environment, folder, "import torch, transformers.pipelines")
    done = worker.python("import importlib.util; print(importlib.util.find_spec('vaswani_transformer'))")
    assert done.out == "None\n", done
    yield worker
    worker.close()


@pytest.fixture
def run_folder(tmp_path: Path, trained_run: Path) -> Path:
    """A run of seconds, to be pushed from."""
    return Path(shutil.copytree(trained_run, tmp_path / "small"))


def refused(done: Done, *texts: str) -> None:
    """Check for exit code 2 and one line that holds the texts."""
    lines = [line for line in done.err.splitlines() if line.startswith("vaswani-transformer: ")]
    assert (done.code, len(lines)) == (2, 1), done
    assert lines[0] == done.err.splitlines()[-1]
    assert "Traceback" not in done.err
    for text in texts:
        assert text in lines[0]


def heads(hub: HubServer, repo_id: str, revision: str = "main") -> list[str]:
    """The titles of the commits that a push made."""
    return [commit.title for commit in hub.commits(repo_id, revision) if commit.title != "initial commit"]


def behaviour(model: str | Path, **options: object) -> str:
    """Code that prints logits, translations and tokens of a model as JSON."""
    return f"""
import json, torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained({str(model)!r}, **{options}).eval()
tokenizer = AutoTokenizer.from_pretrained({str(model)!r}, **{options})
batch = tokenizer({TEXTS}, return_tensors="pt", padding=True)
with torch.no_grad():
    logits = model(**batch, decoder_input_ids=torch.tensor([[1, 5], [1, 7]])).logits
print(json.dumps([logits.tolist(), tokenizer.batch_decode(model.generate(**batch)), batch["input_ids"].tolist()]))
"""


def test_a_pushed_model_is_the_same_with_the_package_and_without(
    hub: HubServer, worker: Worker, stranger: Worker, run_folder: Path
) -> None:
    done = worker.command("push", run_folder, "anna/same")
    assert done.code == 0, done
    assert done.out == f"{hub.url}/anna/same/commit/{hub.commits('anna/same')[0].oid}\n"
    assert set(hub.files("anna/same")) == PUSHED | {".gitattributes"}
    assert len(heads(hub, "anna/same")) == 1

    here = worker.python("import vaswani_transformer" + behaviour(run_folder))
    there = worker.python("import vaswani_transformer" + behaviour("anna/same"))
    elsewhere = stranger.python(behaviour("anna/same", trust_remote_code=True))
    assert json.loads(here.out) == json.loads(there.out) == json.loads(elsewhere.out)
    call = f"import json; print(json.dumps([result['translation_text'] for result in pipe({TEXTS})]))"
    load = "pipe = pipeline('translation', model='anna/same', trust_remote_code=True)"
    by_pipeline = stranger.python(f"from transformers import pipeline\n{load}\n{call}")
    (stranger.folder / "in.txt").write_text("\n".join(TEXTS) + "\n")
    by_command = worker.command("translate", "anna/same", "--input", stranger.folder / "in.txt")
    assert [" ".join(text.split()) for text in json.loads(by_pipeline.out)] == by_command.out.splitlines()
    # Without permission no code of the repository runs.
    assert stranger.python(behaviour("anna/same", trust_remote_code=False)).code == 1


def test_who_has_no_package_trains_saves_and_pushes_on(
    hub: HubServer, worker: Worker, stranger: Worker, run_folder: Path
) -> None:
    assert worker.command("push", run_folder, "anna/first").code == 0
    code = f"""
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
model = AutoModelForSeq2SeqLM.from_pretrained("anna/first", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("anna/first", trust_remote_code=True)
batch = tokenizer({TEXTS}, text_target={TEXTS}, padding=True, return_tensors="pt")
model(**batch).loss.backward()
for parameter in model.parameters():
    parameter.data -= 0.1 * parameter.grad
model.save_pretrained("saved")
tokenizer.save_pretrained("saved")
model.push_to_hub("anna/second")
tokenizer.push_to_hub("anna/second")
for name in ("saved", "anna/second"):
    pipe = pipeline("translation", model=name, trust_remote_code=True)
    print(type(pipe).__name__, pipe({TEXTS}))
pipe.save_pretrained("again")
pipe = pipeline("translation", model="again", trust_remote_code=True)
print(type(pipe).__name__, pipe({TEXTS}))
"""
    done = stranger.python(code, HF_TOKEN="hf_anna_writes")
    assert done.code == 0, done
    lines = [line for line in done.out.splitlines() if line.startswith("TranslationPipeline")]
    assert len(lines) == 3
    assert len(set(lines)) == 1
    # Who has the package needs none of the code.
    ours = worker.python(
        "import vaswani_transformer\nfrom transformers import pipeline\n"
        f"pipe = pipeline('translation', model='anna/second')\nprint(type(pipe).__name__, pipe({TEXTS}))"
    )
    assert ours.out.splitlines()[-1] == lines[0]


def test_files_of_another_model_are_not_left_beside_ours(hub: HubServer, worker: Worker, run_folder: Path) -> None:
    hub.put("anna/mixed", {"added_tokens.json": b"{}", "adapter_config.json": b"{}", "notes.txt": b"mine"})
    refused(
        worker.command("push", run_folder, "anna/mixed"), "adapter_config.json, added_tokens.json of another model"
    )
    assert set(hub.files("anna/mixed")) >= {"added_tokens.json", "notes.txt"}
    assert "config.json" not in hub.files("anna/mixed")
    hub.put("anna/notes", {"notes.txt": b"mine"})
    assert worker.command("push", run_folder, "anna/notes").code == 0
    assert set(hub.files("anna/notes")) == PUSHED | {".gitattributes", "notes.txt"}


def test_the_examples_of_the_card_run_as_written(
    hub: HubServer, worker: Worker, stranger: Worker, run_folder: Path
) -> None:
    assert worker.command("push", run_folder, "anna/examples").code == 0
    card = hub.files("anna/examples")["README.md"].decode()
    ours, by_pipeline, by_hand = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    for code, process in (
        (ours, worker),
        (by_pipeline, stranger),
        (by_hand, stranger),
        ("import vaswani_transformer\n" + by_hand, worker),
    ):
        done = process.python(code)
        assert (done.code, "Do you wish" in done.out) == (0, False), done
        assert done.out.count("\n") == 1
    assert "trust_remote_code" not in ours
    # Without a task, which the configuration and the card's metadata tell.
    for code, process in ((ours, worker), (by_pipeline, stranger)):
        assert process.python(code.replace('"translation", ', "")).out == worker.python(ours).out


def test_a_second_push_sends_what_has_changed(
    hub: HubServer, worker: Worker, run_folder: Path, corpus_files: dict[str, Path]
) -> None:
    assert worker.command("push", run_folder, "anna/again").code == 0
    data = ["--test-file", corpus_files["validation"], "--num-beams", "1"]
    assert worker.command("evaluate", run_folder, *data).code == 0
    hub.requests.clear()
    done = worker.command("push", run_folder, "anna/again", "--license", "cc-by-4.0")
    assert "Pushed:" in done.err
    assert not any(request.method == "PUT" for request in hub.requests)
    newest, before, _ = hub.commits("anna/again")
    assert {name for name, blob in newest.files.items() if blob != before.files[name]} == {"README.md"}
    card = ModelCard(newest.files["README.md"].data.decode())
    assert (card.data.license, card.data.eval_results[0].dataset_name) == ("cc-by-4.0", "validation.tsv")
    hub.requests.clear()
    # The licence stays: it is in the folder's card.
    done = worker.command("push", run_folder, "anna/again")
    assert (done.code, "Nothing has changed" in done.err) == (0, True), done
    assert done.out.strip().endswith(newest.oid)
    assert len(heads(hub, "anna/again")) == 2
    assert max(request.size for request in hub.requests) < 20_000


def test_private_revision_and_pull_request(hub: HubServer, worker: Worker, run_folder: Path) -> None:
    assert worker.command("push", run_folder, "anna/private", "--private").code == 0
    assert hub.repositories["anna/private"].private
    assert worker.command("push", run_folder, "anna/public").code == 0
    assert not hub.repositories["anna/public"].private
    refused(worker.command("push", run_folder, "anna/public", "--private"), "is public", "--private")

    for _ in range(2):
        assert worker.command("push", run_folder, "anna/branches", "--revision", "v2").code == 0
    assert set(hub.files("anna/branches")) == {".gitattributes"}
    assert set(hub.files("anna/branches", "v2")) == PUSHED | {".gitattributes"}
    done = worker.python(
        "from vaswani_transformer.hub import download; print(*download('anna/branches', 'v2').iterdir())"
    )
    assert {Path(path).name for path in done.out.split()} == {name for name in PUSHED if name.endswith(LOADED)}

    # Who may not write may propose.
    done = worker.command(
        "push", run_folder, "anna/public", "--create-pr", "--license", "mit", HF_TOKEN="hf_bob_writes"
    )
    assert done.out == f"{hub.url}/anna/public/discussions/1\n"
    assert len(heads(hub, "anna/public")) == 1
    assert len(heads(hub, "anna/public", "refs/pr/1")) == 2
    done = worker.command("push", run_folder, "anna/public", "--create-pr", "--revision", "none")
    refused(done, "no revision none", "--create-pr")


@pytest.mark.parametrize(
    ("method", "path", "fault"),
    [
        ("POST", "validate-yaml", 500),
        ("POST", "repos/create", 502),
        ("POST", "repos/create", "drop"),
        ("POST", "preupload", 503),
        ("POST", "lfs/objects/batch", 500),
        ("PUT", "/objects/", 500),
        ("PUT", "/objects/", "cut"),
        ("POST", "/commit/", 500),
        ("POST", "/commit/", "cut"),
        ("POST", "/commit/", "drop"),
    ],
)
def test_a_passing_fault_while_pushing(
    method: str, path: str, fault: int | str, hub: HubServer, worker: Worker, run_folder: Path
) -> None:
    name = "anna/passing-" + re.sub("[^a-z0-9]", "", f"{method}{path}{fault}".lower())
    hub.inject(method, path, fault)
    done = worker.command("push", run_folder, name)
    assert (done.code, "Pushed:" in done.err) == (0, True), done
    assert not any(fault.times for fault in hub.faults)
    assert set(hub.files(name)) == PUSHED | {".gitattributes"}
    assert len(heads(hub, name)) == 1


@pytest.mark.parametrize(
    ("method", "path", "fault", "text"),
    [
        ("POST", "repos/create", 400, "refused it (400"),
        ("POST", "preupload", 404, "does not find it (404"),
        ("POST", "preupload", 403, "may not do this (403"),
        ("POST", "/commit/", 401, "access token (401)"),
        ("POST", "/commit/", 409, "conflict (409"),
        ("POST", "/commit/", 412, "changed meanwhile (412"),
        ("POST", "/commit/", 429, "too many requests"),
        ("POST", "/commit/", 500, "has a fault (500"),
        ("POST", "/commit/", "cut", "connection to the Hub failed"),
        ("POST", "validate-yaml", "cut", "connection to the Hub failed"),
        ("PUT", "/objects/", "corrupt", "BadDigest"),
        ("PUT", "/objects/", 403, "(403"),
    ],
)
def test_a_lasting_fault_while_pushing_is_one_line(
    method: str, path: str, fault: int | str, text: str, hub: HubServer, worker: Worker, run_folder: Path
) -> None:
    name = "anna/lasting-" + re.sub("[^a-z0-9]", "", f"{method}{path}{fault}".lower())
    hub.inject(method, path, fault, times=99)
    refused(worker.command("push", run_folder, name), name, text)
    # Never a card without its weights.
    assert name not in hub.repositories or set(hub.files(name)) == {".gitattributes"}


def test_mistakes_in_pushing(hub: HubServer, worker: Worker, run_folder: Path, tmp_path: Path) -> None:
    refused(worker.command("push", run_folder, "anna/new", HF_TOKEN=""), "hf auth login", "HF_TOKEN")
    refused(worker.command("push", run_folder, "anna/new", HF_TOKEN="hf_unknown"), "access token (401)")
    refused(worker.command("push", run_folder, "anna/new", HF_TOKEN="hf_anna_reads"), "(403", "role `write`")
    refused(worker.command("push", run_folder, "anna/new", HF_TOKEN="hf_bob_writes"), "(403", "namespace")
    refused(worker.command("push", run_folder, "anna/new", "--license", "free"), "README.md", "license")
    own = tmp_path / "own"
    shutil.copytree(run_folder, own)
    (own / "README.md").write_text("---\nlanguage: [en\n---\n# Mine\n")
    refused(worker.command("push", own, "anna/new"), "README.md: the card is not valid")
    assert "anna/new" not in hub.repositories
    refused(worker.command("push", run_folder, "anna/new", setup=OFFLINE), "HF_HUB_OFFLINE is set")
    refused(worker.command("push", run_folder, "anna/new", "--revision", " "), "the name of a branch")
    nowhere = "from huggingface_hub import constants; constants.ENDPOINT = 'nonsense'"
    refused(worker.command("push", run_folder, "anna/new", setup=nowhere), "HF_ENDPOINT: expected the URL of a Hub")
    refused(worker.command("push", run_folder, "anna/new", HF_TOKEN="hf_ü"), "the access token is malformed")
    (own / "README.md").write_text("# Mine\n")
    done = worker.command("push", own, "anna/plain")
    assert (done.code, done.err.count("\n")) == (0, 2), done
    assert done.err.startswith("README.md: ")


def test_a_pull_request_is_not_sent_twice(hub: HubServer, worker: Worker, run_folder: Path) -> None:
    assert worker.command("push", run_folder, "anna/once").code == 0
    hub.inject("POST", "/commit/", "drop")
    done = worker.command("push", run_folder, "anna/once", "--create-pr", "--license", "mit")
    refused(done, "connection to the Hub failed")
    assert [name for name in hub.repositories["anna/once"].references if "pr" in name] == ["refs/pr/1"]


def translate(worker: Worker, repo_id: str, **options: str) -> Done:
    (worker.folder / "in.txt").write_text("Tom is here.\n")
    return worker.command("translate", repo_id, "--input", "in.txt", "--num-beams", "1", **options)


@pytest.mark.parametrize(
    ("path", "fault", "times"),
    [
        ("/api/models/", 500, 1),
        ("/api/models/", "cut", 1),
        ("/resolve/.*config.json", 500, 1),
        ("/resolve/.*config.json", "corrupt", 1),
        ("/objects/", 500, 1),
        ("/objects/", "cut", 1),
        ("/objects/", "corrupt", 1),
    ],
)
def test_a_passing_fault_while_loading(
    path: str, fault: int | str, times: int, hub: HubServer, worker: Worker, published: dict[str, bytes]
) -> None:
    name = "anna/loading-" + re.sub("[^a-z0-9]", "", f"{path}{fault}".lower())
    hub.put(name, published)
    hub.inject("GET", path, fault, times)
    done = translate(worker, name)
    assert done.code == 0, done
    assert not any(fault.times for fault in hub.faults)
    # Without a network the cache serves.
    assert translate(worker, name, setup=OFFLINE) == done._replace(err=f"Looking for {name} on the Hub\n")


@pytest.mark.parametrize(
    ("path", "fault", "text"),
    [
        ("/objects/", "corrupt", "differs from its checksum, fetched twice"),
        ("/resolve/.*config.json", "corrupt", "differs from its checksum, fetched twice"),
        ("/objects/", "cut", "check the name and the network"),
        ("/objects/", 500, "check the name and the network"),
        ("/api/models/", 401, "check the name and the network"),
        ("/resolve/.*tokenizer.json", 403, "check the name and the network"),
    ],
)
def test_a_lasting_fault_while_loading_leaves_nothing_that_loads(
    path: str, fault: int | str, text: str, hub: HubServer, worker: Worker, published: dict[str, bytes]
) -> None:
    name = "anna/broken-" + re.sub("[^a-z0-9]", "", f"{path}{fault}".lower())
    hub.put(name, published)
    hub.inject("GET", path, fault, times=99)
    refused(translate(worker, name), name, text)
    refused(translate(worker, name, setup=OFFLINE), name)
    code = (
        f"import vaswani_transformer\nfrom transformers import AutoModelForSeq2SeqLM as M\nM.from_pretrained('{name}')"
    )
    assert worker.python(f"{OFFLINE}\n{code}").code == 1
    hub.faults.clear()
    assert translate(worker, name).code == 0


def test_names_that_the_hub_does_not_give(hub: HubServer, worker: Worker, published: dict[str, bytes]) -> None:
    hub.put("bob/secret", published, private=True)
    hub.put("bob/gated", published, gated=True)
    for name in ("anna/nothing", "bob/secret", "bob/gated", "not a name", "a/" + "b" * 99):
        refused(translate(worker, name), name, "check the name and the network")
    assert translate(worker, "bob/secret", HF_TOKEN="hf_bob_writes").code == 0
    hub.put("anna/half", {name: data for name, data in published.items() if name != "tokenizer.json"})
    refused(translate(worker, "anna/half"), "anna/half: no tokenizer.json")


def test_a_file_that_was_damaged_in_the_cache_is_fetched_again(
    hub: HubServer, worker: Worker, published: dict[str, bytes]
) -> None:
    hub.put("anna/rotten", published)
    before = translate(worker, "anna/rotten")
    [weights] = (worker.folder / "huggingface" / "hub" / "models--anna--rotten").glob("snapshots/*/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 0xFF
    weights.resolve().write_bytes(content)
    done = translate(worker, "anna/rotten", setup=OFFLINE)
    refused(done, "model.safetensors was damaged and is removed")
    after = translate(worker, "anna/rotten")
    assert (after.code, after.out) == (0, before.out)
    weights.resolve().write_bytes(content)
    after = translate(worker, "anna/rotten")
    assert (after.out, "differs from its checksum; fetching it again" in after.err) == (before.out, True)


def test_a_full_disk(hub: HubServer, worker: Worker, published: dict[str, bytes]) -> None:
    hub.put("anna/large", published)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))"
    refused(translate(worker, "anna/large", setup=limit), "anna/large: the disk is full", "HF_HUB_CACHE")
    refused(translate(worker, "anna/large", setup=OFFLINE), "anna/large")
    assert translate(worker, "anna/large").code == 0


@pytest.fixture(scope="module")
def published(
    hub: HubServer, worker: Worker, trained_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """The files of a repository that was pushed."""
    folder = shutil.copytree(trained_run, tmp_path_factory.mktemp("published") / "small")
    assert worker.command("push", folder, "anna/published").code == 0
    files = hub.files("anna/published")
    del files[".gitattributes"]
    return files


PAYLOAD = """
import pickle, pathlib

class Payload:
    def __reduce__(self):
        return (pathlib.Path.touch, (pathlib.Path({!r}),))

print(pickle.dumps(Payload(), 2).hex())
"""


def test_nothing_of_a_hostile_repository_runs(
    hub: HubServer, worker: Worker, stranger: Worker, published: dict[str, bytes], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    pickled = subprocess.run([sys.executable, "-c", PAYLOAD.format(str(ran))], capture_output=True, text=True)
    pickle.loads(bytes.fromhex(pickled.stdout))
    assert ran.exists()  # so it would, if it ran
    ran.unlink()
    evil = f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n".encode()
    plain = {name: data for name, data in published.items() if name.endswith((".json", ".safetensors"))}
    config, tokenizer = json.loads(plain["config.json"]), json.loads(plain["tokenizer_config.json"])
    weightless = {name: data for name, data in plain.items() if name != "model.safetensors"}
    auto_map = {"AutoConfig": "evil.C", "AutoModelForSeq2SeqLM": "evil.M"}
    tokenizer_map = {"AutoTokenizer": ["evil.T", "evil.T"]}
    hub.put("eve/pickle", {**weightless, "pytorch_model.bin": bytes.fromhex(pickled.stdout)})
    hub.put(
        "eve/config", {**plain, "config.json": json.dumps({**config, "auto_map": auto_map}).encode(), "evil.py": evil}
    )
    other = {"model_type": "evil", "auto_map": auto_map}
    hub.put("eve/other", {**plain, "config.json": json.dumps(other).encode(), "evil.py": evil})
    settings = {**tokenizer, "auto_map": tokenizer_map, "tokenizer_class": "T"}
    hub.put("eve/tokenizer", {**plain, "tokenizer_config.json": json.dumps(settings).encode(), "evil.py": evil})
    hub.put("eve/bart", {**plain, "config.json": json.dumps({"model_type": "bart"}).encode()})

    refused(translate(worker, "eve/pickle"), "no model.safetensors", "pickles")
    refused(translate(worker, "eve/other"), "type vaswani, found evil")
    refused(translate(worker, "eve/bart"), "type vaswani, found bart")
    refused(translate(worker, "eve/tokenizer"), "eve/tokenizer")
    # The model type is ours, and so is the code that runs.
    assert translate(worker, "eve/config").code == 0
    package = "import vaswani_transformer\n"
    assert worker.python(package + behaviour("eve/pickle")).code == 1
    assert worker.python(package + behaviour("eve/config")).code == 0
    assert worker.python(package + behaviour("eve/other")).code == 1
    assert worker.python(package + behaviour("eve/tokenizer")).code == 1
    for name in ("eve/config", "eve/other", "eve/tokenizer"):
        assert stranger.python(behaviour(name)).code == 1
    assert not ran.exists()
    fetched = {path.name for path in worker.folder.glob("huggingface/hub/models--eve--*/snapshots/*/*")}
    assert not fetched & {"evil.py"}


def test_a_hub_name_in_python(hub: HubServer, worker: Worker, run_folder: Path) -> None:
    code = f"from vaswani_transformer import push_to_hub; print(push_to_hub({str(run_folder)!r}, 'anna/python'))"
    done = worker.python(code)
    assert f"Upload(url='{hub.url}/anna/python/commit/" in done.out, done
    assert json.loads(hub.files("anna/python")["config.json"])["model_type"] == VaswaniConfig.model_type
