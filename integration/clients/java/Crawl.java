import java.net.InetSocketAddress;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Crawls a site with Java's own HttpClient, through a proxy. The certificate comes by -Djavax.net.ssl.trustStore, a store
 * that keytool has made.
 */
public final class Crawl {
    private static final Pattern LINK = Pattern.compile("<a href=\"([^\"]*)\"");

    public static void main(String[] args) throws Exception {
        URI proxy = URI.create(args[0]);
        HttpClient client = HttpClient.newBuilder()
                .proxy(ProxySelector.of(new InetSocketAddress(proxy.getHost(), proxy.getPort())))
                .version(args[2].equals("2") ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1)
                .connectTimeout(Duration.ofSeconds(30))
                .build();
        List<URI> seen = new ArrayList<>(List.of(URI.create(args[3])));
        for (int i = 0; i < seen.size(); i++) {
            URI url = seen.get(i);
            HttpRequest request = HttpRequest.newBuilder(url)
                    .header("User-Agent", "Reckless/1.0")
                    .timeout(Duration.ofSeconds(30))
                    .build();
            try {
                HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
                for (Matcher m = LINK.matcher(response.body()); m.find();) {
                    URI link = url.resolve(m.group(1));
                    if (!seen.contains(link)) {
                        seen.add(link);
                    }
                }
                System.out.println("{\"url\":" + quoted(url.toString()) + ",\"status\":" + response.statusCode()
                        + ",\"body\":" + quoted(response.body()) + "}");
            } catch (java.io.IOException e) {
                System.out.println("{\"url\":" + quoted(url.toString()) + ",\"error\":" + quoted(e.toString()) + "}");
            }
        }
    }

    /** A JSON string. */
    private static String quoted(String s) {
        StringBuilder b = new StringBuilder("\"");
        for (char c : s.toCharArray()) {
            if (c < ' ' || c == '"' || c == '\\' || c > '~') {
                b.append(String.format("\\u%04x", (int) c));
            } else {
                b.append(c);
            }
        }
        return b.append('"').toString();
    }
}
