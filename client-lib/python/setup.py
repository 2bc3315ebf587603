"""Adds to pyproject.toml: what kvpool/wire.py reads is made, and builds leave nothing here."""

import shutil
import tempfile
from pathlib import Path

from grpc_tools import protoc
from setuptools import setup
from setuptools.command.build import build
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent.resolve()
COPY = HERE / "kvpool.proto"  # only in a source distribution
PROTO = COPY if COPY.exists() else HERE.parent.parent / "proto" / "kvpool.proto"


class BuildElsewhere(build):
    """Not in build/ here, from which a module that was deleted would be shipped ever after."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self._folder = tempfile.TemporaryDirectory(prefix="kvpool-build-")  # gone with this
        self.build_base = self._folder.name


class BuildWithWire(build_py):
    """Writes wire.binpb (descriptors) and wire.pyi (types) into the build folder."""

    def run(self) -> None:
        super().run()
        out = (HERE if self.editable_mode else Path(self.build_lib)) / "kvpool"
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            shutil.copy(PROTO, work / "wire.proto")
            words = [f"-I{work}", f"--descriptor_set_out={work}/wire.binpb", f"--pyi_out={work}"]
            if protoc.main(["protoc", *words, str(work / "wire.proto")]):
                raise SystemExit("protoc failed")
            shutil.copy(work / "wire.binpb", out / "wire.binpb")
            shutil.copy(work / "wire_pb2.pyi", out / "wire.pyi")


class SdistWithProto(sdist):
    """Takes the .proto along: it lies outside this folder."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        shutil.copy(PROTO, Path(base_dir) / "kvpool.proto")


setup(cmdclass={"build": BuildElsewhere, "build_py": BuildWithWire, "sdist": SdistWithProto})
