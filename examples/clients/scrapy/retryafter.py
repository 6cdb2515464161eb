from scrapy import signals
from scrapy.exceptions import DontCloseSpider, IgnoreRequest


class RetryAfter:
    """Asks again when the time in Retry-After has passed. Other requests do not wait for it."""

    def __init__(self, crawler):
        self.crawler, self.waiting = crawler, 0
        crawler.signals.connect(self.idle, signals.spider_idle)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def process_response(self, request, response, spider):
        seconds = response.headers.get("Retry-After", b"").decode()
        if response.status not in (429, 503) or not seconds.isdigit():
            return response
        from twisted.internet import reactor

        self.waiting += 1
        reactor.callLater(int(seconds), self.again, request.replace(dont_filter=True))
        raise IgnoreRequest(f"asked to come back in {seconds} s")

    def again(self, request):
        self.waiting -= 1
        self.crawler.engine.crawl(request)

    def idle(self):
        if self.waiting:
            raise DontCloseSpider
