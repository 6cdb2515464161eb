"""Crawls sites with aiohttp, eight pages at a time: crawl.py URL..."""

import asyncio
import re
import sys
from urllib.parse import urljoin

import aiohttp

places = asyncio.Semaphore(8)


async def get(session, url):
    async with places, session.get(url) as page:
        return page.status, page.headers, await page.text()


async def links(session, url):
    status, headers, text = await get(session, url)
    while status in (429, 503) and headers.get("Retry-After", "").isdigit():
        await asyncio.sleep(int(headers["Retry-After"]))  # the others do not wait
        status, headers, text = await get(session, url)
    print(status, headers.get("Crawlgate-Decision"), url, flush=True)
    return {urljoin(url, href) for href in re.findall(r'<a href="([^"]*)"', text)} if status == 200 else set()


async def crawl(pages):
    headers = {"User-Agent": "examplebot/1.0 (+https://bot.example/)"}  # the name in the gateway's configuration
    # trust_env takes the proxy from the environment, which aiohttp does not do by itself.
    async with aiohttp.ClientSession(headers=headers, trust_env=True) as session:
        seen = set(pages)
        while pages:
            found = set().union(*await asyncio.gather(*(links(session, url) for url in pages)))
            pages = sorted(found - seen)
            seen |= found


asyncio.run(crawl(sys.argv[1:]))
