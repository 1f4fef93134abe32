# Put this at the start of the program, before the first tensor on a GPU. It records the last
# 200,000 allocator events with their Python stacks and, when memory runs out, writes them with
# the numbers that the snapshot itself does not hold. Then: terrane explain oom_rank0.pickle
import json, os, pickle, torch

EVENTS = 200_000   # bounded: the oldest are given up; some 300 bytes of host memory each
FRACTION = None    # what you pass to torch.cuda.set_per_process_memory_fraction, if you do

torch.cuda.memory._record_memory_history(max_entries=EVENTS, stacks="python")


def terrane_dump(path):
    """Writes the snapshot, and beside it PATH.json with what the snapshot does not say."""
    device = torch.cuda.current_device()
    with open(path, "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file, protocol=4)
    free, total = torch.cuda.mem_get_info(device)
    with open(path + ".json", "w") as file:
        json.dump({
            "device_total": total,
            "device_free": free,
            "memory_fraction": FRACTION,
            "process_reserved": torch.cuda.memory_reserved(device),
            "device_name": torch.cuda.get_device_name(device),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "rank": int(os.environ.get("RANK", 0)),
        }, file)


def terrane_on_oom(device, asked, total, free):
    # Called where the request fails, before the stack unwinds and frees what was live.
    terrane_dump(f"oom_rank{os.environ.get('RANK', 0)}.pickle")


torch._C._cuda_attach_out_of_memory_observer(terrane_on_oom)

# Or at any moment, such as the end of a step:
# terrane_dump("step.pickle")
