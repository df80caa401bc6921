# SPDX-License-Identifier: Apache-2.0
"""activator.py SOCKET PROGRAM...: listens as systemd does for ListenSequentialPacket=, hands the socket to the program as
descriptor 3 (sd_listen_fds(3)), and starts it again when it was killed (Restart=on-failure). Its own end ends the program,
which alone gets what PRELOAD names as LD_PRELOAD."""
import os
import signal
import socket
import sys

path, *program = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
os.chmod(path, 0o666)
listener.listen(4096)
child = 0


def end(number, _):
    if child:
        os.kill(child, signal.SIGTERM)
    sys.exit(0)


signal.signal(signal.SIGTERM, end)
while True:
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(listener.fileno(), 3)
        os.set_inheritable(3, True)
        os.execve(program[0], program, {**os.environ, "LD_PRELOAD": os.environ["PRELOAD"], "LISTEN_PID": str(os.getpid()),
                                        "LISTEN_FDS": "1"})
    print(f"activator: {child}", file=sys.stderr, flush=True)
    _, status = os.waitpid(child, 0)
    child = 0
    if not os.WIFSIGNALED(status):
        sys.exit(status)
