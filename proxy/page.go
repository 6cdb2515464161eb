package proxy

import (
	"net/http"
	"runtime"
	"time"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/signals/htmlhead"
)

// decoding bounds how many pages are decoded at a time: each may need 8 MiB.
var decoding = make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))

// findPage looks at the header of an answer, and has the beginning of a page copied or read ahead.
func (x *exchange) findPage(status int, header http.Header) {
	reads := x.site.Enforcer.Reads
	kind := header.Get("Content-Type")
	if !reads.HTML.Reads() || !htmlhead.Wanted(kind, status, x.r.Method, header.Get("Content-Range")) {
		// The middle of a page says nothing of its head.
		x.decision.SignalsCut = x.decision.SignalsCut || reads.HTML.Reads() && status == http.StatusPartialContent && htmlhead.IsPage(kind)
		return
	}
	x.page = &enforce.Page{Type: kind, Coding: header["Content-Encoding"]}
	x.pageUntil = time.Now().Add(egress.AheadTime)
	if reads.HTML == enforce.HTMLHold {
		x.sent.Ahead = enforce.HTMLMax
		return
	}
	x.copied = htmlhead.NewCollector(enforce.HTMLMax)
	x.sent.Copy = x.copied
}

// Began reads the tags of a page before the crawler gets any of it.
func (x *exchange) Began(head []byte, whole bool) bool {
	x.page.Head, x.page.Whole = head, whole
	x.show(x.readPage())
	return x.decision.Allowed
}

// readPassed reads the tags of a page that has passed, all of it or not.
func (x *exchange) readPassed(whole bool) {
	if x.copied == nil {
		return
	}
	defer x.copied.Release()
	x.pageUntil = time.Now().Add(egress.AheadTime)
	x.page.Head, x.page.Whole, x.page.Sent = x.copied.Bytes(), whole && !x.copied.Cut(), true
	x.readPage()
}

// readPage waits for a place to decode in until the time of the page is up. Without one the page
// passes unread, and the log says so.
func (x *exchange) readPage() (dictionary string) {
	select {
	case decoding <- struct{}{}:
	default:
		select {
		case decoding <- struct{}{}:
		case <-time.After(time.Until(x.pageUntil)):
			x.decision.SignalsCut = true
			return ""
		}
	}
	defer func() { <-decoding }()
	return x.decision.ReadPage(*x.page)
}
