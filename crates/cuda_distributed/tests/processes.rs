//! Ranks in processes of their own: rendezvous, products, and processes that die or stop.
#![cfg(unix)]

mod common;

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{devices, integers};
use cuda_distributed::{DistributedMatrix, Distribution, Error, Schedule, Settings, World, gemm};
use cuda_gemm::{DeviceMatrix, Matrix, soft, soft_cuda};

/// What a child process does.
const ROLE: &str = "CUDA_DISTRIBUTED_TEST_ROLE";

/// The timeout of worlds in which a rank is lost.
const TIMEOUT: Duration = Duration::from_millis(1500);

fn settings(timeout: Duration) -> Settings {
    Settings { timeout, ..Settings::default() }
}

/// A product with traffic in both schedules.
fn product(world: &World) -> Result<Matrix, Error> {
    let (a, b) = (integers(6, 8, 1), integers(8, 4, 2));
    let a = DistributedMatrix::<f32>::from_host(world.clone(), &a, Distribution::Columns)?;
    let b = DistributedMatrix::<f32>::from_host(world.clone(), &b, Distribution::Rows)?;
    let mut c = DistributedMatrix::<f32>::zeros(world.clone(), [6, 4], Distribution::Rows)?;
    gemm(&a, &b).schedule(Schedule::Gather).run(&mut c)?;
    gemm(&a, &b).schedule(Schedule::Reduce).beta(1.0).run(&mut c)?;
    c.to_host()
}

/// The work of a child process; nothing in the test's own process.
#[test]
fn a_rank() {
    let Ok(role) = env::var(ROLE) else { return };
    let join = |timeout| World::from_environment(&settings(timeout));
    match &*role {
        "multiplies" => {
            let world = join(Duration::from_secs(20)).unwrap();
            let c = product(&world).unwrap();
            println!("result {:?}", c.as_slice());
        }
        "multiplies until the end" => {
            let world = join(TIMEOUT).unwrap();
            product(&world).unwrap();
            println!("ready");
            let start = Instant::now();
            let error = loop {
                if let Err(error) = product(&world) {
                    break error;
                }
                assert!(start.elapsed() < Duration::from_secs(20), "no rank was lost");
            };
            println!("result {error}");
        }
        "has no memory" => {
            let total_memory = 64 << 20;
            let config = soft_cuda::Config { total_memory, ..soft::default_config() };
            soft::configure(config).unwrap();
            let world = join(Duration::from_secs(20)).unwrap();
            let (a, b) = (integers(64, 64, 1), integers(64, 64, 2));
            let [rows, columns] = [Distribution::Rows, Distribution::Columns];
            let a = DistributedMatrix::<f32>::from_host(world.clone(), &a, rows).unwrap();
            let b = DistributedMatrix::<f32>::from_host(world.clone(), &b, columns).unwrap();
            let mut c = DistributedMatrix::<f32>::zeros(world.clone(), [64, 64], rows).unwrap();
            let mut kept = Vec::new();
            let mut words = if world.rank() == 1 { 8 << 20 } else { 0 };
            while words > 64 {
                match DeviceMatrix::<f32>::zeros(world.device(), [1, words]) {
                    Ok(matrix) => kept.push(matrix),
                    Err(_) => words /= 2,
                }
            }
            println!("result {}", gemm(&a, &b).run(&mut c).unwrap_err());
            // The world goes on, with memory.
            drop(kept);
            gemm(&a, &b).run(&mut c).unwrap();
        }
        "joins" => match join(Duration::from_secs(2)) {
            Ok(world) => {
                println!("result {:?}", world.barrier().map_err(|error| error.to_string()))
            }
            Err(error) => println!("result {error}"),
        },
        role => panic!("there is no role {role}"),
    }
}

