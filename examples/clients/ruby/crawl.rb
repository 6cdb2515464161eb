# Crawls sites with Net::HTTP: crawl.rb URL...
require "net/http"

# Proxy and certificates come from the environment. The name is that in the gateway's configuration.
AGENT = { "User-Agent" => "examplebot/1.0 (+https://bot.example/)" }

def get(url)
  loop do
    page = Net::HTTP.start(url.host, url.port, use_ssl: url.scheme == "https", read_timeout: 120) { |http| http.get(url.request_uri, AGENT) }
    seconds = page["Retry-After"].to_i
    return page unless %w[429 503].include?(page.code) && seconds.positive?
    sleep seconds
  end
end

pages = ARGV.dup
pages.each do |url| # grows while it is read
  page = get(URI(url))
  puts "#{page.code} #{page["Crawlgate-Decision"]} #{url}"
  next unless page.code == "200"
  page.body.scan(/<a href="([^"]*)"/).flatten.each do |href|
    link = URI.join(url, href).to_s
    pages << link unless pages.include?(link)
  end
end
