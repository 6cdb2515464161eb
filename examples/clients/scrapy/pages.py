import scrapy


class Pages(scrapy.Spider):
    name = "pages"

    def start_requests(self):
        for url in self.urls.split():
            yield scrapy.Request(url)

    def parse(self, response):
        decision = response.headers.get("Crawlgate-Decision", b"").decode()
        yield {"url": response.url, "decision": decision, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")
