#!/usr/bin/env python3
"""Checks a sealed access log of Crawlgate by the rules in evidence-format.md.

The exit status is 0 for PASS, 1 for FAIL (findings), 2 for INCOMPLETE (no findings, but something is unproven), or 3 for wrong usage.
If a key is given, the keys in STATE are ignored. Lines `peer` are not checked, because that requires the logs of the other gateways.
"""
import argparse, base64, functools, gzip, hashlib, json, os, pathlib, re, signal, sys, zlib
from collections import namedtuple

# The seal as the writer writes it. Numbers have at most 18 digits, because no log reaches a longer one.
SEAL = re.compile(rb'[{,]"log":"([^"\\]*/([1-9][0-9]{0,17}))","seq":(0|[1-9][0-9]{0,17})}$')
NOTE = re.compile("([^\n]+/[1-9][0-9]{0,17})\n(0|[1-9][0-9]{0,17})\n([^\n]+)\n\n((?:— [^ +\n]+ [A-Za-z0-9+/=]+\n)+)")
TILE = re.compile(r"([0-6])/((?:x[0-9]{3}/){0,5}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?")
Checkpoint = namedtuple("Checkpoint", "log size root file number")
Place = namedtuple("Place", "file number")
Line = namedtuple("Line", "hash file number ts")         # ts: None for the writer's own lines, because the page's times exclude them

# ---- Ed25519 (RFC 8032), verification only. With precomputed multiples j * 16^i of both points, it takes less time than starting openssl.
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
BASE = (4 * pow(5, P - 2, P) % P).to_bytes(32, "little")

def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P

