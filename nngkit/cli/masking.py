"""Secrets in texts for people: those of addresses. Pure."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"
_SECRET: Final = re.compile(
    r"(\btoken=)[^\s&'\"]+"  # at the end of an address, and in a stream
    r"|(://[^\s/:@'\"]*:)[^\s/@'\"]+(?=@)"  # of a user
    r"|([?&][\w.-]*(?:secret|token|key|password)[\w.-]*=)[^\s&#'\"]+",  # settings of a journal's URI
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """Return the text with secrets of addresses in it as ***.

    >>> masked("ws://host:1/#token=s3cret s3://bucket/j?aws_secret_access_key=s3cret&region=x https://me:s3cret@host/")
    'ws://host:1/#token=*** s3://bucket/j?aws_secret_access_key=***&region=x https://me:***@host/'
    """
    return _SECRET.sub(lambda found: f"{found[1] or found[2] or found[3]}{MASK}", text)
