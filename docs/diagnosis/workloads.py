"""Two PyTorch workloads whose shapes vary, to compare what `terrane tune` predicts with what runs.

    python3 workloads.py lm   lm.pickle.gz     # default settings, records a snapshot
    terrane tune lm.pickle.gz                  # prints a PYTORCH_CUDA_ALLOC_CONF line
    PYTORCH_CUDA_ALLOC_CONF=... python3 workloads.py lm -    # runs under it, prints the peak

Prints [peak reserved, peak requested] in bytes.
"""
import gzip, json, pickle, random, sys
import torch
from torch import nn

workload, out = sys.argv[1:3]
torch.manual_seed(0)
random.seed(0)
memory, F = torch.cuda.memory, nn.functional
if out != "-":
    memory._record_memory_history(max_entries=900000, stacks="python")

if workload == "lm":  # a language model on batches of varying length

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(32000, 1024)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True) for _ in range(16)
            )
            self.head = nn.Linear(1024, 32000)

        def forward(self, x):
            h = self.embed(x)
            for layer in self.layers:
                h = layer(h)
            return self.head(h)

    net = Net().cuda()

    def loss():
        shape = (random.randint(2, 8), random.randint(100, 1500))
        x = torch.randint(0, 32000, shape, device="cuda")
        return F.cross_entropy(net(x).flatten(0, 1), x.flatten())

else:  # a U-Net on images of varying size

    def conv(a, b, stride=1):
        return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1), nn.GroupNorm(8, b), nn.SiLU())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            k = [64, 128, 256, 512]
            self.first = conv(3, 64)
            self.down = nn.ModuleList(conv(a, b, 2) for a, b in zip(k, k[1:]))
            self.up = nn.ModuleList(conv(b + a, a) for a, b in zip(k, k[1:]))
            self.last = nn.Conv2d(64, 3, 1)

        def forward(self, x):
            h = self.first(x)
            kept = [h]
            for layer in self.down:
                h = layer(h)
                kept.append(h)
            for n in (2, 1, 0):
                h = F.interpolate(h, size=kept[n].shape[2:])
                h = self.up[n](torch.cat([h, kept[n]], 1))
            return self.last(h)

    net = Net().cuda()

    def loss():
        shape = (random.randint(2, 12), 3, 16 * random.randint(12, 48), 16 * random.randint(12, 48))
        x = torch.rand(shape, device="cuda")
        return F.mse_loss(net(x), x)


optimizer = torch.optim.AdamW(net.parameters())
for step in range(30):
    loss().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
requested = torch.cuda.memory_stats()["requested_bytes.all.peak"]
print(workload, json.dumps([torch.cuda.max_memory_reserved(), requested]))
if out != "-":
    pickle.dump(memory._snapshot(), gzip.open(out, "wb", 6), 4)
