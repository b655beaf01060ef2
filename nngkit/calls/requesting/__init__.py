r"""Calls at a client: one call from the program to its result.

::

    Client.request --> caller --> pool.py chooses a provider --> its socket (links) --> attempt --> result, or error
                        ^  (call)                                                        |
                        +---- another attempt, within budget.py <------------------------+

    caller        the attempts of a call: which there are, and when it gives up
    call          one call, and its present attempt
    hedging       a second attempt beside a slow first one
    changes       waits for another provider, on threads and in loops
    no_provider   why there is none
    links         one socket for each provider that is wanted; discovery's news
    cancels       tells providers that a caller has given up
"""