@functools.lru_cache(64)
def multiples(raw, negative):
    y, sign = int.from_bytes(raw, "little") & (2**255 - 1), raw[31] >> 7
    u, v = y * y - 1, D * y * y + 1
    x = u * v**3 * pow(u * v**7, (P - 5) // 8, P) % P
    x = x * pow(2, (P - 1) // 4, P) % P if v * x * x % P == -u % P else x
    if y >= P or v * x * x % P != u % P or (x == 0 and sign):
        raise ValueError("this is not a point of the curve")
    x = P - x if (x & 1 != sign) != negative else x
    base, rows = (x, y, 1, x * y % P), []
    for _ in range(64):
        rows.append([(0, 1, 1, 0)])
        while len(rows[-1]) <= 16:
            rows[-1].append(add(rows[-1][-1], base))
        base = rows[-1][16]
    return rows

@functools.lru_cache(None)
def ed25519(key, text, signature):
    s, k = int.from_bytes(signature[32:], "little"), hashlib.sha512(signature[:32] + key + text).digest()
    k, r = int.from_bytes(k, "little") % L, (0, 1, 1, 0)
    for number, rows in (s, multiples(BASE, False)), (k, multiples(key, True)):
        for i in range(64):
            r = add(r, rows[i][number >> 4 * i & 15])
    z = pow(r[2], P - 2, P)       # s * base - k * key must equal the first half of the signature
    return len(signature) == 64 and s < L and (r[1] * z % P | (r[0] * z % P & 1) << 255).to_bytes(32, "little") == signature[:32]

findings, incomplete = [], []
def finding(at, kind, message):
    findings.append({"file": at.file, "line": at.number, "kind": kind, "message": message})
def unproven(at, message):
    incomplete.append({"file": at.file, "line": at.number, "message": message})

# ---- keys and checkpoints: signed notes (C2SP signed-note, tlog-checkpoint)
def decode(text):
    whole = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
    return base64.b64decode(text) if isinstance(text, str) and re.fullmatch(whole, text) else b""
def stem(identity):               # the gateway and the log, without the generation
    return identity.rpartition("/")[0]
def key_id(name, key):
    return hashlib.sha256(name.encode(errors="surrogateescape") + b"\n\1" + key).digest()[:4]

def parse_vkey(text):
    name, number, raw = (text.strip().split("+", 2) + ["", ""])[:3]
    raw = decode(raw)
    if len(raw) != 33 or raw[0] != 1 or key_id(name, raw[1:]).hex() != number:
        raise ValueError("this is not a verifier key of Ed25519")
    multiples(raw[1:], True)
    return name, raw[1:]

def read_checkpoints(path, keys_of, only=""):
    """Returns the valid checkpoints of a file of blocks that end with `--`, or of one note. All must have the identity `only`, if given."""
    good, number, text = [], 1, pathlib.Path(path).read_bytes().decode(errors="surrogateescape")
    *blocks, rest = re.split("(?m)^--\n", text)
    for block in blocks or ([rest] if rest else []):     # a crash cut off what follows the last `--`
        note = NOTE.fullmatch(block)
        keys = keys_of(note[1]) if note else []
        text = block.partition("\n\n")[0].encode(errors="surrogateescape") + b"\n"
        own = [decode(s.split(" ")[2]) for s in note[4].splitlines() if s.split(" ")[1] == note[1]] if note else []
        if only in ("", note and note[1]) and any(s[:4] == key_id(note[1], k) and ed25519(k, text, s[4:]) for s in own for k in keys):
            good.append(Checkpoint(note[1], int(note[2]), decode(note[3]), path, number))
        elif only or keys or not note:         # else it belongs to another log
            finding(Place(path, number), "seal_head", "This is not a checkpoint with a valid signature by the key of the log.")
        number += block.count("\n") + 1
    return good

# ---- one generation: its state, lines and tree (RFC 6962)
def leaf_hash(line):
    return hashlib.sha256(b"\0" + line).digest()
def node(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()

class Generation:
    def __init__(self, number, folder):
        self.number, self.folder, self.name, self.key = number, folder, "", None
        self.good, self.size, self.tiles, self.lines, self.own, self.torn, self.next = [], 0, {}, {}, {}, set(), 0
        path, base = os.path.join(folder, "vkey"), os.path.join(folder, "tile")
        try:
            self.name, self.key = parse_vkey(pathlib.Path(path).read_text("utf-8", "replace")) if os.path.exists(path) else ("", None)
        except (OSError, ValueError) as e:
            unproven(Place(path, 0), f"The public key cannot be read: {e}.")
        for path in (os.path.join(top, name) for top, _, names in os.walk(base) for name in names):
            m = TILE.fullmatch(os.path.relpath(path, base))
            at, width = (int(m[1]), int(re.sub("[x/]", "", m[2]))) if m else None, int(m[3] or 256) if m else 0
            if width > self.tiles.get(at, (0,))[0]:      # use the widest
                self.tiles[at] = width, path, pathlib.Path(path).read_bytes()

    def tile(self, level, index):
        data = self.tiles.get((level, index // 256), (0, "", b""))[2][index % 256 * 32:][:32]
        return data if len(data) == 32 else None

    @functools.lru_cache(1 << 18)
    def subtree(self, height, index):
        """Returns the hash over 2^height lines, from the lines if they are present, else from the tiles. It is None if both are missing."""
        if height == 0:
            return self.lines[index].hash if index in self.lines else self.tile(0, index)
        left = self.subtree(height - 1, 2 * index)
        right = left and self.subtree(height - 1, 2 * index + 1)
        return node(left, right) if right else self.tile(height // 8, index) if height % 8 == 0 else None
    def root(self, size, start=0):
        if size == 0:
            return hashlib.sha256(b"").digest()
        height = size.bit_length() - 1
        left, rest = self.subtree(height, start >> height), size - (1 << height)
        right = self.root(rest, start + (1 << height)) if left and rest else None
        return node(left, right) if right else None if rest else left
    def settle(self, loose, start, until):
        """Numbers lines without a seal from `start`, below `until`, the number of the next seal. `until` is None at the end of the log."""
        limit = max(start, self.size) if until is None else until
        exact = limit - start == len(loose) or (until is None and start >= self.size)
        known = {self.tile(0, i): i for i in reversed(range(start, min(limit, start + 10000)))} if loose else {}
        for line, whole in loose:     # if the counts of lines and numbers differ, the hashes of the state give their places
            seq = start
            if not exact or (whole and self.tile(0, start) not in (None, line.hash)):
                seq = known.get(line.hash, -1)
                seq = seq if seq >= start else start if start < limit and not self.tile(0, start) else None
            if seq is None or (whole and seq >= self.size):
                finding(line, "seal_extra", "The line has no seal, and no checkpoint covers it.")
            else:
                self.lines[seq], start = line, seq + 1
                self.torn.add(seq)
        self.next = start
        loose.clear()

# ---- the lines
def lines_of(path):
    number = 0
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with (gzip.open if packed else open)(path, "rb") as file:
            for number, line in enumerate(file, 1):
                yield number, line
    except (OSError, EOFError, zlib.error) as e:
        unproven(Place(path, number + 1), f"The file cannot be read from this line: {e}.")

def parse(line):
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else None
def whole_number(value):
    return value if type(value) is int and 0 <= value < 10**18 else None
def is_own(entry):                # whether it is one of the writer's own lines
    return bool(entry) and entry.get("logger") == "crawlgate.evidence" and "robots" not in entry

class Log:
    def __init__(self, folder, paths):
        self.folder = folder
        names = [name for name in os.listdir(folder) if re.fullmatch("[1-9][0-9]{0,17}", name)]
        self.generations = {int(name): Generation(int(name), os.path.join(folder, name)) for name in names}
        first = {}                # the first seal of each file gives its place, because names prove nothing
        # A crash during compression leaves both files, and the compressed one may be cut off. It is ignored.
        for path in [p for p in dict.fromkeys(paths) if not p.endswith(".gz") or p[:-3] not in paths]:
            m = next(filter(None, (SEAL.search(line.removesuffix(b"\n")) for _, line in lines_of(path))), None)
            if m:
                first[path] = int(m[2]), int(m[3]), m[1].decode(errors="replace")
        self.stems = {stem(g.name) for g in self.generations.values() if g.name} or {stem(name) for _, _, name in first.values()}
        self.files = sorted((path for path in first if self.at(first[path][2])), key=first.get)

    def at(self, name):           # the generation with this identity, or None if it belongs to another log
        if not re.fullmatch("[1-9][0-9]{0,17}", name.rpartition("/")[2]):
            return None
        number = int(name.rpartition("/")[2])
        g = self.generations.get(number) or Generation(number, os.path.join(self.folder, str(number)))
        if (g.name != name) if g.name else stem(name) not in self.stems:
            return None
        self.generations[number], g.name = g, name
        return g
    def read(self):
        g, before, top, loose = None, (0, 0), 0, []
        for path, number, raw in ((path, *x) for path in self.files for x in lines_of(path)):
            line = raw.removesuffix(b"\n")
            if line == raw and path == self.files[-1]:
                continue          # without a newline it is not a leaf yet
            m, entry = SEAL.search(line), parse(line)
            ts = entry.get("ts") if entry and not is_own(entry) else None
            item = Line(leaf_hash(line), path, number, ts if type(ts) in (int, float) and abs(ts) < 1e12 else None)
            if not m:
                loose.append((item, entry is not None))
                continue
            here, seq = self.at(m[1].decode(errors="replace")), int(m[3])
            if not here or here.number < top and seq >= here.size:
                finding(item, "seal_extra", "The line belongs to another log, or follows the first line of a later generation.")
                continue
            if not g and seq == 0:
                loose.clear()     # they are older than the seals
            elif g is not here and g:
                g.settle(loose, g.next, None)
            elif loose:           # before the first seal, at most one line was cut off
                here.settle(loose, g.next if g else seq - 1, seq)
            if (here.number, seq) < before:
                finding(item, "seal_order", f"Line {seq} of {here.name} follows line {before[1]} of generation {before[0]}.")
            if seq in here.lines:
                finding(item, "seal_extra", f"Line {seq} of {here.name} is also at {here.lines[seq].file}:{here.lines[seq].number}.")
            else:
                here.lines[seq] = item
                here.own.update({seq: entry} if is_own(entry) else {})
            g, before, top, here.next = here, (here.number, seq), max(top, here.number), seq + 1
        if g:
            g.settle(loose, g.next, None)

# ---- the rules of the page
def check_tree(g):
    """Checks that each checkpoint has the root of its lines, and that each line matches its leaf."""
    heads = sorted({(c.size, c.root): c for c in g.good}.values(), key=lambda c: c.size)
    first = {c.size: c.root for c in reversed(heads)}
    wrong = bad = [c for c in heads if c.root != (g.root(c.size) or first[c.size])]
    differ = {seq: g.lines[seq] for seq in sorted(g.lines) if seq < g.size and g.tile(0, seq) not in (None, g.lines[seq].hash)}
    if wrong:                     # if the hashes of the state give the root, they are right and the lines were changed
        g.lines.update((seq, line._replace(hash=g.tile(0, seq))) for seq, line in differ.items())
        Generation.subtree.cache_clear()
        bad = [c for c in wrong if c.root != (g.root(c.size) or first[c.size])]
    for seq, line in differ.items():
        at, kind = (line, "seal_changed") if len(bad) < len(wrong) else (Place(g.tiles[0, seq // 256][1], 0), "seal_leaves")
        finding(at, kind, f"Line {seq} of {g.name}, or its hash in the state, differs from the one that was signed.")
    right = [c.size for c in heads if c not in bad and g.root(c.size)]
    for c in bad:
        start = max((size for size in right if size < c.size), default=0)
        here = [seq for seq in sorted(g.lines) if start <= seq < c.size]
        if right and c.size <= right[-1]:
            finding(c, "seal_fork", f"The lines do not have the root of this checkpoint of {c.size} lines, but that of another one.")
        elif c is bad[0]:
            finding(g.lines[here[0]] if here else c, "seal_changed" if len(here) == c.size - start else "seal_leaves",
                    f"One of the lines {start} to {c.size - 1} of {g.name}, or its hash, differs from the one that was signed.")
    if heads and g.lines and g.root(g.size) is None:
        unproven(heads[-1], f"The root of {g.size} lines cannot be computed, because lines and their hashes are missing.")

def span(lines):
    times = [line.ts for line in lines if line.ts is not None]
    return max(times) - min(times) if times else 0

def explain(order, terms):
    """Says of each different set of terms whether it explains the missing lines. It ends at one that did before another set replaced it."""
    lines, seen, told = [g.lines[seq] for g, seq in order], [], []
    def explains(t, lines):
        files, days = whole_number(t.get("roll_keep")), whole_number(t.get("roll_keep_days"))
        return bool(files and len({line.file for line in lines}) > files or days and span(lines) >= 0.9 * 86400 * days)
    for i, (t, _) in enumerate(terms):
        if t in seen:
            continue
        seen.append(t)
        replaced = next((at for other, at in terms[i:] if other != t), 0)
        if explains(t, lines[:replaced]):
            return told + [True]
        told.append(explains(t, lines))
    return told

def check_missing(g, order, terms, earlier, later):
    """Checks that each line below S is present."""
    seqs = [seq for seq in sorted(g.lines) if seq < g.size]
    for a, b in [(a, b) for a, b in zip([-1] + seqs, seqs + [g.size]) if b > a + 1]:
        at = g.lines.get(b) or g.lines.get(a) or max(g.good, key=lambda c: c.size)
        kind = "seal_tail" if b == g.size and b not in g.lines and (seqs or not later) else "seal_missing"
        text = f"Lines {a + 1} to {b - 1} of {g.name} are missing here"
        if a < 0 and not earlier and kind == "seal_missing":
            told = explain(order, terms)
            if told and all(told):
                continue
            if any(told) or any(e.get("msg") == "deleted" and seq < g.size for seq, e in g.own.items()):
                unproven(at, text + ": a line says that the file was deleted, or some terms do not explain it.")
                continue
        finding(at, kind, text + ".")

def bounds(terms):
    """Returns how many lines, over how many seconds, may have no checkpoint."""
    lines, every = whole_number((terms or {}).get("lines")) or 0, (terms or {}).get("every")
    every = every if type(every) in (int, float) and 0 <= every < 1e9 else 0
    return 8 * max(lines, 1000), max(60, 4 * every) if terms else 3600

def check_tail(g, terms, later):
    heads = [seq for seq in sorted(g.own) if g.own[seq].get("msg") == "checkpoint"]
    told = [seq for seq in heads if seq >= g.size and g.own[seq].get("size") == g.size][:1]
    lines = [g.lines[seq] for seq in sorted(g.lines) if seq >= g.size and seq not in told]
    (most, longest), seconds = bounds(terms), span(lines)
    if not lines or not later and len(lines) <= most and seconds <= longest:
        return
    text = f"From this line, {len(lines)} lines over {seconds:.0f} seconds of {g.name} have no checkpoint"
    if len(lines) > most or later and seconds > longest:
        finding(lines[0], "seal_unsealed", text + f": a crash leaves at most {most}, over {longest:.0f} seconds.")
    else:
        unproven(lines[0], text + (", and a later generation has begun." if later else "."))

def check_own(log, g, seq, entry, terms):
    """Checks a line of the writer. `terms` are the last ones before it."""
    line, kind, size = g.lines[seq], entry.get("msg"), whole_number(entry.get("size"))
    if kind == "checkpoint" and (size or 0) > g.size:
        finding(line, "seal_head", f"The line names a checkpoint of {size} lines. The largest known one has {g.size}.")
    if kind == "lost" and seq < g.size:
        unproven(line, f"The line says that {entry.get('lines')} entries are not in the log.")
    if kind != "opened" or seq >= g.size:
        return                    # a line that no checkpoint covers proves nothing
    late = entry.get("late") if isinstance(entry.get("late"), dict) else {}
    start, end = whole_number(late.get("from")) or 0, min(whole_number(late.get("to")) or 0, seq)
    most, seconds = bounds(terms)
    if end - start > most:
        finding(line, "seal_unsealed", f"{end - start} lines were sealed late. A crash leaves at most {most}.")
    elif span(x for s, x in g.lines.items() if start <= s < end) > seconds:
        unproven(line, f"{end - start} lines over more than {seconds:.0f} seconds were sealed late.")
    if re.search("that were signed|have no checkpoint", str(entry.get("reason"))):
        finding(line, "seal_reset", f"The reason for this generation is: {entry['reason']}.")
    if size and stem(str(entry.get("previous"))) == stem(g.name) and not any(h.name == entry["previous"] for h in log.generations.values()):
        gone = log.at(entry["previous"])                 # its state and all its lines are missing
        if gone and gone.number < g.number:
            gone.size, gone.good = size, [Checkpoint(gone.name, size, decode(entry.get("root")), line.file, line.number)]
            return
    named = next((h for h in log.generations.values() if h.name == entry.get("previous")), None)
    if named and size is not None:
        roots = {c.root for c in named.good if c.size == size}
        if not roots or named.size > size:
            finding(line, "seal_head", f"The line says that {named.name} ended with {size} lines. Its largest checkpoint has {named.size}.")
        elif roots != {decode(entry.get("root"))}:
            finding(line, "seal_fork", f"The checkpoint of {size} lines of {named.name} has a different root from the one in this line.")

def judge(log):
    order = [(g, seq) for _, g in sorted(log.generations.items()) for seq in sorted(g.lines)]
    alive, terms, last, closed = {g.number for g, _ in order}, [], {}, False
    for i, (g, seq) in enumerate(order):
        entry = g.own.get(seq, {})
        if seq in g.torn:
            continue
        if closed and entry.get("msg") not in ("checkpoint", "opened"):
            finding(g.lines[seq], "seal_unsealed", "The line follows `closed` without an `opened` in between.")
        if entry.get("msg") != "checkpoint":
            closed = entry.get("msg") == "closed" and seq < g.size
        check_own(log, g, seq, entry, terms[-1][0] if terms else None)
        if isinstance(entry.get("terms"), dict) and seq < g.size:
            terms.append((entry["terms"], i))
        last[g.number] = terms[-1][0] if terms else None
    for n, g in sorted(log.generations.items()):
        check_tree(g)
        check_missing(g, order, terms, any(i < n for i in alive), any(i > n for i in alive))
        check_tail(g, last.get(n), n < max(log.generations))
    if not order and not findings:
        unproven(Place(log.folder, 0), "The log has no lines.")

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = lambda text: (print(f"verify_evidence.py: {text}", file=sys.stderr), sys.exit(3))
    parser.add_argument("--vkey", action="append", default=[], metavar="KEY", help="a verifier key that was kept elsewhere")
    parser.add_argument("--head", action="append", default=[], metavar="FILE", help="checkpoints that were kept elsewhere")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("state", metavar="STATE", help="the folder of the log's state, such as evidence/access")
    parser.add_argument("logs", metavar="LOG_FILE", nargs="+", help="the files of the log in any order, plain or gzip")
    args = parser.parse_args()
    try:
        given, log = [parse_vkey(key) for key in args.vkey], Log(args.state, args.logs)
    except (OSError, ValueError) as e:
        parser.error(e)
    state = list(log.generations.values())
    def keys_of(name):            # the given keys, else the generation's own, else those of other generations; none for another log
        return [] if not log.at(name) else ([key for _, key in given] or [g.key for g in state if g.key and g.name == name]
                                            or [g.key for g in state if g.key and stem(g.name) == stem(name)])
    heads = [(os.path.join(g.folder, "heads"), g.name or "?") for g in state]
    for path, only in [(path, only) for path, only in heads if os.path.exists(path)] + [(path, "") for path in args.head]:
        try:
            for c in read_checkpoints(path, keys_of, only):
                if g := log.at(c.log):
                    g.good.append(c)
                    g.size = max(g.size, c.size)         # the page's S
        except OSError as e:
            unproven(Place(path, 0), f"The checkpoints cannot be read: {e}.")
    log.read()
    judge(log)
    verdict = "FAIL" if findings else "INCOMPLETE" if incomplete else "PASS"
    count = {g.name or str(n): {"lines": len(g.lines), "checkpoints": len({c.size for c in g.good}), "newest": g.size}
             for n, g in sorted(log.generations.items())}
    sys.stdout.reconfigure(errors="backslashreplace")
    if args.json:
        print(json.dumps({"verdict": verdict, "generations": count, "findings": findings, "incomplete": incomplete}, indent=1))
    else:
        for f in findings + incomplete:
            print(f"{f['file']}:{f['line']}: {f.get('kind', 'incomplete')}: {f['message']}")
        print(f"{verdict}: {len(findings)} findings, {len(incomplete)} reasons for INCOMPLETE; " + ", ".join(
            f"{name}: {c['lines']} lines, {c['checkpoints']} checkpoints up to {c['newest']} lines" for name, c in count.items()))
    sys.exit(("PASS", "FAIL", "INCOMPLETE").index(verdict))

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
