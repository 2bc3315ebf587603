"""Every verb of engines, once: what is sent, and what its answer means. face.py says how it is read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import rings, wire
from .arena import Arena
from .core import MAX_DATA_BYTES, Answer, Call, Pending
from .face import Face, verb
from .model import (
    DTYPES,
    F32,
    Matched,
    Model,
    ModelShape,
    Prefetched,
    Prompt,
    State,
    Table,
    Tokens,
    dtype_code,
    token_array,
)
from .staging import Staging
from .step import Step


def nothing(answer: Answer) -> None:
    pass


def _matched(answer: Answer) -> Matched:
    result = answer.reply.match
    return Matched(result.matched, result.arriving, result.below)


def _prefetched(answer: Answer) -> Prefetched:
    result = answer.reply.match
    return Prefetched(result.matched, result.present, result.coming)


def _state(answer: Answer) -> State:
    result = answer.reply.table
    tables = tuple(
        Table(np.array(t.slots, "<u4"), np.array(t.generations, "<u4"), t.num_shared)
        for t in result.tables
    )
    return State(result.matched, result.arriving, result.length, tables, result.below)


class EngineVerbs(Face):
    """What engines ask. All may raise Timeout, Failed, Overloaded, Disconnected, and what is said.

    ``timeout``: seconds; None: the connection's. ``table=True``: the result has the block tables.
    Sequences are numbers of your choice, 0 ... 2**64 - 1.
    """

    # ---- models and memory

    @verb
    def register_model(self, model: Model, *, timeout: float | None = None) -> Call[ModelShape]:
        """Makes a model known to this connection; again after reconnect() by itself.

        Other verbs take the model itself. Limit, NeverFits.
        """

        def decode(answer: Answer) -> ModelShape:
            result = answer.reply.model
            self._core.models[model] = result.model
            return ModelShape(
                tuple(result.block_bytes),
                tuple(result.stride_bytes),
                tuple(result.slots_per_granule),
            )

        return Call(wire.Request(register_model=model._request()), decode, timeout)

    @verb
    def open_arena(
        self, model: Model, group: int = 0, domain: str = "", *, timeout: float | None = None
    ) -> Call[Arena]:
        """Maps the memory of one layer group's blocks; domain empty: your own. NotFound."""
        wanted = wire.OpenArena(model=self._handle(model), group=group, domain=domain)

        def decode(answer: Answer) -> Arena:
            packet = answer.arena
            assert packet is not None  # _match_arenas() waited for it
            return Arena(packet.fd, packet.arena, packet.stride_bytes, packet.max_bytes,
                         packet.is_writable, model, group)  # fmt: skip

        return Call(wire.Request(open_arena=wanted), decode, timeout, wants_arena=True)

    # ---- what is cached

    @verb
    def match(self, prompt: Prompt, *, timeout: float | None = None) -> Call[Matched]:
        """How many tokens of the prompt are cached. No side effect. NotFound."""
        return Call(wire.Request(match=self._match(prompt)), _matched, timeout)

    @verb
    def wait_arriving(self, prompt: Prompt, *, timeout: float | None = None) -> Call[Matched]:
        """Waits until what another sequence is filling behind the match can be had.

        Miss: it will not come, or nothing is arriving. NotFound, Timeout, Cancelled.
        """
        return Call(wire.Request(wait_arriving=self._match(prompt)), _matched, timeout)

    @verb
    def prefetch(
        self, wanted: Prompt | int, *, timeout: float | None = None
    ) -> Call[Prefetched]:
        """Begins to bring to the device what is matched below it; holds nothing, answers at once.

        wanted: a prompt, or a preempted sequence ahead of its resume(). What finds no room now is
        left where it is. NotFound, Invalid.
        """
        if isinstance(wanted, Prompt):
            request = wire.Prefetch(prompt=wanted._request(self._handle(wanted.model)))
        else:
            request = wire.Prefetch(sequence=wanted, of_sequence=True)
        return Call(wire.Request(prefetch=request), _prefetched, timeout)

    # ---- sequences

    @verb
    def allocate(
        self,
        sequence: int,
        prompt: Prompt,
        *,
        unfilled: bool = False,
        take: int | None = None,
        table: bool = False,
        timeout: float | None = None,
    ) -> Call[State]:
        """Makes a sequence: holds every matched block, takes new ones for the rest, all or nothing.

        unfilled: K and V of the tokens beyond the match come with steps, or with write() and fill().
        take: only so many tokens beyond the match now, the rest later. Of the result, matched tokens
        are there already; arriving more another sequence is filling: you may wait_arriving().
        NotFound, Exists, NeverFits, Quota, NoBlocks, Limit, Draining.
        """
        wanted = wire.Allocate(
            sequence=sequence,
            prompt=prompt._request(self._handle(prompt.model)),
            unfilled=unfilled,
            has_take=take is not None,
            take=take or 0,
            want_table=table,
        )
        return Call(wire.Request(allocate=wanted), _state, timeout)

    @verb
    def resume(
        self,
        sequence: int,
        *,
        unfilled: bool = False,
        take: int | None = None,
        table: bool = False,
        timeout: float | None = None,
    ) -> Call[State]:
        """An allocation of a preempted sequence's own tokens. As allocate()."""
        wanted = wire.Resume(
            sequence=sequence,
            unfilled=unfilled,
            has_take=take is not None,
            take=take or 0,
            want_table=table,
        )
        return Call(wire.Request(resume=wanted), _state, timeout)

    @verb
    def append(
        self, sequence: int, tokens: Tokens, *, table: bool = False, timeout: float | None = None
    ) -> Call[State]:
        """Adds complete tokens, for engines without steps.

        NotFound, Quota, NoBlocks, NeverFits, Limit, Busy.
        """
        wanted = wire.Append(
            sequence=sequence, tokens=token_array(tokens).tobytes(), want_table=table
        )
        return Call(wire.Request(append=wanted), _state, timeout)

    @verb
    def fill(
        self, sequence: int, *, table: bool = False, timeout: float | None = None
    ) -> Call[State]:
        """K and V of an unfilled sequence are written. NotFound, Stale."""
        wanted = wire.SequenceRef(sequence=sequence, want_table=table)
        return Call(wire.Request(fill=wanted), _state, timeout)

    @verb
    def publish(
        self,
        sequence: int,
        num_tokens: int = 0,
        *,
        table: bool = False,
        timeout: float | None = None,
    ) -> Call[State]:
        """Gives full, complete blocks their names: from now on they are found.

        num_tokens, of a mapped session: K and V are written up to there; 0: all that are complete.
        NotFound, Stale, Busy.
        """
        wanted = wire.SequenceRef(sequence=sequence, num_tokens=num_tokens, want_table=table)
        return Call(wire.Request(publish=wanted), _state, timeout)

    @verb
    def fork(
        self, sequence: int, child: int, *, table: bool = False, timeout: float | None = None
    ) -> Call[State]:
        """child gets the complete tokens and shares every block, the partial tail too.

        NotFound, Exists, Limit, Busy.
        """
        wanted = wire.Fork(sequence=sequence, child=child, want_table=table)
        return Call(wire.Request(fork=wanted), _state, timeout)

    @verb
    def truncate(
        self, sequence: int, num_tokens: int, *, table: bool = False, timeout: float | None = None
    ) -> Call[State]:
        """Back to num_tokens. NotFound, Busy; Invalid in a step, and behind a sliding window."""
        wanted = wire.Truncate(sequence=sequence, num_tokens=num_tokens, want_table=table)
        return Call(wire.Request(truncate=wanted), _state, timeout)

    @verb
    def release(self, sequence: int, *, timeout: float | None = None) -> Call[None]:
        """Ends a sequence; what is published stays cached. NotFound, Busy; Invalid in a step."""
        wanted = wire.SequenceRef(sequence=sequence)
        return Call(wire.Request(release=wanted), nothing, timeout)

    @verb
    def preempt(self, sequence: int, *, timeout: float | None = None) -> Call[None]:
        """Lets go of the blocks, keeps the tokens. NotFound, Busy; Invalid in a step."""
        wanted = wire.SequenceRef(sequence=sequence)
        return Call(wire.Request(preempt=wanted), nothing, timeout)

    # ---- whole blocks

    @verb
    def write(
        self,
        sequence: int,
        blocks: NDArray[Any],
        *,
        group: int = 0,
        first_block: int = 0,
        timeout: float | None = None,
    ) -> Call[None]:
        """Copies K and V of whole blocks in, those that are not published yet.

        blocks: ``[block]...``, each of exactly block_bytes as Model.kv_views() shows them; in
        staging, or anywhere: then they go in a message, or, over 4 MiB, are copied to staging.
        NotFound, Stale, Busy; Malformed: the wrong size. MemoryError: staging has no room for a copy.
        """
        at = self._staging.offset_of(blocks)
        if at is None and blocks.nbytes > MAX_DATA_BYTES:
            blocks, at = self._staging.put(blocks)
        wanted = wire.Write(
            sequence=sequence,
            group=group,
            first_block=first_block,
            num_blocks=len(blocks),
            in_staging=at is not None,
            offset=at or 0,
        )
        frame = None if at is not None else np.ascontiguousarray(blocks).tobytes()
        return Call(wire.Request(write=wanted), nothing, timeout, frame, keep=[blocks])

    @verb
    def read(
        self,
        sequence: int,
        num_blocks: int,
        *,
        group: int = 0,
        first_block: int = 0,
        out: NDArray[Any] | None = None,
        timeout: float | None = None,
    ) -> Call[NDArray[np.uint8]]:
        """Copies K and V of whole blocks out: uint8 ``[block][block_bytes]`` (Model.kv_views()).

        out: an array in staging that they are written to, large enough; without it they come in a
        message, up to 4 MiB (Unsupported: more). Invalid: an unfilled sequence. NotFound, Stale,
        Busy, Overloaded.
        """
        at = None if out is None else self._staging.offset_of(out)
        if out is not None and at is None:
            raise ValueError("out: an array of staging, please")
        wanted = wire.Read(
            sequence=sequence,
            group=group,
            first_block=first_block,
            num_blocks=num_blocks,
            in_staging=at is not None,
            offset=at or 0,
        )

        def decode(answer: Answer) -> NDArray[np.uint8]:
            where = answer.frame if out is None else out.reshape(-1).view(np.uint8)
            found: NDArray[np.uint8] = np.frombuffer(where, np.uint8, answer.reply.data.num_bytes)
            return found.reshape(num_blocks, -1)

        return Call(wire.Request(read=wanted), decode, timeout, wants_frame=out is None, keep=[out])

    # ---- steps

    @verb
    def step(
        self,
        model: Model,
        rows: Mapping[int, Tokens] | Iterable[tuple[int, Tokens]],
        *,
        timeout: float | None = None,
    ) -> Call[Step]:
        """Begins a forward pass: which sequences gain which tokens, all or nothing.

        Rows of all tensors are ordered as the sequences are given, then by position. Tokens that an
        unfilled allocation already has come first and must be the same. Follows attend() of every
        layer, in any order; the last missing one commits the step. See also stepping().
        NotFound, Quota, NoBlocks, NeverFits, Limit, Busy, Stale.
        """
        pairs = list(rows.items() if isinstance(rows, Mapping) else rows)
        named = [(sequence, token_array(tokens)) for sequence, tokens in pairs]
        wanted = wire.Step(rows=[wire.Row(sequence=s, tokens=t.tobytes()) for s, t in named])
        keep: list[Any] = []

        def ring(id_: int) -> bytes | None:
            return _step_entry(self._staging, named, keep, id_)

        def decode(answer: Answer) -> Step:
            result = answer.reply.step
            return Step(result.step, result.num_rows, model)

        return Call(wire.Request(step=wanted), decode, timeout, ring=ring, keep=keep)

    @verb
    def attend(
        self,
        step: Step,
        layer: int,
        q: NDArray[Any],
        k: NDArray[Any],
        v: NDArray[Any] | None = None,
        *,
        out: NDArray[Any] | None = None,
        scale: float = 0.0,
        soft_cap: float = 0.0,
        sinks: NDArray[np.float32] | None = None,
        timeout: float | None = None,
    ) -> Call[NDArray[Any]]:
        """One layer of a step: stores K and V of the new tokens, attends causally, gives the output.

        q ``[row][q_head][k_head_dim]``, k ``[row][kv_head][k_head_dim]`` after RoPE, v
        ``[row][kv_head][v_head_dim]`` (None: MLA); all of one dtype: float32, float16, or uint16 for
        bfloat16. Arrays of staging are used where they lie, others are copied in. The result,
        ``[row][q_head][v_head_dim]``, lies in staging: out, if given (it may be q, if of that
        shape), else new memory, free again when you let go of it. scale 0: 1 / sqrt(k_head_dim);
        soft_cap c > 0: a score s becomes c * tanh(s / c); sinks: float32 ``[q_head]``.
        NotFound (no such step), Invalid. MemoryError: staging has no room for a copy.
        """
        call = self._attend(step, layer, (q, k, v), out, (scale, soft_cap), sinks, False, timeout)
        return call.then(lambda both: both[0])

    @verb
    def attend_lse(
        self,
        step: Step,
        layer: int,
        q: NDArray[Any],
        k: NDArray[Any],
        v: NDArray[Any] | None = None,
        *,
        out: NDArray[Any] | None = None,
        scale: float = 0.0,
        soft_cap: float = 0.0,
        sinks: NDArray[np.float32] | None = None,
        timeout: float | None = None,
    ) -> Call[tuple[NDArray[Any], NDArray[np.float32]]]:
        """As attend(); returns also the natural logarithm of each row's sum: float32 ``[row][q_head]``."""
        return self._attend(step, layer, (q, k, v), out, (scale, soft_cap), sinks, True, timeout)

    @verb
    def end_step(
        self, step: Step, *, abandon: bool = False, timeout: float | None = None
    ) -> Call[None]:
        """Commits early, or takes the step's tokens away again (abandon).

        Not for a step whose last layer was attended: that one committed by itself (NotFound).
        Invalid: layers are missing.
        """
        flags = rings.ABANDON if abandon else 0
        wanted = wire.EndStep(step=step.handle, abandon=abandon)

        def ring(id_: int) -> bytes:
            head = (id_, rings.END_STEP, flags, step.handle)
            return rings.SUBMISSION.pack(*head, *[0] * 10, 0.0, 0.0)

        def decode(answer: Answer) -> None:
            step.is_ended = True
            self._core.step_ended(step.handle)

        return Call(wire.Request(end_step=wanted), decode, timeout, ring=ring)

    # ---- others

    @verb
    def cancel(self, pending: Pending[Any], *, timeout: float | None = None) -> Call[None]:
        """Resolves an outstanding request with Cancelled. NotFound: it was answered."""
        return Call(wire.Request(cancel=wire.Cancel(request=pending.id)), nothing, timeout)

    @verb
    def stats(
        self, *, events_after: int | None = None, timeout: float | None = None
    ) -> Call[dict[str, Any]]:
        """Your tenant's numbers, by name (proto/README.md, section 8).

        events_after: its block events behind that number too, up to 256 ("last" of the answer before).
        """
        wanted = wire.StatsRequest(want_events=events_after is not None, after=events_after or 0)
        return Call(wire.Request(stats=wanted), stats_of, timeout)

    # ---- what they are made of

    @property
    def _staging(self) -> Staging:
        staging = self._core.staging
        if staging is None:
            raise ValueError("not connected")
        return staging

    def _handle(self, model: Model) -> int:
        try:
            return self._core.models[model]
        except KeyError:
            raise ValueError(f"register_model({model.name!r}) comes first") from None

    def _match(self, prompt: Prompt) -> wire.Match:
        return wire.Match(prompt=prompt._request(self._handle(prompt.model)))

    def _attend(
        self,
        step: Step,
        layer: int,
        qkv: tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None],
        out: NDArray[Any] | None,
        factors: tuple[float, float],
        sinks: NDArray[np.float32] | None,
        want_lse: bool,
        timeout: float | None,
    ) -> Call[tuple[NDArray[Any], NDArray[np.float32]]]:
        staging, dtype = self._staging, dtype_code(qkv[0].dtype)
        shapes = step.shapes()
        _check(("q", qkv[0], shapes.q), ("k", qkv[1], shapes.k), dtype=dtype)
        if shapes.v is None or qkv[2] is None:
            if shapes.v is not None or qkv[2] is not None:
                raise ValueError("v: every model has one but MLA, where it is None")
        else:
            _check(("v", qkv[2], shapes.v), dtype=dtype)
        put = [staging.put(array) if array is not None else (None, 0) for array in qkv]
        result = staging.take(shapes.out, qkv[0].dtype) if out is None else out
        _check(("out", result, shapes.out), dtype=dtype)
        out_at = staging.offset_of(result)
        if out_at is None:
            raise ValueError("out: a whole array of staging, please")
        lse = staging.take(shapes.q[:2], np.float32) if want_lse else np.empty(0, np.float32)
        lse_at = (staging.offset_of(lse) or 0) if want_lse else 0
        if sinks is not None:
            _check(("sinks", sinks, shapes.q[1:2]), dtype=F32)
        sinks_in, sinks_at = (None, 0) if sinks is None else staging.put(sinks)
        wanted = wire.Attend(
            step=step.handle,
            layer=layer,
            dtype=dtype,
            q_offset=put[0][1],
            k_offset=put[1][1],
            v_offset=put[2][1],
            out_offset=out_at,
            want_lse=want_lse,
            lse_offset=lse_at,
            scale=factors[0],
            soft_cap=factors[1],
            has_sinks=sinks is not None,
            sinks_offset=sinks_at,
        )
        flags = want_lse * rings.WANT_LSE | (sinks is not None) * rings.HAS_SINKS
        places = (put[0][1], put[1][1], put[2][1], out_at, lse_at, sinks_at)

        def ring(id_: int) -> bytes:
            head = (id_, rings.ATTEND, flags, step.handle, 0, layer, dtype, 0)
            return rings.SUBMISSION.pack(*head, *places, *factors)

        keep = [*(array for array, _ in put), result, lse, sinks_in]

        def decode(answer: Answer) -> tuple[NDArray[Any], NDArray[np.float32]]:
            step.attended(layer)
            if step.is_ended:
                self._core.step_ended(step.handle)
            return result, lse

        return Call(
            wire.Request(attend=wanted), decode, timeout, ring=ring, keep=keep, step=step.handle
        )


