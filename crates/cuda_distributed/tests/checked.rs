//! Every schedule with all checks of the software device, in a process of its own.

mod common;

use common::{devices, integers, on_every_rank};
use cuda_distributed::{DistributedMatrix, Distribution, Schedule, Settings, Transport, gemm};
use cuda_gemm::{Matrix, bf16, soft, soft_cuda};

#[test]
fn no_schedule_races_leaks_or_reads_what_is_not_written() {
    let checks = Some(soft_cuda::Checks::ALL);
    soft::configure_with(soft::Settings { checks, ..soft::Settings::default() }).unwrap();
    let [rows, columns] = [Distribution::Rows, Distribution::Columns];
    for transport in [Transport::Copies, Transport::Host] {
        let settings = Settings { transport, ..Settings::default() };
        let results = on_every_rank(&devices(3), &settings, |world| {
            for (of_a, of_b, of_c, schedule) in [
                (rows, columns, columns, Schedule::Gather),
                (rows, rows, rows, Schedule::Gather),
                (columns, rows, rows, Schedule::Reduce),
                (columns, rows, Distribution::Replicated, Schedule::Reduce),
            ] {
                let (a, b) = (integers(40, 33, 1), integers(33, 24, 2));
                let mut a = DistributedMatrix::<bf16>::from_host(world.clone(), &a, of_a)?;
                let b = DistributedMatrix::<bf16>::from_host(world.clone(), &b, of_b)?;
                let mut c = DistributedMatrix::<bf16>::zeros(world.clone(), [40, 24], of_c)?;
                for panels in [1, 2] {
                    let product = gemm(&a, &b).schedule(schedule).panels(panels);
                    product.beta(0.5).relu().run(&mut c)?;
                }
                // Right behind the product: C's part, and A's place for something else.
                c.local().download()?;
                let [rows, cols] = [a.local().rows(), a.local().cols()];
                a.local_mut().upload(&Matrix::zeros(rows, cols))?;
                c.to_host()?;
            }
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
    let findings = soft::take_findings();
    assert!(findings.is_empty(), "{findings}");
}
