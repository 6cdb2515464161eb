"""Crawls sites with requests, eight pages at a time: crawl.py URL..."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urljoin

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

session = requests.Session()  # takes proxy and certificates from the environment
session.headers["User-Agent"] = "examplebot/1.0 (+https://bot.example/)"  # the name in the gateway's configuration
retry = Retry(total=5, status_forcelist=[429, 503], backoff_factor=1)  # waits for Retry-After if there is one
session.mount("http://", HTTPAdapter(pool_maxsize=8, max_retries=retry))
session.mount("https://", HTTPAdapter(pool_maxsize=8, max_retries=retry))


def links(url):
    page = session.get(url, timeout=120)  # longer than the gateway holds a request
    print(page.status_code, page.headers.get("Crawlgate-Decision"), url, flush=True)
    return [urljoin(url, href) for href in re.findall(r'<a href="([^"]*)"', page.text)] if page.ok else []


seen = set(sys.argv[1:])
pages = list(seen)
with ThreadPoolExecutor(8) as pool:
    while pages:
        found = {link for of_page in pool.map(links, pages) for link in of_page}
        pages = sorted(found - seen)
        seen |= found
