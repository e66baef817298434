"""A framework's grouped product, next to one product of as many tokens, in ms.

`python3 framework.py FILE`: a line of FILE has TOKENS EXPERTS INPUTS OUTPUTS.
"""

import statistics
import sys

import torch


def median(run, rounds=15):
    for _ in range(3):
        run()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


print(torch.__version__)
for line in open(sys.argv[1]):
    tokens, experts, inputs, outputs = map(int, line.split())
    x = torch.randint(-2, 3, (tokens, inputs), device="cuda").bfloat16()
    w = torch.randint(-2, 3, (experts, outputs, inputs), device="cuda").bfloat16()
    w = w.transpose(-2, -1)
    ends = [int(tokens * ((expert + 1) / experts) ** 1.3) for expert in range(experts)]
    ends = torch.tensor(ends, device="cuda", dtype=torch.int32)
    grouped = median(lambda: torch._grouped_mm(x, w, offs=ends))
    one = median(lambda: x @ w[0])
    print(line.strip(), "torch grouped %.4f one %.4f" % (grouped, one), flush=True)
    del x, w
