// Package limits holds the tests of the binary that concern what single agents may do: boundaries, budgets, exceptions at run time. It has
// only tests.
package limits
