"""A crawler that obeys nobody: it follows every link it finds and says what it got.

Only the gateway that it is pointed at by http_proxy stands between it and the sites.
"""

import scrapy


class Spider(scrapy.Spider):
    name = "reckless"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "USER_AGENT": "Reckless/1.0 (+https://crawler.example/)",
        "RETRY_ENABLED": False,
        "REDIRECT_ENABLED": False,
        "CONCURRENT_REQUESTS": 64,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
        "DOWNLOAD_DELAY": 0,
        "DOWNLOAD_TIMEOUT": 60,
        "HTTPERROR_ALLOW_ALL": True,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "WARNING",
    }

    def __init__(self, roots, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = roots.split(",")
        self.seen = set(self.start_urls)

    def start_requests(self):
        for url in self.start_urls:
            yield scrapy.Request(url, errback=self.failed, dont_filter=True)

    def parse(self, response):
        yield {"url": response.request.url, "status": response.status}
        if not isinstance(response, scrapy.http.HtmlResponse):
            return
        for href in response.css("a::attr(href)").getall():
            request = response.follow(href, errback=self.failed, dont_filter=True)
            if request.url not in self.seen:
                self.seen.add(request.url)
                yield request

    def failed(self, failure):
        yield {"url": failure.request.url, "status": 0, "error": repr(failure.value)}
