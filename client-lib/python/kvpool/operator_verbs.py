"""Every verb of operators, once: see verbs.py."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal

from . import wire
from .core import Call
from .face import Face, verb
from .verbs import nothing, stats_of


class OperatorVerbs(Face):
    """What operators ask. All may raise Timeout, Failed, Disconnected, and what is said."""

    @verb
    def status(self, *, timeout: float | None = None) -> Call[dict[str, Any]]:
        """The daemon as a whole (proto/README.md, section 8, like all that is listed)."""
        return _list("status", timeout)

    @verb
    def models(self, *, timeout: float | None = None) -> Call[list[dict[str, Any]]]:
        """Every registered model."""
        return _list("models", timeout)

    @verb
    def tenants(self, *, timeout: float | None = None) -> Call[list[dict[str, Any]]]:
        """Every tenant, and what it holds."""
        return _list("tenants", timeout)

    @verb
    def domains(self, *, timeout: float | None = None) -> Call[list[dict[str, Any]]]:
        """Every shared domain, and what it holds."""
        return _list("domains", timeout)

    @verb
    def sessions(self, *, timeout: float | None = None) -> Call[list[dict[str, Any]]]:
        """Every session."""
        return _list("sessions", timeout)

    @verb
    def stats(self, *, timeout: float | None = None) -> Call[dict[str, Any]]:
        """All numbers, by name."""
        return Call(wire.Request(stats=wire.StatsRequest()), stats_of, timeout)

    @verb
    def drain(self, *, undo: bool = False, timeout: float | None = None) -> Call[None]:
        """No new sequences, sessions or models; undo: again."""
        return Call(wire.Request(drain=wire.Drain(undo=undo)), nothing, timeout)

    @verb
    def clear(
        self, domain: str = "", model: str = "", *, timeout: float | None = None
    ) -> Call[None]:
        """Forgets what is cached of a domain and a model (empty: all), durably. NotFound."""
        return Call(wire.Request(clear=wire.Clear(domain=domain, model=model)), nothing, timeout)

    @verb
    def set_quota(
        self,
        payer: str,
        *,
        guarantee_bytes: int = 0,
        limit_bytes: int | None = None,
        weight: int = 0,
        tier: Literal["", "host", "disk"] = "",
        timeout: float | None = None,
    ) -> Call[None]:
        """Of a tenant or domain, all three at once; limit None: no limit; weight 0: 1. NotFound.

        tier: empty for the pool.
        """
        wanted = wire.SetQuota(
            payer=payer,
            tier=tier,
            guarantee_bytes=guarantee_bytes,
            has_limit=limit_bytes is not None,
            limit_bytes=limit_bytes or 0,
            weight=weight,
        )
        return Call(wire.Request(set_quota=wanted), nothing, timeout)

    @verb
    def create_domain(
        self,
        name: str,
        *,
        readers: Iterable[str] = (),
        fillers: Iterable[str] = (),
        guarantee_bytes: int = 0,
        limit_bytes: int | None = None,
        weight: int = 0,
        timeout: float | None = None,
    ) -> Call[None]:
        """A shared domain; readers, fillers: names of tenants. Exists, NotFound, Limit."""
        wanted = wire.CreateDomain(
            name=name,
            readers=readers,
            fillers=fillers,
            guarantee_bytes=guarantee_bytes,
            has_limit=limit_bytes is not None,
            limit_bytes=limit_bytes or 0,
            weight=weight,
        )
        return Call(wire.Request(create_domain=wanted), nothing, timeout)

    @verb
    def kick(self, session: int, *, timeout: float | None = None) -> Call[None]:
        """Ends a session. NotFound."""
        return Call(wire.Request(kick=wire.Kick(session=session)), nothing, timeout)

    @verb
    def shutdown(self, *, forget: bool = False, timeout: float | None = None) -> Call[None]:
        """Orderly end; forget: what is cached is not kept for the next start."""
        return Call(wire.Request(shutdown=wire.Shutdown(forget=forget)), nothing, timeout)


def _list(what: str, timeout: float | None) -> Call[Any]:
    return Call(
        wire.Request(list=wire.List(what=what)), lambda a: json.loads(a.reply.list.json), timeout
    )
