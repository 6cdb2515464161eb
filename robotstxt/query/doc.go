// Package query answers questions about robots.txt files, one JSON object a line, for scripts and
// test suites.
//
// A question is
//
//	{"id":…,"robots":"<base64>","agent":"A","url":"https://example.com/path"}
//
// with "robots_file":"path" in place of robots, and "agents":["A","B"], most specific first, in
// place of agent. The id is any JSON value or absent. The url is absolute or a path with its
// leading slash. Its answer is
//
//	{"id":…,"allowed":true,"rule":"/path","line":12,"group":"A"}
//
// with the deciding rule's path as written and its line, "" and 0 when no rule decided, and the
// name of the group that was asked, "" without one. A line that is no question gets
// {"id":…,"error":"…"}, where the id is null if the line is not JSON or is too long.
package query
