#!/usr/bin/env python3
"""Test vectors for proto/KEYS.md, written from that page by hand over hashlib; shares nothing with proto/.

usage: key_vectors.py --header          print tests/proto/key_vectors.h
       key_vectors.py --markdown        print the vectors of proto/KEYS.md
       key_vectors.py --check HEADER PAGE   exit 1 if either no longer says what this script computes
"""

import hashlib
import struct
import sys

SECRET = bytes(range(32))  # published: 00 01 .. 1f. Never a real domain's.
OTHER_SECRET = bytes(range(32, 64))


def u32(number):
    return struct.pack("<I", number)


def u64(number):
    return struct.pack("<Q", number)


def f64(number):
    return struct.pack("<d", number)


def digest(fields, magic):
    """SHA-256 of tag | length | bytes of every field that is not None, then the magic."""
    assert [tag for tag, _ in fields] == sorted({tag for tag, _ in fields})
    message = b""
    for tag, value in fields:
        if value is not None:
            message += bytes([tag]) + u32(len(value)) + value
    return hashlib.sha256(message + magic).digest()


def root(secret, model, adapter=None, generation=None, salt=None):
    generation = None if generation is None else u64(generation)
    return digest([(1, secret), (2, model), (3, adapter), (4, generation), (5, salt)], b"kvr1")


def block(tokens, parent, extra=b""):
    message = b"".join(u32(token) for token in tokens) + parent + extra
    message += struct.pack("<HH", len(tokens), len(extra)) + b"kvb1"
    return hashlib.sha256(message).digest()


def token(index):
    """Token ids of every vector: spread over 32 bits, all four bytes in use."""
    return (index * 2654435761 + 12345) % 2**32


