"""Crawls a site with requests, through a proxy."""

import json
import re
import sys
from urllib.parse import urljoin

import requests

proxy, ca, _, root = sys.argv[1:]
session = requests.Session()
session.proxies = {"http": proxy, "https": proxy}
session.verify = ca
session.trust_env = False  # else REQUESTS_CA_BUNDLE and no_proxy of the environment go before these settings
session.headers["User-Agent"] = "Reckless/1.0"

seen = [root]
for url in seen:  # grows while it is read
    page = {"url": url}
    try:
        response = session.get(url, timeout=30)
        page.update(status=response.status_code, body=response.text)
        for href in re.findall(r'<a href="([^"]*)"', response.text):
            if (link := urljoin(url, href)) not in seen:
                seen.append(link)
    except requests.RequestException as error:
        page["error"] = repr(error)
    print(json.dumps(page))
