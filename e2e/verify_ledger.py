#!/usr/bin/env python3
"""Check a Tribune ledger export without trusting Tribune.

This program shares no code with Tribune. It needs Python 3.11 and the packages in requirements.txt,
reads the export folder and the files you name, and writes nothing.

`integrity: sound` proves, provided that --key is a key you got by a way you trust:
  - every entry is canonical JSON (RFC 8785) and its CID is the BLAKE3 hash of its content;
  - no CID occurs twice, every parent occurs earlier, every entity counts 0, 1, 2, ... without a gap;
  - every attestation is a valid Ed25519 signature by the key that the entry names;
  - every log key was named by the one before it, and your key is in this key history;
  - the entries are, in this order, the leaves of the RFC 6962 tree whose root the log key signed;
  - every tile and entry bundle matches these leaves, and inclusion proofs made from the tiles hold.

`completeness: shown up to N` proves that the first N entries are those that were signed when the
file you kept was made: since then, none of them was removed, changed or moved.

Not proven:
  - that an entry is true or has the right time, or that every action was logged;
  - that nothing was removed after the largest checkpoint you kept, so keep one yourself;
  - that others were shown the same log: the holder of the log key can sign two, and only comparing
    the checkpoints that several people kept reveals it;
  - who owns an `attested_by` key, or that a key was not stolen;
  - cosignatures of witnesses, whose keys are unknown here (only the form of the line is checked);
  - what an entry means: of actor, source, target, tags, timestamp and envelope only the form is checked.

Exit codes: 0 good, 2 broken, 3 incomplete, 64 wrong usage.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import blake3
import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

GOOD, BROKEN, INCOMPLETE, USAGE = 0, 2, 3, 64
HASH = 32  # bytes of a SHA-256 hash, of a CID and of an Ed25519 public key
TILE = 256  # hashes in a full tile
MAX_READ = 64 << 20  # bytes of one line or one file; the limit protects this program's memory
MAX_SIGNATURES = 32  # under one note, to bound the work; C2SP requires at least 16
CID_CONTEXT = "tribune 2026 ledger entry v1"
ATTESTATION = "tribune/attestation/v1\n"
ENTRY_KEYS = set(
    "actor attested_by cid entity_id envelope parents payload proof quality seq source tags target timestamp".split()
)
QUALITIES = (
    "turn tool_call tool_result policy_verdict approval mailbox_inject session_lifecycle change delivery"
    " key_change note".split()
)

MAX_ENTRY = 256 << 10  # bytes of an entry's canonical form without cid and proof
MAX_DEPTH = 64  # levels of nesting, the entry itself included
MAX_ID, MAX_PARENTS, MAX_TAGS, MAX_TAG, MAX_AUDIENCE = 512, 256, 32, 128, 256
TIMESTAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"
# Public keys under which anyone can make a signature that passes the plain equation (points of small order).
SMALL_ORDER = {
    bytes.fromhex(point)
    for point in (
        "00" * 32,
        "00" * 31 + "80",
        "01" + "00" * 31,
        "01" + "00" * 30 + "80",
        "ec" + "ff" * 30 + "7f",
        "ec" + "ff" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    )
}

Entry = dict[str, Any]
Node = Callable[[int, int], bytes]  # (level, index) -> hash over leaves index << level to (index + 1) << level


class Broken(Exception):
    """Something that is present is wrong."""


class Incomplete(Exception):
    """The entries are sound, but another log was validly signed."""


def need(holds: object, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


@contextmanager
def about(what: str) -> Iterator[None]:
    """Prefix each finding with its subject."""
    try:
        yield
    except (Broken, Incomplete) as why:
        raise type(why)(f"{what}: {why}") from None


# --- Bytes, text, signatures --------------------------------------------------------------------


def read(path: Path) -> bytes:
    need(path.is_file(), "the file is missing.")
    with path.open("rb") as file:
        data = file.read(MAX_READ + 1)
    need(len(data) <= MAX_READ, f"the file is larger than {MAX_READ} bytes.")
    return data


def utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Broken("the text is not UTF-8.") from None


def unbase64(text: str, size: int | None = None) -> bytes:
    """Decode canonical base64 only, so that no two texts mean the same bytes."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise Broken(f"this is not base64: `{text}`.") from None
    need(base64.b64encode(data).decode() == text, f"this is not canonical base64: `{text}`.")
    need(size is None or len(data) == size, f"this is not the base64 of {size} bytes: `{text}`.")
    return data


