"""What people can try: python3 -m engine {job,chat,serve}, in tests/ or with it on PYTHONPATH."""

import argparse
import importlib
import sys

from . import MODELS


def port(text):
    """Of TCP: argparse says what is wrong with another one."""
    if not 0 <= int(text) <= 65535:
        raise ValueError
    return int(text)


def arguments():
    parser = argparse.ArgumentParser(prog="python3 -m engine", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, text):
        found = commands.add_parser(name, help=text, description=text)
        found.add_argument("--model", default="smollm2", choices=MODELS)
        found.add_argument("--dtype", default="f32", choices=("f32", "f16", "bf16"),
                           help="of K and V")
        return found

    def connection(found):
        found.add_argument("--dir", help="of the daemon's sockets; else $KVPOOL_DIR or /run/kvpoold")
        found.add_argument("--token", default="", help="of a tenant; else your user id says which")
        found.add_argument("--local", action="store_true", help="no daemon: a dense cache instead")
        return found

    job = command("job", "The main job: engines of two tenants over a daemon that is killed.")
    job.add_argument("--plot", metavar="FILE", help="saves a picture (.png, .svg, .pdf)")
    connection(command("chat", "A chat in this terminal; a second one shares its beginning."))
    serve = connection(command("serve", "An OpenAI-style server on 127.0.0.1."))
    serve.add_argument("--port", type=port, default=8000, help="0: any free one")
    connection(command("worker", "An engine that is told what to do by lines of JSON."))
    return parser.parse_args()


def main():
    given = arguments()
    module = "main_job" if given.command == "job" else given.command
    return importlib.import_module(f".{module}", __package__).main(given)


if __name__ == "__main__":
    sys.exit(main())
