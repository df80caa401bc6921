# SPDX-License-Identifier: Apache-2.0
"""Restores the default action of signals: those that the caller of pytest ignores (nohup, a background job of a shell)
would be ignored by every program that a test starts."""
import signal

for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
