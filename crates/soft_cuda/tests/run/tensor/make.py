#!/usr/bin/env python3
"""Writes tensor.ptx, kernels of one matrix instruction each, and plan.csv, their launches."""

FILL = """
// Element i of `out` is a float with `mbits` bits of mantissa: its exponent field is base + h % span,
// and where `mask` says so it is a zero (kind 1), a subnormal (2), an infinity or a NaN (3).
.visible .entry fill(.param .u64 p_out, .param .u32 p_seed, .param .u32 p_ebits, .param .u32 p_mbits,
  .param .u32 p_base, .param .u32 p_span, .param .u32 p_kind, .param .u32 p_mask, .param .u32 p_mmask) {
  .reg .b32 %r<40>; .reg .b64 %rd<4>; .reg .pred %p<8>; .reg .b16 %h<2>;
  ld.param.u64 %rd1, [p_out]; cvta.to.global.u64 %rd1, %rd1;
  ld.param.u32 %r1, [p_seed]; ld.param.u32 %r2, [p_ebits]; ld.param.u32 %r3, [p_mbits];
  ld.param.u32 %r4, [p_base]; ld.param.u32 %r5, [p_span]; ld.param.u32 %r6, [p_kind];
  ld.param.u32 %r7, [p_mask]; ld.param.u32 %r31, [p_mmask];
  mov.u32 %r8, %ctaid.x; mov.u32 %r9, %ntid.x; mov.u32 %r10, %tid.x;
  mad.lo.u32 %r8, %r8, %r9, %r10;
  mul.lo.u32 %r11, %r8, 0x9E3779B9; mad.lo.u32 %r11, %r1, 0x85EBCA6B, %r11;
  shr.u32 %r12, %r11, 16; xor.b32 %r11, %r11, %r12; mul.lo.u32 %r11, %r11, 0x7feb352d;
  shr.u32 %r12, %r11, 15; xor.b32 %r11, %r11, %r12; mul.lo.u32 %r11, %r11, 0x846ca68b;
  shr.u32 %r12, %r11, 16; xor.b32 %r11, %r11, %r12;
  xor.b32 %r13, %r11, 0x9E3779B9; mul.lo.u32 %r13, %r13, 0x7feb352d;
  shr.u32 %r12, %r13, 15; xor.b32 %r13, %r13, %r12; mul.lo.u32 %r13, %r13, 0x846ca68b;
  shr.u32 %r12, %r13, 16; xor.b32 %r13, %r13, %r12;
  and.b32 %r14, %r11, 1; shr.u32 %r15, %r11, 1;
  mov.u32 %r16, 1; shl.b32 %r17, %r16, %r3; sub.u32 %r17, %r17, 1; and.b32 %r15, %r15, %r17;
  and.b32 %r15, %r15, %r31;
  rem.u32 %r18, %r13, %r5; add.u32 %r18, %r18, %r4;
  shr.u32 %r19, %r13, 8; and.b32 %r20, %r19, %r7;
  setp.eq.u32 %p1, %r20, 0;
  setp.eq.u32 %p2, %r6, 1; and.pred %p2, %p2, %p1;
  setp.eq.u32 %p3, %r6, 2; and.pred %p3, %p3, %p1;
  setp.eq.u32 %p4, %r6, 3; and.pred %p4, %p4, %p1;
  @%p2 mov.u32 %r18, 0; @%p2 mov.u32 %r15, 0;
  @%p3 mov.u32 %r18, 0;
  shl.b32 %r21, %r16, %r2; sub.u32 %r21, %r21, 1;
  @%p4 mov.u32 %r18, %r21;
  and.b32 %r22, %r19, 16; setp.eq.u32 %p5, %r22, 0; and.pred %p5, %p5, %p4;
  @%p5 mov.u32 %r15, 0;
  shl.b32 %r18, %r18, %r3; or.b32 %r15, %r15, %r18;
  add.u32 %r23, %r2, %r3; shl.b32 %r14, %r14, %r23; or.b32 %r15, %r15, %r14;
  setp.eq.u32 %p6, %r23, 15;
  @!%p6 bra WORD;
  mul.wide.u32 %rd2, %r8, 2; add.u64 %rd2, %rd1, %rd2; cvt.u16.u32 %h1, %r15; st.global.b16 [%rd2], %h1; ret;
WORD:
  mul.wide.u32 %rd2, %r8, 4; add.u64 %rd2, %rd1, %rd2; st.global.b32 [%rd2], %r15; ret;
}
"""
PARAMS = ".param .u64 p_a, .param .u64 p_b, .param .u64 p_c, .param .u64 p_d"
POINTERS = """  ld.param.u64 %rd1, [p_a]; ld.param.u64 %rd2, [p_b]; ld.param.u64 %rd3, [p_c]; ld.param.u64 %rd4, [p_d];
  cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2; cvta.to.global.u64 %rd3, %rd3; cvta.to.global.u64 %rd4, %rd4;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
"""
texts, plan = [FILL], []
FLOATS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 23), "f32": (8, 23)}
# base - bias, span, kind, mask, mmask
MODES = {
    "near": (-2, 4, 0, 0, -1), "wide": (-12, 24, 0, 0, -1), "zeros": (-2, 4, 1, 3, -1),
    "subnormal": (-12, 24, 2, 3, -1), "all": (None, None, 0, 0, -1), "special": (-2, 4, 3, 15, -1),
    "powers": (-14, 28, 0, 0, 0), "holes": (-12, 24, 1, 1, -1),
}

