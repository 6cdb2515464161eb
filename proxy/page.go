package proxy

import (
	"net/http"
	"runtime"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/htmlhead"
)

// decoding bounds how many pages are decoded at a time: each may need 8 MiB.
var decoding = make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))

// findPage looks at the header of an answer, and has the beginning of a page copied or read ahead.
func (x *exchange) findPage(status int, header http.Header) {
	reads := x.site.Enforcer.Reads
	kind := header.Get("Content-Type")
	if reads.HTML == enforce.HTMLOff || !htmlhead.Wanted(kind, status, x.r.Method, header.Get("Content-Range")) {
		return
	}
	x.page = &enforce.Page{Type: kind, Coding: header["Content-Encoding"]}
	if reads.HTML == enforce.HTMLHold {
		x.sent.Ahead = reads.HTMLMax
		return
	}
	x.copied = htmlhead.NewCollector(reads.HTMLMax)
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
	x.page.Head, x.page.Whole, x.page.Sent = x.copied.Bytes(), whole && !x.copied.Cut(), true
	x.readPage()
}

func (x *exchange) readPage() (dictionary string) {
	decoding <- struct{}{}
	defer func() { <-decoding }()
	return x.decision.ReadPage(*x.page)
}
