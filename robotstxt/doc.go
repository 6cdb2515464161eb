// Package robotstxt parses robots.txt files and decides which targets they allow.
//
// It follows RFC 9309. If the RFC is silent, it follows Google's specification
// (https://developers.google.com/crawling/docs/robots-txt/robots-txt-spec), and if that is silent
// too, the measured behaviour of Google's parser (https://github.com/google/robotstxt). It differs
// from that parser only if the RFC requires it:
//
//   - escapes of unreserved bytes are resolved, hex digits of escapes are compared in capitals, and
//     bytes that no URI may hold are escaped, in rules and in targets (section 2.2.2);
//   - %24 and %2A in a rule are a literal $ and *, raw or escaped in the target (section 2.2.3); so
//     is a raw $ that does not close the rule (section 2.2.2);
//   - after the first literal ? of a rule, the bytes : / ? @ [ ] and their escapes are the same
//     (the figure in section 2.2.2);
//   - /robots.txt itself is always allowed (section 2.2.2);
//   - a field has its exact name or one of a few misspellings, and no other name that begins so:
//     that is another record, which must not interfere (sections 2.2 and 2.2.4);
//   - of several product tokens the first that has a group decides alone (section 2.2.1);
//   - a file ends after 500 KiB, and a line that this cuts is dropped (section 2.5).
//
// Parsing never fails: usable lines are used, and all others are ignored (section 2.3.1.5). [Lint]
// names the ignored lines.
//
// The zero [Options] are the default, the zero [Agent] has no tokens and follows the group of "*",
// and the zero [Match] refuses.
//
// # How a decision is made
//
// A block has the rules below one list of names. They are sorted from the longest to the shortest,
// so the first that matches decides. They are tried in order, segment by segment between their
// wildcards, from left to right. Nothing recurses or backtracks, and a decision about a target in
// its canonical spelling allocates nothing. In the worst case, a decision takes time proportional
// to the number of rules times the length of the target.
package robotstxt
