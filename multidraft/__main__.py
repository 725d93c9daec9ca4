"""The command line, ``python -m multidraft``: ``generate | bench | replay | advise | pool | datastore | …``."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper

import multidraft as md
from multidraft._version import version
from multidraft.policies.custom import import_policies
from storage.problems import StorageError

COMMANDS = {
    "generate": ("generate", "Answer one prompt."),
    "bench": ("bench", "Compare policies on suites of prompts."),
    "replay": ("replay", "Try policies on recorded runs."),
    "advise": ("advise", "Which policy, draft length and drafters for this traffic?"),
    "learn": ("learn", "What pools have learnt from their traffic."),
    "simulate": ("simulate", "Policies on a table of mean accepted tokens."),
    "pool": ("pool", "Show what is in a pool."),
    "datastore": ("datastore", "Build datastores of past text, for rest drafters."),
    "train": ("train", "Train drafters for any target by self-distillation."),
    "policies": ("policies", "List the policies with their settings and sources."),
    "export": ("export", "Write recorded runs to a file, also for Spec-Bench, specdec_bench and AIPerf."),
    "import": ("import_files", "Add results of Spec-Bench, specdec_bench or AIPerf to a history."),
    "restore": ("restore", "Add the runs of a backup to a history."),
    "delete": ("delete", "Delete runs from a history, for good."),
    "trackio": ("trackio", "Send recorded runs to Trackio: a run is a trace, a round a span."),
    "demo": ("demo", "Serve the web app."),
    "deploy": ("deploy", "Put the web app on a Hugging Face Space."),
}
"""By its name: the module in ``multidraft/commands/``, imported when the command is asked for, and its help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 on success, 2 with one clear line on bad input."""
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except (md.UserError, StorageError) as error:
        print(f"multidraft: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        with suppress(OSError):
            sys.stdout.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left of the output
        if error.errno == errno.EPIPE:  # whoever reads it has enough, as head(1) has
            return 1
        print(f"multidraft: cannot write {error.filename or 'all output'}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("multidraft: interrupted", file=sys.stderr)
        return 130


def _run(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m multidraft", description="Multi-drafter speculative decoding with online policies."
    )
    parser.add_argument("--version", action="version", version=f"multidraft {version()}")
    commands = parser.add_subparsers(dest="command", required=True)
    asked = next((word for word in words if not word.startswith("-")), None)
    for name, (module, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text)
        if name == asked:
            command = import_module(f"multidraft.commands.{module}")
            command.add(sub)
            sub.set_defaults(run=command.run)
    options, unknown = parser.parse_known_args(words)
    if unknown:  # said with the usage of the command itself
        commands.choices[options.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    _quiet_libraries()
    import_policies()
    status = int(options.run(options))
    print(end="", flush=True)  # while a closed pipe can still be told from a failure
    return status


def _quiet_libraries() -> None:
    """No bars but ours, and no line for each try to reach the Hub: what comes of them is told in one."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    logging.disable_progress_bar()
    if "HF_HUB_VERBOSITY" not in os.environ:
        hub_logging.set_verbosity_error()


def command() -> int:
    """The command itself, in a process of its own."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what is done by then is told
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as on standard error, where a character cannot be shown
    return main()


if __name__ == "__main__":
    sys.exit(command())
