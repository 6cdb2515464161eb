"""Crawls sites with httpx, eight pages at a time: crawl.py URL..."""

import asyncio
import re
import sys

import httpx

places = asyncio.Semaphore(8)


async def get(client, url):
    async with places:
        return await client.get(url)


async def links(client, url):
    page = await get(client, url)
    while page.status_code in (429, 503) and page.headers.get("Retry-After", "").isdigit():
        await asyncio.sleep(int(page.headers["Retry-After"]))  # the others do not wait
        page = await get(client, url)
    print(page.status_code, page.headers.get("Crawlgate-Decision"), url, flush=True)
    hrefs = re.findall(r'<a href="([^"]*)"', page.text) if page.is_success else []
    return {str(httpx.URL(url).join(href)) for href in hrefs}


async def crawl(pages):
    # Takes proxy and certificates from the environment. The name is that in the gateway's configuration.
    headers = {"User-Agent": "examplebot/1.0 (+https://bot.example/)"}
    # Longer than the gateway holds a request; 5 s by default.
    async with httpx.AsyncClient(headers=headers, timeout=120) as client:
        seen = set(pages)
        while pages:
            found = set().union(*await asyncio.gather(*(links(client, url) for url in pages)))
            pages = sorted(found - seen)
            seen |= found


asyncio.run(crawl(sys.argv[1:]))
