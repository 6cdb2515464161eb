//go:build !linux && !darwin

package sockets

import "errors"

func own() ([]Socket, error) { return nil, errors.ErrUnsupported }
