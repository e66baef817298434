"""Triton's product in IEEE f32 against cuBLAS (torch.mm, TF32 off), in turn: triton_peer.py SIZE..."""

import json
import sys
import time

import torch
import triton
import triton.language as tl

TILES = [
    (128, 128, 16, 4, 3), (128, 128, 32, 4, 3), (128, 128, 32, 8, 3), (128, 64, 32, 4, 3),
    (64, 128, 32, 4, 3), (64, 64, 32, 4, 4), (128, 256, 16, 8, 3), (256, 128, 16, 8, 3),
    (64, 64, 16, 4, 4), (128, 128, 16, 8, 4), (32, 64, 32, 4, 4),
]
CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_warps=warps, num_stages=stages)
    for bm, bn, bk, warps, stages in TILES
]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"])
@triton.jit
def product(a, b, c, m, n, k, lda, ldb, ldc,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    block = tl.program_id(0)
    rows, cols = tl.cdiv(m, BM), tl.cdiv(n, BN)
    first = block // (GROUP * cols) * GROUP
    height = min(rows - first, GROUP)
    row = first + block % (GROUP * cols) % height
    col = block % (GROUP * cols) // height
    i = (row * BM + tl.arange(0, BM)) % m
    j = (col * BN + tl.arange(0, BN)) % n
    l = tl.arange(0, BK)
    a_tile = a + i[:, None] * lda + l[None, :]
    b_tile = b + l[:, None] * ldb + j[None, :]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BK)):
        left = k - step * BK
        x = tl.load(a_tile, mask=l[None, :] < left, other=0.0)
        y = tl.load(b_tile, mask=l[:, None] < left, other=0.0)
        sums = tl.dot(x, y, sums, input_precision="ieee")
        a_tile += BK
        b_tile += BK * ldb
    i = row * BM + tl.arange(0, BM)
    j = col * BN + tl.arange(0, BN)
    tl.store(c + i[:, None] * ldc + j[None, :], sums, mask=(i[:, None] < m) & (j[None, :] < n))


def run_triton(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    grid = lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)
    product[grid](a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0))


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(42)
    for size in map(int, sys.argv[1:]):
        a, b = (torch.rand(size, size, device="cuda") * 2 - 1 for _ in range(2))
        c = torch.empty(size, size, device="cuda")
        contenders = {
            "triton": lambda: run_triton(a, b, c),
            "cublas (torch.mm)": lambda: torch.mm(a, b, out=c),
        }
        exact = a.double() @ b.double()
        scale = exact.square().mean().sqrt()
        times, errors, counts = {}, {}, {}
        for name, run in contenders.items():
            run()
            c.fill_(float("nan"))
            run()
            errors[name] = ((c.double() - exact).square().mean().sqrt() / scale).item()
            times[name] = []
        for _ in range(16):
            for name, run in contenders.items():
                count = counts.get(name, 3)
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(count):
                    run()
                torch.cuda.synchronize()
                seconds = (time.perf_counter() - start) / count
                if name in counts:
                    times[name].append(seconds)
                counts.setdefault(name, max(1, min(2000, int(0.02 / seconds))))
        for name, samples in times.items():
            median = sorted(samples)[len(samples) // 2]
            line = {
                "size": size, "product": name, "median_us": round(median * 1e6, 2),
                "tflops": round(2 * size**3 / median / 1e12, 2), "rms_error": errors[name],
            }
            if name == "triton":
                line["config"] = str(product.best_config)
            print(json.dumps(line), flush=True)


main()
