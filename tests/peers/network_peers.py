# SPDX-License-Identifier: Apache-2.0
"""A peer of each source that asks over a network or a device: it gives `watts`, in the manner that a test chooses."""
import contextlib
import socket
import struct
import threading

import ipmi_controller
import ptd_daemon
import redfish_controller
import scpi_meter
from text_instrument import Instrument, Manner, end_connection


class Modbus(Instrument):
    """A WT310 over Modbus/TCP: float32 in input registers from 2000 on."""

    def __init__(self, _, watts):
        self.watts = watts
        super().__init__()
        # a message of 4 GB cannot be announced: the length has 16 bits
        self.manner = Manner(struct.pack(">HHHBBB", 1, 0, 0xffff, 1, 4, 255))

    def split(self, received):
        n = len(received) // 12
        return [received[12 * i:12 * i + 12] for i in range(n)], received[12 * n:]

    def answer(self, question):
        words = struct.pack(">6f", 230, 2, self.watts, 0, 0, 0.95)
        return [question[:4] + struct.pack(">HBBB", len(words) + 3, question[6], question[7], len(words)) + words]

    def encode(self, replies):
        return replies[0]

    def source(self, timeout):
        return f"modbus:host=127.0.0.1,port={self.port},map=wt310,timeout={timeout}"


class Scpi(scpi_meter.Meter):
    def __init__(self, _, watts):
        self.watts = watts
        super().__init__()

    def value(self, item):
        return self.watts if item == "P" else super().value(item)

    def source(self, timeout):
        return super().source(f",timeout={timeout}")


class Ptd(ptd_daemon.Daemon):
    def __init__(self, _, watts):
        super().__init__()
        self.watts = watts

    def source(self, timeout):
        return super().source(f",timeout={timeout}")


class Redfish(redfish_controller.Controller):
    def __init__(self, folder, watts):
        super().__init__(redfish_controller.certify(folder))
        self.watts = watts
        self.chassis("node", "EnvironmentMetrics", lambda: {"PowerWatts": {"Reading": self.watts}})

    def source(self, timeout):
        return super().source(f",timeout={timeout}")


def ber(tag, *parts):
    """An element of BER with a length below 65536."""
    whole = b"".join(parts)
    length = bytes([len(whole)]) if len(whole) < 128 else b"\x82" + struct.pack(">H", len(whole))
    return bytes([tag]) + length + whole


def ber_read(data):
    """Tag, contents and what is behind the first element."""
    n, at = data[1], 2
    if n > 127:
        at += n - 128
        n = int.from_bytes(data[2:at], "big")
    return data[0], data[at:at + n], data[at + n:]


class Snmp:
    """An agent of SNMPv2c that has `watts` for every object in a question."""

    def __init__(self, _, watts):
        self.watts, self.port, self.end = watts, 0, None
        # a message of 4 GB in a datagram, again and again
        self.manner = Manner(filling=b"\x30\x84\xff\xff\xff\xff\x02\x01\x01\x04\x06public")
        self.plug()

    def plug(self):
        self.end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.end.bind(("127.0.0.1", self.port))
        self.port = self.end.getsockname()[1]
        threading.Thread(target=self.run, args=(self.end,), daemon=True).start()

    def run(self, end):
        with contextlib.suppress(OSError):
            while True:
                question, client = end.recvfrom(65536)
                if not question:  # unplug()
                    return
                with contextlib.suppress(ConnectionAbortedError):
                    self.manner.send(lambda data, client=client: end.sendto(data, client), self.answer(question))

    def answer(self, question):
        _, message, _ = ber_read(question)
        version, rest = message[:3], message[3:]
        _, community, rest = ber_read(rest)
        _, request, _ = ber_read(rest)
        _, number, rest = ber_read(request)
        rest = ber_read(ber_read(rest)[2])[2]  # behind the status and the index of an error
        rows, found = ber_read(rest)[1], []
        while rows:
            _, row, rows = ber_read(rows)
            found.append(ber(0x30, ber(6, ber_read(row)[1]), ber(0x42, struct.pack(">I", self.watts))))
        response = ber(0xa2, ber(2, number), ber(2, b"\0"), ber(2, b"\0"), ber(0x30, *found))
        return ber(0x30, version, ber(4, community), response)

    def unplug(self):
        end_connection(self.end)

    def stop(self):
        self.manner.mode = "silent"
        self.unplug()

    def source(self, timeout):
        return f"snmp:127.0.0.1,port={self.port},oid=1.3.6.1.4.1.318.99.1,timeout={timeout}"


class IpmiManner:
    """Its file says how the fake device answers; a message there has at most 64 bytes."""

    def __init__(self, peer):
        self.peer = peer

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        if name == "mode":
            whole = ipmi_controller.message(self.peer.watts)
            self.peer.controller.answers(*{"good": (whole,), "silent": ("",), "drip": (whole, 5000),
                                           "huge": (" ".join(["ff"] * 64),), "half": (whole[:len(whole) // 2],)}[value])


class Ipmi:
    def __init__(self, folder, watts):
        self.watts = watts
        self.controller = ipmi_controller.Controller(folder)
        self.manner = IpmiManner(self)
        self.plug()

    def plug(self):
        self.manner.mode = "good"

    def unplug(self):
        self.controller.file.unlink()

    def stop(self):
        pass

    def source(self, timeout):
        return f"ipmi:timeout={timeout}"


PEERS = {"modbus": Modbus, "scpi": Scpi, "ptd": Ptd, "redfish": Redfish, "snmp": Snmp, "ipmi": Ipmi}
