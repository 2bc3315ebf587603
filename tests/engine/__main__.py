"""What people can try: python3 -m engine {job,chat,serve}, in tests/ or with it on PYTHONPATH."""

import argparse
import importlib
import sys

from . import MODELS
from .arguments import in_a_line, picture, port


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
    job.add_argument("--plot", metavar="FILE", type=picture, help="saves a picture (.png, .svg, .pdf)")
    connection(command("chat", "A chat in this terminal; a second one shares its beginning."))
    serve = connection(command("serve", "An OpenAI-style server on 127.0.0.1."))
    serve.add_argument("--port", type=port, default=8000, help="0: any free one")
    connection(command("worker", "An engine that is told what to do by lines of JSON."))
    return parser.parse_args()


def main():
    given = arguments()
    module = importlib.import_module(
        f".{'main_job' if given.command == 'job' else given.command}", __package__)
    return in_a_line(given.command, lambda: module.main(given))


if __name__ == "__main__":
    sys.exit(main())
