#!/usr/bin/env python3
"""Recomputes every checkpoint of a sealed access log from its lines, and verifies the signatures.

    check_evidence.py STATE LOG...

STATE is the log's folder in the state folder (.../evidence/access), LOG are the files of the log, the oldest first;
those that end in .gz are unpacked. It needs Python's standard library and the openssl command, and nothing of Crawlgate.
It prints what it found as JSON. The exit status is 0 if all is right.
"""

import base64
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

SEAL = re.compile(rb'^\{(?:.*,)?"log":"([^"\\]+)","seq":(0|[1-9][0-9]*)\}$', re.DOTALL)
faults = []


def leaf_hash(line):
    return hashlib.sha256(b"\x00" + line).digest()


def node_hash(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """The right edge of a Merkle tree (RFC 6962 section 2.1)."""

    def __init__(self):
        self.size, self.nodes = 0, []

    def append(self, leaf):
        at, self.size = self.size, self.size + 1
        while at & 1:
            leaf, at = node_hash(self.nodes.pop(), leaf), at >> 1
        self.nodes.append(leaf)

    def root(self):
        root = self.nodes[-1]
        for node in reversed(self.nodes[:-1]):
            root = node_hash(node, root)
        return root


def read_lines(files):
    """Gives each line with its place. A last line without end is one too."""
    for name in files:
        opened = gzip.open(name) if name.endswith(".gz") else open(name, "rb")
        with opened as f:
            for number, line in enumerate(f, 1):
                yield f"{name}:{number}", line.removesuffix(b"\n")


def by_generation(files):
    """Sorts the lines into generations: each begins with its line 0 and ends where another begins."""
    generations, current = {}, None
    for place, line in read_lines(files):
        m = SEAL.match(line)
        if m and m[1].decode() != current:
            current = m[1].decode()
            if current in generations or m[2] != b"0":
                faults.append(f"{place}: {current} begins with line {m[2].decode()}")
        if current is None:
            continue
        lines = generations.setdefault(current, [])
        if m and int(m[2]) != len(lines):
            faults.append(f"{place}: it is line {m[2].decode()}, want {len(lines)}")
        lines.append((place, line))
    return generations


def public_key(vkey):
    """Reads the key of a verifier (C2SP signed-note): its name, its hash and the file that openssl reads."""
    name, key_hash, data = vkey.split("+", 2)
    data = base64.b64decode(data)
    if data[0] != 1 or hashlib.sha256(name.encode() + b"\n" + data).digest()[:4].hex() != key_hash:
        faults.append(f"{vkey} is no Ed25519 key of a verifier")
    der = bytes.fromhex("302a300506032b6570032100") + data[1:]
    pem = "-----BEGIN PUBLIC KEY-----\n" + base64.encodebytes(der).decode() + "-----END PUBLIC KEY-----\n"
    return name, bytes.fromhex(key_hash), pem


def verify(folder, pem, text, signature):
    for name, data in (("key", pem.encode()), ("text", text.encode()), ("signature", signature)):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
    done = subprocess.run(
        ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", "key", "-in", "text", "-sigfile", "signature"],
        cwd=folder, capture_output=True, check=False)
    return done.returncode == 0


def read_heads(name, key, scratch):
    """Gives size and root of each checkpoint whose signature is right."""
    identity, key_hash, pem = key
    with open(name, encoding="utf-8") as f:
        blocks = f.read().split("\n--\n")
    if blocks.pop():
        faults.append(f"{name}: the last checkpoint has no end")
    for number, block in enumerate(blocks, 1):
        text, signatures = (block + "\n").split("\n\n", 1)
        text += "\n"
        origin, size, root = text.splitlines()
        ours = [base64.b64decode(s.split(" ")[2]) for s in signatures.splitlines() if s.startswith(f"— {identity} ")]
        if origin != identity or not ours or ours[0][:4] != key_hash or not verify(scratch, pem, text, ours[0][4:]):
            faults.append(f"{name}: checkpoint {number} is not signed by {identity}")
            continue
        yield int(size), base64.b64decode(root)


def said_in(lines):
    """Gives size and root of the checkpoints that the log itself tells of."""
    for place, line in lines:
        if b'"logger":"crawlgate.evidence","msg":"checkpoint"' in line:
            said = json.loads(line)
            yield place, said["size"], base64.b64decode(said["root"])


def check_chain(generations, newest):
    """Holds what the first line of each generation says of the one before against the checkpoints of that."""
    for identity, lines in generations.items():
        place, line = lines[0]
        try:
            said = json.loads(line)
        except ValueError:
            continue
        before = said.get("previous")
        if said.get("msg") == "opened" and "size" in said and before in newest:
            if (said["size"], base64.b64decode(said["root"])) != newest[before]:
                faults.append(f"{place}: the last checkpoint of {before} is not that of {said['size']} lines")


def tile_path(level, n, width):
    """The path of a tile (C2SP tlog-tiles)."""
    path = f"{n % 1000:03d}"
    while n >= 1000:
        n //= 1000
        path = f"x{n % 1000:03d}/{path}"
    return f"tile/{level}/{path}" + (f".p/{width}" if width < 256 else "")


def check_tiles(folder, hashes):
    """Holds the tiles against the leaves that the newest checkpoint covers. Tiles of level 0 may have been deleted."""
    level = 0
    while hashes:
        for n in range(0, len(hashes), 256):
            want = b"".join(hashes[n:n + 256])
            name = os.path.join(folder, tile_path(level, n // 256, len(want) // 32))
            try:
                with open(name, "rb") as f:
                    if f.read() != want:
                        faults.append(f"{name}: the hashes are not those of the lines")
            except FileNotFoundError:
                if level or n + 256 > len(hashes):
                    faults.append(f"{name} is not there")
        hashes = [whole_tile(hashes[n:n + 256]) for n in range(0, len(hashes) // 256 * 256, 256)]
        level += 1


def whole_tile(hashes):
    while len(hashes) > 1:
        hashes = [node_hash(*hashes[i:i + 2]) for i in range(0, len(hashes), 2)]
    return hashes[0]


def check(folder, lines, scratch):
    with open(os.path.join(folder, "vkey"), encoding="utf-8") as f:
        key = public_key(f.read().strip())
    tree, roots = Tree(), {}
    leaves = [leaf_hash(line) for _, line in lines]
    for leaf in leaves:
        tree.append(leaf)
        roots[tree.size] = tree.root()
    heads = list(read_heads(os.path.join(folder, "heads"), key, scratch))
    for size, root in heads:
        if roots.get(size) != root:
            faults.append(f"{folder}: the checkpoint of {size} lines is not that of the log, which has {len(lines)}")
    for place, size, root in said_in(lines):
        if roots.get(size) != root or (size, root) not in heads:
            faults.append(f"{place}: the checkpoint of {size} lines is not that of the log")
    newest = max((size for size, _ in heads), default=0)
    check_tiles(folder, leaves[:newest])
    with open(os.path.join(folder, "checkpoint"), encoding="utf-8") as f, open(os.path.join(folder, "heads"), encoding="utf-8") as all_of_them:
        shown = f.read()
        if shown.splitlines()[1] != str(newest) or shown not in all_of_them.read().split("--\n"):
            faults.append(f"{folder}/checkpoint is not the newest")
    return key[0], {"lines": len(lines), "checkpoints": len(heads), "newest": newest}, max(heads, default=(0, b""))


def main():
    state, files = sys.argv[1], sys.argv[2:]
    generations, found, newest = by_generation(files), {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in sorted(filter(str.isdigit, os.listdir(state)), key=int):
            folder = os.path.join(state, name)
            identity = open(os.path.join(folder, "vkey"), encoding="utf-8").read().split("+")[0]
            identity, found[identity], newest[identity] = check(folder, generations.get(identity, []), scratch)
    check_chain(generations, newest)
    for identity in generations.keys() - found.keys():
        faults.append(f"{identity} has lines and no state")
    print(json.dumps({"generations": found, "faults": faults}, indent=1))
    sys.exit(1 if faults else 0)


main()
