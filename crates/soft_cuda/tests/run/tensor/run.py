#!/usr/bin/env python3
"""Launches what plan.csv lists of tensor.ptx on a GPU and writes results.bin."""
import csv
import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
def check(status, what):
    if status:
        raise SystemExit(f"{what}: error {status}")
def call(name, *args):
    check(getattr(cuda, name)(*args), name)

WORDS = 16384
call("cuInit", 0)
device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), open("tensor.ptx", "rb").read() + b"\0")

def launch(kernel, blocks, threads, params):
    function = ctypes.c_void_p()
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode()), kernel)
    pointers = (ctypes.c_void_p * len(params))(*[ctypes.addressof(p) for p in params])
    call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, pointers, None)

def allocate():
    pointer = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(4 * WORDS))
    return pointer

a, b, c, d = (allocate() for _ in range(4))
with open("plan.csv") as plan, open("results.bin", "wb") as out:
    for row in csv.DictReader(plan):
        fills = [row["fill_a"], row["fill_a"], row["fill_c"]]
        for i, (pointer, fill) in enumerate(zip((a, b, c), fills)):
            numbers = [ctypes.c_uint32(int(x)) for x in [4 * int(row["seed"]) + i, *fill.split()]]
            launch("fill", 2 * WORDS // 256 if fill.split()[0:2] != ["8", "23"] else WORDS // 256, 256, [pointer, *numbers])
        params = [a, b, c, d]
        if row["kernel"].startswith("wgmma"):
            params += [ctypes.c_uint64(int(row["a_descriptor"])), ctypes.c_uint32(int(row["a_offset"])),
                       ctypes.c_uint64(int(row["b_descriptor"])), ctypes.c_uint32(int(row["b_offset"])),
                       ctypes.c_uint32(int(row["scale"]))]
        launch(row["kernel"], int(row["blocks"]), int(row["threads"]), params)
        check(cuda.cuCtxSynchronize(), row["kernel"])
        host = (ctypes.c_uint32 * int(row["words"]))()
        call("cuMemcpyDtoH_v2", host, d, ctypes.c_size_t(ctypes.sizeof(host)))
        out.write(bytes(host))
