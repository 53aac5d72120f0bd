"""What a job's events say about each recovery: when it was detected, decided, and so on.

    for recovery in recoveries_of(cluster.events(f"job/{job}")):
        print(recovery.decided - recovery.died)

Times are seconds since the Unix epoch, from the controller's clock or (ends and starts of
processes) from the host's; None where no event tells.
"""

from dataclasses import dataclass, field


@dataclass
class Recovery:
    incident: int
    opened: float  # the incident is journaled
    cause: str  # in the journal's words
    rank: int  # the root: first loss that nobody asked for
    exits: dict = field(default_factory=dict)  # rank -> its RankExited event
    decided: float = None  # the plan is journaled
    plan: str = ""
    generation: int = 0
    prepared: float = None  # checkpoint chosen, port leased
    resume_step: int = -1
    resume_path: str = ""
    rejected: list = field(default_factory=list)
    starts: dict = field(default_factory=dict)  # rank -> when its new process began
    running: float = None  # all new ranks are known to run

    @property
    def died(self):
        """When the lost rank's process ended."""
        return exit_time(self.exits.get(self.rank), "leader_ended_us")

    @property
    def detected(self):
        """When its end stood in the journal."""
        event = self.exits.get(self.rank)
        return min(event.time, self.opened) if event else self.opened

    @property
    def gone(self):
        """When nothing was left of the ranks that ended."""
        times = [exit_time(event, "group_gone_us") for event in self.exits.values()]
        return max((t for t in times if t), default=None)

    @property
    def spawned(self):
        return max(self.starts.values(), default=None)

    def feed(self, event):
        """Takes one later event into account. Returns False once this recovery is over."""
        f = event.fields
        if event.kind == "IncidentReclassified" and int(f["incident"]) == self.incident:
            self.rank = int(f["rank"])
            self.cause = event.reason
        elif event.kind == "RecoveryPlanned":
            self.decided = self.decided or event.time
            self.plan = event.reason
            self.generation = int(f["generation"])
        elif event.kind == "RankExited":
            self.exits[rank_of(event)] = event
        elif event.kind == "GenerationStarted":
            self.prepared = event.time
            self.resume_step = int(f["resume_step"])
            self.resume_path = f["resume_path"]
            self.rejected = f.get("rejected", [])
        elif event.kind == "RankRunning" and self.prepared:
            self.starts[rank_of(event)] = int(f["started_us"]) / 1e6
        elif event.kind == "GenerationRunning":
            self.running = event.time
            return False
        return True


def rank_of(event):
    return int(event.entity.rsplit("/", 1)[1])


def exit_time(event, name):
    microseconds = int(event.fields["report"][name]) if event else 0
    return microseconds / 1e6 if microseconds else None


def recoveries_of(events):
    """The recoveries in a job's events, oldest first. A loss during one belongs to it."""
    found = []
    current = None
    exits = {}  # of this generation; a rank's exit is journaled before the incident that it opens
    for event in sorted(events, key=lambda e: e.seq):
        if event.kind == "IncidentOpened" and current is None:
            f = event.fields
            current = Recovery(
                int(f["incident"]), event.time, event.reason, int(f["rank"]), dict(exits)
            )
            found.append(current)
        elif current is not None and not current.feed(event):
            current = None
        if event.kind == "RankExited":
            exits[rank_of(event)] = event
        elif event.kind == "GenerationRunning":
            exits = {}
    return found
