"""URIs of journals: what cannot be one is a ConfigError, whatever the library behind the scheme does."""

from __future__ import annotations

import pytest

from nngkit.errors import ConfigError
from nngkit.journal.storage import open_storage

# Of the HTTP client, to obstore: among a store's own settings it panics at them, which Python sees as a BaseException.
OF_THE_CLIENT = ("allow_http=true", "timeout=5s", "aws_proxy_url=::", "HTTP2_ONLY=1", "randomize_addresses=no")


@pytest.mark.parametrize(
    "uri",
    [
        *(f"s3://bucket/j?{word}" for word in OF_THE_CLIENT),
        "az://container/j?azure_read_timeout=1s",
        "gs://bucket/j?endpoint=http://127.0.0.1:1&user_agent=x",
        "s3://bucket/j?foo=1",
        "s3://bucket/j?region=\udcff",
        "s3://[::1/j",
        "s3://b u/x",
        "s3://",
        "ftp://host/j",
        "file://",
        "://",
    ],
)
def test_an_impossible_uri_is_a_config_error(uri: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"\Ajournal: "):
        open_storage(uri)
    assert capfd.readouterr().err == ""  # where a panic is printed
