package fetch

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestStopwatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, rang := time.Now(), time.Duration(0)
		ring := func() { rang = time.Since(start) }
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}

		s := newStopwatch(10*time.Second, ring)
		wait(4 * time.Second)
		s.pause()
		wait(time.Hour)
		s.resume()
		wait(time.Minute)
		if want := time.Hour + 10*time.Second; rang != want {
			t.Errorf("it rang after %v, want %v", rang, want)
		}
		s.pause() // too late
		s.resume()

		rang = 0
		ended := newStopwatch(10*time.Second, ring)
		ended.pause()
		ended.end()
		ended.resume()
		wait(time.Minute)
		newStopwatch(10*time.Second, ring).end()
		wait(time.Minute)
		if rang != 0 {
			t.Errorf("one that had ended rang after %v", rang)
		}
	})
}
