"""Tests of the test beds themselves: what they conclude from what they read."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS / "beds"))
from bed import cgroups, controlplane, images, journal, podgroups, proxy, qos, staticpods, steps, tools, units, usage  # noqa: E402


def load(path):
    """A program without a .py ending as a module."""
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


class Compare(unittest.TestCase):
    """The verdict over two result sets."""

    def verdict(self, left, right, flaky=""):
        """Exit status and output of compare on two sets given as text."""
        compare = load(TESTS / "conformance" / "compare")
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("left", left), ("right", right), ("flaky", flaky)):
                pathlib.Path(folder, name).write_text(text, encoding="utf-8")
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                status = compare.main([f"{folder}/left", f"{folder}/right", "--flaky", f"{folder}/flaky", "--containerd", "2.4"])
        return status, out.getvalue()

    def test_equal_sets(self):
        status, out = self.verdict("passed a\nskipped b\n", "skipped b\npassed a\n")
        self.assertEqual(status, 0)
        self.assertIn("left   2 specs: 1 passed, 1 skipped", out)

    def test_another_state_differs(self):
        status, out = self.verdict("passed a\npassed b\n", "passed a\nskipped b\n")
        self.assertEqual(status, 1)
        self.assertIn("different: b\n    left passed, right skipped", out)

    def test_missing_and_additional_specs_differ(self):
        self.assertEqual(self.verdict("passed a\npassed b\n", "passed a\n")[0], 1)
        self.assertEqual(self.verdict("passed a\n", "passed a\npassed b\n")[0], 1)

    def test_known_flaky_specs_are_reported_and_not_counted(self):
        status, out = self.verdict("passed a\npassed b\n", "passed a\nfailed b\n", "2.4 | b | passed failed | race\n")
        self.assertEqual(status, 0)
        self.assertIn("known to change on bare containerd: b", out)

    def test_flaky_list_of_another_version_or_state_does_not_count(self):
        self.assertEqual(self.verdict("passed b\n", "failed b\n", "1.6 | b | passed failed | race\n")[0], 1)
        self.assertEqual(self.verdict("passed b\n", "failed b\n", "2.4 | b | passed skipped | race\n")[0], 1)

    def test_missing_flaky_spec_differs(self):
        self.assertEqual(self.verdict("passed a\npassed b\n", "passed a\n", "2.4 | b | passed failed | race\n")[0], 1)

    def test_empty_set_is_an_error(self):
        self.assertEqual(self.verdict("", "")[0], 2)


class CrictlTexts(unittest.TestCase):
    """What crictl printed twice, made comparable."""

    def test_ages_do_not_differ_nor_do_the_columns_they_widen(self):
        comparable = load(TESTS / "conformance" / "crictl").comparable
        tables = (
            "CREATED                  STATE     NAME\nLess than a second ago   Running   app\n",
            "CREATED         STATE     NAME\n1 second ago    Running   app\n",
            "CREATED          STATE     NAME\n10 seconds ago   Running   app\n",
        )
        self.assertEqual({comparable(table) for table in tables}, {"CREATED  STATE  NAME\nAGO  Running  app"})

    def test_another_state_differs(self):
        comparable = load(TESTS / "conformance" / "crictl").comparable
        self.assertNotEqual(comparable("1 second ago   Running"), comparable("1 second ago   Exited"))

    def test_events_are_complete_with_the_last_of_four(self):
        all_events = load(TESTS / "conformance" / "crictl").all_events
        three = "CONTAINER_STOPPED_EVENT CONTAINER_DELETED_EVENT " * 3
        self.assertFalse(all_events(three + "CONTAINER_STOPPED_EVENT"))
        self.assertTrue(all_events(three + "CONTAINER_STOPPED_EVENT CONTAINER_DELETED_EVENT"))
        self.assertTrue(all_events("code = Unimplemented desc = unknown method GetContainerEvents"))


class Reports(unittest.TestCase):
    """What is read from critest's report."""

    def test_states_reasons_and_left_out_specs(self):
        def spec(state, name, message="", kind="It"):
            return {
                "State": state,
                "LeafNodeType": kind,
                "LeafNodeText": name,
                "ContainerHierarchyTexts": ["group"],
                "Failure": {"Message": message, "Location": {"FileName": "/x/y.go", "LineNumber": 7}} if message else {},
            }

        specs = [spec("passed", "a"), spec("failed", "b", "no\n good"), spec("skipped", "c"), spec("skipped", "d", "why")]
        specs.append(spec("failed", "", "setup", "BeforeSuite"))
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            (out / "report.json").write_text(json.dumps([{"SpecReports": specs}]), encoding="utf-8")
            results, reasons = load(TESTS / "conformance" / "critest").read_report(out)
        self.assertEqual(results, ["failed (BeforeSuite)", "failed group b", "passed group a", "skipped group d"])
        self.assertIn("failed group b\n    y.go:7: no good", reasons)


