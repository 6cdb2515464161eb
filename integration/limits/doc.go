// Package limits tests with the binary what each agent may do: boundaries, budgets, exceptions at
// run time. It has only tests.
package limits
