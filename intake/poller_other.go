//go:build !unix

package intake

import (
	"runtime"
	"time"
)

// poller stands in where pipes are not pollable.
type poller struct{}

// ask lets all run that are runnable.
func (*poller) ask() { runtime.Gosched() }

// spent tells nothing here.
func spent() time.Duration { return 0 }
