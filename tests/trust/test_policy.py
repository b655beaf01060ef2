"""Names and policies: what a peer may call itself, and who may do what, against a slow model."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.errors import AccessDenied, ConfigError
from nngkit.trust import names
from nngkit.trust.policy import BY_PREFIX, RIGHTS, Policy, Role

WORDS = st.text("ab1", min_size=1, max_size=3)
NAMES = st.lists(WORDS, min_size=1, max_size=3).map(".".join)
PATTERNS = st.one_of(NAMES, st.lists(st.sampled_from(["a", "b", "*", "?", "."]), min_size=1, max_size=5).map("".join))
TARGETS = st.lists(st.sampled_from(["a", "b", "/", "a/b", "b/a"]), min_size=1, max_size=4).map("".join)
GLOBS = st.lists(st.sampled_from(["a", "b", "/", "*", "?"]), min_size=1, max_size=4).map("".join)
ROLES = st.builds(
    Role,
    st.just("role"),
    st.lists(PATTERNS, min_size=1, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(RIGHTS), st.lists(GLOBS | TARGETS, max_size=3).map(tuple), max_size=4),
)


@given(st.lists(ROLES, max_size=4), st.lists(NAMES, max_size=2), NAMES, st.sampled_from(RIGHTS), TARGETS)
def test_decisions_are_those_of_a_slow_model(
    roles: list[Role], revoked: list[str], name: str, right: str, target: str
) -> None:
    policy = Policy("farm", 1, revoked, roles)

    def covers(pattern: str) -> bool:
        if right in BY_PREFIX:
            return target.startswith(pattern)
        whole = right != "call" or "/" in pattern
        return fnmatchcase(target if whole else target.partition("/")[0], pattern)

    granting = [
        role
        for role in roles
        if any(fnmatchcase(name, each) for each in role.names) and any(map(covers, role.grants.get(right, ())))
    ]
    assert policy.may(name, right, target) == (bool(granting) and name not in revoked)
    assert policy.granting(name, right, target) == (granting[0] if granting else None)


@given(st.lists(ROLES, min_size=1, max_size=4), NAMES, st.sampled_from(RIGHTS), TARGETS)
def test_a_grant_that_is_taken_away_adds_no_right(roles: list[Role], name: str, right: str, target: str) -> None:
    fewer = Policy("farm", 1, (), roles[1:])
    if fewer.may(name, right, target):
        assert Policy("farm", 1, (), roles).may(name, right, target)


@given(st.lists(ROLES, max_size=3), NAMES, st.sampled_from(RIGHTS), TARGETS)
def test_a_revoked_name_may_nothing(roles: list[Role], name: str, right: str, target: str) -> None:
    policy = Policy("farm", 1, (name,), roles)
    assert policy.is_revoked(name)
    assert not policy.may(name, right, target)


def test_without_a_policy_all_may_everything_but_enrol_and_speak_for_others() -> None:
    policy = Policy.open("farm")
    assert [right for right in RIGHTS if not policy.may("render.w1", right, "x")] == ["carry", "enrol"]
    assert [right for right in RIGHTS if not policy.may("@local", right, "x")] == ["enrol"]
    assert policy.may("render.w1", "carry", "cluster:farm")


TEXT = """
realm = "farm"
version = 7
revoked = ["render.w3", "serial:4f2a91"]

