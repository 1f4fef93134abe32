"""Writes a PyTorch memory snapshot of some 1 GB: 10 million events, shared stacks of 30 frames.

    python3 big_pickle.py big.pickle [EVENTS]

To measure how large files are opened: time terrane info big.pickle
"""
import io, pickle, random, struct, sys

path, events = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
random.seed(1)
stacks = [
    [{"filename": f"model/layer{s % 97}.py", "name": f"forward_{(s * 31 + f) % 997}", "line": f + s} for f in range(30)]
    for s in range(2000)
]

# The stacks, written by Python itself so that they are in its memo; then entries by hand, each
# referring to a stack, as pickle.dump would: it needs a hundred times the memory for it.
head = io.BytesIO()
writer = pickle.Pickler(head, 4)
keys = ["action", "addr", "size", "stream", "time_us", "frames", "alloc", "free_requested", "free_completed"]
writer.dump([stacks, keys])


def plain(data):
    """The pickle without frames and STOP, and the memo numbers of some objects."""
    import pickletools

    out, memo, strings, lists = bytearray(), 0, {}, []
    ops = list(pickletools.genops(data))
    last = None
    for (op, arg, at), nxt in zip(ops, ops[1:] + [(None, None, len(data))]):
        if op.name in ("PROTO", "FRAME", "STOP"):
            continue
        out += data[at : nxt[2]]
        if op.name == "MEMOIZE":
            if last[0].name == "SHORT_BINUNICODE":
                strings.setdefault(last[1], memo)
            elif last[0].name == "EMPTY_LIST":
                lists.append(memo)
            memo += 1
        last = (op, arg)
    return out, strings, lists


body, strings, lists = plain(head.getvalue())
# The outermost list, the list of stacks, then one list for each stack.
stack_memo = lists[2 : 2 + len(stacks)]


def get(number):
    return b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)


k = {key: get(strings[key]) for key in keys}
frames = [get(number) for number in stack_memo]
with open(path, "wb", buffering=1 << 22) as file:
    # The stacks stand under a key that no reader knows; entries refer to them.
    file.write(b"\x80\x04}(\x8c\x05extra" + bytes(body))
    file.write(b"\x8c\x08segments](e\x8c\x0ddevice_traces](](")
    live, now, address = [], 1_700_000_000_000_000, 0x7F0000000000
    written = 0

    def entry(action, addr, size, stack):
        return b"".join((
            b"}(", k["action"], k[action], k["addr"], b"\x8a\x07", addr.to_bytes(7, "little"), k["size"], b"J",
            struct.pack("<I", size), k["stream"], b"K\x00", k["time_us"], b"\x8a\x08", now.to_bytes(8, "little"),
            k["frames"], frames[stack], b"u",
        ))

    while written < events:
        now += 3
        if len(live) < 5000 or (random.random() < 0.34 and len(live) < 20000):
            address += 1 << 21
            block = (address, random.randrange(512, 1 << 21), random.randrange(len(stacks)))
            live.append(block)
            file.write(entry("alloc", *block))
            written += 1
        else:
            at = random.randrange(len(live))
            block, live[at] = live[at], live[-1]
            live.pop()
            file.write(entry("free_requested", *block) + entry("free_completed", *block))
            written += 2
    file.write(b"eeu.")
