package query

// TargetOf is what is matched of a URL.
var TargetOf = targetOf
