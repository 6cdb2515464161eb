package fetch_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// A Fetcher makes one fetch. A Policy adds its outcome to the origin's record, and decides what the
// record permits.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "User-agent: *\nDisallow: /private/\n")
	}))
	site, err := origin.Parse(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	// A program that fetches for others needs a transport that refuses internal addresses.
	fetcher := fetch.New(fetch.Config{
		Transport: &http.Transport{DisableCompression: true},
		UserAgent: "ExampleBot/1.0",
	})
	key := fetch.Key{Origin: site}
	policy := fetch.Policy{}.Complete()

	record := policy.Next(fetch.Record{}, fetcher.Fetch(context.Background(), key, nil), time.Now())
	fmt.Println(record.State, policy.Access(record, time.Now()))

	// The server is down. A good answer holds for a day; a failure after that permits nothing.
	server.Close()
	later := time.Now().Add(25 * time.Hour)
	record = policy.Next(record, fetcher.Fetch(context.Background(), key, nil), later)
	fmt.Println(record.State, record.Cause, policy.Access(record, later))
	// Output:
	// rules rules
	// unreachable connect deny
}
