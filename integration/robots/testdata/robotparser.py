"""Says by Python's urllib.robotparser which URLs an agent may fetch: robotparser.py ROBOTS_URL AGENT URL..."""

import sys
import urllib.robotparser

robots_url, agent, *urls = sys.argv[1:]
parser = urllib.robotparser.RobotFileParser(robots_url)
parser.read()
for url in urls:
    print(url, parser.can_fetch(agent, url))
