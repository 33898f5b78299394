"""Runs the steps of a test suite one after the other, names each with its seconds, and sums up at the end."""

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

from . import journal
from .layout import REPOSITORY, TARGET

_CARGO_COUNT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed", re.MULTILINE)
_OWN_COUNT = re.compile(r"^(\d+) passed, (\d+) failed\s*$", re.MULTILINE)
_ENDING_COUNT = re.compile(r": (\d+) passed, (\d+) failed, \d+ s\s*$", re.MULTILINE)

# Of a failed step these are said again below the summary, where a log of which only the end is kept has them: lines that
# name a failure, as our own scripts, cargo and critest write them, and the last ones.
_FAILURE = re.compile(r"^\s*(FAILED|different:?|test .* \.\.\. FAILED|thread '.*panicked at|error(\[\w+\])?:|[\w.]*Error:)(\s|$)")
FAILURE_LINES, LAST_LINES = 20, 10


@dataclasses.dataclass(frozen=True)
class Step:
    """One command of a suite, run in the root of the repository."""

    name: str
    argv: tuple
    environment: dict = dataclasses.field(default_factory=dict)
    limit: float = 3600.0  # seconds
    required: bool = False  # later steps make no sense when this one fails
    always: bool = False  # run also when it passed before and the suite is only gone on with


@dataclasses.dataclass
class Outcome:
    """How a step ended."""

    step: Step
    status: int
    seconds: float
    passed: int
    failed: int
    earlier: bool = False  # passed in a run before this one
    worst: tuple = ()  # of what it said: where it failed, and the last lines


def count(text):
    """Checks that passed and failed according to the output: those of cargo, else the last count of our own scripts."""
    found = _CARGO_COUNT.findall(text)
    if found:
        return sum(int(good) for good, _ in found), sum(int(bad) for _, bad in found)
    found = _OWN_COUNT.findall(text) or _ENDING_COUNT.findall(text)
    if found:
        return int(found[-1][0]), int(found[-1][1])
    found = re.findall(r"^Ran (\d+) tests? in .*\n\nOK", text, re.MULTILINE)
    if found:
        return int(found[-1]), 0
    return 0, 0


def worst_of(lines):
    """Lines that name a failure, the first of them, and the last lines, in their order."""
    named = [line for line in lines[:-LAST_LINES] if _FAILURE.match(line)]
    return (*named[:FAILURE_LINES], *lines[-LAST_LINES:])


def _end(child):
    # The whole group: what a step started must put things back as well.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)


def _run(step, log):
    start = time.monotonic()
    texts = []
    environment = {**os.environ, **step.environment}
    with subprocess.Popen(
        [str(word) for word in step.argv],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as child, open(log, "w", encoding="utf-8") as file:

        def stop():
            texts.append(f"\ntime limit of {step.limit:g} s passed\n")
            _end(child)

        timer = threading.Timer(step.limit, stop)
        timer.start()
        try:
            for line in child.stdout:
                file.write(line)
                file.flush()
                texts.append(line)
        except KeyboardInterrupt:
            _end(child)
            child.wait()
            raise
        finally:
            timer.cancel()
    text = "".join(texts)
    passed, failed = count(text)
    if passed + failed == 0:
        passed, failed = (1, 0) if child.returncode == 0 else (0, 1)
    if child.returncode != 0:
        failed = max(1, failed)
    worst = () if child.returncode == 0 else worst_of(text.splitlines())
    return Outcome(step, child.returncode, time.monotonic() - start, passed, failed, worst=worst), text


def run_all(suite, steps, commit=None, resume=False):
    """Runs the steps; prints a line for each, the end of the output of those that fail, and the summary.

    What passes is kept for the commit. With `resume` steps that passed on it in an earlier run are not run again.
    """
    folder = TARGET / "test-logs" / suite
    folder.mkdir(parents=True, exist_ok=True)
    if resume and commit is None:
        print("nothing can be gone on with: files differ from the commit that is checked out", file=sys.stderr)
        return 2
    kept = journal.Journal(folder / "passed.json", commit)
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    outcomes, start = [], time.monotonic()
    for number, step in enumerate(steps, 1):
        log = folder / f"{number:02}-{re.sub(r'[^a-z0-9.]+', '-', step.name.lower()).strip('-')}.log"
        before = kept.entries.get(step.name) if resume and not step.always else None
        if before:
            outcomes.append(Outcome(step, 0, before.seconds, before.passed, 0, earlier=True))
            print(f"[{number}/{len(steps)}] {step.name}: passed earlier, {before.seconds:.0f} s, {before.passed} passed, 0 failed")
            continue
        print(f"[{number}/{len(steps)}] {step.name}", flush=True)
        try:
            outcome, text = _run(step, log)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return 130
        outcomes.append(outcome)
        kept.note(step.name, journal.Entry(outcome.seconds, outcome.passed) if outcome.status == 0 else None, journal.tree())
        state = "ok" if outcome.status == 0 else f"FAILED, exit status {outcome.status}"
        print(f"[{number}/{len(steps)}] {step.name}: {state}, {outcome.seconds:.0f} s, {outcome.passed} passed, {outcome.failed} failed")
        shown = text.splitlines()[-40:] if outcome.status else [line for line in text.splitlines() if _worth_showing(line)]
        for line in shown:
            print(f"    {line}")
        if outcome.status:
            print(f"    all of it: {pathlib.Path(log).relative_to(REPOSITORY)}")
            if step.required:
                break
    return _summary(suite, steps, outcomes, time.monotonic() - start)


def _worth_showing(line):
    return line.startswith(("test result:", "containerd ", "  left ", "  right ", "  equal", "  different", "vm: ", "summary: "))


def _summary(suite, steps, outcomes, seconds):
    width = max(len(step.name) for step in steps)
    earlier = sum(outcome.seconds for outcome in outcomes if outcome.earlier)
    more = f", and {earlier:.0f} s in earlier runs" if earlier else ""
    print(f"\n{suite}: {len(outcomes)} of {len(steps)} steps, {seconds:.0f} s{more}")
    for outcome in outcomes:
        state = "before" if outcome.earlier else "ok    " if outcome.status == 0 else "FAILED"
        print(f"  {state} {outcome.step.name:{width}}  {outcome.seconds:6.0f} s  {outcome.passed:5} passed  {outcome.failed:3} failed")
    for step in steps[len(outcomes) :]:
        print(f"  not run {step.name}")
    for outcome in outcomes:
        if outcome.status:
            print(f"{outcome.step.name}, exit status {outcome.status}:")
            print("".join(f"    {line}\n" for line in outcome.worst), end="")
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes) + (len(steps) - len(outcomes))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
