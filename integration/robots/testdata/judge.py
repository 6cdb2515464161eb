"""Reads "<robots.txt file> TAB <agent> TAB <path>" a line and says whether Protego, Scrapy's own engine, allows it."""

import sys

from protego import Protego

engines = {}
for line in sys.stdin:
    file, agent, path = line.rstrip("\n").split("\t")
    if file not in engines:
        with open(file, encoding="utf-8") as f:
            engines[file] = Protego.parse(f.read())
    print("true" if engines[file].can_fetch("http://site.example" + path, agent) else "false")
