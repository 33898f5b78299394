"""Which steps of a suite passed on which tree, so that a long suite can be gone on with after it was interrupted."""

import dataclasses
import fcntl
import json
import subprocess

from .layout import REPOSITORY


def tree(repository=REPOSITORY):
    """The commit that is checked out, or None when files differ from it. Fuzzing may add to its corpora."""
    changed = _git(repository, "status", "--porcelain", "--", ".", ":!fuzz/corpus")
    return _git(repository, "rev-parse", "HEAD") if changed == "" else None


def _git(repository, *arguments):
    argv = ["git", "-C", str(repository), *arguments]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


@dataclasses.dataclass(frozen=True)
class Entry:
    """A step that passed."""

    seconds: float
    passed: int


class Journal:
    """The steps that passed, in a file; those of another tree are forgotten."""

    def __init__(self, path, commit):
        self.path, self.commit = path, commit
        self.entries = self._read()

    def _read(self):
        try:
            text = json.loads(self.path.read_text(encoding="utf-8"))
            if self.commit is None or text["commit"] != self.commit:
                return {}
            return {name: Entry(**entry) for name, entry in text["steps"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def note(self, name, entry, commit):
        """Keeps a step that passed, unless the tree was changed meanwhile: nobody knows what was tested then.

        Without an entry the step failed, and what it did before counts no more.
        """
        if self.commit is None or (entry and commit != self.commit):
            return
        with open(self.path.with_suffix(".lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.entries = self._read()  # another suite may run other steps meanwhile
            self.entries.pop(name, None)
            if entry:
                self.entries[name] = entry
            steps = {name: dataclasses.asdict(kept) for name, kept in self.entries.items()}
            temporary = self.path.with_suffix(".new")
            temporary.write_text(json.dumps({"commit": self.commit, "steps": steps}, indent=1) + "\n", encoding="utf-8")
            temporary.replace(self.path)
