"""The main job, to look at: engines of two tenants, one long beginning, a daemon that is killed.

Two engine processes of one tenant and one of another ask about the same museum; an answer goes on in
three ways; the pool is too small and others fill it; an engine is restarted, and then the daemon. Every
answer is compared with that of a dense cache.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import kvpool

from . import facts
from .daemon import Daemon, take_all
from .dense import LocalCache
from .model import load_or_make

TESTS = Path(__file__).resolve().parents[1]
OURS, OTHER, FILLER = "harbour", "rival", "crowd"  # tenants
MIB = 1 << 20


class Process:
    """A worker.py of its own."""

    def __init__(self, name, arguments):
        self.name, self.tenant = name, None
        self.child = subprocess.Popen(
            [sys.executable, "-m", "engine", "worker", *arguments], cwd=TESTS, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(TESTS)})

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"engine {self.name} ended")
        said = json.loads(line)
        if "error" in said:
            raise RuntimeError(f"engine {self.name}: {said['error']}")
        return said["ok"]

    def say(self, do, **words):
        self.child.stdin.write(json.dumps({"do": do, **words}) + "\n")
        self.child.stdin.flush()

    def ask(self, do, **words):
        self.say(do, **words)
        return self.answer()

    def end(self, how=signal.SIGTERM):
        self.child.send_signal(how)
        self.child.wait()


class Job:
    def __init__(self, arguments, daemon, token_bytes):
        self.arguments, self.daemon, self.token_bytes = arguments, daemon, token_bytes
        self.rows, self.memory, self.wrong, self.right = [], [], [], 0
        self.children, self.dense_answers, self.start = [], {}, time.perf_counter()

    # ---- engines

    def engine(self, name, tenant):
        process = Process(name, ["--model", self.arguments.model, "--dtype", self.arguments.dtype,
                                 "--dir", str(self.daemon.run),
                                 "--token", self.daemon.token_of(tenant)])
        process.tenant = tenant
        self.children.append(process)
        process.answer()
        return process

    def dense(self):
        """The same questions to a dense cache, all at once; it shares nothing with anybody."""
        process = Process("dense", ["--model", self.arguments.model, "--local",
                                    "--dtype", self.arguments.dtype])
        self.children.append(process)
        process.answer()
        return process

    def ask(self, process, questions, note, do="ask"):
        answers = process.ask(do, questions=questions)
        for question, answer in zip(questions, answers):
            self.rows.append({"engine": process.name, "note": note, "question": question, **answer})
            self.compare(process, do, question, answer)
            print(f"  {process.name:>3}  {question}\n       {answer['text']}\n"
                  f"       {answer['reused']:5} tokens reused, {answer['computed']:5} computed, "
                  f"first one after {answer['first_s']:.2f} s", flush=True)
        return answers

    def compare(self, process, do, question, answer):
        wanted = self.dense_answers.get((do, question))
        if wanted is not None and wanted != answer["tokens"]:
            self.wrong.append(f"{process.name}: {question}")
        words = dict(facts.QUESTIONS).get(question)
        self.right += bool(words and words.lower() in answer["text"].lower())

    # ---- the daemon's memory

    def held(self, tenant):
        """Bytes of the pool that a tenant has, by the daemon's count."""
        with self.daemon.operator() as operator:
            found = next(t for t in operator.tenants() if t["name"] == tenant)
            return found["charged_bytes"]

    def crowd(self):
        """Another tenant takes all that can be had, and lets go of it: what was cached is evicted."""
        until = time.monotonic() + 30
        while self.number("tier_storing_bytes") and time.monotonic() < until:
            time.sleep(0.1)  # what is evicted before a slow disk has it would be lost
        with self.daemon.pool(FILLER) as pool:
            take_all(pool, int(time.time()))

    def number(self, name):
        """A statistic of the disk tier."""
        with self.daemon.operator() as operator:
            return operator.stats()["numbers"][name]["disk"]


def say(text):
    print(f"\n{text}", flush=True)