def decimal(text: str) -> int:
    need(re.fullmatch("0|[1-9][0-9]{0,17}", text), f"this is not a plain number: `{text}`.")
    return int(text)


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    need(public not in SMALL_ORDER, "the public key is of small order, so its signatures prove nothing.")
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        return True
    except InvalidSignature:
        return False


# --- Verifier keys and checkpoints (c2sp.org/signed-note, c2sp.org/tlog-checkpoint) ---------------


class Vkey(NamedTuple):
    text: str
    name: str
    key_id: bytes
    public: bytes


def is_key_name(name: str) -> bool:
    return name != "" and "+" not in name and not any(c.isspace() for c in name)


def parse_vkey(text: Any) -> Vkey:
    parts = text.split("+", 2) if isinstance(text, str) else []
    need(len(parts) == 3 and is_key_name(parts[0]), "a verifier key must read `name+id+base64`.")
    material = unbase64(parts[2], 1 + HASH)
    need(material[0] == 0x01, "the verifier key is not an Ed25519 key (type 1).")
    key_id = hashlib.sha256(parts[0].encode() + b"\n" + material).digest()[:4]
    need(parts[1] == key_id.hex(), f"the id in the verifier key must be {key_id.hex()}.")
    return Vkey(text, parts[0], key_id, material[1:])


class Checkpoint(NamedTuple):
    origin: str
    size: int
    root: bytes
    text: bytes
    signatures: list[tuple[str, bytes]]

    def is_signed_by(self, key: Vkey) -> bool:
        """Lines by other keys are ignored, but every line that claims to be by this key must hold."""
        claims = [raw[4:] for name, raw in self.signatures if name == key.name and raw[:4] == key.key_id]
        return claims != [] and all(is_signed(key.public, claim, self.text) for claim in claims)


def parse_checkpoint(note: str) -> Checkpoint:
    """Parse the form only: the content is not trusted until a signature was checked."""
    need(not any(c < " " and c != "\n" for c in note), "a signed note must not hold control characters.")
    text, _, below = note.rpartition("\n\n")
    lines = text.split("\n")
    need(len(lines) >= 3 and all(lines), "a checkpoint must hold origin, size, root, an empty line and signatures.")
    *signature_lines, rest = below.split("\n")
    need(rest == "", "the last signature line must end with a newline.")
    need(1 <= len(signature_lines) <= MAX_SIGNATURES, f"there must be 1 to {MAX_SIGNATURES} signature lines.")
    signatures = []
    for line in signature_lines:
        parts = line.split(" ")
        need(len(parts) == 3 and parts[0] == "\u2014" and is_key_name(parts[1]), f"not a signature line: `{line}`.")
        signatures.append((parts[1], unbase64(parts[2])))
    return Checkpoint(lines[0], decimal(lines[1]), unbase64(lines[2], HASH), f"{text}\n".encode(), signatures)


# --- The Merkle tree (RFC 6962, section 2.1; each function follows its definition there) ----------


def leaf_hash(cid: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + cid).digest()


def pair_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def split(size: int) -> int:
    """The largest power of two smaller than size."""
    return 1 << ((size - 1).bit_length() - 1)


def tree_hash(low: int, high: int, node: Node) -> bytes:
    """MTH(D[low:high]), from the hashes of complete subtrees."""
    size = high - low
    if size & (size - 1) == 0:
        level = size.bit_length() - 1
        return node(level, low >> level)
    middle = low + split(size)
    return pair_hash(tree_hash(low, middle, node), tree_hash(middle, high, node))


def inclusion_path(index: int, low: int, high: int, node: Node) -> list[bytes]:
    if high - low == 1:
        return []
    middle = low + split(high - low)
    if index < middle:
        return inclusion_path(index, low, middle, node) + [tree_hash(middle, high, node)]
    return inclusion_path(index, middle, high, node) + [tree_hash(low, middle, node)]


