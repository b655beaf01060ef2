"""Trust: a realm signs passes; a pass proves the name of a peer, to which a policy grants rights.

::

    from nngkit import trust

    farm = trust.Realm.new("farm")
    trust.write("w1.pass", farm.issue("render.w1"))
    Push(dial="tls+tcp://host:7000", trust=trust.Trust("w1.pass"))

Realms and policies need the extra: `pip install 'nngkit[trust]'`. The use of a pass needs the standard library.

=============  ========================================================================
`names`        names of peers, patterns, what a peer may call itself. Pure
`policy`       rights of names. Pure
`passes`       pass files; `trust`: a pass with its policy, read again when they change
`refusals`     codes of refusals, and what helps. Pure; `standing`: those of this process, for errors and logs
`rights`       what the peers of a room may do, and call themselves
`choice`       the trust of a room or socket, NNGKIT_TRUST, OPEN
`realm`        signs passes; `signing`: policies; `folder`: the files of a realm
`issuer`       answers of `nngkit trust serve`; `renewal`: the questions of programs
=============  ========================================================================
"""

from nngkit.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.trust.choice import OPEN, Choice, Open, chosen, use
    from nngkit.trust.folder import Folder
    from nngkit.trust.passes import Pass, read, write
    from nngkit.trust.policy import Policy, Role
    from nngkit.trust.realm import Realm
    from nngkit.trust.rights import Rights
    from nngkit.trust.trust import Decision, Trust

__all__ = [
    "OPEN",
    "Choice",
    "Decision",
    "Folder",
    "Open",
    "Pass",
    "Policy",
    "Realm",
    "Rights",
    "Role",
    "Trust",
    "chosen",
    "read",
    "use",
    "write",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "choice": "OPEN Choice Open chosen use",
            "folder": "Folder",
            "rights": "Rights",
            "passes": "Pass read write",
            "policy": "Policy Role",
            "realm": "Realm",
            "trust": "Decision Trust",
        },
    )
