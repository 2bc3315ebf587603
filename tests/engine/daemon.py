"""A kvpoold of our own, in a temporary folder, for demos and tests: started, killed, started again."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import kvpool

from . import BUILT


def take_all(pool: kvpool.Pool, seed: int) -> int:
    """Through @pool, sequences until nothing more can be had; what others have cached is evicted. What is
    just being copied to a lower tier can be had a moment later. They are small, since what is evicted
    faster than it can be copied is lost, and grow, since a session may have only so many."""
    model = kvpool.Model(name="filler", weights_revision=str(seed), num_layers=1, num_kv_heads=1,
                         num_q_heads=1, k_head_dim=64, v_head_dim=64)
    pool.register_model(model)
    number, patience = 1, 40
    while patience:
        tokens = [(seed * 1000 + number) % (1 << 31)] * (128 << number // 512)
        try:
            pool.allocate(number, kvpool.Prompt(model, tokens), unfilled=True)
            number += 1
        except kvpool.NoBlocks:
            patience -= 1
            time.sleep(0.025)
    return number - 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Daemon:
    """Tenants are known by tokens, token_of(name); @me by the user id that this runs as. Settings:
    kvpoold.yaml's, with _ for -."""

    def __init__(self, tenants: Iterable[str] = ("chat",), me: str = "", **settings: object) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kvpool-"))
        self.run, self.log = self.folder / "run", self.folder / "log"
        self.config = self.folder / "kvpoold.yaml"
        known: list[dict[str, object]] = [{"name": me, "uids": [os.getuid()]}] if me else []
        known += [{"name": name, "token-file": str(self._token_file(name))} for name in tenants]
        self.settings: dict[str, object] = {
            "run-directory": str(self.run), "state-directory": str(self.folder / "state"),
            "pool-bytes": "256MiB", "page-bytes": "64KiB", "watermark-pages": 0,
            "http": False, "drain": "0s", "tenants": known,
            "keep-time": "1min",  # who keeps memory for a next start does not do so for long
        } | {name.replace("_", "-"): value for name, value in settings.items()}
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.finish()
            raise

    def token_of(self, tenant: str) -> str:
        return f"token-of-tenant-{tenant}"

    def _token_file(self, tenant: str) -> Path:
        path = self.folder / f"token-{tenant}"
        path.touch(mode=0o600)
        path.write_text(self.token_of(tenant) + "\n", encoding="ascii")
        return path

    def start(self) -> None:
        self.config.write_text(json.dumps(self.settings), encoding="utf-8")  # JSON is YAML
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [BUILT / "daemon" / "kvpoold", "--config", self.config], stderr=log,
                preexec_fn=_die_with_parent, env={**os.environ, "MALLOC_PERTURB_": "0"})
        until = time.monotonic() + 60
        while True:
            try:
                with self.operator(connect_timeout=0.5) as operator:
                    operator.status()
                return
            except kvpool.Disconnected:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(self.log.read_text(encoding="utf-8")) from None

    def stop(self, how: int = signal.SIGTERM) -> int:
        """Its exit status. With SIGKILL it dies as in a crash."""
        assert self.process
        self.process.send_signal(how)
        return self.process.wait(30)

    def finish(self) -> None:
        """Its end, and of what it would have kept for a next start."""
        if self.process and self.process.poll() is None:
            with contextlib.suppress(kvpool.KvpoolError, subprocess.TimeoutExpired):
                with self.operator() as operator:
                    operator.shutdown(forget=True)
                self.process.wait(10)
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def pool(self, tenant: str = "chat", **options: Any) -> kvpool.Pool:
        return kvpool.Pool(**{"directory": self.run, "token": self.token_of(tenant), **options})

    def operator(self, **options: Any) -> kvpool.Operator:
        return kvpool.Operator(directory=self.run, **options)
