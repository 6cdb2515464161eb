// Package budget holds the tests of the binary that concern budgets of agents. It has only tests.
package budget
