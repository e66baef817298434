"""The framework's sequence for the same layers: all-gather, product; product, reduce-scatter.

Rounds, batches and elements are those of `measure`."""
import json, statistics, torch, torch.distributed as dist

dist.init_process_group("nccl"); rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)

def times(flops, *works):
    count, rounds = int(min(max(7e13 / flops, 2), 30)), [[] for _ in works]
    for i in range(6):
        for work, found in zip(works, rounds):
            torch.cuda.synchronize(); dist.barrier(); torch.cuda.synchronize()
            start, end = torch.cuda.Event(True), torch.cuda.Event(True)
            start.record()
            for _ in range(count): work()
            end.record(); torch.cuda.synchronize()
            if i > 0: found.append(start.elapsed_time(end) / count)
    slowest = torch.tensor([statistics.median(found) for found in rounds], device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.tolist()

def lines(head, names, found):
    for what, ms in zip(names, found):
        if rank == 0: print(json.dumps({"transport": "framework", "what": head + what, "value": round(ms, 4)}), flush=True)

fused = None
try:
    import torch.distributed._symmetric_memory as symmetric
    symmetric.enable_symm_mem_for_group(dist.group.WORLD.group_name); fused = dist.group.WORLD.group_name
except Exception as error: print("no fused form:", error, flush=True)
# Multiples of 1/128.
r = lambda *s: (torch.randint(-128, 128, s, device="cuda", dtype=torch.int16) / 128).bfloat16()
empty = lambda *s: torch.empty(*s, device="cuda", dtype=torch.bfloat16)
for name, m, k, n in [("8B MLP", 2048, 4096, 28672), ("8B MLP", 8192, 4096, 28672), ("70B MLP", 2048, 8192, 57344), ("70B MLP", 8192, 8192, 57344)]:
    head, inner = f"{name}, M {m}: ", n // 2
    x, w, full, y = r(m // size, k), r(k, n // size), r(m, k), empty(m, n // size)
    gather = lambda: (dist.all_gather_into_tensor(full, x), torch.mm(full, w, out=y))
    lines(head, ["column-parallel product alone", "all-gather + product"], times(2 * m * n // size * k, lambda: torch.mm(full, w, out=y), gather))
    h, w2, p, z = r(m, inner // size), r(inner // size, k), empty(m, k), empty(m // size, k)
    reduce = lambda: (torch.mm(h, w2, out=p), dist.reduce_scatter_tensor(z, p))
    lines(head, ["row-parallel product alone", "product + reduce-scatter"], times(2 * m * k * inner // size, lambda: torch.mm(h, w2, out=p), reduce))
    if fused:
        f1 = lambda: torch.ops.symm_mem.fused_all_gather_matmul(x, [w], gather_dim=0, group_name=fused)
        f2 = lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(h, w2, "sum", scatter_dim=0, group_name=fused)
        lines(head, ["all-gather + product, its fused form"], times(2 * m * n // size * k, f1))
        lines(head, ["product + reduce-scatter, its fused form"], times(2 * m * k * inner // size, f2))
    del x, w, full, y, h, w2, p, z
dist.destroy_process_group()
