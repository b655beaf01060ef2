"""Damaged inputs of all kinds: only our errors, in bounded memory. `python -m tests.trust.fuzzing` goes on longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from nngkit.errors import BadMessage, ConfigError
from nngkit.trust import passes, renewal
from nngkit.trust.issuer import Issuer
from tests.trust.fuzzing import MOST_GROWTH, fuzz

KINDS = ("passes", "policies", "invitations", "questions", "replies", "tls")


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_inputs_are_errors_of_ours(kind: str, tmp_path: Path) -> None:
    count, growth = fuzz(kind, 0.5, 2, tmp_path)
    assert count > 20
    assert growth < MOST_GROWTH


def test_text_that_is_not_ascii_is_no_pass() -> None:
    with pytest.raises(ConfigError, match="not PEM text"):
        passes.parse("-----BEGIN CERTIFICATE-----\n\u00e9\n-----END CERTIFICATE-----\n")


def test_bytes_that_are_not_utf8_are_no_question_and_no_reply(tmp_path: Path) -> None:
    body = b'{"chain": "\xc1"}'
    assert Issuer(tmp_path, 1).patience(b'{"key": "\xc1"}') == 0.0
    with pytest.raises(BadMessage, match="hub"):
        renewal.read_reply(body, "hub")
