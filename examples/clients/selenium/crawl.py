"""Crawls sites with Selenium and Chromium, one page at a time: crawl.py PROXY URL..."""

import os
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

options = webdriver.ChromeOptions()
for switch in [
    "--headless=new",
    "--proxy-server=" + sys.argv[1],
    "--user-agent=Mozilla/5.0 (compatible; examplebot/1.0; +https://bot.example/)",  # the name in the gateway's configuration
    # No calls to the browser's maker: examples/browsers says what each stops.
    "--gaia-url=https://localhost:1",
    "--component-updater=url-source=https://localhost:1",
    "--autofill-server-url=https://localhost:1",
    "--disable-features=NetworkTimeServiceQuerying,OptimizationHints,PreconnectToSearch",
    "--disable-background-networking",
    "--disable-sync",
    "--no-first-run",
]:
    options.add_argument(switch)
if os.geteuid() == 0:
    options.add_argument("--no-sandbox")  # which no root has
STATUS = "return performance.getEntriesByType('navigation')[0].responseStatus"

driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
try:
    pages = sys.argv[2:]
    for url in pages:  # grows while it is read
        driver.get(url)
        while (status := driver.execute_script(STATUS)) in (429, 503):
            time.sleep(5)  # Selenium does not show Retry-After; the gateway holds the request until its time
            driver.get(url)
        print(status, url, flush=True)
        if status == 200:
            found = [link.get_attribute("href") for link in driver.find_elements(By.CSS_SELECTOR, "a[href]")]
            pages += [link for link in dict.fromkeys(found) if link not in pages]
finally:
    driver.quit()
