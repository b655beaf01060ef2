"""The `nngkit` command: one module a command, brought in when it is called for.

main.py       which command, and what becomes of errors: one line on stderr and an exit code
options.py    the options that commands share, in one table
output.py     data on stdout: JSON lines or columns, colour where it is wanted
discoverd.py  discover.py  resolve.py    the commands: `add_arguments(parser)` and `run(arguments) -> exit code`
"""