class Repeats(unittest.TestCase):
    """The matrix repeats specs that differ."""

    def repeated(self, *rounds):
        """What `repeat` returns when the two sides of each round have these results, and how many rounds it took."""
        matrix = load(TESTS / "conformance" / "matrix")
        left = list(rounds)

        def critest(_version, mode, out, _extra):
            out.mkdir(parents=True)
            bare, proxied = left[0]
            (out / "results").write_text(bare if mode == "bare" else proxied, encoding="ascii")
            if mode != "bare":
                left.pop(0)

        matrix.critest = critest
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            different = matrix.repeat("2.4", "a", pathlib.Path(folder) / "2.4-a", ["spec [x] (y)"])
        return different, len(rounds) - len(left)

    def test_expression(self):
        """Names are taken letter for letter; Go's expressions allow no backslash before a space."""
        matrix = load(TESTS / "conformance" / "matrix")
        self.assertEqual(matrix.only(["[k8s.io] A (b) c+d", "e"]), r"\[k8s\.io\] A \(b\) c\+d$|e$")

    def test_accident(self):
        """The same state on both sides ends it."""
        same, other = "passed spec [x] (y)\n", "failed spec [x] (y)\n"
        self.assertEqual(self.repeated((same, same)), ([], 1))
        self.assertEqual(self.repeated((same, other), (other, other)), ([], 2))

    def test_difference(self):
        """A difference that stays counts, as does a spec that did not run at all."""
        round_ = ("passed spec [x] (y)\n", "failed spec [x] (y)\n")
        self.assertEqual(self.repeated(round_, round_, round_), (["spec [x] (y)"], 3))
        absent = ("passed other\n", "passed other\n")
        self.assertEqual(self.repeated(absent, absent, absent), (["spec [x] (y)"], 3))


class Metrics(unittest.TestCase):
    """Samples of the proxy, and whether a mode met what it is about."""

    def test_samples_are_summed_by_label(self):
        text = '# TYPE x counter\nx{a="1",b="q\\"}"} 2\nx{a="2"} 3.5\nxy{a="1"} 7\nx_total 9\n'
        self.assertEqual(proxy.sum_of_samples(text, "x", {}), 5.5)
        self.assertEqual(proxy.sum_of_samples(text, "x", {"a": "1"}), 2)
        self.assertEqual(proxy.sum_of_samples(text, "x", {"a": "3"}), 0)
        self.assertEqual(proxy.sum_of_samples(text, "x_total", {}), 9)

    def test_a_mode_must_meet_its_hooks(self):
        untested = load(TESTS / "conformance" / "critest").untested
        good, bad = {"hooks_ok": 5, "hook_calls_received": 5}, {"hooks_error": 2}
        self.assertEqual([untested("a", {}), untested("b", good), untested("c", bad), untested("d", {**good, **bad})], [""] * 4)
        for mode, facts in (("a", bad), ("b", {**good, **bad}), ("b", {**good, "hook_calls_received": 4}), ("c", good), ("c", {}), ("d", good), ("d", bad)):
            self.assertNotEqual(untested(mode, facts), "", (mode, facts))