def names(reg, n):
    return "{" + ", ".join(f"%{reg}{i}" for i in range(n)) + "}"

def loads(reg, base, n, index="%r4"):
    out = f"  mul.wide.u32 %rd5, {index}, {4 * n}; add.u64 %rd5, {base}, %rd5;\n"
    return out + "".join(f"  ld.global.b32 %{reg}{i}, [%rd5+{4 * i}];\n" for i in range(n))

def stores(reg, n):
    out = f"  mul.wide.u32 %rd5, %r4, {4 * n}; add.u64 %rd5, %rd4, %rd5;\n"
    return out + "".join(f"  st.global.b32 [%rd5+{4 * i}], %{reg}{i};\n" for i in range(n))

def case(kernel, blocks, threads, ty, cty, mode, words, a=(0, 0), b=(0, 0), scale=1):
    plan.append((kernel, blocks, threads, ty, cty, mode, words, *a, *b, scale))

def mma(shape, dty, ty, na, nb, nc):
    name = f"mma_{shape}_{dty}_{ty}"
    texts.append(f""".visible .entry {name}({PARAMS}) {{
  .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .b32 %a<{na}>; .reg .b32 %b<{nb}>; .reg .b32 %c<{nc}>; .reg .b32 %d<{nc}>;
{POINTERS}{loads("a", "%rd1", na)}{loads("b", "%rd2", nb)}{loads("c", "%rd3", nc)}
  mma.sync.aligned.{shape}.row.col.{dty}.{ty}.{ty}.{dty} {names("d", nc)}, {names("a", na)}, {names("b", nb)}, {names("c", nc)};
{stores("d", nc)}  ret;
}}
""")
    for mode in MODES:
        case(name, 4, 32, ty, dty, mode, 4 * 32 * nc)

mma("m16n8k16", "f32", "f16", 4, 2, 4)
mma("m16n8k16", "f16", "f16", 4, 2, 2)
mma("m16n8k16", "f32", "bf16", 4, 2, 4)
mma("m16n8k8", "f32", "f16", 2, 1, 4)
mma("m16n8k8", "f16", "f16", 2, 1, 2)
mma("m16n8k8", "f32", "bf16", 2, 1, 4)
mma("m16n8k8", "f32", "tf32", 4, 2, 4)
mma("m16n8k4", "f32", "tf32", 2, 1, 4)

