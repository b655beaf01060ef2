"""Records of clusters: what is written is read again, bytes of others are refused, and a record is Recorder.put's."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.cluster.jobs.messages import OUTCOMES
from nngkit.cluster.jobs.values import JobEnd
from nngkit.cluster.records import (
    MOST_ENDS,
    MOST_TIME,
    ClusterRecords,
    EndedJob,
    HostChange,
    MessageRecord,
    parse_ends,
    parse_host_change,
    parse_message,
)
from nngkit.envelope import decode, encode
from nngkit.errors import BadMessage, NngkitError
from nngkit.journal.recorder import Recorder

EPOCH = 1_795_000_000_000_000
AT = EPOCH / 1e6
PARSERS = (parse_ends, parse_host_change, parse_message)

idents = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=64)
numbers = st.integers(0, (1 << 53) - 1)
times = st.floats(0, MOST_TIME)
texts = st.text(st.characters(codec="utf-8"), max_size=16)
ended = st.builds(
    JobEnd,
    id=numbers,
    kind=texts,
    key=st.none() | st.binary(max_size=256),
    submitter=idents,
    worker=idents | st.just(""),
    outcome=st.sampled_from(OUTCOMES),
    error=st.just(("", "")) | st.tuples(texts, st.text(st.characters(codec="utf-8"), max_size=600)),
    tries=st.integers(0, 1000),
    term=numbers,
    queued=times,
    started=times,
    finished=times,
    payload=st.binary(max_size=4),
    result=st.binary(max_size=4),
)


def end(number: int = 0, **changed: Any) -> JobEnd:
    usual = JobEnd(number, "k", None, "s", "w", "result", ("", ""), 1, 3, AT, AT + 1, AT + 2, b"12", b"345")
    return usual._replace(**changed)


def as_read(end: JobEnd) -> EndedJob:
    kind, text = end.error
    return EndedJob(
        *(*end[:6], kind[:64], text[:480], *end[7:12]),
        len(end.payload),
        len(end.result),
    )


@given(st.lists(ended, min_size=1, max_size=6))
def test_ended_jobs_are_read_as_they_were_written(ends: list[JobEnd]) -> None:
    (record,) = ClusterRecords("render", "a", EPOCH).ends(ends, AT)
    found = parse_ends(record.value)
    assert (found.cluster, found.host, found.jobs) == ("render", "a", [as_read(each) for each in ends])


@given(texts, numbers, st.none() | idents, times, texts)
def test_changes_of_the_host_are_read_as_they_were_written(
    cluster: str, term: int, host: str | None, at: float, why: str
) -> None:
    change = HostChange(cluster, term, host, at, why)
    assert parse_host_change(ClusterRecords(cluster, "a", EPOCH).host_change(change).value) == change


@given(texts, idents, numbers, numbers, st.none() | idents, st.binary(max_size=40))
def test_messages_are_read_as_they_were_written(
    kind: str, origin: str, epoch: int, sequence: int, to: str | None, body: bytes
) -> None:
    record = ClusterRecords("render", "a", EPOCH).message(kind, origin, epoch, sequence, body, to=to)
    assert parse_message(record.value) == MessageRecord("render", kind, origin, epoch, sequence, to, body)


@given(st.binary(max_size=64))
def test_random_bytes_are_refused(value: bytes) -> None:
    for parse in PARSERS:
        with pytest.raises(NngkitError):
            parse(value)


@given(st.data())
def test_changed_records_are_read_or_refused(data: st.DataObject) -> None:
    records = ClusterRecords("render", "a", EPOCH)
    values = [
        records.ends([end(0), end(1, error=("x", "y"))], AT)[0].value,
        records.host_change(HostChange("render", 1, "a", AT, "elected")).value,
        records.message("chat", "b", EPOCH, 1, b"hello").value,
    ]
    value = bytearray(data.draw(st.sampled_from(values)))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    for parse in PARSERS:
        try:
            parse(bytes(value))
        except NngkitError:
            continue


def columns(**changed: Any) -> bytes:
    """Return a record of two jobs with other columns."""
    fields = decode(ClusterRecords("render", "a", EPOCH).ends([end(0), end(1)], AT)[0].value, what="record")
    for name, column in changed.items():
        if name in EndedJob._fields:
            fields["jobs"][EndedJob._fields.index(name)] = column
        else:
            fields[name] = column
    return encode(fields)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"id": [7, "a/1/1"]}, r"'jobs\[0\]\[1\]'"),
        ({"kind": ["k", "é" * 40]}, "'kind': a text is over 64 bytes"),
        ({"key": [None, "text"]}, r"'jobs\[2\]\[1\]'"),
        ({"key": [None, bytes(257)]}, r"'jobs\[2\]\[1\]'.*256"),
        ({"outcome": ["result", "won"]}, r"'jobs\[5\]\[1\]'.*'won'"),
        ({"text": ["", "x" * 1921]}, "'text': a text is over 1920 bytes"),
        ({"tries": [1, True]}, r"'jobs\[8\]\[1\]'"),
        ({"tries": [1, -1]}, r"'jobs\[8\]\[1\]'"),
        ({"term": [1, 1 << 53]}, r"'jobs\[9\]\[1\]'"),
        ({"payload": [1, 1.5]}, r"'jobs\[13\]\[1\]'"),
        ({"queued": [AT, float("nan")]}, r"'jobs\[10\]\[1\]'"),
        ({"started": [AT, "now"]}, r"'jobs\[11\]\[1\]'"),
        ({"finished": [AT, -1.0]}, r"'jobs\[12\]\[1\]'"),
        ({"finished": [AT, 1e12]}, r"'jobs\[12\]\[1\]'"),
        ({"finished": [AT]}, "a column is empty, or longer"),
        ({"finished": None}, r"'jobs\[12\]'"),
        ({"jobs": [[]] * 15}, "a column is empty, or longer"),
        ({"jobs": [[""] * 257] * 15}, r"'jobs\[0\]'.*256"),
        ({"jobs": [["a"]] * 14}, "'jobs'.*at least length 15"),
        ({"jobs": 7}, "'jobs'.*array"),
        ({"host": "x" * 65}, "'host'"),
        ({"cluster": "x" * 257}, "'cluster'"),
        ({"v": 2}, "version 2 is newer"),
    ],
)
def test_bad_columns_are_refused_by_name(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(BadMessage, match=why):
        parse_ends(columns(**changed))


def test_columns_and_fields_of_later_versions_are_ignored() -> None:
    fields = decode(columns(), what="record")
    later = encode({**fields, "jobs": [*fields["jobs"], ["new", "new"]], "new": 1})
    assert parse_ends(later).jobs == [as_read(end(0)), as_read(end(1))]


def test_many_ends_are_split_into_records_with_consecutive_numbers() -> None:
    records = ClusterRecords("render", "a", EPOCH)
    ends = [end(number) for number in range(2 * MOST_ENDS + 1)]
    found = records.ends(ends, AT) + records.ends([end(9999)], AT)
    assert [len(parse_ends(each.value).jobs) for each in found] == [MOST_ENDS, MOST_ENDS, 1, 1]
    assert [dict(each.headers)["seq"] for each in found] == [n.to_bytes(8, "big") for n in (1, 2, 3, 4)]
    assert len({dict(each.headers)["id"] for each in found}) == 4
    assert records.ends([], AT) == []


def test_records_with_all_fields_at_their_limits_can_be_read() -> None:
    largest = end(
        (1 << 53) - 1,
        id=(1 << 53) - 1,
        kind="k" * 64,
        key=bytes(256),
        submitter="é" * 32,
        worker="é" * 32,
        outcome="dead",
        error=("\N{GRINNING FACE}" * 1024, "\N{GRINNING FACE}" * 1024),
    )
    (record,) = ClusterRecords("c" * 256, "é" * 32, EPOCH).ends([largest] * MOST_ENDS, AT)
    assert len(parse_ends(record.value).jobs) == MOST_ENDS
    change = HostChange("c" * 256, (1 << 53) - 1, "é" * 32, MOST_TIME, "\N{GRINNING FACE}" * 1024)
    assert parse_host_change(ClusterRecords("c", "a", EPOCH).host_change(change).value).why == change.why[:480]


def test_records_have_the_arguments_of_the_recorder() -> None:
    records = ClusterRecords("render", "a", EPOCH, prefix="farm")
    three = [
        *records.ends([end()], AT),
        records.host_change(HostChange("render", 3, None, AT, "lease expired")),
        records.message("chat", "b", EPOCH, 7, b"hello", peer="tcp://10.0.0.2:7000"),
    ]
    signature = inspect.signature(Recorder.put)
    for record in three:
        signature.bind(None, **record._asdict())
    assert [each.topic for each in three] == ["farm.jobs", "farm.hosts", "farm.messages"]
    assert [each.key for each in three] == [b"render", b"render", b"chat"]
    assert {each.protocol for each in three} == {"cluster"}
    assert [dict(each.headers)["from"] for each in three] == [b"a", b"a", b"b"]
    assert dict(three[0].headers)["sent"] == EPOCH.to_bytes(8, "big")
    assert (dict(three[2].headers)["id"], three[2].peer) == (b"b/%d/7" % EPOCH, "tcp://10.0.0.2:7000")
    assert "seq" not in dict(three[2].headers)


def test_records_are_the_examples_of_the_page() -> None:
    records = ClusterRecords("farm", "a", EPOCH)
    job = JobEnd(
        *(1, "render", b"k1", "s", "w", "result", ("", ""), 1, 3),
        *(AT, AT + 0.5, AT + 2, b"scene", b"image"),
    )
    assert records.ends([job], AT + 2)[0].value.hex() == (
        "a461760164686f73746161646a6f62738f8101816672656e64657281426b318161738161778166726573756c748160816081"
        "01810381fb41dabf61b000000081fb41dabf61b020000081fb41dabf61b08000008105810567636c7573746572646661726d"
    )
    assert records.host_change(HostChange("farm", 3, "a", AT, "elected")).value.hex() == (
        "a6617601626174fb41dabf61b00000006377687967656c656374656464686f73746161647465726d0367636c7573746572646661726d"
    )
    assert records.message("chat", "b", EPOCH, 7, b"hello").value.hex() == (
        "a861760162746ff6637365710764626f64794568656c6c6f646b696e6464636861746565706f63681b0006608b015f300066"
        "6f726967696e616267636c7573746572646661726d"
    )
