<?php
// Crawls sites with PHP's curl: crawl.php URL...

// The proxy comes from the environment, the certificates from curl.cainfo.
function get($handle, $url) {
    curl_setopt($handle, CURLOPT_URL, $url);
    while (true) {
        $body = curl_exec($handle);
        $status = curl_getinfo($handle, CURLINFO_RESPONSE_CODE);
        $seconds = curl_getinfo($handle, CURLINFO_RETRY_AFTER);
        if (!in_array($status, [429, 503]) || $seconds == 0) {
            return [$status, $body];
        }
        sleep($seconds);
    }
}

$handle = curl_init();
curl_setopt_array($handle, [
    CURLOPT_USERAGENT => 'examplebot/1.0 (+https://bot.example/)', // the name in the gateway's configuration
    CURLOPT_RETURNTRANSFER => true,
    CURLOPT_TIMEOUT => 120, // longer than the gateway holds a request
    CURLOPT_HEADERFUNCTION => function ($handle, $line) {
        if (stripos($line, 'Crawlgate-Decision:') === 0) {
            echo trim($line), ' ';
        }
        return strlen($line);
    },
]);
$pages = array_slice($argv, 1);
for ($i = 0; $i < count($pages); $i++) {
    [$status, $body] = get($handle, $pages[$i]);
    echo "$status $pages[$i] ", curl_error($handle), "\n";
    if ($status != 200) {
        continue;
    }
    preg_match('#^https?://[^/]+#', $pages[$i], $site);
    preg_match_all('#<a href="(/[^"]*)"#', $body, $links);
    foreach ($links[1] as $path) {
        if (!in_array($site[0] . $path, $pages)) {
            $pages[] = $site[0] . $path;
        }
    }
}
