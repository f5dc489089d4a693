"""URIs of stores and keys: what is one has one form, and whatever else it is, is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.stores.uris import SCHEMES, StoreUri, names_of, read_uri

NAMES = st.text("abcXYZ019._~+=@,-", min_size=1, max_size=8).filter(lambda name: name not in {".", ".."})


@st.composite
def uris(draw):
    scheme = draw(st.sampled_from(SCHEMES))
    bucket = "" if scheme == "file" else draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True))
    names = st.lists(
        NAMES
        if scheme != "file"
        else st.text(st.characters(exclude_characters="/\0"), min_size=1).filter(lambda name: name not in {".", ".."}),
        max_size=4,
    )
    return StoreUri(scheme=scheme, bucket=bucket, names=tuple(draw(names)))


@given(uris())
def test_a_uri_reads_back(uri):
    assert read_uri(str(uri)) == uri
    assert read_uri(f"{uri}/") == uri


@given(st.text() | st.from_regex(r"(s3|gs|az|file|memory):.*"))
def test_any_text_is_a_uri_or_is_refused_as_none(text):
    try:
        uri = read_uri(text)
    except ValueError:
        return
    assert read_uri(str(uri)) == uri
    assert not {"", ".", ".."} & set(uri.names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "az://container/a"),
        ("file:///a%20b/c", "file:///a%20b/c"),
        ("file:/a", "file:///a"),
        ("file://localhost/a", "file:///a"),
        ("file:///", "file:///"),
        ("memory:", "memory://"),
        ("memory:///a", "memory:///a"),
        ("memory://x/a", "memory://x/a"),
    ],
)
def test_a_uri_has_one_form(text, expected):
    assert str(read_uri(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/../other", "s3://bucket/a/./b", "s3://bucket/a%2fb", "s3://bucket/%2e%2e", "s3://bucket/a b",
        "s3://bucket//a", "s3:bucket/a", "s3:///a", "file:a", "file://host/a", "file:///a/%2e%2e/b", "file:///a%00",
        "file:///a%2Fb", "s3://bucket:80/a", "s3://k:s@bucket/a", "s3://bucket/a?b", "s3://bucket/a#b", "S3", "",
        "s3://bucket/a\nb", "s3://[::1]/a", "s3://bu cket/a", "s3://bücket/a", "https://bucket/a",
        "s3://b/" + "a" * 3000,
    ],
)  # fmt: skip
def test_what_could_mean_something_else_is_refused(text):
    with pytest.raises(ValueError):
        read_uri(text)


def test_a_password_is_not_repeated():
    with pytest.raises(ValueError) as caught:
        read_uri("s3://key:secret@bucket/a")
    assert "secret" not in str(caught.value)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_a_key_is_plain_names(names):
    assert names_of("/".join(names)) == tuple(names)
