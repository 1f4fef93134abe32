"""Writes a PyTorch memory snapshot of 1 GB: 11 million events, shared stacks of 30 frames,
and the segments with the blocks that live at the end.

    python3 big_pickle.py big.pickle [EVENTS]

To measure how large files are opened: time terrane info big.pickle
"""
import io, pickle, pickletools, random, struct, sys

path, events = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 11_000_000
SLOT, SLOTS, A_SEGMENT, BASE = 2 << 20, 20_000, 64, 0x7F0000000000
stacks = [
    [{"filename": f"model/layer{s % 97}.py", "name": f"forward_{(s * 31 + f) % 997}", "line": f + s} for f in range(30)]
    for s in range(2000)
]


def run(count):
    """What happens: (action, address, size, stack); returns the blocks that live at the end."""
    random.seed(1)
    live, free, done = [], list(range(SLOTS)), 0
    while done < count:
        if len(live) < 5000 or (random.random() < 0.34 and free):
            slot = free.pop()
            block = (BASE + slot * SLOT, random.randrange(512, SLOT), random.randrange(len(stacks)))
            live.append(block)
            yield "alloc", *block
            done += 1
        else:
            at = random.randrange(len(live))
            block, live[at] = live[at], live[-1]
            live.pop()
            free.append((block[0] - BASE) // SLOT)
            yield "free_requested", *block
            yield "free_completed", *block
            done += 2
    return live


# The stacks, written by Python itself so that they are in its memo; then entries by hand, each
# referring to a stack, as pickle.dump would: it needs a hundred times the memory for it.
head = io.BytesIO()
writer = pickle.Pickler(head, 4)
keys = ["action", "addr", "size", "stream", "time_us", "frames", "compile_context", "user_metadata", "N/A",
        "alloc", "free_requested", "free_completed", "device", "address", "total_size", "allocated_size",
        "active_size", "requested_size", "segment_type", "large", "blocks", "state", "active_allocated", "inactive"]
writer.dump([stacks, keys])


def plain(data):
    """The pickle without frames and STOP, and the memo numbers of some objects."""
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


def number(value):
    return b"\x8a\x08" + value.to_bytes(8, "little")


k = {key: get(strings[key]) for key in keys}
frames = [get(memo) for memo in stack_memo]


def dictionary(*pairs):
    # Python memoizes every dictionary.
    return b"}\x94(" + b"".join(k[key] + value for key, value in pairs) + b"u"


def segment(first, held):
    """A segment and its blocks: each slot has a block, live at its beginning or free."""
    address, blocks, live = BASE + first * SLOT, [], 0
    for slot in range(first, min(first + A_SEGMENT, SLOTS)):
        at = BASE + slot * SLOT
        size, stack = held.get(at, (0, None))
        live += size
        state = "active_allocated" if size else "inactive"
        shown = frames[stack] if size else b"]"
        blocks.append(dictionary(("address", number(at)), ("size", number(SLOT)), ("requested_size", number(size)),
                                 ("state", k[state]), ("frames", shown)))
    total = number(len(blocks) * SLOT)
    return dictionary(("device", b"K\x00"), ("address", number(address)), ("total_size", total),
                      ("allocated_size", number(live)), ("active_size", number(live)), ("stream", b"K\x00"),
                      ("segment_type", k["large"]), ("frames", b"]"), ("blocks", b"](" + b"".join(blocks) + b"e"))


def final(happenings):
    """What lives at the end."""
    while True:
        try:
            next(happenings)
        except StopIteration as stop:
            return stop.value


held = {address: (size, stack) for address, size, stack in final(run(events))}
with open(path, "wb", buffering=1 << 22) as file:
    # The stacks stand under a key that no reader knows; entries refer to them.
    file.write(b"\x80\x04}(\x8c\x05extra" + bytes(body))
    file.write(b"\x8c\x08segments](" + b"".join(segment(first, held) for first in range(0, SLOTS, A_SEGMENT)) + b"e")
    file.write(b"\x8c\x0ddevice_traces](](")
    now = 1_700_000_000_000_000
    for action, address, size, stack in run(events):
        now += 3
        file.write(dictionary(
            ("action", k[action]), ("addr", number(address)), ("size", b"J" + struct.pack("<I", size)),
            ("stream", b"K\x00"), ("time_us", number(now)), ("frames", frames[stack]),
            ("compile_context", k["N/A"]), ("user_metadata", k["N/A"])))
    file.write(b"eeu.")
