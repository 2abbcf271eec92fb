# SPDX-License-Identifier: BSD-3-Clause
"""A port that the server listens on.  It can be closed, so that connections are refused."""

import socket
import threading

from .conversation import Conversation

BACKLOG = 512


class Listener:
    def __init__(self, service, port, context=None):
        self.service = service
        self.port = port
        self.context = context  # of TLS, or None
        self.sock = None
        self.open()

    def open(self):
        """Listens, if it does not yet: on the port of the first time."""
        if self.sock is None:
            self.sock = socket.create_server(("127.0.0.1", self.port), backlog=BACKLOG)
            self.port = self.sock.getsockname()[1]
            threading.Thread(target=self._accept, args=(self.sock,), daemon=True).start()

    def close(self):
        """Ends the listening.  Connections that are there stay."""
        if self.sock is not None:
            self.sock.shutdown(socket.SHUT_RDWR)
            self.sock.close()
            self.sock = None

    def _accept(self, listening):
        while True:
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            talk = Conversation(self.service, sock, self.context)
            threading.Thread(target=talk.run, daemon=True).start()
