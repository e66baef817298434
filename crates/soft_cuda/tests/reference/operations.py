"""Writes operations.txt: what instructions give, by MPFR and by Python's integers.

    pip install gmpy2 && python operations.py > operations.txt

A header says the bits of the operands, `>`, the bits of the results, the modes, and the code, in which `R` stands for
the mode. The rows below have the operands, `=`, and a result for each mode. Arithmetic is done by MPFR in the format
of the result, with subnormals; integers are Python's. Which NaN a result is, an H200 said.
"""

import random
import gmpy2

FLOAT = ["rn", "rz", "rm", "rp"]
INTEGRAL = ["rni", "rzi", "rmi", "rpi"]
ROUND = {"rn": gmpy2.RoundToNearest, "rz": gmpy2.RoundToZero, "rm": gmpy2.RoundDown, "rp": gmpy2.RoundUp}
# Bits of the exponent and of the mantissa, and the NaN that results are where none is kept.
FORMATS = {
    "f16": (5, 10, 0x7FFF),
    "bf16": (8, 7, 0x7FFF),
    "tf32": (8, 10, 0x3FFFF),
    "f32": (8, 23, 0x7FFFFFFF),
    "f64": (11, 52, 0xFFF8000000000000),
}
INTS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
EXACT = gmpy2.context(precision=3000, emax=1 << 20, emin=-(1 << 20))


def bits_of(name):
    return 1 + sum(FORMATS[name][:2]) if name in FORMATS else int(name.strip("bus"))


def value(bits, name):
    e, m, _ = FORMATS[name]
    sign = -1 if bits >> (e + m) & 1 else 1
    field, units = bits >> m & ((1 << e) - 1), bits & ((1 << m) - 1)
    with EXACT:
        if field == (1 << e) - 1:
            return gmpy2.nan() if units else gmpy2.mpfr(f"{'-' if sign < 0 else ''}inf")
        units, power = (units | 1 << m, field) if field else (units, 1)
        scaled = gmpy2.mul_2exp(gmpy2.mpfr(units), power) if power >= 0 else None
        return sign * gmpy2.div_2exp(scaled, (1 << (e - 1)) - 1 + m)


def context(name, mode):
    e, m, _ = FORMATS[name]
    emax = 1 << (e - 1)
    return gmpy2.context(
        precision=m + 1, emax=emax, emin=4 - emax - (m + 1), subnormalize=True, round=ROUND[mode]
    )


def encode(x, name):
    """The bits of a value that the format has."""
    e, m, nan = FORMATS[name]
    if gmpy2.is_nan(x):
        return nan
    sign = (1 if gmpy2.is_signed(x) else 0) << (e + m)
    if gmpy2.is_infinite(x):
        return sign | ((1 << e) - 1) << m
    if x == 0:
        return sign
    units, power = abs(x).as_mantissa_exp()
    units, power = int(units), int(power)
    least = 1 - ((1 << (e - 1)) - 1) - m
    last = max(power + units.bit_length() - 1 - m, least)
    units = units << (power - last) if power >= last else units >> (last - power)
    return sign | units + (last - least << m)


def kept(bits, source, to):
    """A NaN in another format, made quiet: its sign, and as much of its payload as fits."""
    (e, m, _), (to_e, to_m, _) = FORMATS[source], FORMATS[to]
    payload = (bits & (1 << m) - 1) << 64 >> 64 + m - to_m
    return bits >> e + m << to_e + to_m | ((1 << to_e) - 1) << to_m | 1 << to_m - 1 | payload


def flush(bits, name):
    e, m, _ = FORMATS[name]
    return bits if bits >> m & ((1 << e) - 1) else bits & 1 << (e + m)


def saturate(bits, name):
    x = value(bits, name)
    if not x > 0:
        return 0
    return encode(gmpy2.mpfr(1), name) if x > 1 else bits