def stats_of(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.reply.stats.json)
    return found


def _check(*wanted: tuple[str, NDArray[Any], tuple[int, ...]], dtype: int) -> None:
    """One line that says which tensor is wrong, and how."""
    for name, array, shape in wanted:
        if array.shape != shape:
            raise ValueError(f"{name}: shape {array.shape}, wanted {shape}")
        if dtype_code(array.dtype) != dtype:
            raise ValueError(f"{name}: {array.dtype}, wanted {DTYPES[dtype]}")


def _step_entry(
    staging: Staging,
    rows: list[tuple[int, NDArray[np.uint32]]],
    keep: list[Any],
    id_: int,
) -> bytes | None:
    """A step's rows and tokens have to lie in staging too; None: there is no room for them."""
    num_bytes = len(rows) * rings.ROW.size
    try:
        memory = staging.take(num_bytes + 4 * sum(len(tokens) for _, tokens in rows), np.uint8)
    except MemoryError:
        return None
    start = at = staging.offset_of(memory) or 0
    at += num_bytes
    packed = []
    for sequence, tokens in rows:
        packed.append(rings.ROW.pack(sequence, at, len(tokens), 0))
        memory[at - start : at - start + 4 * len(tokens)] = tokens.view(np.uint8)
        at += 4 * len(tokens)
    memory[:num_bytes] = np.frombuffer(b"".join(packed), np.uint8)
    keep.append(memory)
    head = (id_, rings.STEP, 0, 0, len(rows), 0, 0, start)
    return rings.SUBMISSION.pack(*head, *[0] * 6, 0.0, 0.0)
