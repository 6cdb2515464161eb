//go:build !darwin

package main

// Time zones of windows and budgets, for a machine or an image without them. Every macOS has them.
import _ "time/tzdata"