def wgmma(n, dty, ty, regs=False, ta=0, tb=0, na=1, nb=1):
    nd = n // 2 if dty == "f32" else n // 4
    k = 8 if ty == "tf32" else 16
    name = f"wgmma_n{n}_{dty}_{ty}" + ("_rs" if regs else "") + (f"_t{ta}{tb}" if ta or tb else "") + ("_neg" if na < 0 else "") + ("_both" if nb < 0 else "")
    trans = "" if ty == "tf32" else (f", {tb}" if regs else f", {ta}, {tb}")
    first = names("a", 4) if regs else "%rd11"
    texts.append(f""".visible .entry {name}({PARAMS}, .param .u64 p_adesc, .param .u32 p_aoff, .param .u64 p_bdesc, .param .u32 p_boff, .param .u32 p_scale) {{
  .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .b32 %a<4>; .reg .b32 %d<{nd}>; .reg .pred %p<3>;
  .shared .align 1024 .b8 smem[49152];
{POINTERS}  mov.u32 %r5, smem; mov.u32 %r6, %r3;
COPY:
  mul.wide.u32 %rd5, %r6, 4; add.u64 %rd6, %rd1, %rd5; add.u64 %rd7, %rd2, %rd5; mad.lo.u32 %r7, %r6, 4, %r5;
  ld.global.b32 %r8, [%rd6];
  setp.lt.u32 %p1, %r6, 2048;
  @!%p1 bra OTHER;
  ld.global.b32 %r8, [%rd6]; bra BOTH;
OTHER:
  ld.global.b32 %r8, [%rd7];
BOTH:
  st.shared.b32 [%r7], %r8;
  add.u32 %r6, %r6, 128; setp.lt.u32 %p1, %r6, 12288; @%p1 bra COPY;
{loads("a", "%rd1", 4, "%r3") if regs else ""}{loads("d", "%rd3", nd)}
  ld.param.u64 %rd11, [p_adesc]; ld.param.u32 %r9, [p_aoff]; add.u32 %r9, %r9, %r5; shr.u32 %r9, %r9, 4; and.b32 %r9, %r9, 16383; cvt.u64.u32 %rd10, %r9; or.b64 %rd11, %rd11, %rd10;
  ld.param.u64 %rd12, [p_bdesc]; ld.param.u32 %r9, [p_boff]; add.u32 %r9, %r9, %r5; shr.u32 %r9, %r9, 4; and.b32 %r9, %r9, 16383; cvt.u64.u32 %rd10, %r9; or.b64 %rd12, %rd12, %rd10;
  ld.param.u32 %r10, [p_scale]; setp.ne.u32 %p2, %r10, 0;
  fence.proxy.async.shared::cta; bar.sync 0;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n{n}k{k}.{dty}.{ty}.{ty} {names("d", nd)}, {first}, %rd12, %p2, {na}, {nb}{trans};
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
{stores("d", nd)}  ret;
}}
""")
    return name, 128 * nd

def desc(swizzle, lbo, sbo):
    return {0: 0, 128: 1, 64: 2, 32: 3}[swizzle] << 62 | (sbo >> 4) << 32 | (lbo >> 4) << 16

A, B = 0, 8192
def k_major(swizzle):
    """Descriptors of A (64 x 32 bytes) and B (n x 32 bytes), K-major; none: core matrices 128 bytes apart along K."""
    if swizzle == 0:
        return (desc(0, 128, 256), A), (desc(0, 128, 256), B)
    return (desc(swizzle, 0, 8 * swizzle), A), (desc(swizzle, 0, 8 * swizzle), B)

for ty in ["f16", "bf16", "tf32"]:
    name, words = wgmma(16, "f32", ty)
    for mode in MODES:
        case(name, 1, 128, ty, "f32", mode, words, *k_major(128))
name, words = wgmma(16, "f16", "f16")
for mode in MODES:
    case(name, 1, 128, "f16", "f16", mode, words, *k_major(128))
for ty in ["bf16", "tf32"]:
    name, words = wgmma(24, "f32", ty)
    for swizzle in [0, 32, 64, 128]:
        case(name, 1, 128, ty, "f32", "near", words, *k_major(swizzle))
    # A step of 32 bytes along K inside of the swizzled rows.
    for swizzle in [64, 128]:
        (a, _), (b, _) = k_major(swizzle)
        case(name, 1, 128, ty, "f32", "near", words, (a, A + 32), (b, B + 32))
    # Other strides, without a swizzle.
    case(name, 1, 128, ty, "f32", "near", words, (desc(0, 2048, 128), A), (desc(0, 4096, 192), B))
    case(name, 1, 128, ty, "f32", "near", words, *k_major(128), 0)
