"""A process of its own for each job, without the seconds that importing libraries such as torch takes.

Run as a script this is the process that imports them once, and then forks for each job that it reads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Done(NamedTuple):
    """How a job ended, and what it wrote."""

    code: int
    out: str
    err: str


class Worker:
    """Runs jobs in processes that know nothing of this one.

    Args:
        python: The interpreter.
        environment: All of its variables.
        folder: Where it stands.
        preparation: Code that runs once, for all jobs.
    """

    def __init__(self, python: str | Path, environment: Mapping[str, str], folder: Path, preparation: str) -> None:
        self.folder = folder
        command = [str(python), str(Path(__file__).resolve()), preparation]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environment), cwd=folder
        )

    def command(self, *arguments: str | Path, setup: str = "", **environment: str) -> Done:
        """`vaswani-transformer` with these arguments, after the Python code `setup`."""
        code = (
            f"{setup}\nimport sys\nfrom vaswani_transformer.cli import main\nsys.exit(main({[*map(str, arguments)]}))"
        )
        return self.python(code, **environment)

    def python(self, code: str, **environment: str) -> Done:
        """Python code; waiting before the client's retries takes no time in it."""
        self._process.stdin.write(json.dumps({"code": code, "environment": environment}) + "\n")
        self._process.stdin.flush()
        return Done(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _serve() -> None:
    exec(sys.argv[1], {})
    for line in sys.stdin:
        job = json.loads(line)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if not child:
                _run(job, out.fileno(), err.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            out.seek(0)
            err.seek(0)
            print(json.dumps({"code": code, "out": out.read(), "err": err.read()}), flush=True)


def _run(job: dict, out: int, err: int) -> None:
    import time
    import traceback

    code = 0
    try:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - for as long as the process lives
        os.dup2(sys.stdin.fileno(), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.environ.update(job["environment"])
        time.sleep = lambda seconds: None
        exec(compile(job["code"], "job", "exec"), {"__name__": "__main__"})
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    # What the tests' folder holds is not to be imported by a job.
    sys.path.pop(0)
    _serve()
