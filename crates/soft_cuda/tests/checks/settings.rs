//! The checks are off unless asked for.

use super::{Twin, module, run};
use soft_cuda::{Checks, Isa, Schedule};

#[test]
fn each_check_is_on_by_itself() {
    let race = "  st.shared.b32 [%r4], %r1;
  xor.b32 %r10, %r1, 32; mad.lo.u32 %r11, %r10, 4, %r3;
  bar.warp.sync -1; ld.shared.b32 %r12, [%r11];";
    let uninitialised = "  ld.shared.b32 %r12, [%r4];";
    let sync = "  bar.warp.sync -1; mov.b32 %r10, 1; setp.ne.u32 %p2, %r1, 0;
  @%p2 exit; @%p1 shfl.sync.idx.b32 %r11, %r10, 0, 31, 2;";
    for (body, own) in [
        (race, Checks { races: true, ..Checks::NONE }),
        (uninitialised, Checks { memory: true, ..Checks::NONE }),
        (sync, Checks { sync: true, ..Checks::NONE }),
    ] {
        let ptx = module(body, "BUG|");
        let twin = Twin { name: "settings", found: "", threads: 64, blocks: 1, body };
        let found = |checks| run(&ptx, &twin, checks, Schedule::InOrder, Isa::Auto).is_some();
        let others =
            Checks { races: !own.races, memory: !own.memory, sync: !own.sync, proxies: false };
        // The second warp reads what the first one has not written yet: without the check of
        // races, that of memory sees it.
        let seen_otherwise = own.races;
        assert!(found(own), "{own}");
        assert!(!found(Checks::NONE), "{own}");
        assert!(!found(others) || seen_otherwise, "{own}");
    }
}