name, words = wgmma(24, "f32", "f16", True)
case(name, 1, 128, "f16", "f32", "near", words, *k_major(64))
name, words = wgmma(24, "f32", "tf32", True)
case(name, 1, 128, "tf32", "f32", "near", words, *k_major(64))
name, words = wgmma(24, "f32", "f16", False, 0, 0, -1, 1)
case(name, 1, 128, "f16", "f32", "near", words, *k_major(64))
name, words = wgmma(24, "f32", "f16", False, 0, 0, -1, -1)
case(name, 1, 128, "f16", "f32", "special", words, *k_major(64))
name, words = wgmma(256, "f32", "bf16")
case(name, 1, 128, "bf16", "f32", "wide", words, *k_major(128))
name, words = wgmma(8, "f16", "f16")
case(name, 1, 128, "f16", "f16", "near", words, *k_major(0))
# MN-major: chunks of 8 elements along M or N; swizzled, rows of `swizzle` bytes.
for ta, tb, n in [(1, 0, 32), (0, 1, 32), (1, 1, 32), (0, 1, 128)]:
    name, words = wgmma(n, "f32", "bf16", False, ta, tb)
    for swizzle in [0, 32, 64, 128] if n == 32 else [64, 128]:
        a, b = k_major(swizzle)
        if n == 32 and swizzle == 128 and tb:
            continue
        if swizzle == 0:
            # LBO along K, SBO along M or N.
            mn = desc(0, 1152, 128)
        else:
            mn = desc(swizzle, 2 * 8 * swizzle, 8 * swizzle)
        case(name, 1, 128, "bf16", "f32", "near", words, (mn if ta else a[0], A), (mn if tb else b[0], B))
name, words = wgmma(32, "f32", "bf16", True, 0, 1)
case(name, 1, 128, "bf16", "f32", "near", words, (0, A), (desc(32, 512, 256), B))

texts.append(f""".visible .entry ldmatrix({PARAMS}) {{
  .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .b32 %d<15>;
  .shared .align 128 .b8 smem[1024]; .shared .align 128 .b8 back[1024];
{POINTERS}{loads("d", "%rd1", 8)}  mov.u32 %r5, smem; mad.lo.u32 %r6, %r3, 32, %r5;
  st.shared.v4.b32 [%r6], {{%d0, %d1, %d2, %d3}}; st.shared.v4.b32 [%r6+16], {{%d4, %d5, %d6, %d7}};
  mul.lo.u32 %r7, %r3, 37; and.b32 %r7, %r7, 63; mad.lo.u32 %r8, %r7, 16, %r5;
  mov.u32 %r9, back; mul.lo.u32 %r7, %r3, 13; and.b32 %r7, %r7, 31; mad.lo.u32 %r10, %r7, 16, %r9;
  bar.warp.sync -1;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%d0, %d1, %d2, %d3}}, [%r8];
  ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%d4, %d5, %d6, %d7}}, [%r8];
  ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%d8, %d9}}, [%r8];
  ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {{%d10}}, [%r8];
  movmatrix.sync.aligned.m8n8.trans.b16 %d11, %d0;
  stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r10], {{%d0, %d1, %d2, %d3}};
  stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r10], {{%d4}};
  bar.warp.sync -1;
  mad.lo.u32 %r11, %r3, 16, %r9; ld.shared.v2.b32 {{%d12, %d13}}, [%r11]; ld.shared.b32 %d14, [%r11+8];
{stores("d", 15)}  ret;
}}
""")
case("ldmatrix", 1, 32, "bf16", "f32", "near", 32 * 15)

with open("tensor.ptx", "w") as file:
    file.write(".version 8.0\n.target sm_90a\n.address_size 64\n" + "".join(texts))
with open("plan.csv", "w") as file:
    print("kernel,blocks,threads,type,accumulator,inputs,words,a_descriptor,a_offset,b_descriptor,b_offset,scale,seed,fill_a,fill_c", file=file)
    for seed, (kernel, blocks, threads, ty, cty, mode, words, *rest) in enumerate(plan, 1):
        def fill(name):
            ebits, mbits = FLOATS[name]
            bias = (1 << ebits - 1) - 1
            low, span, kind, mask, mmask = MODES[mode]
            if mode == "all":
                base, span = 0, (1 << ebits) - 1
            else:
                base = bias + low
            return f"{ebits} {mbits} {base} {span} {kind} {mask} {mmask & 0xffffffff}"
        print(kernel, blocks, threads, ty, cty, mode, words, *rest, seed, fill(ty), fill(cty), sep=",", file=file)
