"""Perplexity, agreement with the dense cache, needles found, bytes and time, for each plan.

    python3 -m fidelity --model gemma --plans f16,bf16 --json out.json --plot out.png

Each plan has a daemon of its own. The columns:
    B/token     bytes of K and V that a token takes
    perplexity  of the first windows of a book (public domain, downloaded)
    same token  at so many of those positions the dense cache would have chosen the same next one
    logits off  by so much at most logits differ from those of the dense cache, looked at every 256 tokens
    needles     found: sentences among paragraphs of the book, asked for in a chat
    same        of those answers, the ones that are the dense cache's token for token, right or wrong
    tokens/s    read, for the perplexity
    s           for the whole row
Exit status: 1 where something failed, 2 where words of the command line are wrong.
"""

import argparse
import json
import secrets
import sys
import time

from engine import MODELS, packages
from engine.arguments import count, in_a_line, output, picture
from engine.cache import staging_bytes
from engine.daemon import Daemon
from engine.dense import LocalCache
from engine.model import load

from . import measure
from .plans import PLANS

ROOM = 256  # tokens that a needle, its question and the answer may need besides the haystack
COLUMNS = {  # key: (head, form)
    "name": ("plan", "{:<10}"), "bytes_per_token": ("B/token", "{:>8.0f}"),
    "perplexity": ("perplexity", "{:>11.4f}"), "agreement": ("same token", "{:>11.2%}"),
    "logits": ("logits off", "{:>11.5f}"), "needles": ("needles", "{:>8}"),
    "same_answers": ("same", "{:>6}"), "tokens_per_s": ("tokens/s", "{:>9.1f}"),
    "seconds": ("s", "{:>7.1f}"),
}


def plans(text):
    """Names of PLANS."""
    for name in text.split(","):
        if name not in PLANS:
            raise argparse.ArgumentTypeError(f"no plan {name}: there are {', '.join(PLANS)}")
    return text.split(",")


