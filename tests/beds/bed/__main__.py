"""python3 -m bed tools [SET...]: builds the named tool sets (all of them without a name).

python3 -m bed folder SET: prints the folder of a built tool set.
python3 -m bed enclosed COMMAND...: runs a command in an enclosure.
"""

import sys

from . import enclosure, tools
from .layout import BedError


def main(arguments):
    """Runs one of the commands; returns the exit status."""
    if arguments[:1] == ["tools"]:
        try:
            tools.build(arguments[1:] or list(tools.all_sets()))
        except (BedError, KeyError) as error:
            print(f"tools: {error}", file=sys.stderr)
            return 1
        return 0
    if arguments[:1] == ["folder"] and len(arguments) == 2:
        try:
            print(tools.folder(arguments[1]))
        except (BedError, KeyError) as error:
            print(f"tools: {error}", file=sys.stderr)
            return 1
        return 0
    if arguments[:1] == ["enclosed"] and len(arguments) > 1:
        return enclosure.run(arguments[1:])
    print(__doc__, file=sys.stderr)
    return 2


sys.exit(main(sys.argv[1:]))