OPERATIONS = {
    "add": gmpy2.add,
    "sub": gmpy2.sub,
    "mul": gmpy2.mul,
    "div": gmpy2.div,
    "fma": gmpy2.fma,
    "mad": gmpy2.fma,
    "sqrt": gmpy2.sqrt,
    "rcp": lambda a: gmpy2.div(gmpy2.mpfr(1), a),
}
# The operands of f64 that a NaN comes from, the first one first.
KEPT = {"add": [1, 0], "sub": [1, 0], "mul": [1, 0], "fma": [1, 2, 0], "mad": [1, 2, 0], "div": [0, 1], "sqrt": [0], "rcp": [0]}


def arithmetic(op, name, mode, operands, ftz=False, sat=False):
    if ftz:
        operands = [flush(bits, name) for bits in operands]
    if name == "f64":
        for i in KEPT[op]:
            if gmpy2.is_nan(value(operands[i], name)):
                return kept(operands[i], name, name)
    with context(name, mode):
        result = OPERATIONS[op](*[value(bits, name) for bits in operands])
    result = encode(result, name)
    if ftz:
        result = flush(result, name)
    return saturate(result, name) if sat else result


def integral(x, mode):
    """A finite value rounded to an integer."""
    q = gmpy2.mpq(x)
    down = int(q.numerator // q.denominator)
    up = down if q == down else down + 1
    match mode[:2]:
        case "rz":
            return down if q > 0 else up
        case "rm":
            return down
        case "rp":
            return up
        case _:
            if q - down == up - q:
                return down if down % 2 == 0 else up
            return down if q - down < up - q else up


def signed(bits, width):
    return bits - (1 << width) if bits >> (width - 1) & 1 else bits


def cvt(to, source, mode, bits, ftz=False, sat=False, relu=False):
    """The word of a register of 32 bits or, for 64 bits, of 64."""
    if source in FORMATS:
        if ftz and source == "f32" and to != "f16":
            bits = flush(bits, source)
        x = value(bits, source)
    else:
        width = bits_of(source)
        x = signed(bits, width) if source[0] == "s" else bits
    if to not in FORMATS:
        width = bits_of(to)
        low, high = (-1 << width - 1, (1 << width - 1) - 1) if to[0] == "s" else (0, (1 << width) - 1)
        if source in FORMATS:
            if gmpy2.is_nan(x):
                n = 1 << width - 1 if source == "f64" or width == 64 else 0
            elif gmpy2.is_infinite(x):
                n = high if x > 0 else low
            else:
                n = min(max(integral(x, mode), low), high)
        else:
            n = min(max(x, low), high) if sat else x
        n &= (1 << width) - 1
        register = max(width, 32)
        return (signed(n, width) if to[0] == "s" else n) & ((1 << register) - 1)
    if source in FORMATS and gmpy2.is_nan(x) and not sat:
        if "f64" in [source, to]:
            return kept(bits, source, to)
        if [source, to] == ["bf16", "f32"]:
            return bits << 16
        if to == "tf32":
            return bits >> 13 << 13 if mode == "rna" else FORMATS[to][2] << 13
        return FORMATS[to][2]
    if mode.endswith("i") and gmpy2.is_finite(x):
        sign = gmpy2.is_signed(x)
        with EXACT:
            x = gmpy2.mpfr(integral(x, mode))
            x = -abs(x) if sign else abs(x)
    if mode == "rna":
        # The carry does the rest.
        drop = 23 - FORMATS[to][1]
        result = bits + (1 << drop - 1) >> drop
        if gmpy2.is_infinite(x):
            result = bits >> drop
    else:
        with context(to, mode[:2] or "rn"):
            result = gmpy2.mul(gmpy2.mpz(x) if isinstance(x, int) else x, gmpy2.mpfr(1))
        result = encode(result, to)
    if relu and value(result, to) <= 0:
        result = 0
    if ftz and to == "f32":
        result = flush(result, to)
    if sat:
        result = saturate(result, to)
    if to == "tf32":
        result <<= 13
    return result


def specials(name):
    e, m, _ = FORMATS[name]
    bias = (1 << (e - 1)) - 1
    top = (1 << e) - 1 << m
    one = bias << m
    some = [0, 1, 2, (1 << m) - 1, 1 << m, (1 << m) + 1, one - 1, one, one + 1, one + (1 << m - 1)]
    some += [one - (m + 1 << m), one - (m + 2 << m), top - 1, top, top + (1 << m - 1), top - (1 << m), one + (1 << m)]
    return some + [bits | 1 << (e + m) for bits in some]


def one_of(rng, name):
    """Any number of a type."""
    if name not in FORMATS:
        width = bits_of(name)
        some = [0, 1, 2, (1 << width) - 1, 1 << width - 1, (1 << width - 1) - 1, (1 << width - 1) + 1]
        return rng.choice(some) if rng.random() < 0.4 else rng.getrandbits(width) >> rng.randrange(width)
    e, m, _ = FORMATS[name]
    if rng.random() < 0.3:
        return rng.choice(specials(name))
    bias = (1 << (e - 1)) - 1
    near = min(max(bias + rng.randint(-m - 3, m + 3), 0), 2 * bias)
    field = near if rng.random() < 0.7 else rng.randrange(1 << e)
    mantissa = rng.getrandbits(m)
    if rng.random() < 0.4:
        mantissa &= -1 << rng.randrange(m)
    return rng.getrandbits(1) << (e + m) | field << m | mantissa


def operands_of(rng, name, arity):
    """Operands that often cancel, overflow or underflow."""
    e, m, _ = FORMATS[name]
    operands = [one_of(rng, name) for _ in range(arity)]
    kind = rng.random()
    if arity == 1:
        return operands
    if kind < 0.2:
        operands[-1] = operands[0] ^ 1 << (e + m) ^ rng.choice([0, 0, 1, 3])
    elif kind < 0.3:
        # A product near the smallest numbers.
        least = rng.randint(-m - 1, 1)
        field = operands[0] >> m & ((1 << e) - 1)
        other = min(max(least + (1 << (e - 1)) - 1 - field + (1 << (e - 1)) - 1, 0), (1 << e) - 2)
        operands[1] = rng.getrandbits(1) << (e + m) | other << m | rng.getrandbits(m)
    elif kind < 0.4 and arity == 3:
        with context(name, "rn"):
            product = gmpy2.mul(value(operands[0], name), value(operands[1], name))
        operands[2] = encode(-product, name) ^ rng.choice([0, 0, 1])
    return operands


def tables():
    """The headers and their rows."""
    rng = random.Random(20261127)

    def rows(count, arity, name, expected, modes):
        for _ in range(count):
            operands = operands_of(rng, name, arity)
            yield operands, [expected(operands, mode) for mode in modes]

    for name in ["f32", "f64"]:
        width = [bits_of(name)]
        for op, arity in [("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("mad", 3), ("div", 2), ("sqrt", 1), ("rcp", 1)]:
            variants = [(False, False)]
            if name == "f32":
                variants += [(True, False)]
                if op not in ["div", "sqrt", "rcp"]:
                    variants += [(False, True), (True, True)]
            for ftz, sat in variants:
                suffix = (".ftz" if ftz else "") + (".sat" if sat else "")
                code = f"{op}.R{suffix}.{name} D, {', '.join('ABC'[:arity])};"
                count = 6 if op in ["mad", "sub"] else 8 if ftz or sat else 28
                expected = lambda operands, mode: arithmetic(op, name, mode, operands, ftz, sat)
                yield width * arity, width, FLOAT, code, rows(count, arity, name, expected, FLOAT)

    def conversion(to, source, modes, count, **flags):
        dots = "".join(f".{flag}" for flag in flags)
        code = f"cvt.R{dots}.{to}.{source} D, A;" if modes != [""] else f"cvt{dots}.{to}.{source} D, A;"
        results = [(to in FORMATS and to != "tf32" and bits_of(to)) or max(bits_of(to), 32)]
        expected = lambda operands, mode: cvt(to, source, mode, operands[0], **flags)
        some = ((operands := [one_of(rng, source)], [expected(operands, mode) for mode in modes]) for _ in range(count))
        return [bits_of(source)], results, modes, code, some

    floats = ["f16", "bf16", "f32", "f64"]
    for source in floats:
        for to in INTS:
            yield conversion(to, source, INTEGRAL, 8)
        for to in floats:
            if bits_of(to) < bits_of(source) or bits_of(to) == bits_of(source) and to != source:
                yield conversion(to, source, FLOAT, 12)
            elif bits_of(to) > bits_of(source):
                yield conversion(to, source, [""], 4)
            if to == source:
                yield conversion(to, source, INTEGRAL, 10)
    for source in INTS:
        for to in floats:
            yield conversion(to, source, FLOAT, 6)
    for to in INTS:
        for source in INTS:
            # Only where it says something.
            fits = bits_of(to) - (to[0] == "s") >= bits_of(source) - (source[0] == "s")
            if to != source and not (fits and (source[0] == "u" or to[0] == "s")):
                yield conversion(to, source, [""], 4, sat=True)
    yield conversion("s32", "f32", INTEGRAL, 6, ftz=True)
    yield conversion("f32", "f32", INTEGRAL, 6, ftz=True)
    yield conversion("f32", "f32", INTEGRAL, 6, ftz=True, sat=True)
    yield conversion("f32", "f64", FLOAT, 6, ftz=True)
    yield conversion("f32", "f64", FLOAT, 6, sat=True)
    yield conversion("f16", "f32", FLOAT, 6, ftz=True)
    yield conversion("f16", "f32", FLOAT, 6, sat=True)
    yield conversion("f16", "f32", ["rn", "rz"], 6, relu=True)
    yield conversion("bf16", "f32", ["rn", "rz"], 6, relu=True)
    yield conversion("tf32", "f32", ["rna", "rn", "rz"], 20)
    yield conversion("tf32", "f32", ["rn", "rz"], 6, relu=True)
    for to in ["f16x2", "bf16x2"]:
        one = to[:-2]
        pair = lambda operands, mode: cvt(one, "f32", mode, operands[0]) << 16 | cvt(one, "f32", mode, operands[1])
        code = f"cvt.R.{to}.f32 D, A, B;"
        yield [32, 32], [32], ["rn", "rz"], code, rows(6, 2, "f32", pair, ["rn", "rz"])
    yield from integers(rng)


def integers(rng):
    def table(name, arity, code, expected, count, results=None):
        width = bits_of(name)
        mask = (1 << width) - 1

        def rows():
            for _ in range(count):
                operands = [one_of(rng, name) for _ in range(arity)]
                yield operands, [expected(*operands) & mask]

        return [width] * arity, [width], [""], code, rows()

    def amounts(code, expected):
        def rows():
            for _ in range(16):
                a, b = rng.choice([rng.getrandbits(32), rng.randrange(40)]), rng.choice([rng.randrange(40), rng.getrandbits(32)])
                yield [a, b], [expected(a, b) & 0xFFFFFFFF]

        return [32, 32], [32], [""], code, rows()

    for name in ["u32", "s32", "u64", "s64"]:
        width = bits_of(name)
        full = 1 << width
        # The carry: 1 if nothing was borrowed.
        add = lambda a, b, c=0: ((a + b + c) % full, (a + b + c) // full)
        sub = lambda a, b, c=1: add(a, full - 1 - b, c)
        number = lambda x: signed(x, width) if name[0] == "s" else x
        low = lambda a, b: a * b % full
        high = lambda a, b: (number(a) * number(b) >> width) % full
        yield table(name, 2, f"add.cc.{name} T, A, B; addc.{name} D, 0, 0;", lambda a, b: add(a, b)[1], 8)
        yield table(name, 2, f"sub.cc.{name} T, A, B; addc.{name} D, 0, 0;", lambda a, b: sub(a, b)[1], 8)
        yield table(name, 3, f"sub.cc.{name} T, A, B; subc.{name} D, C, 0;", lambda a, b, c: sub(c, 0, sub(a, b)[1])[0], 8)
        yield table(name, 3, f"add.cc.{name} T, A, B; subc.{name} D, B, C;", lambda a, b, c: sub(b, c, add(a, b)[1])[0], 8)
        yield table(
            name, 3, f"sub.cc.{name} T, A, B; subc.cc.{name} T, B, C; addc.{name} D, T, 0;",
            lambda a, b, c: (lambda t: add(t[0], 0, t[1])[0])(sub(b, c, sub(a, b)[1])), 12,
        )
        yield table(
            name, 3, f"add.cc.{name} T, A, B; addc.cc.{name} T, B, C; subc.{name} D, T, A;",
            lambda a, b, c: (lambda t: sub(t[0], a, t[1])[0])(add(b, c, add(a, b)[1])), 8,
        )
        for part, product in [("lo", low), ("hi", high)]:
            yield table(
                name, 3, f"mad.{part}.cc.{name} T, A, B, C; addc.{name} D, T, 0;",
                lambda a, b, c: (lambda t: add(t[0], 0, t[1])[0])(add(product(a, b), c)), 8,
            )
            yield table(
                name, 3, f"sub.cc.{name} T, A, B; madc.{part}.{name} D, A, B, C;",
                lambda a, b, c: add(product(a, b), c, sub(a, b)[1])[0], 8,
            )
            yield table(
                name, 3, f"add.cc.{name} T, A, B; madc.{part}.cc.{name} T, A, C, B; subc.{name} D, T, 1;",
                lambda a, b, c: (lambda t: sub(t[0], 1, t[1])[0])(add(product(a, c), b, add(a, b)[1])), 8,
            )
    clamped = lambda x: min(max(x, -1 << 31), (1 << 31) - 1)
    for name in ["u32", "s32"]:
        short = (lambda x: signed(x & 0xFFFFFF, 24)) if name == "s32" else lambda x: x & 0xFFFFFF
        for part, shift in [("lo", 0), ("hi", 16)]:
            half = lambda a, b: short(a) * short(b) >> shift
            yield table(name, 2, f"mul24.{part}.{name} D, A, B;", half, 12)
            yield table(name, 3, f"mad24.{part}.{name} D, A, B, C;", lambda a, b, c: half(a, b) + c, 12)
    s = lambda x: signed(x, 32)
    word = lambda x: s(x & 0xFFFFFFFF)
    yield table("s32", 3, "mad24.hi.sat.s32 D, A, B, C;",
                lambda a, b, c: clamped(word(signed(a & 0xFFFFFF, 24) * signed(b & 0xFFFFFF, 24) >> 16) + s(c)), 16)
    yield table("s32", 3, "mad.hi.sat.s32 D, A, B, C;", lambda a, b, c: clamped((s(a) * s(b) >> 32) + s(c)), 16)
    amount = {"clamp": lambda b: min(b, 32), "wrap": lambda b: b % 32}
    for mode, of in amount.items():
        yield amounts(f"bmsk.{mode}.b32 D, A, B;", lambda a, b: sum(1 << i for i in range(of(a), min(of(a) + of(b), 32))))
        yield amounts(f"szext.{mode}.u32 D, A, B;", lambda a, b: a & (1 << of(b)) - 1)
        yield amounts(f"szext.{mode}.s32 D, A, B;", lambda a, b: signed(a & (1 << of(b)) - 1, of(b)) if of(b) else 0)

    def fns(mask, base, offset):
        offset = s(offset)
        if offset == 0:
            return base if mask >> base & 1 else -1
        up = range(base, 32) if offset > 0 else range(base, -1, -1)
        found = [i for i in up if mask >> i & 1]
        return found[abs(offset) - 1] if abs(offset) <= len(found) else -1

    def fns_rows():
        for _ in range(24):
            mask, base = rng.getrandbits(32) & rng.getrandbits(32), rng.randrange(32)
            offset = rng.randint(-9, 9) & 0xFFFFFFFF
            yield [mask, base, offset], [fns(mask, base, offset) & 0xFFFFFFFF]

    yield [32, 32, 32], [32], [""], "and.b32 B, B, 31; fns.b32 D, A, B, C;", fns_rows()
    for a_type in ["u32", "s32"]:
        for b_type in ["u32", "s32"]:
            part = lambda x, at, bits, kind: (signed if kind == "s32" else lambda v, _: v)(x >> at & (1 << bits) - 1, bits)
            for mode, first in [("lo", 0), ("hi", 2)]:
                yield table(
                    "u32", 3, f"dp2a.{mode}.{a_type}.{b_type} D, A, B, C;",
                    lambda a, b, c: c + sum(part(a, 16 * i, 16, a_type) * part(b, 8 * (first + i), 8, b_type) for i in range(2)), 6,
                )
    for to, bits in [("u16", 16), ("s16", 16), ("u8", 8), ("s8", 8), ("u4", 4), ("s4", 4), ("u2", 2), ("s2", 2)]:
        low, high = (0, (1 << bits) - 1) if to[0] == "u" else (-1 << bits - 1, (1 << bits - 1) - 1)
        one = lambda x: min(max(s(x), low), high) & (1 << bits) - 1
        pair = lambda a, b, c=0: c << 2 * bits | one(a) << bits | one(b)
        last, arity = (".b32", 3) if bits < 16 else ("", 2)
        yield table("s32", arity, f"cvt.pack.sat.{to}.s32{last} D, {', '.join('ABC'[:arity])};", pair, 6)
    yield from video(rng)


def video(rng):
    """Parts of registers, shifted right."""
    parts = {"": (32, 0), ".h0": (16, 0), ".h1": (16, 16), ".b0": (8, 0), ".b1": (8, 8), ".b2": (8, 16), ".b3": (8, 24)}
    second = {"": lambda x, c: x, ".add": lambda x, c: x + c, ".min": min, ".max": max}

    def one(kind, mode, then):
        (a_part, a_at), (b_part, b_at) = [rng.choice(list(parts.items())) for _ in range(2)]
        extract = lambda word, bits, first: word >> first & (1 << bits) - 1
        number = (lambda x, bits: signed(x, bits)) if kind == "s32" else lambda x, bits: x
        sat = rng.choice(["", ".sat"])
        code = f"vshr.{kind}.{kind}.u32{sat}.{mode}{then} D, A{a_part}, B{b_part}{', C' * bool(then)};"
        rows = []
        for _ in range(5):
            operands = [one_of(rng, "u32") for _ in range(3 if then else 2)]
            if rng.random() < 0.7:
                operands[1] = rng.randrange(40) * 0x01010101
            by = extract(operands[1], *b_at)
            x = number(extract(operands[0], *a_at), a_at[0]) >> (min(by, 32) if mode == "clamp" else by % 32)
            rows.append((operands, [second[then](x, number(operands[-1], 32)) & 0xFFFFFFFF]))
        return [32] * len(operands), [32], [""], code, rows

    for kind in ["u32", "s32"]:
        for mode in ["clamp", "wrap"]:
            for then in second:
                yield one(kind, mode, then)


if __name__ == "__main__":
    for operands, results, modes, code, rows in tables():
        join = lambda words: " ".join(str(word) for word in words)
        print(f"{join(operands)} > {join(results)} | {' '.join(modes) or '-'} | {code}")
        for given, expected in rows:
            print(" ".join(f"{word:x}" for word in given), "=", " ".join(f"{word:x}" for word in expected))