class Counts(unittest.TestCase):
    """Counts in the output of steps."""

    def test_cargo_output_is_summed(self):
        text = "test result: ok. 3 passed; 0 failed; 0 ignored\n...\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n"
        self.assertEqual(steps.count(text), (5, 1))

    def test_last_count_of_our_own_scripts(self):
        self.assertEqual(steps.count("1 passed, 0 failed\nmore\n12 passed, 3 failed\n"), (12, 3))
        self.assertEqual(steps.count("crictl on containerd 2.4: 51 passed, 2 failed, 11 s\n"), (51, 2))

    def test_no_count(self):
        self.assertEqual(steps.count("nothing\n"), (0, 0))

    def test_what_a_failed_step_said_stands_below_the_summary(self):
        said = io.StringIO()
        many = "print('  FAILED a value: found 1')\nfor number in range(30): print('line', number)\nraise SystemExit(3)"
        suite = [steps.Step("good", ("true",)), steps.Step("bad", (sys.executable, "-c", many)), steps.Step("silent", ("false",))]
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(steps, "TARGET", pathlib.Path(folder)):
            with unittest.mock.patch.object(steps, "REPOSITORY", pathlib.Path(folder)), contextlib.redirect_stdout(said):
                self.assertEqual(steps.run_all("some", suite), 1)
        ending = ["bad, exit status 3:", "      FAILED a value: found 1", *(f"    line {number}" for number in range(20, 30))]
        ending += ["silent, exit status 1:", "1 passed, 2 failed"]
        self.assertEqual(said.getvalue().splitlines()[-len(ending) :], ending)

    def test_lines_that_name_a_failure(self):
        good = ["test a ... ok", "  ok     errors: none", "warning: x", "  0 failed", "no error: here"]
        bad = ["test b ... FAILED", "thread 'b' (7) panicked at x.rs:1:", "error[E0308]: x", "error: y", "bed.layout.BedError: z", "  FAILED c"]
        last = [f"line {number}" for number in range(10)]
        self.assertEqual(steps.worst_of([*good, *bad, *good, *last]), (*bad, *last))
        self.assertEqual(steps.worst_of(bad), tuple(bad), "no line twice")
        self.assertEqual(len(steps.worst_of(["error: y"] * 99)), 30)


