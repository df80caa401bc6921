# SPDX-License-Identifier: Apache-2.0
"""What a test sends must arrive: signals that our caller ignores (nohup, a job in the background of a
shell) would be ignored by every program that a test starts."""
import signal

for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
