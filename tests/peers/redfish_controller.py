# SPDX-License-Identifier: Apache-2.0
"""A controller that answers Redfish over HTTPS with its own certificate."""
import base64
import http.server
import json
import ssl
import subprocess
import threading
import time

from text_instrument import Manner, end_connection

USER = "Basic " + base64.b64encode(b"reader:open sesame").decode()


def certify(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key", "-out", folder / "cert"],
                   check=True, stderr=subprocess.DEVNULL)
    return folder


class Controller:
    """Resources by path; a text is sent as it is; `delay` seconds before each answer."""

    def __init__(self, folder):
        self.resources, self.delay, self.asked, self.connections = {}, 0, [], []
        self.manner = Manner(b"HTTP/1.1 200 OK\r\nContent-Length: 4294967296\r\n\r\n")
        self.folder, self.port = folder, 0
        (folder / "password").write_text("open sesame\n", encoding="utf-8")
        self.plug()

    def handler(self):
        own = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for the client to acknowledge the headers

            def setup(self):
                super().setup()
                own.connections.append(self.connection)

            def do_GET(self):  # pylint: disable=invalid-name
                own.asked.append(self.path)
                time.sleep(own.delay)
                found = own.resources.get(self.path)
                found = found() if callable(found) else found
                status = 401 if self.headers.get("Authorization") != USER else 200 if found is not None else 404
                body = (found if isinstance(found, str) else json.dumps(found)).encode() if status == 200 else b"{}"
                try:
                    own.manner.send(self.wfile.write, b"HTTP/1.1 %d -\r\nContent-Length: %d\r\n\r\n%s" % (
                        status, len(body), body))
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
