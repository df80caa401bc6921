# SPDX-License-Identifier: Apache-2.0
"""A controller that answers Redfish over HTTPS with its own certificate."""
import base64
import contextlib
import http.server
import itertools
import json
import ssl
import subprocess
import threading
import time
import zlib

from text_instrument import Manner, end_connection

USER = "Basic " + base64.b64encode(b"reader:open sesame").decode()


def certify(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key", "-out", folder / "cert"],
                   check=True, stderr=subprocess.DEVNULL)
    return folder


def tag_of(resource):
    """The ETag of a resource changes with it."""
    return f'"{zlib.crc32(json.dumps(resource).encode()):08x}"'


def merge(old, new):
    """What a PATCH makes of a resource (DSP0266): members of objects, and of arrays by their place, of which {} is
    no change; an array without the last ones has them no longer."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: merge(old.get(key), value) for key, value in new.items()}
    if isinstance(old, list) and isinstance(new, list):
        return [merge(o, n) for o, n in zip(old, new)] + new[len(old):]
    return new


class Controller:
    """Resources by path; a text is sent as it is; `delay` seconds before each answer. A resource that is an object takes
    changes with its ETag, or `*`, unless `judge(resource as it would be)` returns a status and a sentence. `later`: so many
    changes are answered by 202 before they are made. `live`: objects have a reading that is another one at each look, and
    so is their ETag."""

    def __init__(self, folder):
        self.resources, self.delay, self.asked, self.connections = {}, 0, [], []
        self.patched, self.judge, self.before_patch, self.before_get = [], lambda resource: None, lambda: None, lambda: None
        self.later, self.live, self.readings = 0, False, itertools.count(500)
        self.manner = Manner(b"HTTP/1.1 200 OK\r\nContent-Length: 4294967296\r\n\r\n")
        self.folder, self.port = folder, 0
        (folder / "password").write_text("open sesame\n", encoding="utf-8")
        self.plug()

    def present(self, path):
        found = self.resources.get(path)
        found = found() if callable(found) else found
        return found | {"PowerWatts": {"Reading": next(self.readings)}} if self.live and isinstance(found, dict) else found

    def change(self, path, headers, body):
        """Status and answer of a PATCH."""
        self.before_patch()
        old, condition = self.resources.get(path), headers.get("If-Match")
        new = merge(old, body)
        refused = self.judge(new)
        if headers.get("Authorization") != USER or old is None:
            return 401 if old else 404, {}
        if condition is None:
            return 428, {}
        if condition not in ("*", tag_of(self.present(path))):
            self.patched.append(412)
            return 412, {}
        if refused:
            return refused[0], {"error": {"@Message.ExtendedInfo": [{"Message": refused[1]}]}}
        self.resources[path] = new
        self.patched.append(body)
        return 200, new

    def handler(self):
        own = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for the client to acknowledge the headers

            def setup(self):
                super().setup()
                own.connections.append(self.connection)

            def answer(self, status, value):
                body = json.dumps(value).encode()
                head = f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\n\r\n"
                self.close_connection = True
                with contextlib.suppress(OSError):  # of a client that waits no longer
                    self.wfile.write(head.encode() + body)
                    self.close_connection = False

            def do_PATCH(self):  # pylint: disable=invalid-name
                change = self.path, self.headers, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not own.later:
                    self.answer(*own.change(*change))
                    return
                own.later -= 1
                threading.Thread(target=own.change, args=change, daemon=True).start()
                self.answer(202, {})

            def do_GET(self):  # pylint: disable=invalid-name
                own.asked.append(self.path)
                own.before_get()
                time.sleep(own.delay)
                found = own.present(self.path)
                status = 401 if self.headers.get("Authorization") != USER else 200 if found is not None else 404
                body = (found if isinstance(found, str) else json.dumps(found)).encode() if status == 200 else b"{}"
                try:
                    own.manner.send(self.wfile.write, b"HTTP/1.1 %d -\r\nContent-Length: %d\r\nETag: %s\r\n\r\n%s" % (
                        status, len(body), tag_of(found).encode(), body))
                except OSError:
                    self.close_connection = True

            def log_message(self, *_):
                pass

        return Handler

    def plug(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), self.handler())
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "cert", self.folder / "key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()  # shutdown() waits that long

    def unplug(self):
        """Ends the connections and takes no other one."""
        self.server.shutdown()
        self.server.socket.close()
        for connection in self.connections:
            end_connection(connection)

    def stop(self):
        self.unplug()
        self.server.server_close()

    def source(self, more=""):
        return (f"redfish:localhost,port={self.port},user=reader,password-file={self.folder}/password,"
                f"ca-file={self.folder}/cert{more}")

    def chassis(self, name, link, resource):
        root = "/redfish/v1/Chassis"
        members = self.resources.setdefault(root, {"Members": []})["Members"]
        members.append({"@odata.id": f"{root}/{name}"})
        self.resources[f"{root}/{name}"] = {link: {"@odata.id": f"{root}/{name}/{link}"}} if link else {}
        self.resources[f"{root}/{name}/{link}"] = resource


def supplies(bmc, *watts):
    """A chassis with PowerSubsystem alone; None: a place without a supply."""
    bmc.chassis("node", "PowerSubsystem", {"PowerSupplies": {"@odata.id": "/p"}})
    bmc.resources["/p"] = {"Members": [{"@odata.id": f"/p/{i}"} for i in range(len(watts))]}
    for i, one in enumerate(watts):
        bmc.resources[f"/p/{i}"] = {} if one is None else {"Metrics": {"@odata.id": f"/p/{i}/m"}}
        bmc.resources[f"/p/{i}/m"] = {"InputPowerWatts": {"Reading": one}, "OutputPowerWatts": {"Reading": 1}}
