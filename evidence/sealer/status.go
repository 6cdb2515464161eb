package sealer

import (
	"cmp"
	"maps"
	"time"
)

// Event is something that an operator should know.
type Event struct {
	// Message is one of a few constant texts.
	Message string
	// Detail has the particulars. It may be empty.
	Detail string
	// Failure distinguishes faults from news.
	Failure bool
}

// Status is the state of a sealed log, as the admin API shows it.
type Status struct {
	// Name is the gateway's name, as in the lines.
	Name string `json:"name"`
	// LogID is the generation of the log, as in the lines.
	LogID string `json:"identity"`
	// VKey is the public key that verifies its checkpoints.
	VKey string `json:"vkey"`
	// File is the file that is written.
	File string `json:"file"`
	// State is the state folder.
	State string `json:"state"`
	// Size is the number of lines in the tree.
	Size int64 `json:"size"`
	// Unsealed are the lines besides notices that no checkpoint covers yet.
	Unsealed int64 `json:"unsealed"`
	// Lines were sealed since the start, without notices.
	Lines int64 `json:"-"`
	// Checkpoint is the newest signed note, or empty.
	Checkpoint string `json:"checkpoint"`
	// Time is when the newest checkpoint was signed. It is empty if that was before the start.
	Time time.Time `json:"signed_at,omitzero"`
	// Witnesses are the witnesses by the names of their keys.
	Witnesses map[string]WitnessStatus `json:"witnesses,omitempty"`
	// Unwitnessed counts checkpoints that no witness cosigned.
	Unwitnessed int64 `json:"unwitnessed"`
	// Lost counts the entries that could not be written since the start.
	Lost int64 `json:"lost"`
	// Error says why the log cannot be written or sealed. It is empty while it can.
	Error string `json:"error,omitempty"`
}

// Status returns the state of the log. While a disk blocks the log, it returns the last known one.
func (l *Log) Status() Status {
	for deadline := time.Now().Add(3 * time.Second); !l.mu.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s := *l.lastStatus.Load()
			s.Error = "the log is blocked: its disk does not answer"
			return s
		}
	}
	defer l.mu.Unlock()
	s := Status{
		Name: l.config.Name, LogID: l.id, VKey: l.vkey, File: l.config.File, State: l.config.State, Size: l.size,
		Unsealed: l.requestLines - l.signed, Lines: l.requestLines,
		Checkpoint: string(l.newest.Note), Time: l.newestTime.UTC(),
		Witnesses: maps.Clone(l.witnesses), Unwitnessed: l.unwitnessed, Lost: l.dropped, Error: errorText(l.failure()),
	}
	l.lastStatus.Store(&s)
	return s
}

// Failed reports whether the log cannot be written or sealed now. It takes no lock.
func (l *Log) Failed() bool { return l.failed.Load() }

func (l *Log) failure() error { return cmp.Or(l.writeErr, l.flushErr) }

// setErrors sets the errors of the last write and the last flush. The caller holds the lock.
func (l *Log) setErrors(writeErr, flushErr error) {
	l.writeErr, l.flushErr = writeErr, flushErr
	l.failed.Store(l.failure() != nil)
}
