"""The `nngkit` command: one module a command, brought in when it is called for.

main.py       which command, and what becomes of errors: one line on stderr and an exit code
options.py    the options that commands share, in one table
cat_options.py   the options of the cat commands, in one table; helps.py prints it
nngcat.py  nanocat.py     the stand-ins: arguments to a Plan (plan.py), and errors in the originals' words (reasons.py)
cat.py  reporting.py      nngkit cat and its shorthands: arguments to a Plan; what is said at its end, the exit code
splitting.py  rendering.py  executing.py    input into messages; --format-string and --json; --exec
light.py      bringing in NNG without asyncio: what a start costs
catalogue.py  completion.py  man.py     what is made of the options: completion scripts, manual pages, docs/command.md
formats.py    how a received message is printed
conversation.py  running.py  refusal.py     doing what a Plan says: the sockets; the signals; why nobody answers
output.py     data on stdout: JSON lines or columns, colour where it is wanted
tls.py        the options for certificates, and the setting they make
lines.py      output by a thread, for what must not wait for its reader;  signals.py  work that a signal ends in order
figures.py    percentiles in little memory;  flows.py  what flows by;  diagnosis.py  why two ends do not talk: all pure
load.py       the two ends of bench;  progress.py  its bar;  probing.py  what doctor looks at
discoverd.py  discover.py  resolve.py  device.py  bench.py  ping.py  top.py  doctor.py
              the commands: `add_arguments(parser)` and `run(arguments) -> exit code`, for argparse; the first three
              do their work in serving.py, discovering.py and resolving.py, which a help does not bring in
"""