def bytes_without_sharing(rows, bytes_per_token):
    """In whole blocks, as a cache without sharing but with blocks would have them."""
    block = kvpool.Model.block_tokens
    return sum(-(-row["length"] // block) * block * bytes_per_token for row in rows)


def run(job):
    ask = [question for question, _ in facts.QUESTIONS]
    first, second, alone, forks, later = ask[0], ask[1:4], ask[4], ask[5:8], ask[8]

    say("1. A dense cache of its own answers everything once: what all others are compared with.")
    dense = job.dense()
    answers = dense.ask("ask", questions=[first, *second, alone, later])
    forked = dense.ask("fork", questions=forks)
    dense.end()
    for question, answer in zip([first, *second, alone, later], answers):
        job.dense_answers["ask", question] = answer["tokens"]
    for question, answer in zip(forks, forked):
        job.dense_answers["fork", question] = answer["tokens"]

    say(f"2. Engine A1 of tenant '{OURS}' comes first; A2, another process of it, asks three at once.")
    one, two = job.engine("A1", OURS), job.engine("A2", OURS)
    miss = job.ask(one, [first], "first")[0]
    hits = job.ask(two, second, "shared")

    say("3. A1's answer goes on in three ways.")
    branches = job.ask(one, forks, "fork", do="fork")
    held = job.held(OURS)
    without = bytes_without_sharing([miss, *hits, *branches], job.token_bytes)
    job.memory = [without / MIB, held / MIB]
    print(f"\n  All seven sequences are held. Dense caches without sharing would take "
          f"{without / MIB:.0f} MiB;\n  the pool has {held / MIB:.0f} MiB for them: "
          f"{without / held:.1f} times less.")

    say(f"4. Tenant '{OTHER}' has the same text, and sees nothing of that.")
    other = job.engine("B1", OTHER)
    seen, ours = other.ask("match"), two.ask("match")
    print(f"  Of the shared beginning {ours} tokens are cached for '{OURS}', {seen} for '{OTHER}'.")
    if seen:
        job.wrong.append(f"'{OTHER}' saw {seen} tokens of '{OURS}'")
    job.ask(other, [alone], "other tenant")
    for process in (one, two, other):
        process.ask("release")
    other.end()

    say(f"5. Everybody lets go, and '{FILLER}' fills the pool: what was cached is evicted, and still on disk.")
    job.crowd()
    before = job.number("tier_hit_tokens")
    job.ask(two, [later], "evicted")
    print(f"  {job.number('tier_hit_tokens') - before} tokens of that came from disk.")
    two.ask("release")

    say("6. A1 is killed and started again.")
    one.end(signal.SIGKILL)
    one = job.engine("A1", OURS)
    job.ask(one, [second[0]], "engine restarted")
    one.ask("release")

    say("7. The daemon is killed (-9) and started again; A2 has not been told.")
    job.daemon.stop(signal.SIGKILL)
    job.daemon.start()
    job.ask(two, [second[1]], "daemon restarted")


def report(job):
    first = [row["first_s"] for row in job.rows]
    miss, hit = first[0], min(first[1:4])
    asked = sum(1 for row in job.rows if row["question"] in dict(facts.QUESTIONS))
    total = {key: sum(row[key] for row in job.rows) for key in ("reused", "computed")}
    say(f"Together: {total['computed']} tokens computed, {total['reused']} reused. First token after "
        f"{miss:.2f} s without a hit, {hit:.2f} s with one.")
    print(f"{job.right} of {asked} answers have the word that they should; "
          f"{len(job.wrong)} differ from the dense cache.")
    for line in job.wrong:
        print("  differs:", line)
    print(f"From start to here: {time.perf_counter() - job.start:.0f} s.")


def plot(job, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, (tokens, times, memory) = pyplot.subplots(1, 3, figsize=(15, 5), width_ratios=(3, 2, 1))
    names = [f"{n}. {row['engine']}: {row['note']}" for n, row in enumerate(job.rows, 1)]
    tokens.barh(names, [row["reused"] for row in job.rows], label="reused")
    tokens.barh(names, [row["computed"] for row in job.rows],
                left=[row["reused"] for row in job.rows], label="computed")
    tokens.set(title="tokens of each question")
    tokens.legend(loc="upper center", bbox_to_anchor=(0.5, -0.05), ncols=2)
    times.barh(names, [row["first_s"] for row in job.rows], color="C2")
    times.set(title="seconds to the first token", yticks=[])
    memory.bar(["without", "sharing"], job.memory, color=["C3", "C0"])
    memory.set(title="MiB of K and V")
    for axes in (tokens, times):
        axes.invert_yaxis()
    figure.tight_layout()
    figure.savefig(path)
    print(f"The picture is {path}.")


def main(arguments):
    model = load_or_make(arguments.model)
    arguments.model = model.name  # of all engines
    with tempfile.TemporaryDirectory(prefix="kvpool-disk-") as disk:
        tier = {"disk_directory": disk, "disk_max_bytes": "1GiB", "disk_granule_bytes": "8MiB",
                "store_default": "all", "store_when": "at-once"}
        # Room for the beginning of two tenants and for all answers, and not much more.
        beginning = len(model.tokeniser.chat(facts.messages()))
        token_bytes = LocalCache(model, arguments.dtype).bytes_per_token()
        num_bytes = token_bytes * (2 * beginning + 1500) // MIB + 1
        with Daemon((OURS, OTHER, FILLER), pool_bytes=f"{num_bytes}MiB", **tier) as daemon:
            job = Job(arguments, daemon, token_bytes)
            print(f"kvpoold has a pool of {num_bytes} MiB; {model.name} keeps "
                  f"{token_bytes / 1024:.1f} KiB a token ({arguments.dtype}). "
                  f"The shared beginning has {beginning} tokens.")
            try:
                run(job)
            finally:
                for process in job.children:
                    if process.child.poll() is None:
                        process.end(signal.SIGKILL)
            report(job)
            if arguments.plot:
                plot(job, arguments.plot)
    return 1 if job.wrong else 0