class GoingOn(unittest.TestCase):
    """Steps that passed count for the commit they passed on."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.path = self.folder / "passed.json"

    def passed(self, commit):
        return sorted(journal.Journal(self.path, commit).entries)

    def test_a_step_counts_for_its_commit_alone(self):
        kept = journal.Journal(self.path, "1a")
        kept.note("crictl", journal.Entry(10.0, 51), "1a")
        kept.note("kubelet", journal.Entry(85.0, 48), "1a")
        self.assertEqual(self.passed("1a"), ["crictl", "kubelet"])
        self.assertEqual(journal.Journal(self.path, "1a").entries["crictl"], journal.Entry(10.0, 51))
        self.assertEqual((self.passed("2b"), self.passed(None)), ([], []))

    def test_two_suites_at_once_keep_both_their_steps(self):
        kept, other = journal.Journal(self.path, "1a"), journal.Journal(self.path, "1a")
        kept.note("crictl", journal.Entry(10.0, 51), "1a")
        other.note("kubelet", journal.Entry(85.0, 48), "1a")
        self.assertEqual(self.passed("1a"), ["crictl", "kubelet"])

    def test_a_step_that_fails_later_counts_no_more(self):
        kept = journal.Journal(self.path, "1a")
        kept.note("crictl", journal.Entry(10.0, 51), "1a")
        kept.note("crictl", None, "1a")
        self.assertEqual(self.passed("1a"), [])

    def test_a_step_does_not_count_when_the_tree_changed_meanwhile(self):
        journal.Journal(self.path, "1a").note("crictl", journal.Entry(10.0, 51), "2b")
        journal.Journal(self.path, "1a").note("crictl", journal.Entry(10.0, 51), None)
        journal.Journal(self.path, None).note("crictl", journal.Entry(10.0, 51), None)
        self.assertFalse(self.path.exists())

    def test_a_broken_file_counts_nothing(self):
        for text in ("", "{", "[]", '{"commit": "1a"}', '{"commit": "1a", "steps": {"crictl": {"seconds": 1}}}'):
            self.path.write_text(text, encoding="utf-8")
            self.assertEqual(self.passed("1a"), [], text)

    def test_a_tree_is_its_commit_as_long_as_only_corpora_changed(self):
        def git(*arguments):
            identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
            subprocess.run(["git", "-C", self.folder, *identity, *arguments], check=True, stdout=subprocess.DEVNULL)

        self.assertIsNone(journal.tree(self.folder))
        git("init", "-q")
        git("commit", "-q", "--allow-empty", "-m", "empty")
        commit = journal.tree(self.folder)
        self.assertEqual(len(commit), 40)
        (self.folder / "fuzz" / "corpus").mkdir(parents=True)
        (self.folder / "fuzz" / "corpus" / "found").touch()
        self.assertEqual(journal.tree(self.folder), commit)
        (self.folder / "more").touch()
        self.assertIsNone(journal.tree(self.folder))


class Values(unittest.TestCase):
    """What the kernel should show for a CRI value."""

    def test_weight_of_shares(self):
        # The fixed points of the formula runc 1.4 introduced, and 128 and 512 worked out by hand from it.
        for shares, weight in ((0, 1), (2, 1), (128, 21), (512, 59), (1024, 100), (262144, 10000), (300000, 10000)):
            self.assertEqual(cgroups.shares_to_weight(shares), weight, shares)

    def test_cpu_lists(self):
        self.assertEqual(cgroups.cpus("0-3,8"), {0, 1, 2, 3, 8})
        self.assertEqual(cgroups.cpus("1"), {1})
        self.assertEqual(cgroups.cpus(""), set())

    def test_crictl_values_become_comparable(self):
        comparable = load(TESTS / "conformance" / "crictl").comparable
        self.assertEqual(comparable("a" * 64 + " 2 seconds ago"), "ID AGO")
        self.assertNotEqual(comparable("passed"), comparable("failed"))


class PodGroups(unittest.TestCase):
    """Where kubelets put the control groups of pods."""

    UID = "7712555c-ce62-454a-9e18-9ff0217b8941"

    def test_folders(self):
        groups = podgroups.PodGroups("cgroupfs")
        self.assertEqual(groups.path("guaranteed"), "/kubepods")
        self.assertEqual(groups.path("burstable", self.UID), f"/kubepods/burstable/pod{self.UID}")
        self.assertEqual(groups.container("guaranteed", "a-b", "c1"), "/kubepods/poda-b/c1")
        self.assertEqual(podgroups.PodGroups("cgroupfs", "/koord-node").path("besteffort", "a-b"), "/koord-node/kubepods/besteffort/poda-b")

    def test_slices(self):
        groups = podgroups.PodGroups("systemd")
        slices = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7712555c_ce62_454a_9e18_9ff0217b8941.slice"
        self.assertEqual(groups.path("burstable", self.UID), slices)
        self.assertEqual(groups.container("burstable", self.UID, "ab12"), f"{slices}/cri-containerd-ab12.scope")
        self.assertEqual(groups.path("guaranteed", "a-b"), "/kubepods.slice/kubepods-poda_b.slice")


class Qos(unittest.TestCase):
    """Pods of a node without a kubelet, and what the proxy says of them."""

    def test_batch_annotation_leaves_out_what_is_not_said(self):
        text = qos.batch(a=((500, "1Gi"), (1000, None)), b=((None, None), (None, None)))[qos.EXTENDED_RESOURCES]
        wanted = {
            "a": {
                "requests": {"kubernetes.io/batch-cpu": 500, "kubernetes.io/batch-memory": "1Gi"},
                "limits": {"kubernetes.io/batch-cpu": 1000},
            },
            "b": {"requests": {}, "limits": {}},
        }
        self.assertEqual(json.loads(text), {"containers": wanted})

    def test_entries_are_found_by_level_and_field(self):
        own, inner = {"field": "cpu.idle", "sent": "1"}, {"field": "cpu.shares", "sent": "2"}
        entry = {"fields": [own], "containers": [{"name": "a", "fields": [inner]}]}
        self.assertEqual(qos.field_entry(entry, "pod", "cpu.idle"), own)
        self.assertEqual(qos.field_entry(entry, "a", "cpu.shares"), inner)
        self.assertIsNone(qos.field_entry(entry, "a", "cpu.idle"))
        self.assertIsNone(qos.field_entry(entry, "b", "cpu.shares"))

    def test_tables_of_values(self):
        values = load(TESTS / "qos" / "values")
        self.assertEqual(values.ledger_text("cpu.max", "max 100000"), "-1")
        self.assertEqual(values.ledger_text("cpu.max", "50000 100000"), "50000")
        self.assertEqual(values.ledger_text("memory.limit_in_bytes", "9223372036854771712"), "-1")
        self.assertEqual(values.ledger_text("cpu.idle", "1"), "1")
        names = [spec.name for spec, _ in values.table()]
        self.assertEqual(len(names), len(set(names)))
        for spec, rows in values.table():
            self.assertLessEqual({row.place for row in rows}, {"pod", *spec.containers}, spec.name)


class Tools(unittest.TestCase):
    """The cache of built programs."""

    def test_key_changes_with_sources_and_recipe(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "go.sum")
            source.write_text("a", encoding="ascii")
            first = tools.ToolSet("x", None, (source,), "1").key()
            self.assertEqual(first, tools.ToolSet("x", None, (source,), "1").key())
            self.assertNotEqual(first, tools.ToolSet("x", None, (source,), "2").key())
            source.write_text("b", encoding="ascii")
            self.assertNotEqual(first, tools.ToolSet("x", None, (source,), "1").key())

    def test_who_waits_for_another_run_says_so(self):
        said, order = io.StringIO(), []

        def second():
            with tools.locked("x"):
                order.append("second")

        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, KOORD_CACHE=folder):
            with contextlib.redirect_stdout(said):
                waiting = threading.Thread(target=second)
                with tools.locked("x"):
                    self.assertEqual(said.getvalue(), "")
                    waiting.start()
                    for _ in range(500):
                        if said.getvalue():
                            break
                        time.sleep(0.01)
                    order.append("first")
                waiting.join()
            self.assertEqual(said.getvalue(), f"another run holds {folder}/x.lock: waiting for its end\n")
            self.assertEqual(order, ["first", "second"])

    def test_digest_in_critest_keeps_its_length(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "critest")
            program.write_bytes(b"\0x/test-image-digest@sha256:" + b"0" * 64 + b"\0")
            images.patch_critest(program)
            self.assertEqual(program.read_bytes(), b"\0x/test-image-digest@" + images.digest_of_digest_image().encode() + b"\0")


class ControlPlane(unittest.TestCase):
    """What needs no server."""

    def test_a_token_names_its_subject(self):
        # {"alg":"none"} . {"sub":"system:serviceaccount:a:b"} . signature, in base64 of URLs without padding
        token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.AA"
        self.assertEqual(controlplane.token_subject(token), "system:serviceaccount:a:b")

    def test_a_resource_is_served_when_the_last_of_its_places_has_it(self):
        group, document = "/apis/a.example/v1", "/openapi/v3/apis/a.example/v1?hash=1"
        spec = {
            "group": "a.example",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": True}, {"name": "v0", "served": False}],
        }

        def described(kind):
            names = [{"group": "a.example", "version": "v1", "kind": kind}]
            return {"components": {"schemas": {"a.example.v1": {"x-kubernetes-group-version-kind": names}, "Status": {}}}}

        # In the order in which a server has them; of two kinds of one group the other may be described first.
        steps = (
            ("/openapi/v3", {"paths": {}}),
            (group, {"resources": [{"name": "others"}]}),
            (group, {"resources": [{"name": "others"}, {"name": "things"}]}),
            (f"{group}/things?limit=1", {"items": []}),
            (document, described("Other")),
            ("/openapi/v3", {"paths": {"apis/a.example/v1": {"serverRelativeURL": document}}}),
            (document, described("Thing")),
        )
        server = {}
        for number, (path, answer) in enumerate(steps, 1):
            server[path] = answer
            self.assertEqual(controlplane.is_served(spec, server.get), number == len(steps), number)
        spec["versions"][1]["served"] = True
        self.assertFalse(controlplane.is_served(spec, server.get), "every version that is to be served")

    def test_free_ports_differ(self):
        ports = controlplane.free_ports(5)
        self.assertEqual(len(set(ports)), 5)
        self.assertTrue(all(0 < port < 65536 for port in ports))

    def test_an_authority_signs_for_addresses(self):
        with tempfile.TemporaryDirectory() as folder:
            authority = controlplane.Authority(pathlib.Path(folder, "pki"))
            certificate, key = authority.sign("server", "/CN=server", "IP:127.0.0.1,DNS:localhost")
            verified = controlplane.run(["openssl", "verify", "-verify_ip", "127.0.0.1", "-CAfile", authority.certificate, certificate])
            self.assertIn("OK", verified)
            with self.assertRaises(controlplane.BedError):
                controlplane.run(["openssl", "verify", "-verify_ip", "127.0.0.2", "-CAfile", authority.certificate, certificate])
            self.assertEqual(authority.sign("server", "/CN=server"), (certificate, key), "made once")


class Usage(unittest.TestCase):
    """Arithmetic on the kernel's counters."""

    def test_cores_since_a_time_between_two_instants(self):
        series = [usage.Instant(time, {"a": used}) for time, used in ((10.0, 3.0), (11.0, 4.0), (12.0, 4.0))]
        self.assertAlmostEqual(usage.cores(series, 10.5, series[2], "a"), 0.5 / 1.5)
        self.assertAlmostEqual(usage.cores(series, 11.0, series[2], "a"), 0.0)
        self.assertAlmostEqual(usage.cores(series, 9.0, series[1], "a"), 1.0, msg="from the first instant at the earliest")


