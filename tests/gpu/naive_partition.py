"""Partition once more, told as DESIGN tells it, with lists and loops: the oracle for `actors.gpu.partition`."""


class NaivePartition:
    """GPUs are minors here."""

    def __init__(self):
        self.queue = []  # [uid, [(container, count)], {container: [minor]} or None]
        self.refused = "refused"

    def entry(self, uid):
        for each in self.queue:
            if each[0] == uid:
                return each
        return None

    def count(self, entry):
        return sum(count for _, count in entry[1])

    def held(self):
        return [minor for entry in self.queue if entry[2] for minors in entry[2].values() for minor in minors]

    def free(self, healthy):
        return [minor for minor in sorted(healthy) if minor not in self.held()]

    def admit(self, healthy, uid, wanted):
        if self.entry(uid):
            return "there"
        total = sum(count for _, count in wanted)
        if total == 0:
            return "nothing"
        booked = sum(self.count(entry) for entry in self.queue if entry[2] is None)
        if total > len(self.free(healthy)) - booked:
            return self.refused
        self.queue.append([uid, list(wanted), None])
        return "admitted"

    def grant(self, healthy, uid):
        free = self.free(healthy)
        for entry in self.queue:
            if entry[0] == uid and entry[2] is not None:
                mine = [minor for minors in entry[2].values() for minor in minors]
                return entry[2] if all(minor in healthy for minor in mine) else self.refused
            if entry[2] is not None:
                continue
            taken: list[int] = []
            while free and len(taken) < self.count(entry):
                taken.append(free.pop(0))
            if entry[0] == uid:
                if len(taken) < self.count(entry):
                    return self.refused
                given = {}
                for container, count in entry[1]:
                    given[container] = [taken.pop(0) for _ in range(count)]
                entry[2] = given
                return given
        raise KeyError(uid)

    def release(self, uid):
        self.queue = [entry for entry in self.queue if entry[0] != uid]
