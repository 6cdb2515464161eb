"""Crawls a site with requests in eight threads, without any setting."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urljoin

import requests


def links(url):
    page = requests.get(url)
    print(page.status_code, url, flush=True)
    return [urljoin(url, href) for href in re.findall(r'<a href="([^"]*)"', page.text)]


seen = pages = {sys.argv[1]}
with ThreadPoolExecutor(8) as pool:
    while pages:
        pages = {link for found in pool.map(links, pages) for link in found} - seen
        seen = seen | pages
