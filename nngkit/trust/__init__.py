"""Trust: a realm signs passes, a peer is who its pass says, and may do what the policy grants.

=============  ========================================================================
`names`        names of peers, patterns, what a peer may call itself. Pure
`policy`       who may do what. Pure
=============  ========================================================================
"""
