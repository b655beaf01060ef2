"""The `nngkit` command: one module a command, brought in when it is called for.

main.py       which command, and what becomes of errors: one line on stderr and an exit code
options.py    the options that commands share, in one table
output.py     data on stdout: JSON lines or columns, colour where it is wanted
tls.py        the options for certificates, and the setting they make
lines.py      output by a thread, for what must not wait for its reader;  signals.py  work that a signal ends in order
figures.py    percentiles in little memory;  flows.py  what flows by;  diagnosis.py  why two ends do not talk: all pure
load.py       the two ends of bench;  probing.py  what doctor looks at
discoverd.py  discover.py  resolve.py  device.py  bench.py  ping.py  top.py  doctor.py
              the commands: `add_arguments(parser)` and `run(arguments) -> exit code`
"""
