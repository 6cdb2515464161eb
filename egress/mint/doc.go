// Package mint makes the certificates of intercepted hosts.
package mint
