"""Crawls a site with Scrapy, through a proxy.

Scrapy verifies no certificate by default, so that it would not notice a missing CA. Here it does verify: by the
certificates in SSL_CERT_FILE.
"""

import json
import os
import sys

import scrapy
from scrapy.crawler import CrawlerProcess

proxy, ca, _, root = sys.argv[1:]
os.environ["SSL_CERT_FILE"] = ca


class Spider(scrapy.Spider):
    name = "reckless"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "USER_AGENT": "Reckless/1.0",
        "HTTPERROR_ALLOW_ALL": True,
        "DOWNLOAD_TIMEOUT": 30,
        "DOWNLOADER_CLIENTCONTEXTFACTORY": "scrapy.core.downloader.contextfactory.BrowserLikeContextFactory",
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "WARNING",
    }
    start_urls = [root]

    def start_requests(self):
        yield self.ask(root)

    def ask(self, url):
        return scrapy.Request(url, meta={"proxy": proxy}, errback=self.failed)

    def parse(self, response):
        print(json.dumps({"url": response.url, "status": response.status, "body": response.text}), flush=True)
        if isinstance(response, scrapy.http.HtmlResponse):
            for href in response.css("a::attr(href)").getall():
                yield self.ask(response.urljoin(href))

    def failed(self, failure):
        print(json.dumps({"url": failure.request.url, "error": repr(failure.value)}), flush=True)


process = CrawlerProcess()
process.crawl(Spider)
process.start()