def chain(parent, num_tokens, block_tokens, extras):
    keys = []
    for i in range(num_tokens // block_tokens):
        tokens = [token(t) for t in range(i * block_tokens, (i + 1) * block_tokens)]
        parent = block(tokens, parent, extras.get(i, b""))
        keys.append(parent)
    return keys


# --- models: tag -> bytes, as the table of KEYS.md says ---

def group(window, layers):
    kind = 1 if window else 0
    return bytes([kind]) + u32(window) + u32(len(layers)) + b"".join(u32(layer) for layer in layers)


LLAMA = {
    1: b"llama", 2: b"r1", 3: u32(4), 4: group(0, [0, 1, 2, 3]), 5: u32(8), 6: u32(128), 7: u32(128),
    8: b"bf16", 9: u32(16), 10: b"default", 11: f64(500000.0), 14: u32(1), 15: u32(1), 16: u32(1),
}
GEMMA = {  # two groups, a rank of a tensor-parallel pair, RoPE with everything
    1: b"gemma", 2: b"r7", 3: u32(6), 4: group(0, [5]) + group(1024, [0, 1, 2, 3, 4]), 5: u32(1),
    6: u32(256), 7: u32(256), 8: b"f16", 9: u32(32), 10: b"yarn", 11: f64(10000.0), 12: u32(64),
    13: b'{"factor":4.0}', 14: u32(2) + u32(1), 15: u32(1), 16: u32(1),
}
OPAQUE = {1: b"llama", 2: b"r1", 9: u32(16), 14: u32(8) + u32(0), 15: u32(2) + u32(1), 16: u32(1),
          17: b"engine/nhd", 18: u32(3), 19: u64(2097152)}
MODELS = [("LLAMA", LLAMA), ("GEMMA", GEMMA), ("OPAQUE", OPAQUE)]


def fingerprint(model):
    return digest(sorted(model.items()), b"kvm1")


M = fingerprint(LLAMA)
LONGEST = bytes(i * 7 % 256 for i in range(65535))

# name, secret, model, adapter, generation, salt
ROOTS = [
    ("nothing but the secret and the model", SECRET, M, None, None, None),
    ("another secret", OTHER_SECRET, M, None, None, None),
    ("another model", SECRET, fingerprint(GEMMA), None, None, None),
    ("adapter org_1", SECRET, M, b"org_1", None, None),
    ("adapter org_1, generation 0", SECRET, M, b"org_1", 0, None),
    ("adapter org_1, generation 1", SECRET, M, b"org_1", 1, None),
    ("adapter org_1, salt 2345", SECRET, M, b"org_1", None, b"2345"),
    ("adapter org_12345, empty salt", SECRET, M, b"org_12345", None, b""),
    ("adapter org_12345, no salt", SECRET, M, b"org_12345", None, None),
    ("no adapter, salt org_12345", SECRET, M, None, None, b"org_12345"),
    ("empty adapter, salt org_12345", SECRET, M, b"", None, b"org_12345"),
    ("largest generation, UTF-8", SECRET, M, "\u00e9\u00e8".encode(), 2**64 - 1, b"\x00\xff"),
]


def extra(num_bytes):
    return bytes((0xA0 + i) % 256 for i in range(num_bytes))


# name, num_tokens, block_tokens, extras, positions whose keys are given; all from the first root
CHAINS = [
    ("one token a block", 3, 1, {}, [0, 1, 2]),
    ("15 tokens a block", 45, 15, {1: extra(4)}, [0, 1, 2]),
    ("16 tokens a block", 48, 16, {}, [0, 1, 2]),
    ("17 tokens a block", 51, 17, {2: extra(19)}, [0, 1, 2]),
    ("the last token fills no block", 31, 16, {}, [0]),
    ("32 tokens a block", 64, 32, {}, [0, 1]),
    ("256 tokens a block", 768, 256, {}, [0, 2]),
    ("100 blocks", 1600, 16, {}, [0, 49, 99]),
    ("65535 tokens a block", 131070, 65535, {}, [0, 1]),
    ("an extra in the middle block", 48, 16, {1: extra(15)}, [0, 1, 2]),
    ("an extra in every block", 64, 16, {i: extra(8 + i) for i in range(4)}, [0, 1, 2, 3]),
] + [
    (f"extra of {n} bytes", 32, 16, {0: extra(n)}, [0, 1])
    for n in (0, 1, 15, 16, 23, 24, 32, 78, 79, 80, 119, 120, 1000)
] + [("the longest extra", 32, 16, {1: LONGEST}, [0, 1])]


# --- output ---

def c_bytes(value):
    """A C string literal of hex escapes; never a hex escape before a plain character."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'


def c_string(value):
    return "{0}" if value is None else f"{{{c_bytes(value)}, {len(value)}}}"


def c_extra(index, value):
    if value == LONGEST:
        return f"{{{index}, longest_extra, {len(value)}}}"
    return f"{{{index}, {c_bytes(value)}, {len(value)}}}"


def header():
    lines = [
        "/* tests/proto/key_vectors.h - printed by key_vectors.py --header; do not edit. */",
        "#pragma once",
        "",
        "/* clang-format off */",
        f"#define VECTOR_SECRET {c_bytes(SECRET)}",
        "",
    ]
    for name, model in MODELS:
        lines.append(f"#define VECTOR_FINGERPRINT_{name} {c_bytes(fingerprint(model))}")
    lines += ["", "static const struct root_vector {", "    const char *name, *secret, *model;",
              "    struct key_bytes adapter_id;", "    bool has_generation;", "    uint64_t generation;",
              "    struct key_bytes salt;", "    const char *key;", "} root_vectors[] = {"]
    for name, secret, model, adapter, generation, salt in ROOTS:
        key = root(secret, model, adapter, generation, salt)
        has = "false" if generation is None else "true"
        lines.append(f'    {{"{name}", {c_bytes(secret)}, {c_bytes(model)}, {c_string(adapter)}, {has}, '
                     f"{generation or 0}u, {c_string(salt)}, {c_bytes(key)}}},")
    lines += ["};", "", "/* Byte i is 7 i mod 256; the test fills it. */",
              f"static uint8_t longest_extra[{len(LONGEST)}];", "",
              "/* Token i is (2654435761 i + 12345) mod 2^32; the parent is the first root. */",
              "static const struct chain_vector {", "    const char *name;",
              "    uint32_t num_tokens, block_tokens;", "    size_t num_extras;",
              "    struct key_extra extras[4];", "    size_t num_keys;",
              "    struct {", "        uint32_t at;", "        const char *key;", "    } keys[4];",
              "} chain_vectors[] = {"]
    first = root(*ROOTS[0][1:])
    for name, num_tokens, block_tokens, extras, at in CHAINS:
        keys = chain(first, num_tokens, block_tokens, extras)
        values = ", ".join(c_extra(i, value) for i, value in sorted(extras.items())) or "{0}"
        given = ", ".join(f"{{{i}, {c_bytes(keys[i])}}}" for i in at)
        lines.append(f'    {{"{name}", {num_tokens}, {block_tokens}, {len(extras)}, {{{values}}}, '
                     f"{len(at)}, {{{given}}}}},")
    lines += ["};", "/* clang-format on */", ""]
    return "\n".join(lines)


def markdown():
    lines = ["| what | bytes |", "|---|---|"]
    for name, model in MODELS:
        lines.append(f"| fingerprint {name} | `{fingerprint(model).hex()}` |")
    for name, *fields in ROOTS:
        lines.append(f"| root: {name} | `{root(*fields).hex()}` |")
    first = root(*ROOTS[0][1:])
    for name, num_tokens, block_tokens, extras, at in CHAINS:
        keys = chain(first, num_tokens, block_tokens, extras)
        for i in at[-1:]:
            lines.append(f"| chain: {name}; key({i}) | `{keys[i].hex()}` |")
    return "\n".join(lines) + "\n"


def check(header_path, page_path):
    with open(header_path, encoding="utf-8") as file:
        header_is_right = file.read() == header()
    with open(page_path, encoding="utf-8") as file:
        page_is_right = markdown() in file.read()
    if not header_is_right:
        print(f"{header_path} differs: print it again with --header")
    if not page_is_right:
        print(f"{page_path} lacks the vectors that --markdown prints")
    return 0 if header_is_right and page_is_right else 1


def main(words):
    if words == ["--header"]:
        sys.stdout.write(header())
    elif words == ["--markdown"]:
        sys.stdout.write(markdown())
    elif len(words) == 3 and words[0] == "--check":
        return check(words[1], words[2])
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
