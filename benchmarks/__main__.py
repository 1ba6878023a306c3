"""`python -m benchmarks`: see `command_line`. What ends it from outside is said in one line."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; exit code 2 where a package is missing, 130 where it was interrupted."""
    try:
        from benchmarks import command_line

        return command_line.main()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "benchmarks", "jaxgen"):
            raise  # no package is missing, but a module of our own
        return _say(f'error: {error.name} is not installed; python -m pip install -e ".[bench]" installs it', 2)
    except KeyboardInterrupt:
        return _say("interrupted", 130)


def _say(what: str, code: int) -> int:
    print(f"python -m benchmarks: {what}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
