// Package budget tests the budgets of agents with the binary. It has only tests.
package budget
