"""The framework's sequence for the same layers: all-gather, product; product, reduce-scatter."""
import json, os, statistics, torch, torch.distributed as dist

dist.init_process_group("nccl"); rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

def time(work):
    for _ in range(5): work()
    torch.cuda.synchronize(); dist.barrier(); times = []
    for _ in range(5):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        for _ in range(30): work()
        end.record(); torch.cuda.synchronize(); times.append(start.elapsed_time(end) / 30)
    slowest = torch.tensor(statistics.median(times), device="cuda"); dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()

def line(what, ms):
    if rank == 0: print(json.dumps({"transport": "framework", "what": what, "value": round(ms, 4)}), flush=True)

r = lambda *s: (torch.rand(*s, device="cuda", dtype=torch.bfloat16) * 2 - 1)
for name, m, k, n in [("8B MLP", 2048, 4096, 28672), ("8B MLP", 8192, 4096, 28672), ("70B MLP", 2048, 8192, 57344), ("70B MLP", 8192, 8192, 57344)]:
    x, w = r(m // size, k), r(k, n // size); full = torch.empty(m, k, device="cuda", dtype=torch.bfloat16); y = torch.empty(m, n // size, device="cuda", dtype=torch.bfloat16)
    head = f"{name}, M {m}: "
    line(head + "column-parallel product alone", time(lambda: torch.mm(full, w, out=y)))
    line(head + "all-gather alone", time(lambda: dist.all_gather_into_tensor(full, x)))
    line(head + "all-gather + product", time(lambda: (dist.all_gather_into_tensor(full, x), torch.mm(full, w, out=y))))
    h, w2 = r(m, n // 2 // size), r(n // 2 // size, k); p = torch.empty(m, k, device="cuda", dtype=torch.bfloat16); z = torch.empty(m // size, k, device="cuda", dtype=torch.bfloat16)
    line(head + "row-parallel product alone", time(lambda: torch.mm(h, w2, out=p)))
    line(head + "reduce-scatter alone", time(lambda: dist.reduce_scatter_tensor(z, p)))
    line(head + "product + reduce-scatter", time(lambda: (torch.mm(h, w2, out=p), dist.reduce_scatter_tensor(z, p))))
    del x, w, full, y, h, w2, p, z
dist.destroy_process_group()