struct Rank {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Rank {
    /// The next line with this beginning, without it.
    fn line(&mut self, beginning: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            // The harness writes the name of the test before the first line.
            if let Some(at) = line.find(beginning) {
                return line[at + beginning.len()..].trim().to_owned();
            }
            all += &line;
            assert!(read > 0, "no line {beginning}: {all}");
        }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn place() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    env::temp_dir().join(format!("cuda_distributed-{}-{count}", std::process::id()))
}

/// A process, as a launcher starts it.
fn start(role: &str, rank: usize, size: usize, place: &str, job: &str) -> Rank {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["a_rank", "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
    command.env("LOCAL_RANK", rank.to_string()).env("TORCHELASTIC_RUN_ID", job);
    command.env("CUDA_DISTRIBUTED_RENDEZVOUS", place).env("CUDA_VISIBLE_DEVICES", "");
    command.env("RUST_BACKTRACE", "0");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    Rank { child, output }
}

fn world(role: &str, size: usize) -> Vec<Rank> {
    let place = format!("file:{}", place().display());
    (0..size).map(|rank| start(role, rank, size, &place, "a job")).collect()
}

#[test]
fn processes_multiply_as_threads_do() {
    let mut ranks = world("multiplies", 3);
    let one = World::run(&devices(1), &Settings::default(), |world| product_on_one(&world));
    let one = one.into_iter().next().unwrap().unwrap();
    for rank in &mut ranks {
        assert_eq!(rank.line("result "), format!("{:?}", one.as_slice()));
        assert!(rank.child.wait().unwrap().success());
    }
}

/// Twice the product, on one rank.
fn product_on_one(world: &World) -> Result<Matrix, Error> {
    let (a, b) = (integers(6, 8, 1), integers(8, 4, 2));
    let of = |whole: &Matrix| {
        DistributedMatrix::<f32>::from_host(world.clone(), whole, Distribution::Rows)
    };
    let (a, b) = (of(&a)?, of(&b)?);
    let mut c = DistributedMatrix::<f32>::zeros(world.clone(), [6, 4], Distribution::Rows)?;
    gemm(&a, &b).alpha(2.0).run(&mut c)?;
    c.to_host()
}

/// Each rank's last line after one process got a signal.
fn after(signal: &str, lost: usize) {
    let mut ranks = world("multiplies until the end", 3);
    ranks.iter_mut().for_each(|rank| _ = rank.line("ready"));
    let start = Instant::now();
    ranks[lost].signal(signal);
    for (i, rank) in ranks.iter_mut().enumerate().filter(|(i, _)| *i != lost) {
        let text = rank.line("result ");
        assert!(text.contains(&format!("rank {lost} ")), "rank {i} after {signal}: {text}");
        assert!(text.contains("start all ranks again"), "{text}");
    }
    // The timeout, a quarter more, and time for a busy machine.
    assert!(start.elapsed() < 3 * TIMEOUT, "{:?}", start.elapsed());
}

#[test]
fn a_killed_rank_is_named() {
    after("-KILL", 2);
}

#[test]
fn a_killed_rank_0_is_named() {
    after("-KILL", 0);
}

#[test]
fn a_stopped_rank_is_named() {
    after("-STOP", 1);
}

#[test]
fn a_stopped_rank_0_is_named() {
    after("-STOP", 0);
}

#[test]
fn too_little_memory_on_one_rank_is_an_error_on_both() {
    let mut ranks = world("has no memory", 2);
    let [first, second] = [0, 1].map(|rank| ranks[rank].line("result "));
    assert!(second.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{second}");
    assert!(first.contains("rank 1 cannot take part: allocating device memory"), "{first}");
    ranks.iter_mut().for_each(|rank| assert!(rank.child.wait().unwrap().success()));
}

#[test]
fn a_rendezvous_has_each_rank_of_one_job_once() {
    // An address, which the second process meets when it is there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut ranks: Vec<_> = [1, 0].map(|rank| start("joins", rank, 2, &address, "")).into();
    ranks.iter_mut().for_each(|rank| assert_eq!(rank.line("result "), "Ok(())"));

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let text = start("joins", 0, 2, &taken, "").line("result ");
    assert!(text.contains(&taken) && text.contains("no other program"), "{text}");

    let place = format!("file:{}", place().display());
    let mut first = start("joins", 0, 3, &place, "a job");
    for (rank, size, job, expected) in
        [(1, 3, "another job", "belongs to job `a job`"), (1, 2, "a job", "a world of 3 ranks")]
    {
        let text = start("joins", rank, size, &place, job).line("result ");
        assert!(text.contains(expected), "{text}");
    }
    let text = first.line("result ");
    assert!(text.contains("rank 1 did not come within 2 s"), "{text}");
    let mut rest = String::new();
    first.output.read_to_string(&mut rest).unwrap();
}
