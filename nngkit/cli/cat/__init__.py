"""`nngkit cat`, its shorthands, and the stand-ins: command lines to a Plan, and a Plan to sockets.

===================  =====================================================================================
cat.py               nngkit cat, and pub, sub, push, pull, req, rep, survey, respond, bus, pair
nngcat.py            stand-in for NNG's nngcat;  nanocat.py: for nanomsg's nanocat
option_table.py      the options of all three, in one table;  help_text.py prints it
arguments.py         parses cat's arguments;  scanning.py: words of a command line
plan.py              what to do: sockets, input, output, times
conversation.py      does what a Plan says with the sockets;  running.py: signals, errors, the stand-ins' exit
reporting.py         how nngkit cat ends: summary and exit code;  hints.py: why no peer is found
splitting.py         input into messages;  formats.py, rendering.py: messages into output;  exec_command.py: --exec
error_texts.py       errors in the words of NNG and of the C library;  refusal.py: why no connection is accepted
lazy_bricks.py       loads NNG without asyncio
===================  =====================================================================================
"""
