SPIDER_MODULES = ["pages"]
USER_AGENT = "examplebot/1.0 (+https://bot.example/)"  # the name in the gateway's configuration
ROBOTSTXT_OBEY = False  # the gateway obeys it, and tells why it refuses
DOWNLOADER_MIDDLEWARES = {"retryafter.RetryAfter": 560}  # before Scrapy's own retry, which is at 550
# Scrapy verifies no certificate by itself. This one does, by the file in SSL_CERT_FILE.
DOWNLOADER_CLIENTCONTEXTFACTORY = "scrapy.core.downloader.contextfactory.BrowserLikeContextFactory"
