"""The packages of this tree in two versions, for tests that install them."""

import os

from .layout import REPOSITORY, TARGET, run


def make_two_versions(place):
    """Makes the .deb packages below `place`: in `old`, and of a higher version in `new`.

    Of the programs in the folder KOORD_BINARIES, else of those of the release build.
    """
    options = ["--compression", "fast", "--formats", "deb", "--binaries", os.environ.get("KOORD_BINARIES", TARGET / "release")]
    for version, suffix in (("old", ""), ("new", "+1")):
        run([REPOSITORY / "packaging" / "build", *options, "--out", place / version, "--version-suffix", suffix], cwd=REPOSITORY)
