//go:build !linux && !darwin

package sockets

import "errors"

// Own is not supported on this system.
func Own() ([]Socket, error) { return nil, errors.ErrUnsupported }

// DescriptorLimit is not known on this system.
func DescriptorLimit() int { return 0 }
