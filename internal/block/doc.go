// Package block reads the { } blocks of a Caddyfile by a grammar, which says what lines a block may
// have, how many arguments each line takes, and which values it sets. One loop reads all blocks, so
// that unknown, repeated, missing and extra words fail in the same way everywhere, with file and
// line.
package block
