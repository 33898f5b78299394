"""python3 -m bed.changes save|check FILE: keeps the machine's state, and later shows what is different from it."""

import json
import pathlib
import sys

from . import machine


def main(words):
    """Runs one of the two; returns the exit status."""
    if len(words) != 2 or words[0] not in ("save", "check"):
        print(__doc__, file=sys.stderr)
        return 2
    file, now = pathlib.Path(words[1]), machine.state()
    if words[0] == "save":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(sorted(now)), encoding="utf-8")
        print(f"{len(now)} lines of state")
        return 0
    before = set(json.loads(file.read_text(encoding="utf-8")))
    for line in sorted(now - before):
        print(f"left behind: {line}")
    for line in sorted(before - now):
        print(f"gone: {line}")
    different = len(now ^ before)
    print(f"{len(now & before)} passed, {different} failed")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
