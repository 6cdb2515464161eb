"""Serves a folder by FTP to anonymous users, on a port of 127.0.0.1 that it prints, until its input ends."""

import sys
import threading

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer

authorizer = DummyAuthorizer()
authorizer.add_anonymous(sys.argv[1])
FTPHandler.authorizer = authorizer
server = FTPServer(("127.0.0.1", 0), FTPHandler)
print(server.address[1], flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), server.close_all()), daemon=True).start()
server.serve_forever()
