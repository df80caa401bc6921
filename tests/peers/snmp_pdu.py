# SPDX-License-Identifier: Apache-2.0
"""A PDU over SNMP: Debian's snmpd with a table of values that a test may change."""
import os
import shutil
import socket
import subprocess
import time

SNMPD = shutil.which("snmpd", path=os.environ["PATH"] + ":/usr/sbin")

APC, RARITAN = "1.3.6.1.4.1.318.1.1.26", "1.3.6.1.4.1.13742.6"

# snmpd asks for each object: pass PROGRAM -g OID; the answer is OID, type, value in three lines.
PASS = """#!/bin/sh
[ "$1" = -g ] || exit 0
while read -r oid type value; do
    [ "$2" = ".$oid" ] && printf '%s\\n%s\\n%s\\n' "$2" "$type" "$value" && exit 0
done <"$0.values"
"""


class Pdu:
    def __init__(self, folder):
        self.folder = folder
        self.values = folder / "pass.sh.values"
        script = folder / "pass.sh"
        script.write_text(PASS, encoding="utf-8")
        script.chmod(0o755)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (folder / "snmpd.conf").write_text(
            "rocommunity public 127.0.0.1\nrocommunity hidden 127.0.0.1\n"
            "createUser meter SHA correct-horse AES battery-staple\nrouser meter priv\n"
            + "".join(f"pass .{oid} {script}\n" for oid in (APC, RARITAN, "1.3.6.1.4.1.1718", "1.3.6.1.4.1.21239")),
            encoding="utf-8")
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            [SNMPD, "-f", "-Lf", self.folder / "log", "-C", "-c", self.folder / "snmpd.conf", "-I",
             "-system_mib,systemstats,ifTable", f"udp:127.0.0.1:{self.port}"],
            env={**os.environ, "MIBS": "", "SNMP_PERSISTENT_DIR": str(self.folder)}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        for _ in range(100):
            if "NET-SNMP version" in (self.folder / "log").read_text() if (self.folder / "log").exists() else False:
                return
            time.sleep(0.05)

    def stop(self):
        self.process.kill()
        self.process.wait()

    def set(self, rows):
        text = "".join(f"{oid} {kind} {value}\n" for oid, kind, value in rows)
        part = self.folder / "new"
        part.write_text(text, encoding="utf-8")
        part.replace(self.values)

    def source(self, text, timeout="5s"):
        return f"snmp:127.0.0.1,port={self.port},timeout={timeout},{text}"
