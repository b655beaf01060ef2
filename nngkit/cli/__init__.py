"""The `nngkit` command. Each command is the file of its name, loaded when it runs.

===============  =====================================================================================
main.py          dispatch; spark_driver.py: the same for spark-submit; commands.py: the table; exit_codes.py; stderr.py
options.py       options shared by commands; tls.py, pem.py, tokens.py: certificates and tokens
output.py        data on stdout: JSON lines or columns; line_writer.py: written by a thread
signals.py       work that SIGINT and SIGTERM end in order
diagnosis.py     why two sockets do not communicate (pure); probe.py: the probes it judges
histogram.py     percentiles in bounded memory (pure)
option_errors.py, suggestions.py, ports.py    parts of messages: option names, "did you mean", chosen ports
cat/             nngkit cat, its shorthands, and the stand-ins nngcat and nanocat
discovery/       discoverd, discover, resolve
journal/         record, replay, consume, journal, spark
tools/           bench, ping, top, doctor, device, completion, man
doc/             nngkit doc, a file for each of its actions
===============  =====================================================================================

A command has `add_arguments(parser)` and `run(arguments) -> exit code`, for argparse; the cat commands have
`command(name, arguments) -> exit code`, and load no argparse. Modules load trio and NNG in functions, so that --help
does not.
"""
