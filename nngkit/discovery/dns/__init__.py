"""Services in the DNS, for programs that know nothing of nngkit: `nngkit discoverd --dns`.

======  ====================================================================================
zone    names and records of the providers that are up, and the reply to a query; pure
server  UDP and TCP, limited; asks a function for each reply
======  ====================================================================================

Requires the extra: `pip install 'nngkit[dns]'`.
"""
