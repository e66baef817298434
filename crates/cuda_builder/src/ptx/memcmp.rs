//! A definition of `memcmp`, which rustc calls to compare slices.
//!
//! `core` expects it from a library at link time, and PTX is not linked.

/// Its definition.
pub(super) const MEMCMP: &str = "\
.func (.param .b32 func_retval0) memcmp(
\t.param .b64 memcmp_param_0,
\t.param .b64 memcmp_param_1,
\t.param .b64 memcmp_param_2
)
{
\t.reg .pred \t%p<3>;
\t.reg .b32 \t%r<4>;
\t.reg .b64 \t%rd<4>;

\tld.param.b64 \t%rd1, [memcmp_param_0];
\tld.param.b64 \t%rd2, [memcmp_param_1];
\tld.param.b64 \t%rd3, [memcmp_param_2];
\tmov.b32 \t%r3, 0;
$memcmp_next:
\tsetp.eq.b64 \t%p1, %rd3, 0;
\t@%p1 bra \t$memcmp_done;
\tld.u8 \t%r1, [%rd1];
\tld.u8 \t%r2, [%rd2];
\tsub.s32 \t%r3, %r1, %r2;
\tadd.s64 \t%rd1, %rd1, 1;
\tadd.s64 \t%rd2, %rd2, 1;
\tadd.s64 \t%rd3, %rd3, -1;
\tsetp.eq.b32 \t%p2, %r3, 0;
\t@%p2 bra \t$memcmp_next;
$memcmp_done:
\tst.param.b32 \t[func_retval0], %r3;
\tret;
}
";
