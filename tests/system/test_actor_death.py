"""An actor inside a live controller dies of an exception: the controller and the ranks do not notice."""

# ctest: timeout=240
import json
import tempfile
import unittest
from pathlib import Path

from regrow_cluster import DevCluster, identities
from test_controller_crash import CrashTest


class ActorDeath(CrashTest):
    def one_death(self, entity, hit):
        """A job of three ranks in whose middle the entity's actor throws at its `hit`-th input."""
        home = Path(tempfile.mkdtemp(prefix="a", dir=self.top))
        arguments = ("--fault-points", f"entity.before_input@{entity}:{hit}:throw")
        with DevCluster(home, 2, 2, arguments) as cluster:
            type(self).cluster = cluster
            controller = cluster.controller_pid()
            job = self.submit(self.stub_recipe("--steps", 60, "--delay", 0.05, ranks=3))
            self.assertEqual(job, 1, "the fault point names it")
            before = identities(cluster.wait_for_step(job, 3))
            shown = cluster.wait_for(
                f"the actor of {entity} to be made anew",
                lambda: self.actor(entity) if self.actor(entity).get("restarts") else None,
            )
            self.assertEqual(shown["restarts"], 1)
            self.assertTrue(shown["equal_to_journal"])
            self.assertEqual(identities(cluster.ranks(job)), before, "ranks keep their processes")
            done = cluster.wait_for_end(job)
            self.assertEqual(done.phase, "completed", done.reason)
            self.assertEqual(self.events(job, "IncidentOpened"), [])
            self.assertEqual(len(self.events(job, "RankSpawning")), 3)
            self.assert_never_started_twice(job)
            self.assertEqual(cluster.controller_pid(), controller, "it is the same controller")
            log = (cluster.state / "controller.log").read_text()
            self.assertIn(f"the actor of {entity} threw: fault point", log)
            self.assertNotIn("is quarantined", log)
            for other in ("job/1", "group/1/0", "rank/1/0", "rank/1/2", "host/h1"):
                if other != entity:
                    self.assertEqual(self.actor(other)["restarts"], 0, other)

    def actor(self, entity):
        return json.loads(self.cluster.run("show", entity, "-o", "json").out)["actor"]

    def test_of_a_job(self):
        # Its inputs are mostly reports of progress: this one lies in the middle of its run.
        self.one_death("job/1", 40)

    def test_of_a_host(self):
        # Heartbeats: with its actor a host forgets its connection, the agent has to make a new one.
        self.one_death("host/h1", 20)

    def test_of_a_rank_that_is_told_of_its_start(self):
        self.one_death("rank/1/1", 2)

    def test_of_a_rank_that_is_told_of_its_end(self):
        """The report of the end dies with the actor: the agent says it again."""
        home = Path(tempfile.mkdtemp(prefix="a", dir=self.top))
        arguments = ("--fault-points", "entity.before_input@rank/1/0:3:throw")
        with DevCluster(home, 1, 2, arguments) as cluster:
            type(self).cluster = cluster
            job = self.submit(self.stub_recipe("--steps", 10, "--delay", 0.05, ranks=2))
            done = cluster.wait_for_end(job)
            self.assertEqual(done.phase, "completed", done.reason)
            log = (cluster.state / "controller.log").read_text()
            self.assertIn("the actor of rank/1/0 threw", log)
            self.assertEqual(len(self.events(job, "RankExited")), 2)

    def test_of_the_cluster_is_a_restart_of_the_controller(self):
        home = Path(tempfile.mkdtemp(prefix="a", dir=self.top))
        with DevCluster(home, 2, 2, ("--fault-points", "entity.before_input@cluster:10:throw")) as cluster:
            type(self).cluster = cluster
            controller = cluster.controller_pid()
            job = self.submit_once(self.stub_recipe("--steps", 40, "--delay", 0.05, ranks=2))
            done = cluster.wait_for_end(job)
            self.assertEqual(done.phase, "completed", done.reason)
            self.assert_never_started_twice(job)
            log = (cluster.state / "controller.log").read_text()
            self.assertIn("the actor of the cluster died: fault point", log)
            self.assertNotEqual(cluster.controller_pid(), controller)


if __name__ == "__main__":
    unittest.main()