[role.workers]
names = ["render.*"]
work = ["farm/render", "farm/thumb.*"]
call = ["quotes", "pay/charge"]
publish = ["orders/"]
"""


@pytest.mark.parametrize(
    ("right", "target", "granted"),
    [
        ("work", "farm/render", True),
        ("work", "farm/thumb.small", True),
        ("work", "farm/other", False),
        ("call", "quotes", True),
        ("call", "quotes/last", True),
        ("call", "pay/charge", True),
        ("call", "pay", False),
        ("call", "pay/refund", False),
        ("publish", "orders/eu", True),
        ("publish", "orders", False),
        ("vote", "farm", False),
    ],
)
def test_a_policy_as_it_is_written(right: str, target: str, *, granted: bool) -> None:
    policy = Policy.parse(TEXT)
    assert (policy.realm, policy.version) == ("farm", 7)
    assert policy.may("render.w1", right, target) is granted
    assert not policy.may("render.w3", right, target)
    assert not policy.may("desk.ada", right, target)
    assert policy.is_revoked("anybody", "4F2A91")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = ", "policy: "),
        ('realm = "Farm"', "lower-case words"),
        ('realm = "farm"\nrole.a.names = ["b"]\nrole.a.subscrib = ["x"]', "'subscribe' is meant"),
        ('realm = "farm"\nrevokd = []', "'revoked' is meant"),
        ('realm = "farm"\nversion = -1', "whole number"),
        ('realm = "farm"\nversion = true', "whole number"),
        ('realm = "farm"\nrole.a.call = ["x"]', "has no names"),
        ('realm = "farm"\nrole.a.names = ["A b"]', "pattern of names"),
        ('realm = "farm"\nrole.a.names = "b"', "list of texts"),
        ('realm = "farm"\nrole = 1', "not a table"),
        ('realm = "farm"\nrole.a = 1', "not a table"),
        ("realm = 1", "is not text"),
        ("#" * (1 << 20) + "#", "over 1048576 bytes"),
    ],
)
def test_a_wrong_policy_is_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Policy.parse(text)


# ---- names -----------------------------------------------------------------------------------------------------------


@given(NAMES, WORDS)
def test_a_name_owns_itself_and_its_instances_only(name: str, word: str) -> None:
    assert names.owns(name, name)
    assert names.owns(name, f"{name}:{word}")
    for other in (
        f"{name}.{word}",
        f"{word}.{name}",
        f"{name}:{word}:{word}",
        f"{name}:",
        name + word,
        f"{word}:{name}",
    ):
        if other.partition(":")[0] != name or other.count(":") != 1 or other.endswith(":"):
            assert not names.owns(name, other), other


@given(NAMES)
def test_a_name_is_read_from_its_uri(name: str) -> None:
    assert names.name_in([names.uri_of("farm", name)], "farm") == name


@pytest.mark.parametrize(
    ("uris", "says"),
    [
        ([], "no URIs"),
        (["spiffe://farm/a", "spiffe://farm/b"], "2 URIs"),
        (["spiffe://other/a"], "other-realm"),
        (["https://farm/a"], "no name"),
        (["spiffe://farm/*"], "no name"),
        (["spiffe://farm/a.b"], "no name"),
        (["spiffe://farm/A"], "no name"),
        (["spiffe://farm/"], "no name"),
        (["spiffe://farm/" + "a" * 41], "no name"),
        (["spiffe://farm/@local"], "no name"),
        (["spiffe://farm/a//b"], "no name"),
        (["spiffe://farm/a\n"], "no name"),
    ],
)
def test_other_certificates_have_no_name(uris: list[str], says: str) -> None:
    with pytest.raises(AccessDenied, match=says):
        names.name_in(uris, "farm")


@pytest.mark.parametrize("name", ["", "A", "a..b", ".a", "a.", "a b", "a/b", "@a", "a:b", "-a", "a" * 41, "é", "a\n"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ConfigError, match="lower-case words"):
        names.check(name)


@given(st.text("ab.*?[]!-", max_size=6), st.text("ab.-", max_size=6))
def test_patterns_of_names_are_globs(pattern: str, name: str) -> None:
    assert names.matches(name, pattern) == fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("name", "pattern", "matched"),
    [
        ("render.w1", "render.*", True),
        ("render", "render.*", False),
        ("render.w1", "*", True),
        ("@local", "*", False),
        ("@local", "@*", False),
        ("@local", "@local", True),
        (names.uid(1000), "@uid.1000", True),
    ],
)
def test_patterns_of_names(name: str, pattern: str, *, matched: bool) -> None:
    assert names.matches(name, pattern) is matched
