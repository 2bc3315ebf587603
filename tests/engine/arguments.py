"""Words of command lines, checked before anything long begins; and mistakes, said in a line."""

import argparse
import os
import sys

import kvpool

PICTURES = (".png", ".svg", ".pdf")


def port(text):
    """Of TCP: argparse says what is wrong with another one."""
    if not 0 <= int(text) <= 65535:
        raise ValueError
    return int(text)


def count(text):
    if int(text) < 0:
        raise ValueError
    return int(text)


def output(path):
    """A file that can be written when the time has come."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {path!r}")
    return path


def picture(path):
    if not path.endswith(PICTURES):
        raise argparse.ArgumentTypeError(f"{path!r} ends with none of {', '.join(PICTURES)}")
    return output(path)


def in_a_line(name, main):
    """main(), whose foreseeable mistakes are a line, and Ctrl-C no mistake."""
    try:
        return main()
    except (kvpool.KvpoolError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
