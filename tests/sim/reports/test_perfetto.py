"""The file for Perfetto, read by Perfetto's own classes."""

import gzip
from collections import defaultdict

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from sim.fleet.config import read_config
from sim.replay.fast.engine import replay
from sim.reports.perfetto import ACTORS, WORKERS, Writer, opened
from sim.reports.wire import varint
from sim.traces.reading import read_trace
from sim.traces.shipped import shipped
from statemachine.reasons import Reason
from statemachine.states import FINAL, State
from tests.sim.replay.fast_runs import Heard


class Read:
    """What is in the file: tracks by their number, their slices, counters and instants, with all names looked up."""

    def __init__(self, data):
        trace = Trace()
        trace.ParseFromString(data)
        self.tracks, self.parents = {}, {}
        self.slices, self.counters, self.instants = defaultdict(list), defaultdict(list), defaultdict(list)
        names: defaultdict[str, dict[int, str]] = defaultdict(dict)
        last_ns = 0
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id == 1
            assert packet.timestamp >= last_ns
            last_ns = packet.timestamp
            if packet.HasField("track_descriptor"):
                told = packet.track_descriptor
                self.tracks[told.uuid], self.parents[told.uuid] = told.name, told.parent_uuid
            for kind in ("event_categories", "event_names", "debug_annotation_names"):
                names[kind].update((each.iid, each.name) for each in getattr(packet.interned_data, kind))
            texts = packet.interned_data.debug_annotation_string_values
            names["texts"].update((each.iid, each.str.decode()) for each in texts)
            if packet.HasField("track_event"):
                self._event(packet.track_event, packet.timestamp, names)
        self.last_ns = last_ns

    def _event(self, event, at_ns, names):
        assert event.track_uuid in self.tracks  # it is described before it is used
        about = {
            names["debug_annotation_names"][each.name_iid]: each.string_value or names["texts"][each.string_value_iid]
            for each in event.debug_annotations
        }
        name = names["event_names"].get(event.name_iid)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            (category,) = [names["event_categories"][each] for each in event.category_iids]
            assert all(end is not None for *_, end in self.slices[event.track_uuid])  # none is inside of another
            self.slices[event.track_uuid].append([name, category, about, at_ns, None])
        elif event.type == TrackEvent.TYPE_SLICE_END:
            assert self.slices[event.track_uuid][-1][-1] is None
            self.slices[event.track_uuid][-1][-1] = at_ns
        elif event.type == TrackEvent.TYPE_COUNTER:
            self.counters[event.track_uuid].append(event.counter_value)
        else:
            self.instants[event.track_uuid].append((name, about))

    def below(self, parent):
        return {name: uuid for uuid, name in self.tracks.items() if self.parents[uuid] == parent}


def written(path, *sinks, name="mixed", config="troubled"):
    place = shipped(name)
    assert place is not None
    header, records = read_trace(place)
    with opened(path) as writer:

        class Both:
            def moved(self, *move):
                for sink in (writer, *sinks):
                    sink.moved(*move)

        return replay(header, records, config=read_config(config), sink=Both())


@pytest.fixture(scope="module")
def heard():
    return Heard()


@pytest.fixture(scope="module")
def found(tmp_path_factory, heard):
    path = tmp_path_factory.mktemp("perfetto") / "moves.pftrace"
    written(path, heard)
    return Read(path.read_bytes())


def test_every_actor_and_every_worker_has_a_track(found, heard):
    assert set(found.below(ACTORS)) == {actor for _, _, actor, *_ in heard.moves}
    assert set(found.below(WORKERS)) == {worker for _, worker, *_ in heard.moves}


def test_an_actors_slices_are_its_stays_in_their_order(found, heard):
    stays, where = defaultdict(list), {}
    for _, worker, actor, before, _, after, _ in heard.moves:
        if before is None:
            where[actor] = worker
        if before is not after and where[actor] == worker and after not in FINAL:
            stays[actor].append(str(after))
    for actor, uuid in found.below(ACTORS).items():
        assert [name for name, *_ in found.slices[uuid]] == stays[actor]
        assert all(end is not None for *_, end in found.slices[uuid])


def test_a_slice_says_what_led_to_it_and_whether_it_rests(found):
    slices = [each for uuid in found.below(ACTORS).values() for each in found.slices[uuid]]
    assert all("event" in about for _, _, about, *_ in slices)
    assert {(name, category) for name, category, *_ in slices} >= {("Running", "rest"), ("Creating", "step")}
    assert "worker" in slices[0][2]


def test_a_workers_troubles_stand_on_its_track(found, heard):
    told = [
        (uuid_name, name, about["actor"])
        for uuid_name, uuid in found.below(WORKERS).items()
        for name, about in found.instants[uuid]
    ]
    happened = [(worker, str(reason), actor) for _, worker, actor, *_, reason in heard.moves if reason is not None]
    assert sorted(told) == sorted(happened)
    assert happened


def test_the_counters_of_a_worker_are_never_below_nobody_and_nobody_runs_at_the_end(found):
    for uuid in found.below(WORKERS).values():
        for name, counter in found.below(uuid).items():
            assert min(found.counters[counter]) >= 0
            if name == "running":
                assert found.counters[counter][-1] == 0
                assert max(found.counters[counter]) > 0


def test_the_same_replay_makes_the_same_bytes_and_a_compressed_file_holds_them(tmp_path):
    for name in ("1", "2", "3.gz"):
        written(tmp_path / name)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    assert gzip.decompress((tmp_path / "3.gz").read_bytes()) == (tmp_path / "1").read_bytes()


def test_a_life_that_ends_where_the_actor_is_no_more_does_not_end_its_stay(tmp_path):
    pieces: list[bytes] = []
    writer = Writer(pieces.append)
    for at_s, worker, before, after in (
        (1, "w1", None, State.ASSIGNED),
        (2, "w1", State.ASSIGNED, State.SUSPENDED),
        (3, "w2", None, State.ASSIGNED),
        (4, "w1", State.SUSPENDED, State.TERMINATED),
        (5, "w2", State.ASSIGNED, State.RUNNING),
    ):
        writer.moved(at_s, worker, "a", before, "X", after, Reason.SANDBOX_DIED if at_s == 4 else None)
    writer.close()
    read = Read(b"".join(pieces))
    (uuid,) = read.below(ACTORS).values()
    assert [name for name, *_ in read.slices[uuid]] == ["Assigned", "Suspended", "Assigned", "Running"]
    assert read.instants[uuid] == [("Terminated", {"event": "X", "reason": "SandboxDied", "worker": "w1"})]
    first, second = read.below(WORKERS).values()
    assert read.counters[read.below(first)["actors"]] == [1, 0]
    assert read.counters[read.below(second)["running"]] == [1]


def test_what_is_kept_does_not_grow_with_the_file():
    kept = []

    def write(piece):
        kept.append(len(piece))

    writer = Writer(write)
    for number in range(20_000):
        writer.moved(number, "w1", f"a{number}", None, "Assign", State.ASSIGNED, None)
        writer.moved(number + 0.5, "w1", f"a{number}", State.ASSIGNED, "Stop", State.TERMINATED, None)
    assert len(kept) > 5
    assert max(kept) < 1 << 19
    assert not writer._actors
    assert not writer._lives


def test_a_replay_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(KeyError), opened(tmp_path / "moves.pftrace"):
        raise KeyError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02"), (1 << 63, b"\x80" * 9 + b"\x01")],
)
def test_a_number_takes_seven_bits_a_byte(value, expected):
    assert varint(value) == expected
