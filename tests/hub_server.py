"""A small Hugging Face Hub on 127.0.0.1, in memory, for the true `huggingface_hub` client.

It speaks the part of the Hub's HTTP interface that pushing, loading and listing repositories need, over git blobs and
git LFS objects. It does not speak Xet, so a client which has `hf_xet` must run with `HF_HUB_DISABLE_XET=1` to upload;
`HubServer.environment` says so to a subprocess. Downloads need nothing: the server never offers Xet's hashes.

LFS objects lie under another name of the same host, as the true Hub's lie on other machines: the client takes the
file's headers from the redirect and must not send its token there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, quote, urlencode

from hub_cards import card_data, check_card
from hub_git import Blob, Commit, Files, Repository, entry, timestamp, tree_oids
from hub_http import HttpError, HttpServer, Request, Response, answer, route

LFS_SUFFIXES = "7z arrow bin bz2 ckpt gz h5 joblib model msgpack npy npz onnx parquet pb pickle pkl pt pth safetensors"
GIT_ATTRIBUTES = "".join(f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES.split())
LARGEST_REGULAR_FILE = 10 * 2**20
# The API's paths have the types in the plural; the web's paths, the keys of `HubServer.repositories`, have none for
# a model.
REPOSITORY = r"/api/(?P<type>models|datasets|spaces)/(?P<id>[^/]+(?:/[^/]+)?)"
WEB_REPOSITORY = r"/(?P<key>(?:(?:datasets|spaces)/)?[^/]+(?:/[^/]+?)?)"

Role = Literal["read", "write"]


def check_path(path: str, files: Iterable[str]) -> None:
    """Refuse what git could not check out beside these files."""
    parts = path.split("/")
    if not all(parts) or {".", "..", ".git"} & set(parts) or "\0" in path:
        raise HttpError(400, f"Invalid path: {path!r}")
    if any(other.startswith(f"{path}/") or path.startswith(f"{other}/") for other in files):
        raise HttpError(400, f"{path!r} is both a file and a folder")


class HubServer(HttpServer):
    """A Hub that lives as long as its `with` block.

    Args:
        tokens: user and role of each access token; the user owns the repositories under their name.
        page_size: entries on one page of the listings.
        part_size: LFS objects larger than this are uploaded in parts.
    """

    def __init__(
        self, tokens: Mapping[str, tuple[str, Role]] = {}, *, page_size: int = 1000, part_size: int | None = None
    ):
        super().__init__()
        self.tokens, self.page_size, self.part_size = dict(tokens), page_size, part_size
        self.repositories: dict[str, Repository] = {}
        self._signature = secrets.token_hex(8)
        self.url, self.storage_url = f"http://127.0.0.1:{self.port}", f"http://localhost:{self.port}"

    def environment(self, folder: Path, token: str | None = None) -> dict[str, str]:
        """Variables which, over the present ones, send a subprocess here with an empty cache under `folder`."""
        home = Path(folder) / "huggingface"
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_MODULES_CACHE": str(home / "modules"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_TOKEN": token or "",
            "HUGGING_FACE_HUB_TOKEN": "",
            "HF_HUB_OFFLINE": "0",
            "TRANSFORMERS_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "DISABLE_SAFETENSORS_CONVERSION": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def put(
        self,
        key: str,
        files: Mapping[str, bytes] = {},
        *,
        private: bool | None = None,
        gated: bool | None = None,
        revision: str = "main",
    ) -> str:
        """Add files to a repository, a new one if need be, without any check; the commit's id is returned.

        A new branch starts at `main`; `None` leaves a repository as private, or gated, as it is.
        """
        with self.lock:
            repository = self.repositories.get(key) or self._create(key, key.split("/")[-2])
            repository.private = repository.private if private is None else private
            repository.gated = repository.gated if gated is None else gated
            name = repository.reference(revision) or f"refs/heads/{revision}"
            start = repository.references.setdefault(name, repository.references["refs/heads/main"])
            added = {path: Blob(data, self._in_lfs(path, data, len(data))) for path, data in files.items()}
            repository.objects.update({blob.sha256: blob.data for blob in added.values() if blob.lfs})
            return repository.add(name, repository.commits[start].files | added, "Put files", "", repository.owner).oid

    def files(self, key: str, revision: str = "main") -> dict[str, bytes]:
        """Content of all files at a revision; the Hub's own `.gitattributes` is one of them."""
        return {path: blob.data for path, blob in self.repositories[key].commit(revision).files.items()}

    def commits(self, key: str, revision: str = "main") -> list[Commit]:
        """History of a revision, newest first; the last one made the repository."""
        return self.repositories[key].commit(revision).history()

    def authenticated(self, request: Request) -> Request:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return request
        if token not in self.tokens:
            raise HttpError(401, "Invalid credentials in Authorization header")
        user, role = self.tokens[token]
        return replace(request, user=user, role=role)

    # Repositories and who may do what with them.

    def _create(self, key: str, author: str) -> Repository:
        repository = self.repositories[key] = Repository(key)
        files = {".gitattributes": Blob(GIT_ATTRIBUTES.encode())}
        repository.add("refs/heads/main", files, "initial commit", "", author)
        return repository

    def _repository(self, request: Request, type: str = "models", id: str = "", key: str = "") -> Repository:
        """A repository that the user may see; to others it does not exist."""
        repository = self.repositories.get(key or (id if type == "models" else f"{type}/{id}"))
        if repository is None or (repository.private and request.user != repository.owner):
            if request.user is None:
                raise HttpError(401, "Invalid username or password.", "RepoNotFound")
            raise HttpError(404, "Repository not found", "RepoNotFound")
        return repository

    def _commit(self, repository: Repository, revision: str) -> Commit:
        try:
            return repository.commit(revision)
        except KeyError as error:
            raise HttpError(404, f"Invalid rev id: {revision}", "RevisionNotFound") from error

    def _writable(self, request: Request, owner: str, pull_request: bool = False) -> None:
        if request.user is None:
            raise HttpError(401, "Invalid username or password.")
        if request.role != "write":
            raise HttpError(403, "Forbidden: you must use a write token to upload to a repository.")
        if request.user != owner and not pull_request:
            raise HttpError(403, f'Forbidden: you don\'t have the rights to write under the namespace "{owner}"')

    def _admit(self, request: Request, repository: Repository) -> None:
        """Keep all but the owner from the files of a gated repository."""
        if repository.gated and request.user != repository.owner:
            message = f"Access to model {repository.key} is restricted. You must have access to it."
            raise HttpError(403 if request.user else 401, message, "GatedRepo")

    def _in_lfs(self, path: str, sample: bytes, size: int) -> bool:
        patterns = [line.split()[0] for line in GIT_ATTRIBUTES.splitlines()]
        named = any(fnmatch(path.rpartition("/")[2], pattern) for pattern in patterns)
        return size > 0 and (named or size > LARGEST_REGULAR_FILE or b"\0" in sample[:512])

    @route("GET", "/api/whoami-v2")
    def _whoami(self, request: Request) -> Response:
        if request.user is None:
            raise HttpError(401, "Invalid username or password.")
        token = {"type": "access_token", "accessToken": {"displayName": "test", "role": request.role}}
        return answer({"type": "user", "name": request.user, "fullname": request.user, "orgs": [], "auth": token})

    @route("POST", "/api/repos/create")
    def _create_repository(self, request: Request) -> Response:
        asked = request.json()
        owner, name, kind = asked.get("organization") or request.user, asked.get("name"), asked.get("type", "model")
        self._writable(request, owner or "")
        if not isinstance(name, str) or not re.fullmatch(r"(?!.*(--|\.\.))[\w][\w.-]{0,95}(?<![.-])", name):
            raise HttpError(400, f"Invalid repository name: {name!r}")
        key = f"{owner}/{name}" if kind == "model" else f"{kind}s/{owner}/{name}"
        if key in self.repositories:
            raise HttpError(409, f"You already created this {kind} repo", url=f"{self.url}/{key}")
        created = self._create(key, request.user or "")
        # Older clients have only the second.
        created.private = asked.get("visibility") == "private" or bool(asked.get("private"))
        return answer({"url": f"{self.url}/{key}", "name": f"{owner}/{name}", "id": key})

    @route("DELETE", "/api/repos/delete")
    def _delete_repository(self, request: Request) -> Response:
        asked = request.json()
        owner, kind = asked.get("organization") or request.user, asked.get("type", "model")
        repository = self._repository(request, f"{kind}s", f"{owner}/{asked.get('name')}")
        self._writable(request, repository.owner)
        del self.repositories[repository.key]
        return answer({})

    @route("GET", REPOSITORY + "(?:/revision/(?P<revision>[^/]+))?")
    def _info(self, request: Request, type: str, id: str, revision: str) -> Response:
        repository = self._repository(request, type, id)
        commit = self._commit(repository, revision or "main")
        card = card_data(commit.files["README.md"].data) if "README.md" in commit.files else None
        siblings: list[dict[str, Any]] = [{"rfilename": path} for path in sorted(commit.files)]
        for sibling in siblings if request.query.get("blobs") == "true" else []:
            listed = entry(sibling["rfilename"], commit.files[sibling["rfilename"]])
            sibling |= {"size": listed["size"], "blobId": listed["oid"]}
            if "lfs" in listed:
                sibling["lfs"] = {"sha256": listed["lfs"].pop("oid"), **listed["lfs"]}
        described = {
            "id": id,
            "modelId": id,
            "author": repository.owner,
            "sha": commit.oid,
            "createdAt": timestamp(commit.history()[-1].date),
            "lastModified": timestamp(commit.date),
            "private": repository.private,
            "gated": "manual" if repository.gated else False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [tag for tag in (card or {}).get("tags", []) if isinstance(tag, str)],
            "siblings": siblings,
            **{name: card[name] for name in ("library_name", "pipeline_tag", "model-index") if card and name in card},
        }
        return answer(described | ({"cardData": card} if card else {}))

    @route("GET", REPOSITORY + "/auth-check(?P<write>/write)?")
    def _check_access(self, request: Request, type: str, id: str, write: str) -> Response:
        repository = self._repository(request, type, id)
        if write:
            self._writable(request, repository.owner)
        self._admit(request, repository)
        return answer({})

    @route("POST", "/api/validate-yaml")
    def _validate_card(self, request: Request) -> Response:
        errors, warnings = check_card(str(request.json().get("content", "")))
        status = 400 if errors else 200
        if request.headers.get("Accept") == "text/plain":
            return Response(status, "\n".join(errors + warnings).encode(), {"Content-Type": "text/plain"})
        messages = {"errors": errors, "warnings": warnings}
        return answer({kind: [{"message": line} for line in lines] for kind, lines in messages.items()}, status)

    # What is in a repository.

    def _page(self, request: Request, entries: list[Any]) -> Response:
        start = int(request.query.get("cursor", 0))
        end = start + self.page_size
        if end >= len(entries):
            return answer(entries[start:])
        target = f"{self.url}{request.path}?{urlencode(request.query | {'cursor': str(end)})}"
        return answer(entries[start:end], Link=f'<{target}>; rel="next"')

    def _entries(self, commit: Commit, expand: bool = False) -> dict[str, dict[str, Any]]:
        """All files and folders by path."""
        folders = {path: oid for path, oid in tree_oids(commit.files).items() if path}
        entries = {path: {"type": "directory", "path": path, "oid": oid, "size": 0} for path, oid in folders.items()}
        entries |= {path: entry(path, blob) for path, blob in commit.files.items()}
        for path in entries if expand else ():
            for older in commit.history():
                if older.parent is None or self._entries(older.parent).get(path) != self._entries(older).get(path):
                    entries[path]["lastCommit"] = older.as_json()
                    break
        return dict(sorted(entries.items()))

    @route("GET", REPOSITORY + "/tree/(?P<revision>[^/]+)(?:/(?P<folder>.+))?")
    def _tree(self, request: Request, type: str, id: str, revision: str, folder: str) -> Response:
        commit = self._commit(self._repository(request, type, id), revision)
        entries = self._entries(commit, request.query.get("expand", "").lower() == "true")
        if folder and entries.get(folder, {}).get("type") != "directory":
            raise HttpError(404, f"{folder} does not exist on {revision}", "EntryNotFound")
        prefix = f"{folder}/" if folder else ""
        recursive = request.query.get("recursive", "").lower() in ("true", "1")
        below = {path: path[len(prefix) :] for path in entries if path.startswith(prefix)}
        return self._page(request, [entries[path] for path, rest in below.items() if recursive or "/" not in rest])

    @route("POST", REPOSITORY + "/paths-info/(?P<revision>[^/]+)")
    def _paths_info(self, request: Request, type: str, id: str, revision: str) -> Response:
        form = parse_qs(request.body.decode())
        commit = self._commit(self._repository(request, type, id), revision)
        entries = self._entries(commit, form.get("expand", [""])[0].lower() == "true")
        return answer([entries[path] for path in form.get("paths", []) if path in entries])

    @route("GET", REPOSITORY + "/commits/(?P<revision>[^/]+)")
    def _commits(self, request: Request, type: str, id: str, revision: str) -> Response:
        history = self._commit(self._repository(request, type, id), revision).history()
        return self._page(request, [{**commit.as_json(), "authors": [{"user": commit.author}]} for commit in history])

    @route("GET", REPOSITORY + "/refs")
    def _references(self, request: Request, type: str, id: str) -> Response:
        repository = self._repository(request, type, id)
        listed: dict[str, list[dict[str, str]]] = {}
        kinds = {
            "branches": "refs/heads/",
            "converts": "refs/convert/",
            "tags": "refs/tags/",
            "pullRequests": "refs/pr/",
        }
        for kind, prefix in kinds.items():
            listed[kind] = [
                {"name": name.removeprefix(prefix), "ref": name, "targetCommit": oid}
                for name, oid in repository.references.items()
                if name.startswith(prefix)
            ]
        return answer(listed)

    @route("POST", REPOSITORY + "/(?P<kind>branch|tag)/(?P<name>[^/]+)")
    def _create_reference(self, request: Request, type: str, id: str, kind: str, name: str) -> Response:
        repository = self._repository(request, type, id)
        self._writable(request, repository.owner)
        asked = request.json()
        # A branch is in the path and its start in the body; with a tag it is the other way round.
        start = asked.get("startingPoint", "main") if kind == "branch" else name
        reference = f"refs/heads/{name}" if kind == "branch" else f"refs/tags/{asked.get('tag')}"
        if reference in repository.references:
            raise HttpError(409, f"Reference {reference} already exists")
        repository.references[reference] = self._commit(repository, start).oid
        return answer({})

    @route("GET", WEB_REPOSITORY + "/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
    def _resolve(self, request: Request, key: str, revision: str, path: str) -> Response:
        repository = self._repository(request, key=key)
        commit = self._commit(repository, revision)
        headers = {"X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        if repository.gated and request.user != repository.owner:
            message = (
                f"Access to model {key} is restricted. You must have access to it and be authenticated to access it."
            )
            raise HttpError(403 if request.user else 401, message, "GatedRepo", headers)
        if path not in commit.files:
            raise HttpError(404, "Entry not found", "EntryNotFound", headers)
        blob = commit.files[path]
        headers["Content-Disposition"] = f"inline; filename*=UTF-8''{quote(path)}"
        if not blob.lfs:
            return self._download(request, blob.data, {**headers, "ETag": f'"{blob.oid}"'})
        headers |= {"X-Linked-Etag": f'"{blob.sha256}"', "X-Linked-Size": str(len(blob.data)), "ETag": f'"{blob.oid}"'}
        return Response(302, b"", {**headers, "Location": self._object_url(repository, blob.sha256)})

    def _download(self, request: Request, data: bytes, headers: dict[str, str]) -> Response:
        """All bytes or those of the request's range."""
        headers = {"Content-Type": "application/octet-stream", **headers}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
        if not wanted or wanted[0] == "bytes=-":
            return Response(200, data, headers)
        first, last = (int(bound) if bound else None for bound in wanted.groups())
        start = len(data) - (last or 0) if first is None else first
        end = len(data) if first is None or last is None else min(last + 1, len(data))
        if start >= end:
            raise HttpError(416, "Range not satisfiable", headers={"Content-Range": f"bytes */{len(data)}"})
        return Response(206, data[start:end], {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(data)}"})

    # Large files: announced to the Hub, sent to the storage, named in a commit.

    def _object_url(self, repository: Repository, oid: str, part: str = "") -> str:
        return f"{self.storage_url}/objects/{repository.key}/{oid}{part}?signature={self._signature}"

    @route("POST", WEB_REPOSITORY + r"\.git/info/lfs/objects/batch")
    def _lfs_batch(self, request: Request, key: str) -> Response:
        repository = self._repository(request, key=key)
        self._writable(request, repository.owner, pull_request=True)
        objects: list[dict[str, Any]] = []
        for asked in request.json().get("objects", []):
            oid, size = asked.get("oid"), asked.get("size")
            described = {"oid": oid, "size": size, "authenticated": True}
            objects.append(described)
            if not re.fullmatch("[0-9a-f]{64}", str(oid)) or not isinstance(size, int) or size < 0:
                described["error"] = {"code": 422, "message": "Invalid oid or size"}
                continue
            if len(repository.objects.get(oid, b"")) == size and oid in repository.objects:
                continue
            repository.expected[oid], repository.parts[oid] = size, {}
            upload: dict[str, Any] = {"href": self._object_url(repository, oid)}
            if self.part_size and size > self.part_size:
                numbers = range(1, -(-size // self.part_size) + 1)
                urls = {str(number): self._object_url(repository, oid, f"/{number}") for number in numbers}
                upload["header"] = {"chunk_size": str(self.part_size), **urls}
            described["actions"] = {"upload": upload, "verify": {"href": f"{self.url}/{key}.git/info/lfs/verify"}}
        return answer({"transfer": "basic", "objects": objects})

    @route("POST", WEB_REPOSITORY + r"\.git/info/lfs/verify")
    def _lfs_verify(self, request: Request, key: str) -> Response:
        repository, asked = self._repository(request, key=key), request.json()
        if len(repository.objects.get(asked.get("oid", ""), b"")) != asked.get("size"):
            raise HttpError(404, "The object is not there, or is of another size")
        return answer({})

    def _stored(self, request: Request, key: str) -> Repository:
        if request.query.get("signature") != self._signature or key not in self.repositories:
            raise HttpError(403, "SignatureDoesNotMatch")
        if request.user is not None:
            raise HttpError(400, "Only one auth mechanism allowed: the token is for the Hub alone")
        return self.repositories[key]

    def _store(self, repository: Repository, oid: str, data: bytes) -> None:
        if oid not in repository.expected:
            raise HttpError(403, "AccessDenied: no batch has announced this object")
        if (hashlib.sha256(data).hexdigest(), len(data)) != (oid, repository.expected[oid]):
            raise HttpError(400, "BadDigest: the content is not what was announced")
        repository.objects[oid] = data

    @route("GET", "/objects/(?P<key>.+)/(?P<oid>[0-9a-f]{64})")
    def _object(self, request: Request, key: str, oid: str) -> Response:
        repository = self._stored(request, key)
        if oid not in repository.objects:
            raise HttpError(404, "NoSuchKey")
        return self._download(request, repository.objects[oid], {"ETag": f'"{oid}"'})

    @route("PUT", "/objects/(?P<key>.+)/(?P<oid>[0-9a-f]{64})(?:/(?P<part>[0-9]+))?")
    def _upload(self, request: Request, key: str, oid: str, part: str) -> Response:
        repository = self._stored(request, key)
        if not part:
            self._store(repository, oid, request.body)
        else:
            repository.parts.setdefault(oid, {})[int(part)] = request.body
        return Response(200, b"", {"ETag": f'"{hashlib.md5(request.body).hexdigest()}"'})

    @route("POST", "/objects/(?P<key>.+)/(?P<oid>[0-9a-f]{64})")
    def _complete_upload(self, request: Request, key: str, oid: str) -> Response:
        repository = self._stored(request, key)
        parts = repository.parts.get(oid, {})
        numbers = [asked["partNumber"] for asked in request.json().get("parts", [])]
        if not parts.keys() >= set(numbers):
            raise HttpError(400, "InvalidPart: not all parts have come")
        self._store(repository, oid, b"".join(parts[number] for number in numbers))
        return answer({})

    # Commits.

    @route("POST", REPOSITORY + "/preupload/(?P<revision>[^/]+)")
    def _preupload(self, request: Request, type: str, id: str, revision: str) -> Response:
        repository = self._repository(request, type, id)
        self._writable(request, repository.owner, "create_pr" in request.query or revision.startswith("refs/pr/"))
        present = self._commit(repository, revision).files
        listed = []
        for asked in request.json().get("files", []):
            path = asked["path"]
            lfs = self._in_lfs(path, base64.b64decode(asked["sample"]), asked["size"])
            described = {"path": path, "uploadMode": "lfs" if lfs else "regular", "shouldIgnore": False}
            listed.append(described | ({"oid": present[path].etag} if path in present else {}))
        return answer({"files": listed})

    @route("POST", REPOSITORY + "/commit/(?P<revision>[^/]+)")
    def _push(self, request: Request, type: str, id: str, revision: str) -> Response:
        repository = self._repository(request, type, id)
        new = "create_pr" in request.query
        self._writable(request, repository.owner, new or revision.startswith("refs/pr/"))
        base = self._commit(repository, revision)
        reference = repository.reference(revision)
        if reference is None or reference.startswith("refs/tags/"):
            raise HttpError(400, f"{revision} is neither a branch nor a pull request")
        try:
            lines = [json.loads(line) for line in request.body.splitlines()]
            header = lines[0]["value"]
            if lines[0]["key"] != "header" or not header["summary"]:
                raise HttpError(400, "The first line must be a header with a summary")
            if header.get("parentCommit") not in (None, base.oid):
                raise HttpError(412, "A commit has happened since. Please refresh and try again.")
            files = dict(base.files)
            for line in lines[1:]:
                self._apply(repository, files, line["key"], line["value"])
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise HttpError(400, f"Malformed commit: {error!r}") from error
        if "README.md" in files and files["README.md"] != base.files.get("README.md"):
            errors, _ = check_card(files["README.md"].data.decode(errors="replace"))
            if errors:
                raise HttpError(400, "\n".join(["Your push was rejected: invalid metadata in README.md", *errors]))
        if new:
            number = 1 + sum(name.startswith("refs/pr/") for name in repository.references)
            reference = f"refs/pr/{number}"
            repository.references[reference] = base.oid
        commit = repository.add(reference, files, header["summary"], header.get("description", ""), request.user or "")
        web = f"{self.url}/{repository.key}"
        made = {"success": True, "commitOid": commit.oid, "commitUrl": f"{web}/commit/{commit.oid}", "hookOutput": ""}
        return answer(made | ({"pullRequestUrl": f"{web}/discussions/{number}"} if new else {}))

    def _apply(self, repository: Repository, files: Files, operation: str, value: dict[str, Any]) -> None:
        """One line of a commit."""
        path = value["path"]
        others = files.keys() - {path}
        if operation == "file":
            check_path(path, others)
            try:
                data = base64.b64decode(value["content"], validate=True)
            except binascii.Error as error:
                raise HttpError(400, f"{path}: invalid base64") from error
            if len(data) > LARGEST_REGULAR_FILE:
                raise HttpError(400, f"Your push was rejected because {path} is larger than 10 MiB and not in LFS")
            files[path] = Blob(data)
        elif operation == "lfsFile":
            check_path(path, others)
            stored = repository.objects.get(value["oid"])
            if stored is None or len(stored) != value.get("size", len(stored)):
                message = "Your push was rejected because an LFS pointer pointed to a file that does not exist"
                raise HttpError(400, f"{message}: {path}")
            files[path] = Blob(stored, lfs=True)
        elif operation in ("deletedFile", "deletedFolder"):
            prefix = path.rstrip("/") + "/"
            gone = [
                name for name in files if name == path or (operation == "deletedFolder" and name.startswith(prefix))
            ]
            if not gone:
                raise HttpError(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
            for name in gone:
                del files[name]
        else:
            raise HttpError(400, f"Unknown operation: {operation}")
