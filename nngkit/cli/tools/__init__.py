"""Commands that measure, diagnose and forward, and those about the command itself (completion, man).

bench_load.py is the load of bench, progress.py its bar; traffic.py is the table of top, pure; catalogue.py collects the
options of all commands for completion, manual pages and docs/command.md.
"""
