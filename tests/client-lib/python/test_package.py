"""The package as others get it: types, the example of its help, a source distribution."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path
from typing import Any

import kvpool
import numpy as np
import pytest
from conftest import ROOT, Daemon

PACKAGE = ROOT / "client-lib" / "python"


def mypy(*words: str | Path) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", PACKAGE / "pyproject.toml", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MYPYPATH": str(ROOT / "tests")},
    )
    return run.stdout + run.stderr


def test_the_package_is_strictly_typed() -> None:
    assert "Success" in mypy("-p", "kvpool")


def test_these_tests_are_too() -> None:
    assert "Success" in mypy(*Path(__file__).parent.glob("*.py"))


def test_each_face_has_its_types(tmp_path: Path) -> None:
    """What a verb returns depends on the face, and what it takes is checked."""
    (tmp_path / "use.py").write_text(
        textwrap.dedent("""
        import kvpool
        pool = kvpool.Pool()
        slow = kvpool.AsyncPool()
        reveal_type(pool.fork(1, 2))
        coming = reveal_type(slow.fork(1, 2))
        reveal_type(pool.later.fork(1, 2).result())
        pool.fork(1)
        pool.fork(1, "2")
        kvpool.Operator().fork(1, 2)
        """)
    )
    said = [
        re.sub(r"^.*?: (error|note): ", "", line) for line in mypy(tmp_path / "use.py").splitlines()
    ]
    assert said[0] == 'Revealed type is "kvpool.model.State"'
    assert said[1] == 'Revealed type is "typing.Coroutine[Any, Any, kvpool.model.State]"'
    assert said[2] == 'Revealed type is "kvpool.model.State"'
    assert "[call-arg]" in said[3]
    assert 'Argument 2 has incompatible type "str"; expected "int"' in said[4]
    assert '"Operator" has no attribute "fork"' in said[5]


def test_the_example_of_help_runs(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"^    import numpy as np\n.*?\n\n(?! )", kvpool.__doc__ or "", re.DOTALL | re.MULTILINE)  # fmt: skip
    assert found
    names: dict[str, Any] = {
        "tokens": list(range(20)),
        "q": np.zeros((20, 4, 64), np.float32),
        "k": np.zeros((20, 2, 64), np.float32),
        "v": np.ones((20, 2, 64), np.float32),
    }
    monkeypatch.setenv("KVPOOL_DIR", str(daemon.run))
    exec(textwrap.dedent(found[0]), names)  # noqa: S102 - our own words
    assert np.allclose(names["out"], 1)


def test_the_example_of_the_readme_runs_and_finds_what_it_cached(daemon: Daemon) -> None:
    example = PACKAGE / "examples" / "example.py"
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert not blocks or blocks == [example.read_text()]
    for found in (0, 32):
        run = subprocess.run(
            [sys.executable, example],
            env={**os.environ, "KVPOOL_DIR": str(daemon.run)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout == f"{found} of 40 tokens were cached\n"


def test_the_source_tree_says_that_it_is_not_installed(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE / "kvpool", tmp_path / "kvpool", ignore=shutil.ignore_patterns("wire.*b"))
    run = subprocess.run(
        [sys.executable, "-c", "import kvpool"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert re.search(r"^ImportError: .*pip install \./client-lib/python", run.stderr, re.MULTILINE)
    assert run.stderr.count("Traceback") == 1


def test_every_name_is_documented() -> None:
    for name in kvpool.__all__:
        thing = getattr(kvpool, name)
        assert isinstance(thing, int) or (thing.__doc__ or "").strip(), name
    for verbs in (kvpool.EngineVerbs, kvpool.OperatorVerbs):
        for name in vars(verbs):
            assert name.startswith("_") or getattr(verbs, name).__doc__, name
    assert kvpool.Pool.fork.__doc__ and "child" in kvpool.Pool.fork.__doc__


def test_a_source_distribution_builds_by_itself(tmp_path: Path) -> None:
    """Far from the repository, with the tools of this environment: no package is fetched."""
    setup = "import setuptools.build_meta as b; print(b.build_{}('.'))"
    source = tmp_path / "copy" / "client-lib" / "python"
    source.parent.mkdir(parents=True)
    subprocess.run(["cp", "-r", PACKAGE, source], check=True)
    subprocess.run(["cp", "-r", ROOT / "proto", tmp_path / "copy" / "proto"], check=True)
    subprocess.run([sys.executable, "-c", setup.format("sdist")], cwd=source, check=True, capture_output=True)  # fmt: skip
    with tarfile.open(source / "kvpool-0.1.0.tar.gz") as archive:
        archive.extractall(tmp_path / "far")
    far = tmp_path / "far" / "kvpool-0.1.0"
    subprocess.run([sys.executable, "-c", setup.format("wheel")], cwd=far, check=True, capture_output=True)  # fmt: skip
    (wheel,) = far.glob("*.whl")
    assert not (far / "build").exists()  # a module that is deleted would be shipped from there
    code = "import kvpool, kvpool.wire; print(kvpool.__file__, kvpool.wire.Batch(major=1).major)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(wheel)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stdout.split() == [f"{wheel}/kvpool/__init__.py", "1"]
