//go:build !linux && !darwin

package crawlgate

// descriptorLimit returns how many files and connections the process may have open, 0 if that is not known.
func descriptorLimit() int { return 0 }
