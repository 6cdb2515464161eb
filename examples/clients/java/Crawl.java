import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;

/** Crawls sites with Java's own HttpClient: java Crawl.java URL... */
public final class Crawl {
    private static final Pattern LINK = Pattern.compile("<a href=\"([^\"]*)\"");

    // Proxy and certificates come from system properties.
    private static final HttpClient CLIENT = HttpClient.newHttpClient();

    private static HttpResponse<String> get(String url) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url))
                .header("User-Agent", "examplebot/1.0 (+https://bot.example/)") // the name in the gateway's configuration
                .timeout(Duration.ofMinutes(2)) // longer than the gateway holds a request
                .build();
        while (true) {
            HttpResponse<String> page = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
            long seconds = page.headers().firstValueAsLong("Retry-After").orElse(0);
            if (!Set.of(429, 503).contains(page.statusCode()) || seconds == 0) {
                return page;
            }
            Thread.sleep(Duration.ofSeconds(seconds).toMillis());
        }
    }

    public static void main(String[] args) throws Exception {
        List<String> pages = new ArrayList<>(List.of(args));
        for (int i = 0; i < pages.size(); i++) {
            HttpResponse<String> page = get(pages.get(i));
            System.out.println(page.statusCode() + " " + page.headers().firstValue("Crawlgate-Decision").orElse("-") + " " + pages.get(i));
            if (page.statusCode() != 200) {
                continue;
            }
            LINK.matcher(page.body()).results().map(m -> page.uri().resolve(m.group(1)).toString())
                    .filter(link -> !pages.contains(link)).distinct().toList().forEach(pages::add);
        }
    }
}
