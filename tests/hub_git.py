"""What lies in a repository of `hub_server`: git's objects, by the ids that git gives them, and LFS objects."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any


def git_oid(kind: str, data: bytes) -> str:
    """The id that git gives to an object."""
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data).hexdigest()


@dataclass(frozen=True)
class Blob:
    """A file's content; git sees only the pointer of one in LFS."""

    data: bytes
    lfs: bool = False

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def git_data(self) -> bytes:
        if not self.lfs:
            return self.data
        version = "version https://git-lfs.github.com/spec/v1"
        return f"{version}\noid sha256:{self.sha256}\nsize {len(self.data)}\n".encode()

    @cached_property
    def oid(self) -> str:
        return git_oid("blob", self.git_data)

    @property
    def etag(self) -> str:
        """What the client compares with its own file, and calls it by in its cache."""
        return self.sha256 if self.lfs else self.oid


Files = dict[str, Blob]


def tree_oids(files: Mapping[str, Blob]) -> dict[str, str]:
    """Git's ids of all folders; the root's name is empty."""
    children: dict[str, dict[str, tuple[str, str]]] = {"": {}}
    oids: dict[str, str] = {}
    for path, blob in files.items():
        folder, _, name = path.rpartition("/")
        children.setdefault(folder, {})[name] = ("100644", blob.oid)
        while folder:
            parent = folder.rpartition("/")[0]
            children.setdefault(parent, {})
            folder = parent
    for folder in sorted(children, key=lambda folder: (folder.count("/"), folder), reverse=True):
        # Git sorts a folder as if its name ended with a slash.
        entries = sorted(children[folder].items(), key=lambda entry: entry[0] + "/" * (entry[1][0] == "40000"))
        tree = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(oid) for name, (mode, oid) in entries)
        oids[folder] = git_oid("tree", tree)
        if folder:
            parent, _, name = folder.rpartition("/")
            children[parent][name] = ("40000", oids[folder])
    return oids


@dataclass(frozen=True)
class Commit:
    """All files at one moment, and what came before."""

    files: Files
    title: str
    message: str
    author: str
    date: datetime
    parent: Commit | None = None

    @cached_property
    def oid(self) -> str:
        person = f"{self.author} <{self.author}@localhost> {int(self.date.timestamp())} +0000"
        parent = f"parent {self.parent.oid}\n" if self.parent else ""
        header = f"tree {tree_oids(self.files)['']}\n{parent}author {person}\ncommitter {person}\n"
        return git_oid("commit", f"{header}\n{self.title}\n\n{self.message}".encode())

    def history(self) -> list[Commit]:
        """This commit and those before it, newest first."""
        commits = [self]
        while parent := commits[-1].parent:
            commits.append(parent)
        return commits

    def as_json(self) -> dict[str, Any]:
        return {"id": self.oid, "title": self.title, "message": self.message, "date": timestamp(self.date)}


def timestamp(date: datetime) -> str:
    return date.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def entry(path: str, blob: Blob) -> dict[str, Any]:
    """A file in the listings."""
    described: dict[str, Any] = {"type": "file", "path": path, "oid": blob.oid, "size": len(blob.data)}
    if blob.lfs:
        described["lfs"] = {"oid": blob.sha256, "size": len(blob.data), "pointerSize": len(blob.git_data)}
    return described


@dataclass
class Repository:
    """Commits by id, references to them, and the LFS objects that were uploaded.

    Args:
        key: its path on the web: owner and name, behind `datasets/` or `spaces/` if it is no model.
    """

    key: str
    private: bool = False
    gated: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    # What an LFS batch announced: size and the parts that have come.
    expected: dict[str, int] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        return self.key.split("/")[-2]

    def reference(self, revision: str) -> str | None:
        """The full name of a branch, a tag or a pull request."""
        names = (revision, f"refs/heads/{revision}", f"refs/tags/{revision}")
        return next((name for name in names if name in self.references), None)

    def commit(self, revision: str) -> Commit:
        """The commit that a reference, an id or its first digits name; a KeyError where none does."""
        name = self.reference(revision)
        oids = [self.references[name]] if name else [oid for oid in self.commits if oid.startswith(revision)]
        if len(oids) != 1 or (len(revision) < 7 and not name):
            raise KeyError(revision)
        return self.commits[oids[0]]

    def add(self, reference: str, files: Files, title: str, message: str, author: str) -> Commit:
        """Commit these files on top of a reference, which may be new."""
        parent = self.commits[self.references[reference]] if reference in self.references else None
        # Seconds apart, as a commit's id knows its date by seconds only.
        date = max(datetime.now(timezone.utc), parent.date + timedelta(seconds=1)) if parent else None
        commit = Commit(files, title, message, author, date or datetime.now(timezone.utc), parent)
        self.commits[commit.oid] = commit
        self.references[reference] = commit.oid
        return commit
