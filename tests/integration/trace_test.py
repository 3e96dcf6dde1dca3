"""A step as its ranks ran it: recorded in the executors, kept by the coordinator, drawn by `penstock trace`."""

import json
import unittest

from tests.support import cluster as support


class Trace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = support.Cluster(4).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def trained(self, **job):
        name = self.cluster.submit(steps=12, extra="trace: {every: 4}\n", **job)
        ended = self.cluster.wait_for_state(name, {"succeeded", "failed", "cancelled"}, 120)
        self.assertEqual(ended["state"], "succeeded", ended["reason"])
        return name

    def drawn(self, name, *arguments):
        """The names of the actions in both rows of every rank, by start, of a file that `penstock trace` wrote."""
        path = self.cluster.folder / f"{name}.perfetto.json"
        result = self.cluster.run("trace", name, "-o", path, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("HAND-OFFS", result.stdout)
        events = json.loads(path.read_text())["traceEvents"]
        names = {(event["pid"], event["tid"]): event["args"]["name"]
                 for event in events if event["name"] == "thread_name"}
        rows = {}
        for event in sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"]):
            self.assertGreaterEqual(event["dur"], 0)
            rows.setdefault((names[event["pid"], event["tid"]], event["pid"]), []).append(event["name"])
        return rows

    def test_every_action_of_the_program_stands_once_in_its_rank_and_in_order(self):
        for shape, schedule in ((dict(pipeline=4, schedule="1f1b"), ("1f1b", "-p", 4, "-m", 4)),
                                (dict(pipeline=2, stages_per_rank=2, schedule="interleaved-1f1b", p2p="one-sided"),
                                 ("interleaved-1f1b", "-p", 2, "-m", 4, "-s", 2))):
            with self.subTest(**shape):
                expected = self.cluster.json("schedule", *schedule)["actions"]
                name = self.trained(**shape)
                for arguments in ((), ("--step", 2), ("--step", 4), ("--step", 8)):
                    rows = self.drawn(name, *arguments)
                    self.assertEqual(len(rows), 2 * shape["pipeline"])
                    for rank, actions in enumerate(expected):
                        self.assertEqual(rows["measured", rank], actions)
                        self.assertEqual(rows["simulated", rank], actions)

    def test_figures_are_told_to_programs_and_what_is_not_traced_is_said(self):
        name = self.trained(pipeline=2, schedule="1f1b")
        told = self.cluster.json("trace", name)
        self.assertEqual((told["job"], told["step"], told["steps"]), (name, 8, [2, 4, 8]))
        self.assertGreater(told["measured_seconds"], 0)
        self.assertAlmostEqual(told["ratio"], told["measured_seconds"] / told["simulated_seconds"], places=9)
        self.assertEqual([rank["rank"] for rank in told["ranks"]], [0, 1])
        for rank in told["ranks"]:
            self.assertGreater(rank["busy_seconds"], 0)
            self.assertLess(rank["bubble_measured"], 1)
        classes = told["handoffs"]
        self.assertEqual(sum(classes[name]["count"] for name in ("local", "hidden", "exposed")), 8)
        for kind in ("hidden", "exposed"):
            self.assertEqual(classes[kind]["count"],
                             classes[kind]["measured_hidden"] + classes[kind]["measured_exposed"])

        refused = self.cluster.run("trace", name, "--step", 3)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("step 3 is not traced, or not kept; kept are 2, 4, 8", refused.stderr)
        unknown = self.cluster.run("trace", "nobody")
        self.assertEqual(unknown.returncode, 1)
        self.assertIn("nobody", unknown.stderr)
        untraced = self.cluster.submit(steps=3, extra="trace: {every: 0}\n")
        self.cluster.wait_for_state(untraced, "succeeded", 60)
        result = self.cluster.run("trace", untraced)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no step is traced", result.stderr)


if __name__ == "__main__":
    unittest.main()