class InstalledNode(unittest.TestCase):
    """Configuration of a kubelet as a unit, and how the state of a node is compared."""

    def test_settings_as_yaml(self):
        settings = {"a": "x", "b": {"c": True, "d": {"e": 1}}, "f": ""}
        self.assertEqual(units.yaml(settings), 'a: "x"\nb:\n  c: true\n  d:\n    e: 1\nf: ""\n')

    def test_each_form_says_the_endpoint_where_it_should(self):
        forms = load(TESTS / "node" / "forms")
        self.assertEqual(set(forms.EXPECTED), set(units.FORMS))
        for form, (place, _) in forms.EXPECTED.items():
            files = {str(path): text for path, text in units.kubelet_files(form, "systemd").items()}
            named = {path for path, text in files.items() if units.RUNTIME_SOCKET in text}
            self.assertEqual(str(place) in named if place else not named, True, form)

    def test_command_lines_are_those_of_systemd(self):
        forms = load(TESTS / "node" / "forms")
        flag = f"--container-runtime-endpoint=unix://{units.RUNTIME_SOCKET}"
        expected = {
            "default": ["kubelet", f"--config={units.CONFIGURATION}", "--hostname-override=koord-node", "--v=2"],
            "flag": ["kubelet", f"--config={units.CONFIGURATION}", "--hostname-override=koord-node", "--v=2", flag],
            "kubeadm": ["kubelet", f"--config={units.CONFIGURATION}", flag, "--v=2", "--hostname-override=koord-node"],
        }
        for form, words in expected.items():
            self.assertEqual(forms.command_line("kubelet", units.kubelet_files(form, "cgroupfs")), words)

    def test_differences_of_states(self):
        installed = load(TESTS / "node" / "installed")
        lines = installed.differences({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"})
        self.assertEqual(lines, ["new: d 5", "gone: c 3", "other: b: '2', now '4'"])

    def test_pods_of_the_table_have_rows_of_their_own_groups(self):
        for driver in ("systemd", "cgroupfs"):
            for name, (manifest, rows) in staticpods.of_classes(driver).items():
                self.assertEqual(manifest["metadata"]["name"], name)
                self.assertLessEqual({place for place, _, _ in rows}, {"pod", "main"})
                self.assertEqual(len(rows), len({row[:2] for row in rows}), name)


if __name__ == "__main__":
    unittest.main()