def arguments(words=None):
    parser = argparse.ArgumentParser(prog="python3 -m fidelity", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--model", default="smollm2", choices=MODELS, help="two real ones, two made up" + default)
    parser.add_argument("--plans", type=plans, default=",".join(PLANS), metavar="PLAN,...",
                        help="; ".join(f"{name}: {plan.text}" for name, plan in PLANS.items()) + default)
    parser.add_argument("--text", default="alice29.txt",
                        help=f"{', '.join(measure.BOOKS)}, or a file" + default)
    parser.add_argument("--windows", type=count, default=2,
                        help="of the text; 0: no perplexity" + default)
    parser.add_argument("--window-tokens", type=count, default=measure.WINDOW, metavar="TOKENS",
                        help="length of a window" + default)
    parser.add_argument("--needles", type=count, default=1000, metavar="TOKENS",
                        help="length of the haystack; 0: none" + default)
    parser.add_argument("--json", metavar="FILE", type=output,
                        help="the table; - is standard output, and then nothing else is written there")
    parser.add_argument("--plot", metavar="FILE", type=picture, help="a picture (.png, .svg, .pdf)")
    return parser.parse_args(words)


class Harness:
    def __init__(self, given):
        self.given, self.model = given, load(given.model)
        self.check()
        self.text = read(given.text)
        self.texts = measure.windows(self.model, self.text, given.windows, given.window_tokens)
        self.lengths = [given.needles] if given.needles else []

    def check(self):
        given, longest = self.given, self.model.max_tokens
        if not given.windows and not given.needles:
            raise ValueError("--windows 0 and --needles 0: nothing is left to measure")
        if not 3 <= given.window_tokens <= longest:
            raise ValueError(f"--window-tokens: 3 to {longest}")
        if given.needles > longest - ROOM:
            raise ValueError(f"--needles: up to {longest - ROOM}, or the question has no room")

    def row(self, name, cache, baseline=None):
        """A row of the table, and what later ones are compared with."""
        start = time.perf_counter()
        reading = measure.read_text(self.model, cache, self.texts)
        search = measure.find_needles(self.model, cache, self.text, self.lengths)
        tokens = sum(map(len, self.texts))
        base_reading, base_search = baseline or (reading, search)
        row = {"name": name, "bytes_per_token": cache.bytes_per_token(),
               "seconds": time.perf_counter() - start}
        if tokens:
            row |= {"perplexity": reading.perplexity, "tokens_per_s": tokens / reading.seconds,
                    "agreement": measure.agreement(reading, base_reading),
                    "logits": measure.largest_difference(reading, base_reading)}
        if search.found:
            same = sum(mine == theirs for mine, theirs in zip(search.answers, base_search.answers))
            row |= {"needles": f"{sum(search.found)}/{len(search.found)}",
                    "same_answers": f"{same}/{len(search.found)}"}
        return row, (reading, search)

    def rows(self):
        """Dense first, then each plan over a daemon of its own."""
        row, baseline = self.row("dense", LocalCache(self.model))
        yield row
        for name in self.given.plans:
            with Daemon(pool_bytes="512MiB") as daemon, daemon.pool(
                    staging_bytes=staging_bytes(self.model), timeout=60) as pool:
                cache = PLANS[name].cache(self.model, pool, secrets.token_bytes(8))
                yield self.row(name, cache, baseline)[0]


def read(name):
    if name in measure.BOOKS:
        return measure.book(name)
    with open(name, encoding="utf-8") as file:
        return file.read()


def line(row=None):
    cells = []
    for key, (head, form) in COLUMNS.items():
        width = int(form.strip("{}").lstrip(":<>").split(".")[0])
        text = head if row is None else form.format(row[key]) if key in row else "-"
        cells.append(text.ljust(width) if key == "name" else text.rjust(width))
    return " ".join(cells)


def against(value, dense):
    """How far off it is, in words: most differences are too small to be seen."""
    return "" if value == dense else f"\n{100 * (value / dense - 1):+.3g} %"


def plot(rows, title, path):
    """Bars from 0, so that they are as much alike as they look; what differs is written on them."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4))
    names = [row["name"] for row in rows]
    for ax, key, label in zip(axes, ("perplexity", "agreement", "bytes_per_token"),
                              ("perplexity, and beside dense", "same next token as dense, of 1",
                               "bytes a token, and beside dense")):
        bars = ax.bar(names, [row.get(key, 0) for row in rows], color="lightsteelblue")
        ax.bar_label(bars, [COLUMNS[key][1].format(row[key]).strip() + against(row[key], rows[0][key])
                            if key in row else "" for row in rows], label_type="center")
        ax.set_title(label)
        ax.set_ylim(0, 1 if key == "agreement" else None)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path)


def main(words=None):
    return in_a_line("fidelity", lambda: measured(arguments(words)))


def measured(given):
    try:
        harness = Harness(given)
    except (packages.Unavailable, OSError, ValueError) as why:
        print(f"fidelity: {why}", file=sys.stderr)
        return 2 if isinstance(why, ValueError) else 1  # words that only this model finds wrong
    title = (f"{harness.model.name}: {given.text}, {given.windows} "
             f"window{'s' * (given.windows != 1)} of {given.window_tokens} tokens")
    is_quiet = given.json == "-"
    rows = []
    if not is_quiet:
        print(f"{title}\n{line()}", flush=True)
    for row in harness.rows():
        rows.append(row)
        if not is_quiet:
            print(line(row), flush=True)
    if given.json:
        result = json.dumps({"model": harness.model.name, "revision": harness.model.revision,
                             "text": given.text, "windows": given.windows,
                             "window_tokens": given.window_tokens, "rows": rows}, indent=2)
        if is_quiet:
            print(result)
        else:
            with open(given.json, "w", encoding="utf-8") as file:
                file.write(result + "\n")
    if given.plot:
        plot(rows, title, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
