"""Reports of pip-audit, as `python3 dev.py audit` sums them up. The command itself runs in .ci/run."""

from __future__ import annotations

import json

from tools.audit import Found, read, summary

REPORT = {
    "dependencies": [
        {"name": "trio", "version": "0.35.0", "vulns": []},
        {
            "name": "h11",
            "version": "0.14.0",
            "vulns": [{"id": "GHSA-vqfr-h8mv-ghfj", "fix_versions": ["0.16.0"], "aliases": [], "description": ""}],
        },
        {"name": "nngkit", "skip_reason": "Dependency not found on PyPI and could not be audited: nngkit (1.0)"},
    ],
    "fixes": [],
}


def test_a_report_names_what_is_known_and_what_was_not_audited() -> None:
    found = read(json.dumps(REPORT))
    assert found.known == ["h11 0.14.0: GHSA-vqfr-h8mv-ghfj; fixed in: 0.16.0"]
    assert summary(found) == "2 packages audited, 1 vulnerabilities; not audited: nngkit"


def test_an_index_without_advisories_is_no_audit() -> None:
    assert summary(Found(unknown=["h11", "trio"])).startswith("not audited: the index has no advisories of its 2 ")