def included_root(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """The root to which an inclusion path leads."""
    need(0 <= index < size and (path != []) == (size > 1), "the inclusion path does not have the right length.")
    if size == 1:
        return leaf
    *rest, top = path
    if index < (left := split(size)):
        return pair_hash(included_root(leaf, index, left, rest), top)
    return pair_hash(top, included_root(leaf, index - left, size - left, rest))


def consistent_roots(old: int, new: int, path: list[bytes], old_root: bytes | None) -> tuple[bytes, bytes]:
    """The old and the new root to which a consistency path leads; old_root while it is a subtree itself."""
    if old == new and old_root is not None:
        need(path == [], "the consistency path is too long.")
        return old_root, old_root
    need(0 < old <= new and path != [] and (old < new or len(path) == 1), "the consistency path has a wrong length.")
    *rest, top = path
    if old == new:
        return top, top
    if old <= (left := split(new)):
        before, after = consistent_roots(old, left, rest, old_root)
        return before, pair_hash(after, top)
    before, after = consistent_roots(old - left, new - left, rest, None)
    return pair_hash(top, before), pair_hash(top, after)


class Tree:
    def __init__(self, leaves: bytes) -> None:
        self.size = len(leaves) // HASH
        self.levels = [leaves]  # levels[k] has the hashes of all complete subtrees of 2^k leaves in a row
        while len(below := self.levels[-1]) >= 2 * HASH:
            starts = range(0, len(below) - 2 * HASH + 1, 2 * HASH)
            self.levels.append(b"".join(pair_hash(below[i : i + HASH], below[i + HASH : i + 2 * HASH]) for i in starts))

    def node(self, level: int, index: int) -> bytes:
        return self.levels[level][index * HASH : (index + 1) * HASH]

    def root(self, size: int) -> bytes:
        return tree_hash(0, size, self.node)


# --- Tiles (c2sp.org/tlog-tiles) ------------------------------------------------------------------


def tile_path(level: int | str, index: int, width: int) -> str:
    path = f"{index % 1000:03}"
    while index := index // 1000:
        path = f"x{index % 1000:03}/{path}"
    return f"{level}/{path}" if width == TILE else f"{level}/{path}.p/{width}"


def tiles_of(size: int, level: int) -> Iterator[tuple[int, int]]:
    """Index and width of each tile that a tree of this size has at a level."""
    hashes = size >> (8 * level)
    return ((index, min(TILE, hashes - index * TILE)) for index in range(-(-hashes // TILE)))


def read_leaves(tiles: Path, size: int) -> bytes:
    leaves = bytearray()
    for index, width in tiles_of(size, 0):
        path = tile_path(0, index, width)
        with about(f"tile/{path}"):
            data = read(tiles / path)
            need(len(data) == width * HASH, f"the tile must hold {width} hashes of {HASH} bytes.")
        leaves += data
    return bytes(leaves)


def check_tiles(tiles: Path, tree: Tree) -> None:
    """Compare every file under tile/ with the tree, and check that none is missing."""
    missing = {tile_path("entries", *tile) for tile in tiles_of(tree.size, 0)}
    for level in range(0, 1 + (len(tree.levels) - 1) // 8):
        missing |= {tile_path(level, *tile) for tile in tiles_of(tree.size, level)}
    for folder, _, names in os.walk(tiles):
        for path in [(Path(folder) / name).relative_to(tiles).as_posix() for name in names]:
            with about(f"tile/{path}"):
                check_tile(tiles, path, tree)
            missing.discard(path)
    need(not missing, f"tile/{min(missing, default='')}: the file is missing.")


def check_tile(tiles: Path, path: str, tree: Tree) -> None:
    """Partial tiles of smaller sizes may remain; they must hold the first hashes of the full one."""
    match = re.fullmatch(r"(entries|[0-9]{1,2})/((?:x[0-9]{3}/)*[0-9]{3})(?:\.p/([0-9]{1,3}))?", path)
    if match is None:
        raise Broken("this is not the name of a tile.")
    name, index, width = match[1], int(re.sub("[x/]", "", match[2])), int(match[3] or TILE)
    level = 0 if name == "entries" else 8 * int(name)
    hashes = tree.levels[level] if level < len(tree.levels) else b""
    expected = hashes[index * TILE * HASH : (index * TILE + width) * HASH]
    is_regular = path == tile_path(name if name == "entries" else level // 8, index, width)
    need(is_regular and len(expected) == width * HASH > 0, f"a tree of {tree.size} entries has no such tile.")
    data = read(tiles / path)
    if name == "entries":
        records = [data[at : at + 2 + HASH] for at in range(0, len(data), 2 + HASH)]
        need(all(record[:2] == b"\x00\x20" for record in records), "a bundle must hold CIDs of 32 bytes.")
        data = b"".join(leaf_hash(record[2:]) for record in records)
    need(data == expected, "the content does not match the entries.")


def check_samples(tiles: Path, size: int, root: bytes) -> None:
    """Prove a few leaves from the tiles alone, as a client of the log would."""

    def node(level: int, index: int) -> bytes:
        tile_level, height = divmod(level, 8)
        tile, start = divmod(index << height, TILE)
        width = min(TILE, (size >> (8 * tile_level)) - tile * TILE)
        data = read(tiles / tile_path(tile_level, tile, width))
        return Tree(data[start * HASH : (start + (1 << height)) * HASH]).node(height, 0)

    for index in sorted({0, size // 2, size - 1}):
        with about(f"entry {index}"):
            path = inclusion_path(index, 0, size, node)
            need(included_root(node(0, index), index, size, path) == root, "the proof from the tiles does not hold.")


# --- Entries --------------------------------------------------------------------------------------


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    need(len(members := dict(pairs)) == len(pairs), "an object has the same key twice.")
    return members


def raw_cid(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("b3:"))


def parse_entry(line: bytes) -> Entry:
    """Check what needs only one entry: its form, its CID, its attestation."""
    try:
        entry: Entry = json.loads(utf8(line), object_pairs_hook=unique_keys)
        canonical = rfc8785.dumps(entry)
    except (ValueError, RecursionError) as why:
        raise Broken(f"the line is not JSON that RFC 8785 allows: {why}.") from None
    need(canonical == line, "the line is not in canonical form.")
    need(isinstance(entry, dict) and set(entry) == ENTRY_KEYS, "the line does not have exactly the keys of an entry.")
    content = rfc8785.dumps({key: value for key, value in entry.items() if key not in ("cid", "proof")})
    cid = "b3:" + blake3.blake3(content, derive_key_context=CID_CONTEXT).hexdigest()
    need(entry["cid"] == cid, f"the content does not match the CID; it hashes to {cid}.")
    need(entry["quality"] in QUALITIES, "the quality is unknown.")
    check_form(entry, len(content))
    check_attestation(entry["attested_by"], entry["proof"], cid)
    return entry


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner), default=0) if isinstance(value, (dict, list)) else 0


def is_text(value: Any, most: int) -> bool:
    """A text that is not empty and has no control character, which could control a terminal."""
    fits = isinstance(value, str) and 1 <= len(value.encode()) <= most
    return fits and not any(unicodedata.category(c) == "Cc" for c in value)


def check_form(entry: Entry, size: int) -> None:
    """The bounds of the format (docs/guide/ledger.md)."""
    need(size <= MAX_ENTRY, f"the entry has {size} bytes; the limit is {MAX_ENTRY}.")
    need(depth(entry) <= MAX_DEPTH, f"the entry is nested deeper than {MAX_DEPTH} levels.")
    for field in ("actor", "entity_id", "source", "target"):
        need(is_text(entry[field], MAX_ID), f"{field} must be a text of 1 to {MAX_ID} bytes.")
    need(isinstance(entry["payload"], dict), "the payload must be an object.")
    parents, tags, envelope = entry["parents"], entry["tags"], entry["envelope"]
    need(isinstance(parents, list) and len(parents) <= MAX_PARENTS, f"parents must be a list of at most {MAX_PARENTS}.")
    need(all(parents.count(parent) == 1 for parent in parents), "a parent is named twice.")
    is_tags = isinstance(tags, list) and len(tags) <= MAX_TAGS and all(is_text(tag, MAX_TAG) for tag in tags)
    need(is_tags, f"tags must be at most {MAX_TAGS} texts of 1 to {MAX_TAG} bytes.")
    is_time = isinstance(entry["timestamp"], str) and re.fullmatch(TIMESTAMP, entry["timestamp"])
    try:
        need(is_time and datetime.fromisoformat(entry["timestamp"]), "the timestamp does not have the canonical form.")
    except ValueError:
        raise Broken("the timestamp is not a valid time.") from None
    if envelope is not None:
        is_envelope = isinstance(envelope, dict) and set(envelope) == {"scheme", "epoch", "ciphertext", "audience"}
        need(is_envelope and envelope["scheme"] == "xchacha20poly1305+x25519", "the envelope has an unknown form.")
        epoch, audience = envelope["epoch"], envelope["audience"]
        need(type(epoch) is int and 0 <= epoch < 1 << 32, "the epoch of the envelope must be a small whole number.")
        is_hash = isinstance(envelope["ciphertext"], str) and re.fullmatch("b3:[0-9a-f]{64}", envelope["ciphertext"])
        need(is_hash, "the envelope must name its ciphertext by hash.")
        need(isinstance(audience, list) and len(audience) <= MAX_AUDIENCE, "the audience of the envelope is too large.")
        is_wrapped = all(
            isinstance(member, dict) and set(member) == {"recipient", "wrapped"} and all(isinstance(v, str) for v in member.values())
            for member in audience
        )
        need(is_wrapped, "the audience of the envelope has an unknown form.")


def check_attestation(attester: Any, proof: Any, cid: str) -> None:
    kind = proof.get("type") if isinstance(proof, dict) else None
    need(kind != "zk_stark", "the proof is a zk_stark, which cannot be checked here, so it is not accepted.")
    if attester is None:
        need(proof is None, "there is a proof, but attested_by names no key.")
        return
    is_key = isinstance(attester, str) and re.fullmatch("ed25519:[0-9a-f]{64}", attester)
    need(is_key, "attested_by must be null or `ed25519:` with 64 lowercase hex digits.")
    signature: Any = proof.get("signature") if isinstance(proof, dict) else None
    is_attestation = proof == {"type": "attestation", "key": attester, "signature": signature}
    need(is_attestation and isinstance(signature, str), "the proof is not an attestation by the key in attested_by.")
    public = bytes.fromhex(attester.removeprefix("ed25519:"))
    message = f"{ATTESTATION}{cid}\n".encode()
    need(is_signed(public, unbase64(signature, 64), message), "the signature of the attestation is wrong.")


class Log:
    """The entries in order, compared with the tree, and the history of log keys that they name."""

    def __init__(self, tree: Tree, trusted: Vkey) -> None:
        self.tree = tree
        self.trusted = trusted
        self.count = 0
        self.cids: set[bytes] = set()
        self.next_seq: dict[str, int] = {}
        self.keys: list[tuple[int, Vkey]] = []  # index of the key_change, and the key it put in force

    def read_entries(self, path: Path) -> None:
        with about(path.name):
            need(path.is_file(), "the file is missing.")
        with path.open("rb") as file:
            while line := file.readline(MAX_READ):
                # The label shows the CID that the line claims, which may be wrong.
                claimed = re.search(rb'"cid":"(b3:[0-9a-f]{64})"', line)
                with about(f"entry {self.count}" + (f" ({claimed[1].decode()})" if claimed else "")):
                    need(line.endswith(b"\n"), f"the line has no end, or is longer than {MAX_READ} bytes.")
                    need(self.count < self.tree.size, "the entry comes after the last one that was signed.")
                    self.append(parse_entry(line[:-1]))

    def append(self, entry: Entry) -> None:
        cid, entity, seq, parents = raw_cid(entry["cid"]), entry["entity_id"], entry["seq"], entry["parents"]
        need(cid not in self.cids, "the same CID occurs earlier in the log.")
        need(isinstance(entity, str), "entity_id must be a text.")
        expected = self.next_seq.get(entity, 0)
        need(type(seq) is int and seq == expected, f"seq must be {expected} for entity `{entity}`.")
        need(isinstance(parents, list), "parents must be a list.")
        for parent in parents:
            is_cid = isinstance(parent, str) and re.fullmatch("b3:[0-9a-f]{64}", parent)
            need(is_cid and raw_cid(parent) in self.cids, f"the parent does not occur earlier in the log: `{parent}`.")
        need(leaf_hash(cid) == self.tree.node(0, self.count), "the tiles have another entry at this index.")
        need(self.count > 0 or entry["quality"] == "key_change", "the first entry must be a key_change.")
        if entry["quality"] == "key_change":
            self.change_key(entry["payload"], entry["attested_by"])
        self.cids.add(cid)
        self.next_seq[entity] = expected + 1
        self.count += 1

    def change_key(self, payload: Any, attester: Any) -> None:
        is_change = isinstance(payload, dict) and set(payload) == {"old", "new"}
        need(is_change, "the payload of a key_change must be `old` and `new`.")
        new = parse_vkey(payload["new"])
        old = self.keys[-1][1] if self.keys else None
        need(payload["old"] == (old.text if old else None), "`old` must be the key in force (null in entry 0).")
        witness = f"ed25519:{(old or new).public.hex()}"
        need(attester == witness, "a key_change must be attested by the old key (by the new one in entry 0).")
        need(old is None or old.name == new.name, "a key_change must keep the name of the key.")
        self.keys.append((self.count, new))

    def signer(self, checkpoint: Checkpoint) -> Vkey:
        """Check a checkpoint's signature by the key in force at its size.

        Beyond the present entries a key_change may have been removed. There the key you trust may
        sign too, unless it is one of the known keys: then only the last of those is in force.
        """
        need(checkpoint.size > 0, "a checkpoint of size 0 covers no entry.")
        known = [key for index, key in self.keys if index < checkpoint.size]
        allowed = known[-1:]
        if checkpoint.size > self.count and self.trusted not in known:
            allowed.append(self.trusted)
        for key in allowed:
            if checkpoint.origin == key.name and checkpoint.is_signed_by(key):
                return key
        names = " or ".join(f"`{key.text}`" for key in allowed)
        cut = "; a key_change may have been cut, so try a later key with --key" if checkpoint.size > self.count else ""
        raise Broken(f"the checkpoint of size {checkpoint.size} has no valid origin and signature of {names}{cut}.")

    def compare_root(self, size: int, root: bytes) -> None:
        if size > self.tree.size:
            raise Incomplete(f"{size} entries were signed, but the export has {self.tree.size}: cut, or older.")
        if self.tree.root(size) != root:
            raise Incomplete(f"another history of {size} entries was signed: the log was forked.")


def verify_export(folder: Path, trusted: Vkey) -> Log:
    with about("checkpoint"):
        checkpoint = parse_checkpoint(utf8(read(folder / "checkpoint")))
        need(checkpoint.size > 0, "a log has at least the entry with its first key, so size 0 is wrong.")
    tree = Tree(read_leaves(folder / "tile", checkpoint.size))
    need(tree.root(tree.size) == checkpoint.root, "checkpoint: the hashes under tile/0 do not lead to its root.")
    log = Log(tree, trusted)
    log.read_entries(folder / "entries.jsonl")
    with about("checkpoint"):
        signer = log.signer(checkpoint)
    is_in_history = trusted == signer or trusted in [key for _, key in log.keys]
    need(is_in_history, f"the key you trust is not in this log's key history: `{trusted.text}`.")
    with about("ledger.vkey"):
        is_in_force = read(folder / "ledger.vkey") == f"{signer.text}\n".encode()
        need(is_in_force, f"the file must hold the key in force on one line: `{signer.text}`.")
    check_tiles(folder / "tile", tree)
    check_samples(folder / "tile", tree.size, checkpoint.root)
    return log


# --- Files that the reviewer kept: each check returns the size that it proves, and a message ---


def check_checkpoint(log: Log, data: bytes) -> tuple[int, str]:
    checkpoint = parse_checkpoint(utf8(data))
    log.signer(checkpoint)
    log.compare_root(checkpoint.size, checkpoint.root)
    return checkpoint.size, f"the log begins with the {checkpoint.size} entries of this checkpoint."


def check_proof(log: Log, data: bytes) -> tuple[int, str]:
    """A c2sp.org/tlog-proof whose extra line holds the entry."""
    head, _, note = utf8(data).partition("\n\n")
    lines = head.split("\n")
    starts = [line.partition(" ")[0] for line in lines[:3]]
    need(starts == ["c2sp.org/tlog-proof@v1", "extra", "index"], "a proof must begin with version, extra and index.")
    cid = parse_entry(unbase64(lines[1].removeprefix("extra ")))["cid"]
    index, path = decimal(lines[2].removeprefix("index ")), [unbase64(line, HASH) for line in lines[3:]]
    checkpoint = parse_checkpoint(note)
    root = included_root(leaf_hash(raw_cid(cid)), index, checkpoint.size, path)
    need(root == checkpoint.root, f"the path does not lead from {cid} to the root of the checkpoint.")
    size, _ = check_checkpoint(log, note.encode())
    return size, f"entry {index} ({cid}) is in the log."


def check_consistency(log: Log, data: bytes) -> tuple[int, str]:
    head, _, note = utf8(data).partition("\n\n")
    lines = head.split("\n")
    need(lines[0] == "tribune/consistency-proof/v1", "the first line must be `tribune/consistency-proof/v1`.")
    old = lines[1].split(" ") if len(lines) > 1 else []
    need(len(old) == 3 and old[0] == "old", "the second line must be `old`, a size and a root.")
    size, root, path = decimal(old[1]), unbase64(old[2], HASH), [unbase64(line, HASH) for line in lines[2:]]
    checkpoint = parse_checkpoint(note)
    roots = consistent_roots(size, checkpoint.size, path, root)
    need(size > 0 and roots == (root, checkpoint.root), "the path does not lead to both roots.")
    new_size, _ = check_checkpoint(log, note.encode())
    log.compare_root(size, root)
    return new_size, f"the log grew from {size} to {new_size} entries without a change."


# --- The command line -----------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.format_usage()}{message}\n")


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = Parser(description="Check a Tribune ledger export without trusting Tribune.", allow_abbrev=False)
    parser.add_argument("export", metavar="EXPORT", type=Path, help="the folder to check")
    why_key = "a forged export contains a forged key, so the one in the folder proves nothing"
    parser.add_argument("--key", metavar="VKEY_OR_FILE", help=f"the verifier key you trust; required: {why_key}")
    repeated: dict[str, Any] = {"metavar": "FILE", "type": Path, "action": "append", "default": []}
    parser.add_argument("--checkpoint", **repeated, help="a checkpoint that you kept elsewhere")
    parser.add_argument("--proof", **repeated, help="the inclusion proof of an entry (c2sp.org/tlog-proof)")
    parser.add_argument("--consistency", **repeated, help="a proof that the log only grew")
    args = parser.parse_args(argv)
    if args.key is None:
        parser.error(f"--key is missing. Give the key you trust: {why_key}.")
    if not args.export.is_dir():
        parser.error(f"There is no such folder: {args.export}")
    for path in args.checkpoint + args.proof + args.consistency:
        if not path.is_file():
            parser.error(f"There is no such file: {path}")
    try:
        args.key = parse_vkey(utf8(read(Path(args.key))).strip() if os.path.isfile(args.key) else args.key)
    except (Broken, OSError) as why:
        parser.error(f"--key is neither a verifier key nor a file with one: {why}")
    return args


def print_line(line: str) -> None:
    """Print one line in plain ASCII, so that text from an export cannot imitate the output of this program."""
    print(ascii(line[:1000])[1:-1])


def verify(args: argparse.Namespace) -> int:
    log = verify_export(args.export, args.key)
    vouched: list[tuple[int, str]] = []
    failures: list[str] = []
    if log.count < log.tree.size:
        failures.append(f"entries.jsonl ends after {log.count} of the {log.tree.size} entries that were signed.")
    kept = [(check_checkpoint, path) for path in args.checkpoint]
    kept += [(check_proof, path) for path in args.proof]
    kept += [(check_consistency, path) for path in args.consistency]
    for check, path in kept:
        try:
            with about(str(path)):
                size, found = check(log, read(path))
        except Incomplete as why:
            failures.append(str(why))
        except Broken as why:
            if check is not check_checkpoint:
                raise
            # An invalid checkpoint from elsewhere proves nothing against the export.
            failures.append(str(why))
        else:
            vouched.append((size, str(path)))
            print_line(f"{path}: {found}")
    print_line("integrity: sound")
    for failure in failures:
        print_line(f"completeness: FAILED: {failure}")
    if failures:
        return INCOMPLETE
    if vouched:
        print_line("completeness: shown up to {} entries by {}".format(*max(vouched)))
    else:
        print_line("completeness: not checked: without a checkpoint kept elsewhere, removal at the end cannot be detected.")
    return GOOD


def main(argv: list[str]) -> int:
    args = parse_arguments(argv)
    try:
        return verify(args)
    except Broken as why:
        print_line(f"integrity: BROKEN: {why}")
    except Exception as why:  # an export that cannot be checked to the end is not sound, whatever the reason
        print_line(f"integrity: BROKEN: the check could not go on: {type(why).__name__}: {why}")
    print_line("completeness: not checked: the integrity is broken.")
    return BROKEN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
